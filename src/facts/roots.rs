//! Looks at the directories that a sandbox may be opened over. `plan::workspace` decides which of them are.

use serde::Serialize;

use super::files::{FileFact, examine};
use super::git::repository::Search;
use crate::host::Host;
use crate::path::HostPath;

/// The working directory, the repository around it, and the directories that `--include-dir` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootFacts {
    /// The result of the search from the working directory upwards.
    pub around: Search,
    /// The included directories, in the order in which they were asked about.
    pub includes: Vec<IncludeFacts>,
    /// The uid that owns the working directory.
    pub owner: u32,
}

/// One directory that `--include-dir` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IncludeFacts {
    pub path: HostPath,
    /// `None` when nothing is there.
    pub fact: Option<FileFact>,
    /// The repository that begins exactly there.
    pub repository: Search,
}

impl RootFacts {
    pub fn look(host: &Host, includes: Vec<HostPath>) -> Self {
        let includes = includes.into_iter().map(|path| {
            let fact = examine(&path);
            let repository = fact.as_ref().map_or(Search::Nothing, |fact| Search::at(&fact.real));
            IncludeFacts { path, fact, repository }
        });
        RootFacts {
            around: Search::around(&host.cwd),
            includes: includes.collect(),
            owner: examine(&host.cwd).map_or(host.uid, |fact| fact.uid),
        }
    }
}
