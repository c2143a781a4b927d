//! The project file `.sandpen/config.toml`: input from strangers, without effect until the user trusts its exact content.

use std::fs;
use std::path::{Path, PathBuf};

use super::file;
use super::read::Language;
use super::settings::Settings;
use super::sourced::Origin;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::untrusted;

/// A project file larger than this is no configuration.
const LARGEST: u64 = 1 << 20;

/// A project file as found: its content was read once, and that content is what is judged and used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    directory: HostPath,
    content: String,
}

impl ProjectFile {
    /// The project file of the current directory, or of the nearest directory above it that has one, up to the repository's root.
    pub fn find(host: &Host) -> Result<Option<Self>> {
        for directory in host.cwd.as_path().ancestors() {
            let directory = HostPath::new(directory).map_err(|error| Error::usage(error.to_string()))?;
            if let Some(file) = Self::read(&directory)? {
                return Ok(Some(file));
            }
            if directory == host.home || directory.as_path().join(".git").exists() {
                break;
            }
        }
        Ok(None)
    }

    /// The project file of this very directory.
    pub fn read(directory: &HostPath) -> Result<Option<Self>> {
        let path = directory.as_path().join(".sandpen/config.toml");
        let content = match untrusted::read(&path, LARGEST) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                return Err(Error::usage(format!("`{}` is not a text file of at most 1 MiB", path.display())));
            }
            Err(_) => return Ok(None),
        };
        Ok(Some(ProjectFile { directory: directory.clone(), content }))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.as_path().join(".sandpen/config.toml")
    }

    /// Whether the user trusted exactly this content at exactly this place.
    pub fn is_trusted(&self, host: &Host) -> bool {
        fs::read(pin(host, &self.directory)).is_ok_and(|pinned| pinned == self.content.as_bytes())
    }

    /// What it says. Relative paths are taken from the project's directory.
    pub fn settings(&self) -> Result<Settings> {
        let path = self.path();
        let name = path.display().to_string();
        file::parse(&self.content, Language::Toml, &name, Some(self.directory.as_path()), &Origin::Config(path))
    }
}

/// Where the trusted content of a directory's project file is kept: a copy, so that no digest is needed to compare.
fn pin(host: &Host, directory: &HostPath) -> PathBuf {
    let below = directory.as_path().strip_prefix("/").unwrap_or(Path::new(""));
    host.state_dir().as_path().join("trust").join(below).join("config.toml")
}

/// Pins the present content of a directory's project file. Returns the file's path.
pub fn trust(host: &Host, directory: Option<&Path>) -> Result<PathBuf> {
    let directory = match directory {
        Some(directory) => host.expand(directory),
        None => host.cwd.as_path().to_owned(),
    };
    let directory = directory
        .canonicalize()
        .map_err(|error| {
            Error::usage(format!("`{}` is not a directory that can be entered", directory.display())).cause(error)
        })
        .and_then(|path| HostPath::new(path).map_err(|error| Error::usage(error.to_string())))?;
    let file = ProjectFile::read(&directory)?.ok_or_else(|| {
        Error::usage(format!(
            "there is no project file `{}`",
            directory.as_path().join(".sandpen/config.toml").display()
        ))
    })?;
    // A file that does not parse cannot be what the user means to trust.
    file.settings()?;
    let pin = pin(host, &directory);
    let write = || -> std::io::Result<()> {
        if let Some(parent) = pin.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&pin, &file.content)
    };
    write().map_err(|error| {
        Error::failed(format!("the decision cannot be recorded in `{}`", pin.display())).cause(error)
    })?;
    Ok(file.path())
}
