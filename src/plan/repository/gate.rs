//! Collects what passes between the sandbox and the host's repositories, for `gate::repository`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::fixed::{EmptySubmodule, FixedFiles};
use super::owned;
use super::private::PrivateRepository;
use crate::config::value::Access;
use crate::path::HostPath;
use crate::plan::Draft;
use crate::plan::entry::Source;

/// What passes between the sandbox and the host's repositories. It is saved in the session's
/// directory for the case that the launcher is killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryGate {
    /// Identifies the sandbox in refs and messages.
    pub id: String,
    /// Whether the guest is another user than the host's.
    pub is_other_user: bool,
    /// A directory outside of the session's, which is removed with it.
    #[serde(with = "crate::saved_path")]
    pub memory_dir: Option<PathBuf>,
    /// Private repositories; none if the host's are shared.
    pub repositories: Vec<PrivateRepository>,
    /// Directories of submodules that had no repository.
    pub empty_submodules: Vec<EmptySubmodule>,
    /// Files in the workspace that are read-only inside.
    #[serde(with = "crate::saved_path")]
    pub fixed: Vec<PathBuf>,
    /// Writable directories, in which the guest may create repositories.
    #[serde(with = "crate::saved_path")]
    pub roots: Vec<PathBuf>,
    /// The host's Git.
    #[serde(with = "crate::saved_path")]
    pub git: Option<PathBuf>,
    /// The PATH and the home directory for Git.
    #[serde(with = "crate::saved_path")]
    pub path: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub home: PathBuf,
    /// The directory for what cannot come out.
    #[serde(with = "crate::saved_path")]
    pub aside: PathBuf,
    /// Files and directories that tools on the host execute or obey.
    #[serde(with = "crate::saved_path")]
    pub watched: Vec<PathBuf>,
}

impl Draft<'_> {
    /// Collects what passes between the sandbox and the host's repositories.
    pub fn repository_gate(&self, repositories: Vec<PrivateRepository>, fixed: &FixedFiles) -> RepositoryGate {
        RepositoryGate {
            id: self.id.to_string(),
            is_other_user: !self.user.is_host_user(),
            memory_dir: self.repository_memory().filter(|_| !repositories.is_empty()).as_ref().map(owned),
            roots: self.searched_roots(&repositories, fixed),
            repositories,
            empty_submodules: fixed.empty_submodules.clone(),
            fixed: fixed.paths.iter().chain(&fixed.git_dirs).map(owned).collect(),
            git: self.facts.git.program.as_ref().map(owned),
            path: self.facts.path.for_host(),
            home: owned(&self.host.home),
            aside: owned(&self.host.state_dir().join("set-aside")),
            watched: self.watched(),
        }
    }

    /// Lists the directories in which the guest may create repositories.
    fn searched_roots(&self, private: &[PrivateRepository], fixed: &FixedFiles) -> Vec<PathBuf> {
        let is_bare = |root: &PathBuf| {
            private.iter().any(|repository| repository.common_dir == *root)
                || fixed.git_dirs.iter().any(|shared| shared.as_path() == root)
        };
        let trees = self.workspace.trees().map(owned).chain(self.writable_mounts());
        trees.filter(|root| !is_bare(root)).collect()
    }

    /// Lists the writable directories outside of the workspace.
    fn writable_mounts(&self) -> Vec<PathBuf> {
        let writable = self.mounts.iter().filter(|mount| mount.access == Access::Rw && mount.is_directory);
        let sources = writable.filter_map(|mount| match &mount.source {
            Source::Host(source) => Some(source),
            _ => None,
        });
        let memory = self.repository_memory();
        let is_session = |source: &HostPath| {
            source.is_within(self.session_dir) || memory.as_ref().is_some_and(|memory| source.is_within(memory))
        };
        sources
            .filter(|source| !is_session(source) && !self.workspace.writable().any(|root| source.is_within(root)))
            .map(owned)
            .collect()
    }
}
