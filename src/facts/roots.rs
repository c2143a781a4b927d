//! The directories the sandbox is opened over: the working directory, the repository around it, further workspaces.

use serde::Serialize;

use super::files::{FileKind, examine};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan;

/// The workspace directories, as real paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roots {
    /// The current directory.
    pub workdir: HostPath,
    /// The root of the repository around it, if that is another directory.
    pub repository: Option<HostPath>,
    /// A repository root that is too wide to be mounted: `/`, or the home.
    pub refused_repository: Option<HostPath>,
    /// Further workspaces.
    pub includes: Vec<HostPath>,
    /// Who owns the working directory.
    pub owner: u32,
}

impl Roots {
    /// Finds them, and refuses what is too wide.
    pub fn find(host: &Host, config: &Config) -> Result<Self> {
        let workdir = host.cwd.clone();
        refuse_wide(host, config, &workdir, "the working directory")?;
        let repository = repository_root(&workdir);
        let (repository, refused_repository) = match repository {
            Some(root) if refuse_wide(host, config, &root, "").is_err() => (None, Some(root)),
            root => (root, None),
        };
        let mut includes = Vec::new();
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
            includes.push(fact.real);
        }
        let owner = examine(&workdir).map_or(host.uid, |fact| fact.uid);
        Ok(Roots { workdir, repository, refused_repository, includes, owner })
    }

    /// The directory that is mounted for the working directory.
    pub fn workspace(&self) -> &HostPath {
        self.repository.as_ref().unwrap_or(&self.workdir)
    }

    /// All workspace directories.
    pub fn all(&self) -> impl Iterator<Item = &HostPath> {
        std::iter::once(self.workspace()).chain(&self.includes)
    }
}

/// `/` is never mounted; the home, or a directory above it, only when the user permits it.
fn refuse_wide(host: &Host, config: &Config, directory: &HostPath, what: &str) -> Result<()> {
    if directory.as_path().parent().is_none() {
        return Err(Error::usage(format!("{what} is `/`: a sandbox over the whole host protects nothing"))
            .hint("change to the directory of your project"));
    }
    if host.home.is_within(directory) && !config.allow_home {
        return Err(Error::usage(format!("{what} `{directory}` contains your whole home: keys, credentials and all"))
            .hint("change to the directory of your project, or pass --allow-home if you mean it"));
    }
    if plan::contains_own_files(host, directory) && !config.allow_home {
        return Err(Error::usage(format!(
            "{what} `{directory}` holds sandpen's own configuration, which the guest must not change"
        ))
        .hint("change to the directory of your project, or pass --allow-home if you mean it"));
    }
    Ok(())
}

/// The nearest directory above with a `.git` directory. A `.git` *file* names another place and is never followed here.
fn repository_root(workdir: &HostPath) -> Option<HostPath> {
    for directory in workdir.as_path().ancestors() {
        match directory.join(".git").symlink_metadata() {
            Ok(meta) if meta.is_dir() => return HostPath::new(directory).ok().filter(|root| root != workdir),
            Ok(_) => return None,
            Err(_) => {}
        }
    }
    None
}
