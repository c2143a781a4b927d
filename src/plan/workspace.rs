//! Decides which directories the guest works in, and refuses those that contain too much, such as
//! `/` or HOME.

use std::path::Path;

use serde::Serialize;

use crate::config::Config;
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::git::repository::{Repository, Search};
use crate::facts::{FileFact, FileKind, RootFacts};
use crate::host::Host;
use crate::path::{HostPath, PathError};

/// The directories that the guest works in, as real paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// The current directory of the command.
    pub workdir: HostPath,
    /// The repository that contains `workdir`, if it is mounted.
    pub repository: Option<Repository>,
    /// The reason for which the repository that contains `workdir` is not mounted.
    pub refused_repository: Option<String>,
    /// The directory whose `.git` file names a repository that is not used.
    pub unconfirmed: Option<HostPath>,
    /// The directories that `--include-dir` adds.
    pub includes: Vec<HostPath>,
    /// Repositories whose root is an included directory.
    pub included_repositories: Vec<Repository>,
    /// The uid that owns the working directory.
    pub owner: u32,
}

/// Directories that every sandbox has of its own, so that the host's cannot be mounted there.
const PROVIDED: &[&str] = &["/etc", "/dev", "/proc", "/sys"];

/// `name` is the option and its value, `what` the role of the directory.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{name} cannot be used")]
    BadPath { name: String, source: PathError },
    #[error("{name} is not a directory")]
    NotADirectory { name: String },
    #[error("{name} is a link out of the workspace, and the guest could have created it")]
    LinkOut { name: String, target: HostPath },
    #[error("{what} is `/`: a sandbox over the whole host protects nothing")]
    WholeHost { what: &'static str },
    #[error("{what} is `{directory}`, which every sandbox has of its own")]
    Provided { what: &'static str, directory: HostPath },
    #[error("{what} `{directory}` contains your whole home directory, including keys and credentials")]
    WholeHome { what: &'static str, directory: HostPath },
    #[error("{what} `{directory}` contains sandpen's configuration, which the guest must not change")]
    OwnFiles { what: &'static str, directory: HostPath },
}

impl Diagnostic for WorkspaceError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::BadPath { .. } | Self::NotADirectory { .. } => Vec::new(),
            Self::LinkOut { target, .. } => {
                vec![format!("to include it anyway, name its target: --include-dir {target}")]
            }
            Self::WholeHost { .. } | Self::Provided { .. } => vec!["change to the directory of your project".into()],
            Self::WholeHome { .. } | Self::OwnFiles { .. } => {
                vec!["change to the directory of your project, or pass --allow-home".into()]
            }
        }
    }
}

/// Lists the directories that `--include-dir` names, for the facts to look at.
pub fn include_paths(host: &Host, config: &Config) -> Result<Vec<HostPath>> {
    let paths = config.include_dirs.iter().map(|dir| {
        let name = || format!("{}: `{}`", dir.origin, dir.value.display());
        HostPath::new(host.expand(&dir.value)).map_err(|source| WorkspaceError::BadPath { name: name(), source }.into())
    });
    paths.collect()
}

impl Workspace {
    /// Checks the directories that were found.
    pub fn decide(host: &Host, config: &Config, facts: &RootFacts) -> Result<Self> {
        let workdir = host.cwd.clone();
        refuse_wide(host, config, &workdir, "the working directory")?;
        let is_wide = |directory: &HostPath| refuse_wide(host, config, directory, "").is_err();
        let (repository, refused_repository) = match &facts.around {
            Search::Nothing => (None, None),
            Search::Found(found) if is_wide(&found.root) => {
                (None, Some(format!("its root `{}` contains too much to be mounted", found.root)))
            }
            Search::Found(found) if is_wide(&found.common_dir) => {
                (None, Some(format!("its Git directory `{}` contains too much to be mounted", found.common_dir)))
            }
            Search::Found(found) => (Some(found.clone()), None),
            Search::Unconfirmed { at, reason, .. } => {
                (None, Some(format!("the `.git` in `{at}` is not followed: {reason}")))
            }
        };
        let unconfirmed = match &facts.around {
            Search::Unconfirmed { at, is_file: true, .. } => Some(at.clone()),
            _ => None,
        };
        let (mut includes, mut included_repositories) = (Vec::new(), Vec::new());
        for (asked, found) in config.include_dirs.iter().zip(&facts.includes) {
            let name = || format!("{}: `{}`", asked.origin, asked.value.display());
            let fact = found.fact.as_ref().filter(|fact| fact.kind == FileKind::Directory);
            let fact = fact.ok_or_else(|| WorkspaceError::NotADirectory { name: name() })?;
            let root = repository.as_ref().map_or(&workdir, |repository| &repository.root);
            if fact.is_chosen_in(std::iter::once(root).chain(&includes)) {
                return Err(WorkspaceError::LinkOut { name: name(), target: fact.real.clone() }.into());
            }
            refuse_wide(host, config, &fact.real, "the included directory")?;
            if let Search::Found(repository) = &found.repository
                && !is_wide(&repository.common_dir)
            {
                included_repositories.push(repository.clone());
            }
            includes.push(fact.real.clone());
        }
        let owner = facts.owner;
        Ok(Workspace { workdir, repository, refused_repository, unconfirmed, includes, included_repositories, owner })
    }

    /// Returns the root of the repository, or the working directory without one.
    pub fn root(&self) -> &HostPath {
        self.repository.as_ref().map_or(&self.workdir, |repository| &repository.root)
    }

    /// Iterates over the root and the included directories.
    pub fn trees(&self) -> impl Iterator<Item = &HostPath> {
        std::iter::once(self.root()).chain(&self.includes)
    }

    /// Iterates over all directories that the guest may write to: the root, included directories,
    /// and Git directories outside of them.
    pub fn writable(&self) -> impl Iterator<Item = &HostPath> {
        let workspaces = || self.trees();
        let kept = self.repositories().map(|repository| &repository.common_dir);
        workspaces().chain(kept.filter(move |kept| !workspaces().any(|root| kept.is_within(root))))
    }

    /// Tells whether the guest may write to a path.
    pub fn contains(&self, path: &HostPath) -> bool {
        self.writable().any(|root| path.is_within(root))
    }

    /// Tells whether a link that the guest may have created leads to a file that it does not have.
    pub fn is_chosen_inside(&self, fact: &FileFact) -> bool {
        let writable: Vec<HostPath> = self.writable().cloned().collect();
        fact.is_chosen_in(writable.iter())
    }

    /// Iterates over the repositories of the working directory and of included directories.
    pub fn repositories(&self) -> impl Iterator<Item = &Repository> {
        self.repository.iter().chain(&self.included_repositories)
    }
}

/// Refuses `/` always, and directories that contain HOME or sandpen's files unless `--allow-home`
/// is set.
fn refuse_wide(
    host: &Host,
    config: &Config,
    directory: &HostPath,
    what: &'static str,
) -> std::result::Result<(), WorkspaceError> {
    if directory.as_path().parent().is_none() {
        return Err(WorkspaceError::WholeHost { what });
    }
    if PROVIDED.iter().any(|path| directory.as_path() == Path::new(path)) {
        return Err(WorkspaceError::Provided { what, directory: directory.clone() });
    }
    if config.allow_home.value {
        return Ok(());
    }
    let directory = directory.clone();
    if host.home.is_within(&directory) {
        return Err(WorkspaceError::WholeHome { what, directory });
    }
    if host.keeps_files_in(&directory) {
        return Err(WorkspaceError::OwnFiles { what, directory });
    }
    Ok(())
}
