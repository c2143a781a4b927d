//! `sandpen build`: builds the project's `sandbox.Dockerfile`, a named Dockerfile, or an agent's image.

use crate::cli::Build;
use crate::config::{Origin, parse_value, preset};
use crate::error::Result;
use crate::host::Host;
use crate::plan::questions::Purpose;
use crate::process::Outcome;
use crate::resolve::Resolved;
use crate::resolve::build::{self, Recipe};
use crate::ui::Ui;

pub fn run(arguments: Build, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let resolved = Resolved::on(Host::read()?, &arguments.options, Vec::new(), Purpose::BuildImage)?;
    let (host, config) = (&resolved.host, &resolved.config);
    let agent = config.agent.as_ref().filter(|agent| agent.value != preset::NONE);
    let (recipe, image) = match (&arguments.file, agent) {
        (Some(file), _) => Recipe::of_file(host, file)?,
        (None, Some(agent)) => Recipe::of_agent(host, agent)?,
        (None, None) => Recipe::of_project(host)?,
    };
    let tag = arguments.tag.as_deref().filter(|tag| !tag.is_empty());
    let tag = tag.map(|tag| parse_value(tag, Origin::Flag("--tag"))).transpose()?;
    let image = tag.or(config.image.clone()).map_or(image, |image| image.value);
    build::run(resolved.inputs(), &recipe, &image, ui)?;
    ui.notice(&format!("built {image}; run it with: sandpen run --image {image} -- CMD"));
    Ok(Outcome::Exited(0))
}
