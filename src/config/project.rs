//! The project file `.sandpen/config.toml`. It is untrusted input, and has no effect until the user
//! trusts its exact content.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::ConfigError;
use super::file;
use super::options::Settings;
use super::sourced::Origin;
use super::syntax::Language;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::untrusted;

/// A configuration file, profile or preset that is larger is refused.
pub(super) const MAX_FILE_SIZE: u64 = 1 << 20;

/// The content of a project file. It is read once, so that what the user judges is what is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    directory: HostPath,
    content: String,
}

impl ProjectFile {
    /// Finds the project file of the current directory, or of the nearest directory above it up to
    /// the repository's root.
    pub fn find(host: &Host) -> Result<Option<Self>, ConfigError> {
        for directory in host.cwd.as_path().ancestors() {
            let directory = HostPath::new(directory)?;
            if let Some(file) = Self::read(&directory)? {
                return Ok(Some(file));
            }
            if directory == host.home || directory.as_path().join(".git").exists() {
                break;
            }
        }
        Ok(None)
    }

    /// Reads the project file of one directory.
    pub fn read(directory: &HostPath) -> Result<Option<Self>, ConfigError> {
        let path = directory.as_path().join(".sandpen/config.toml");
        let content = match untrusted::read(&path, MAX_FILE_SIZE) {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::InvalidData => return Err(ConfigError::ProjectFile(path)),
            Err(_) => return Ok(None),
        };
        Ok(Some(ProjectFile { directory: directory.clone(), content }))
    }

    pub fn path(&self) -> PathBuf {
        self.directory.as_path().join(".sandpen/config.toml")
    }

    /// Whether the user trusted this content in this directory.
    pub fn is_trusted(&self, host: &Host) -> bool {
        fs::read(pin(host, &self.directory)).is_ok_and(|pinned| pinned == self.content.as_bytes())
    }

    /// Reads the content. Relative paths start at the project's directory.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let path = self.path();
        let name = path.display().to_string();
        file::parse(&self.content, Language::Toml, &name, Some(self.directory.as_path()), &Origin::Config(path))
    }

    /// Reads the content that the user trusted in this directory, which may be another one.
    pub fn trusted_before(&self, host: &Host) -> Option<Settings> {
        let content = fs::read_to_string(pin(host, &self.directory)).ok()?;
        ProjectFile { content, ..self.clone() }.settings().ok()
    }

    /// Records that the content that was read is trusted.
    pub fn trust(&self, host: &Host) -> Result<(), ConfigError> {
        let pin = pin(host, &self.directory);
        let write = || -> std::io::Result<()> {
            pin.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&pin, &self.content)
        };
        write().map_err(|source| ConfigError::RecordTrust { path: pin.clone(), source })
    }
}

/// Revokes the trust in a directory's project file. Returns whether it was trusted.
pub fn revoke(host: &Host, directory: &HostPath) -> Result<bool, ConfigError> {
    let pin = pin(host, directory);
    match fs::remove_file(&pin) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(source) => Err(ConfigError::RemoveTrust { path: pin, source }),
    }
}

/// Lists the directories whose project files were trusted, sorted.
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

/// The file with the trusted content, in a tree of directories like the projects'.
const PIN: &str = "config.toml";

/// Returns the path of the trusted content. It is a whole copy, so that `trust` can show what
/// changed since.
fn pin(host: &Host, directory: &HostPath) -> PathBuf {
    let below = directory.as_path().strip_prefix("/").unwrap_or(Path::new(""));
    host.state_dir().as_path().join("trust").join(below).join(PIN)
}
