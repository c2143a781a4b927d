//! Looks at the directories that a workspace may consist of. `plan::workspace` decides which are
//! used.

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
    /// Keeps the order in which the directories were named.
    pub includes: Vec<IncludeFacts>,
    /// The uid that owns the working directory.
    pub owner: u32,
}

/// One directory that `--include-dir` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IncludeFacts {
    pub path: HostPath,
    /// `None` if the path does not exist.
    pub fact: Option<FileFact>,
    /// The repository whose root is this directory.
    pub repository: Search,
}

impl RootFacts {
    pub fn look(host: &Host, includes: Vec<HostPath>) -> Self {
        let includes = includes.into_iter().map(|path| {
            let fact = examine(&path);
            let repository = fact.as_ref().map_or(Search::Nothing, |fact| Search::at(&fact.real));
            let repository = repository.refuse_foreign(host);
            IncludeFacts { path, fact, repository }
        });
        RootFacts {
            around: Search::around(&host.cwd).refuse_foreign(host),
            includes: includes.collect(),
            owner: examine(&host.cwd).map_or(host.uid, |fact| fact.uid),
        }
    }
}
