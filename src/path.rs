//! Absolute paths of the host and of the guest, as two types that do not mix.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};

/// Why a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start at the root.
    #[error("`{0}` is not an absolute path")]
    NotAbsolute(String),
    /// It climbs with `..`, so that what it means depends on links.
    #[error("`{0}` contains `..`")]
    Climbs(String),
    /// It holds a NUL byte, which no system call can carry.
    #[error("`{0}` contains a NUL byte")]
    Nul(String),
}

fn normalise(path: &Path) -> Result<PathBuf, PathError> {
    let shown = || path.display().to_string();
    if !path.is_absolute() {
        return Err(PathError::NotAbsolute(shown()));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(PathError::Nul(shown()));
    }
    let mut clean = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::ParentDir => return Err(PathError::Climbs(shown())),
            Component::Normal(part) => clean.push(part),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(clean)
}

macro_rules! path_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(PathBuf);

        impl $name {
            /// Accepts an absolute path without `..`.
            pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
                normalise(path.as_ref()).map($name)
            }

            /// The path below this one; `below` is a relative path of plain names.
            #[must_use]
            pub fn join(&self, below: impl AsRef<Path>) -> Self {
                let mut path = self.0.clone();
                for component in below.as_ref().components() {
                    if let Component::Normal(part) = component {
                        path.push(part);
                    }
                }
                $name(path)
            }

            /// The path itself.
            pub fn as_path(&self) -> &Path {
                &self.0
            }

            /// The path as the system takes it.
            pub fn as_os_str(&self) -> &OsStr {
                self.0.as_os_str()
            }

            /// The path as text, or `None` when it is not UTF-8.
            pub fn to_str(&self) -> Option<&str> {
                self.0.to_str()
            }

            /// Whether this path is `other` or lies below it.
            pub fn is_within(&self, other: &$name) -> bool {
                self.0.starts_with(&other.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.display().fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

path_type! {
    /// An absolute path on the host.
    HostPath
}
path_type! {
    /// An absolute path inside the sandbox.
    GuestPath
}

impl HostPath {
    /// The same path inside the sandbox: sandpen shows host directories under their own names.
    pub fn to_guest(&self) -> GuestPath {
        GuestPath(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_absolute_paths_and_cleans_them() {
        assert_eq!(HostPath::new("/a//b/./c/").map(|p| p.to_string()), Ok("/a/b/c".into()));
        assert_eq!(HostPath::new("/").map(|p| p.to_string()), Ok("/".into()));
    }

    #[test]
    fn refuses_what_could_mean_another_place() {
        assert!(matches!(GuestPath::new("a"), Err(PathError::NotAbsolute(_))));
        assert!(matches!(GuestPath::new("/a/../b"), Err(PathError::Climbs(_))));
        assert!(matches!(GuestPath::new("/a\0"), Err(PathError::Nul(_))));
    }

    #[test]
    fn within_compares_whole_names() -> Result<(), PathError> {
        let root = HostPath::new("/home/me")?;
        assert!(HostPath::new("/home/me/x")?.is_within(&root));
        assert!(!HostPath::new("/home/mercury")?.is_within(&root));
        Ok(())
    }
}
