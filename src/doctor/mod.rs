//! Judges what a sweep of the host found: which engines work, what `run` would do with them, and the one command that helps. Pure;
//! the plan it judges is the one that `explain` shows.

mod engines;
mod files;
mod inside;
mod report;

pub use report::{Check, Report, State};

use report::Group;

use crate::config::Config;
use crate::config::check::FoundFile;
use crate::engine::Launch;
use crate::error::Error;
use crate::facts::Facts;
use crate::facts::checkup::Checkup;
use crate::facts::image::Inspection;
use crate::host::Host;
use crate::manage::Leftovers;
use crate::plan::Plan;

/// What `run` would do.
pub struct Planned {
    /// The options.
    pub config: Config,
    /// The facts.
    pub facts: Facts,
    /// The plan.
    pub plan: Plan,
    /// What the engine makes of it.
    pub launch: Launch,
    /// The image, for containers that can be asked.
    pub image: Option<Inspection>,
}

/// Everything that is judged.
pub struct Patient<'a> {
    /// The host.
    pub host: &'a Host,
    /// What `run` would do, or why it would stop before it had a plan.
    pub planned: Result<&'a Planned, &'a Error>,
    /// All engines.
    pub checkup: &'a Checkup,
    /// The configuration files.
    pub files: &'a [FoundFile],
    /// What is left over.
    pub leftovers: Leftovers,
}

impl Patient<'_> {
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
