//! Judges what a sweep of the host found: which engines work, what `run` would do with them, and the one command that helps. Pure;
//! the plan it judges is the one that `explain` shows.

mod engines;
mod files;
mod inside;
mod report;

pub use report::{Check, Report, State};

use report::Group;

use crate::cli::{Doctor, Format};
use crate::config::check;
use crate::config::check::FoundFile;
use crate::error::{Error, Result};
use crate::facts;
use crate::facts::engines::checkup::Checkup;
use crate::host::Host;
use crate::process::Outcome;
use crate::resolve::Planned;
use crate::resolve::Resolved;
use crate::session::cleanup::{self, Leftovers};
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// Plans as `explain` does, asks all engines, and judges. Starts nothing and writes nothing.
pub fn run(arguments: Doctor, ui: Ui) -> Result<Outcome> {
    let mut host = Host::read()?;
    if let Some(platform) = arguments.options.assume_host {
        host.platform = platform;
    }
    let agent =
        arguments.options.agent.clone().or(arguments.guest.first().and_then(|name| name.to_str().map(str::to_owned)));
    let resolved = Resolved::read(&arguments.options, arguments.guest);
    let path = resolved.as_ref().map_or_else(|_| facts::search_path(&host), |resolved| resolved.facts.path.clone());
    let waiting = Progress::start(ui, "the engines to answer");
    let checkup = Checkup::look(&host, &path);
    drop(waiting);
    let planned = resolved.and_then(|resolved| resolved.for_doctor(&checkup, ui));
    let files = check::files(&host, &arguments.options, agent.as_deref());
    let leftovers = cleanup::leftovers(&host);
    let report =
        DoctorInput { host: &host, planned: planned.as_ref(), checkup: &checkup, files: &files, leftovers }.judge();
    let text = if arguments.format == Format::Json { report.json()? } else { report.text() };
    super::print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.is_ready())))
}

/// Everything that is judged.
pub struct DoctorInput<'a> {
    /// The host.
    pub host: &'a Host,
    /// What `run` would do, or why it would stop before it had a plan.
    pub planned: std::result::Result<&'a Planned, &'a Error>,
    /// All engines.
    pub checkup: &'a Checkup,
    /// The configuration files.
    pub files: &'a [FoundFile],
    /// What is left over.
    pub leftovers: Leftovers,
}

impl DoctorInput<'_> {
    /// The judgement.
    pub fn judge(&self) -> Report {
        let mut checks = Vec::new();
        match self.planned {
            Ok(planned) => checks.extend(self.sandbox(planned)),
            // A file's mistake is told with the file.
            Err(error) if self.files.iter().any(|file| file.error.as_ref() == Some(error)) => {
                checks.push(Check::new(Group::Sandbox, State::Note, "engine", "not chosen: see Configuration below"));
            }
            Err(error) => checks.push(Check::of(Group::Sandbox, State::Problem, "options", error)),
        }
        checks.extend(self.engines());
        checks.extend(self.kernel());
        if let Ok(planned) = self.planned {
            checks.extend(inside::ssh(planned));
            checks.extend(inside::git(planned));
        }
        checks.extend(files::configuration(self.files));
        checks.extend(files::leftovers(&self.leftovers));
        Report { engine: self.planned.ok().map(|planned| planned.plan.engine.kind.name()), checks }
    }
}
