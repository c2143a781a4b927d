//! Decides which directories the sandbox is opened over, and refuses those that are too wide.

use serde::Serialize;

use crate::config::Config;
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::git::repository::{Repository, Search};
use crate::facts::{FileKind, RootFacts};
use crate::host::Host;
use crate::path::{HostPath, PathError};

/// The directories that the guest works in, as real paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// The current directory.
    pub workdir: HostPath,
    /// The repository around it.
    pub repository: Option<Repository>,
    /// Why a repository around it is not mounted.
    pub refused_repository: Option<String>,
    /// The directories that `--include-dir` adds.
    pub includes: Vec<HostPath>,
    /// The repositories that begin at included directories.
    pub included_repositories: Vec<Repository>,
    /// The uid that owns the working directory.
    pub owner: u32,
}

/// Why a directory cannot be part of the workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    #[error("{name} cannot be used")]
    BadPath { name: String, source: PathError },
    #[error("{name} is not a directory")]
    NotADirectory { name: String },
    #[error("{name} is a link out of the working directory")]
    LinkOut { name: String, target: HostPath },
    #[error("{what} is `/`: a sandbox over the whole host protects nothing")]
    WholeHost { what: &'static str },
    #[error("{what} `{directory}` contains your whole home: keys, credentials and all")]
    WholeHome { what: &'static str, directory: HostPath },
    #[error("{what} `{directory}` holds sandpen's own configuration, which the guest must not change")]
    OwnFiles { what: &'static str, directory: HostPath },
}

impl Diagnostic for WorkspaceError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::BadPath { .. } | Self::NotADirectory { .. } => Vec::new(),
            Self::LinkOut { target, .. } => vec![format!("if it is meant, name its target: --include-dir {target}")],
            Self::WholeHost { .. } => vec!["change to the directory of your project".into()],
            Self::WholeHome { .. } | Self::OwnFiles { .. } => {
                vec!["change to the directory of your project, or pass --allow-home if you mean it".into()]
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
    /// Takes the directories that were found, unless they are too wide or lead out of the working directory.
    pub fn decide(host: &Host, config: &Config, facts: &RootFacts) -> Result<Self> {
        let workdir = host.cwd.clone();
        refuse_wide(host, config, &workdir, "the working directory")?;
        let is_wide = |directory: &HostPath| refuse_wide(host, config, directory, "").is_err();
        let (repository, refused_repository) = match &facts.around {
            Search::Nothing => (None, None),
            Search::Found(found) if is_wide(&found.root) => {
                (None, Some(format!("it begins at `{}`, which is too wide to mount", found.root)))
            }
            Search::Found(found) if is_wide(&found.common_dir) => {
                (None, Some(format!("it is kept in `{}`, which is too wide to mount", found.common_dir)))
            }
            Search::Found(found) => (Some(found.clone()), None),
            Search::Unconfirmed { at, reason } => {
                (None, Some(format!("the `.git` in `{at}` is not followed: {reason}")))
            }
        };
        let (mut includes, mut included_repositories) = (Vec::new(), Vec::new());
        for (asked, found) in config.include_dirs.iter().zip(&facts.includes) {
            let name = || format!("{}: `{}`", asked.origin, asked.value.display());
            let fact = found.fact.as_ref().filter(|fact| fact.kind == FileKind::Directory);
            let fact = fact.ok_or_else(|| WorkspaceError::NotADirectory { name: name() })?;
            if found.path.is_within(&workdir) && !fact.real.is_within(&workdir) {
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
        Ok(Workspace { workdir, repository, refused_repository, includes, included_repositories, owner })
    }

    /// Returns the directory that is mounted for the working directory: the repository's root, or itself.
    pub fn root(&self) -> &HostPath {
        self.repository.as_ref().map_or(&self.workdir, |repository| &repository.root)
    }

    /// Iterates over all directories that the guest may write to: the workspaces, and where their repositories are kept.
    pub fn writable(&self) -> impl Iterator<Item = &HostPath> {
        let workspaces = || std::iter::once(self.root()).chain(&self.includes);
        let kept = self.repositories().map(|repository| &repository.common_dir);
        workspaces().chain(kept.filter(move |kept| !workspaces().any(|root| kept.is_within(root))))
    }

    /// Tells whether a path is part of what the guest may write to.
    pub fn contains(&self, path: &HostPath) -> bool {
        self.writable().any(|root| path.is_within(root))
    }

    /// Iterates over the repositories at the workspaces.
    pub fn repositories(&self) -> impl Iterator<Item = &Repository> {
        self.repository.iter().chain(&self.included_repositories)
    }
}

/// Refuses `/` always, and the home, or a directory above it, unless the user permits it.
fn refuse_wide(
    host: &Host,
    config: &Config,
    directory: &HostPath,
    what: &'static str,
) -> std::result::Result<(), WorkspaceError> {
    if directory.as_path().parent().is_none() {
        return Err(WorkspaceError::WholeHost { what });
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
