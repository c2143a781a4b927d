//! `sandpen doctor`: checks the engines, and whether `run` could start with the given options. It
//! starts no sandbox and writes nothing; the plan it checks is the one that `explain` shows.

mod check;
mod cluster;
mod engines;
mod error;
mod files;
mod inside;
mod kernel;
mod sandbox;

use check::{Check, Group};

use super::report::{Report, State};
use crate::cli::{Doctor, Format};
use crate::config::check::{self as config_check, FoundFile};
use crate::error::{Error, Result};
use crate::facts;
use crate::facts::engines::checkup::Checkup;
use crate::host::Host;
use crate::process::Outcome;
use crate::resolve::{Planned, Resolved};
use crate::session::cleanup::{self, Leftovers};
use crate::ui::Ui;
use crate::ui::progress::Progress;

pub fn run(arguments: Doctor, ui: Ui) -> Result<Outcome> {
    let mut host = Host::read()?;
    if let Some(platform) = arguments.options.assume_host {
        host.platform = platform;
    }
    let agent =
        arguments.options.agent.clone().or(arguments.guest.first().and_then(|name| name.to_str().map(str::to_owned)));
    let resolved = Resolved::read(&arguments.options, arguments.guest);
    let path = resolved.as_ref().map_or_else(|_| facts::search_path(&host), |resolved| resolved.facts.path.clone());
    let progress = Progress::start(ui, "the engines to answer");
    let checkup = Checkup::look(&host, &path);
    drop(progress);
    let planned = resolved.and_then(|resolved| resolved.for_doctor(&checkup, ui));
    let files = config_check::files(&host, &arguments.options, agent.as_deref());
    let leftovers = cleanup::leftovers(&host);
    let input = DoctorInput { host: &host, planned: planned.as_ref(), checkup: &checkup, files: &files, leftovers };
    let report = input.report();
    let text = if arguments.format == Format::Json { check::json(&report)? } else { check::text(&report) };
    super::print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.passed())))
}

struct DoctorInput<'a> {
    host: &'a Host,
    /// The plan of `run`, or the error that stops it before it has a plan.
    planned: std::result::Result<&'a Planned, &'a Error>,
    checkup: &'a Checkup,
    files: &'a [FoundFile],
    leftovers: Leftovers,
}

impl DoctorInput<'_> {
    fn report(&self) -> Report<Check> {
        let mut lines = Vec::new();
        match self.planned {
            Ok(planned) => lines.extend(self.sandbox(planned)),
            // The configuration section reports the mistake of a file.
            Err(error) if self.files.iter().any(|file| file.error.as_ref() == Some(error)) => {
                lines.push(Check::new(Group::Sandbox, State::Note, "engine", "not chosen: see Configuration below"));
            }
            Err(error) => lines.push(Check::from_error(Group::Sandbox, State::Problem, "options", error)),
        }
        lines.extend(self.engines());
        lines.extend(self.kernel());
        if let Ok(planned) = self.planned {
            lines.extend(inside::ssh(planned));
            lines.extend(inside::git(planned));
        }
        lines.extend(files::configuration(self.files));
        lines.extend(files::leftovers(&self.leftovers));
        Report { engine: self.planned.ok().map(|planned| planned.plan.engine.kind.name()), lines }
    }
}
