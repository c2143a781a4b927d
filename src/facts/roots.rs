//! The directories the sandbox is opened over: the working directory, the repository around it, further workspaces.

use serde::Serialize;

use super::files::{FileKind, examine};
use super::git::repository::{Repository, Search};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;

/// The workspace directories, as real paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roots {
    /// The current directory.
    pub workdir: HostPath,
    /// The repository around it.
    pub repository: Option<Repository>,
    /// Why a repository around it is not shown.
    pub refused_repository: Option<String>,
    /// Further workspaces.
    pub includes: Vec<HostPath>,
    /// The repositories that begin at further workspaces.
    pub included_repositories: Vec<Repository>,
    /// Who owns the working directory.
    pub owner: u32,
}

impl Roots {
    /// Finds them, and refuses what is too wide.
    pub fn find(host: &Host, config: &Config) -> Result<Self> {
        let workdir = host.cwd.clone();
        refuse_wide(host, config, &workdir, "the working directory")?;
        let (repository, refused_repository) = match Search::around(&workdir) {
            Search::Nothing => (None, None),
            Search::Found(found) if refuse_wide(host, config, &found.root, "").is_err() => {
                (None, Some(format!("it begins at `{}`, which is too wide to mount", found.root)))
            }
            Search::Found(found) if refuse_wide(host, config, &found.common_dir, "").is_err() => {
                (None, Some(format!("it is kept in `{}`, which is too wide to mount", found.common_dir)))
            }
            Search::Found(found) => (Some(found), None),
            Search::Unconfirmed { at, reason } => {
                (None, Some(format!("the `.git` in `{at}` is not followed: {reason}")))
            }
        };
        let (mut includes, mut included_repositories) = (Vec::new(), Vec::new());
        for dir in &config.include_dirs {
            let name = || format!("{}: `{}`", dir.origin, dir.value.display());
            let path = HostPath::new(host.expand(&dir.value))
                .map_err(|error| Error::usage(format!("{} cannot be used", name())).cause(error))?;
            let fact = examine(&path).filter(|fact| fact.kind == FileKind::Directory);
            let fact = fact.ok_or_else(|| Error::usage(format!("{} is not a directory", name())))?;
            if path.is_within(&workdir) && !fact.real.is_within(&workdir) {
                return Err(Error::usage(format!("{} is a link out of the working directory", name()))
                    .hint(format!("if it is meant, name its target: --include-dir {}", fact.real)));
            }
            refuse_wide(host, config, &fact.real, "the included directory")?;
            if let Search::Found(repository) = Search::at(&fact.real)
                && refuse_wide(host, config, &repository.common_dir, "").is_ok()
            {
                included_repositories.push(repository);
            }
            includes.push(fact.real);
        }
        let owner = examine(&workdir).map_or(host.uid, |fact| fact.uid);
        Ok(Roots { workdir, repository, refused_repository, includes, included_repositories, owner })
    }

    /// The directory that is mounted for the working directory.
    pub fn workspace(&self) -> &HostPath {
        self.repository.as_ref().map_or(&self.workdir, |repository| &repository.root)
    }

    /// All directories that the guest may write to: the workspaces, and where their repositories are kept.
    pub fn all(&self) -> impl Iterator<Item = &HostPath> {
        let workspaces = || std::iter::once(self.workspace()).chain(&self.includes);
        let kept = self.repositories().map(|repository| &repository.common_dir);
        workspaces().chain(kept.filter(move |kept| !workspaces().any(|root| kept.is_within(root))))
    }

    /// The repositories at the workspaces.
    pub fn repositories(&self) -> impl Iterator<Item = &Repository> {
        self.repository.iter().chain(&self.included_repositories)
    }
}

/// `/` is never mounted; the home, or a directory above it, only when the user permits it.
fn refuse_wide(host: &Host, config: &Config, directory: &HostPath, what: &str) -> Result<()> {
    if directory.as_path().parent().is_none() {
        return Err(Error::usage(format!("{what} is `/`: a sandbox over the whole host protects nothing"))
            .hint("change to the directory of your project"));
    }
    if host.home.is_within(directory) && !config.allow_home.value {
        return Err(Error::usage(format!("{what} `{directory}` contains your whole home: keys, credentials and all"))
            .hint("change to the directory of your project, or pass --allow-home if you mean it"));
    }
    if host.keeps_files_in(directory) && !config.allow_home.value {
        return Err(Error::usage(format!(
            "{what} `{directory}` holds sandpen's own configuration, which the guest must not change"
        ))
        .hint("change to the directory of your project, or pass --allow-home if you mean it"));
    }
    Ok(())
}
