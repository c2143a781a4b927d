//! Decides the Git directories inside: private ones, or the host's with read-only hooks and
//! configuration. Also decides which files of the workspace Git on the host obeys, so that they are
//! read-only inside. Makes and reads nothing itself; `gate::repository` does.

mod fixed;
mod gate;
mod pin;
mod private;
mod watched;

use std::path::PathBuf;

use super::Draft;
use crate::config::value::{EngineKind, GitMode};
use crate::error::{Diagnostic, Kind, Result};
use crate::path::HostPath;
pub use fixed::{FixedFiles, configuration_files};
pub use gate::RepositoryGate;
pub use private::{PrivateGitDir, PrivateRepository, PrivateWorktree, inside};

/// The directory in the session's directory with a subdirectory for each repository.
pub const GIT: &str = "git";

#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error("{origin}: sandbox-exec cannot put a private Git directory in the place of the host's")]
    NotPrivate { origin: String },
}

impl Diagnostic for RepositoryError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        vec!["use `--git shared`, or a container: `--engine docker` or `--engine podman`".into()]
    }
}

impl Draft<'_> {
    /// Returns the mode in effect: Seatbelt has no mounts, so it always shares the host's Git
    /// directory.
    pub fn git_mode(&self) -> Result<GitMode> {
        let asked = &self.config.git;
        if self.engine != EngineKind::SandboxExec {
            return Ok(asked.value);
        }
        if asked.value == GitMode::Private && asked.is_asked_for() && !self.facts.git_dirs.is_empty() {
            return Err(RepositoryError::NotPrivate { origin: asked.origin.to_string() }.into());
        }
        Ok(GitMode::Shared)
    }
}

fn owned(path: &HostPath) -> PathBuf {
    path.as_path().to_owned()
}
