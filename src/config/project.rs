//! The project file `.sandpen/config.toml`: input from strangers, without effect until the user trusts its exact content.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::file;
use super::read::Language;
use super::settings::Settings;
use super::sourced::Origin;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

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
            Err(error) if error.kind() == ErrorKind::InvalidData => {
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

    /// Whether the user trusted another content at this place, and what that said.
    pub fn trusted_before(&self, host: &Host) -> Option<Settings> {
        let content = fs::read_to_string(pin(host, &self.directory)).ok()?;
        ProjectFile { content, ..self.clone() }.settings().ok()
    }

    /// Lets it take effect with exactly the content that was read.
    pub fn trust(&self, host: &Host) -> Result<()> {
        let pin = pin(host, &self.directory);
        let write = || -> std::io::Result<()> {
            pin.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&pin, &self.content)
        };
        write().map_err(|error| {
            Error::failed(format!("the decision cannot be recorded in `{}`", pin.display())).cause(error)
        })
    }
}

/// Takes the trust in a directory's project file back; whether there was any.
pub fn revoke(host: &Host, directory: &HostPath) -> Result<bool> {
    let pin = pin(host, directory);
    match fs::remove_file(&pin) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(Error::failed(format!("`{}` cannot be removed", pin.display())).cause(error)),
    }
}

/// The directories whose project files were trusted, sorted.
pub fn trusted(host: &Host) -> Vec<HostPath> {
    fn look(pins: &Path, place: &Path, found: &mut Vec<HostPath>) {
        for entry in fs::read_dir(pins).into_iter().flatten().flatten() {
            let kind = entry.file_type();
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                look(&entry.path(), &place.join(entry.file_name()), found);
            } else if entry.file_name() == PIN {
                found.extend(HostPath::new(place));
            }
        }
    }
    let mut found = Vec::new();
    look(host.state_dir().join("trust").as_path(), Path::new("/"), &mut found);
    found.sort();
    found
}

/// The name of a pin in the directory that stands for the project's.
const PIN: &str = "config.toml";

/// Where the trusted content of a directory's project file is kept: a copy, so that no digest is needed to compare, and so that it
/// can be told what has changed.
fn pin(host: &Host, directory: &HostPath) -> PathBuf {
    let below = directory.as_path().strip_prefix("/").unwrap_or(Path::new(""));
    host.state_dir().as_path().join("trust").join(below).join(PIN)
}
