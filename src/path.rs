//! Defines absolute paths of the host, of an engine's virtual machine and of the guest as three
//! types that cannot be confused. Touches no files.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};

/// The reason for which a path was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It does not start at the root.
    #[error("`{0}` is not an absolute path")]
    NotAbsolute(String),
    /// It contains `..`, so that its meaning depends on links.
    #[error("`{0}` contains `..`")]
    Climbs(String),
    /// It contains a NUL byte, which system calls take for the end.
    #[error("`{0}` contains a NUL byte")]
    Nul(String),
}

fn normalise(path: &Path) -> Result<PathBuf, PathError> {
    if is_clean(path.as_os_str().as_bytes()) {
        return Ok(path.to_owned());
    }
    let shown = || path.display().to_string();
    if !path.is_absolute() {
        return Err(PathError::NotAbsolute(shown()));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(PathError::Nul(shown()));
    }
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(PathError::Climbs(shown()));
    }
    Ok(resolve_dots(path))
}

/// Removes `.` and `..` by name, without looking at links.
pub fn resolve_dots(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::CurDir => {}
            component => resolved.push(component),
        }
    }
    resolved
}

macro_rules! path_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name(PathBuf);

        impl $name {
            /// Accepts an absolute path without `..`.
            pub fn new(path: impl AsRef<Path>) -> Result<Self, PathError> {
                normalise(path.as_ref()).map($name)
            }

            /// Makes a path of a text that [`constant!`](crate::path::constant) has checked.
            #[doc(hidden)]
            pub fn from_checked(text: &'static str) -> Self {
                $name(PathBuf::from(text))
            }

            /// Returns the path below this one; `below` is a relative path of plain names.
            #[must_use]
            pub fn join(&self, below: impl AsRef<Path>) -> Self {
                let below = below.as_ref();
                let mut path = PathBuf::with_capacity(self.bytes().len() + 1 + below.as_os_str().len());
                path.push(&self.0);
                for component in below.components() {
                    if let Component::Normal(part) = component {
                        path.push(part);
                    }
                }
                $name(path)
            }

            fn bytes(&self) -> &[u8] {
                self.0.as_os_str().as_bytes()
            }

            /// Returns the path as the standard library's type.
            pub fn as_path(&self) -> &Path {
                &self.0
            }

            /// Returns the path as a system string.
            pub fn as_os_str(&self) -> &OsStr {
                self.0.as_os_str()
            }

            /// Returns the path as text, or `None` when it is not UTF-8.
            pub fn to_str(&self) -> Option<&str> {
                self.0.to_str()
            }

            /// Tells whether this path is `other` or lies below it.
            pub fn is_within(&self, other: &$name) -> bool {
                is_below(self.bytes(), other.bytes())
            }
        }

        // Every path is in its shortest form, so its bytes tell what its components do, much faster.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.bytes() == other.bytes()
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                self.bytes().cmp(other.bytes())
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.bytes().hash(state);
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
    /// An absolute path in the virtual machine that an engine runs its containers in.
    MachinePath
}
path_type! {
    /// An absolute path inside the sandbox.
    GuestPath
}

/// Tells whether a path in its shortest form is another one or lies below it.
pub fn is_below(path: &[u8], other: &[u8]) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || other == b"/")
}

/// Tells whether bytes are an absolute path in its shortest form: without `.`, `..`, an empty name
/// or NUL.
pub const fn is_clean(bytes: &[u8]) -> bool {
    if bytes.is_empty() || bytes[0] != b'/' {
        return false;
    }
    let mut index = 1;
    while index < bytes.len() {
        let starts_name = bytes[index - 1] == b'/';
        if bytes[index] == 0 || starts_name && (bytes[index] == b'/' || is_dots(bytes, index)) {
            return false;
        }
        index += 1;
    }
    bytes.len() == 1 || bytes[bytes.len() - 1] != b'/'
}

/// Tells whether the name that starts at `index` is `.` or `..`.
const fn is_dots(bytes: &[u8], index: usize) -> bool {
    let mut end = index;
    while end < bytes.len() && bytes[end] == b'.' {
        end += 1;
    }
    end > index && end - index <= 2 && (end == bytes.len() || bytes[end] == b'/')
}

/// Makes a path of a constant that the compiler checks: `constant!(GuestPath, "/etc/passwd")`.
macro_rules! constant {
    ($type:ident, $text:expr) => {{
        const _: () = assert!($crate::path::is_clean($text.as_bytes()), "not an absolute path");
        $crate::path::$type::from_checked($text)
    }};
}
pub(crate) use constant;

impl HostPath {
    /// Returns the same path inside the sandbox, where host directories keep their paths.
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
    fn dots_are_resolved_by_name_and_never_above_the_root() {
        for (path, resolved) in [("/a/./b/../c", "/a/c"), ("/../a", "/a"), ("/a/..", "/"), ("a/../b", "b")] {
            assert_eq!(resolve_dots(Path::new(path)), Path::new(resolved), "{path}");
        }
    }

    #[test]
    fn constants_are_checked_like_other_paths() {
        for text in ["/", "/a", "/.a/..b", "/a/...", "/a.b/c"] {
            assert!(
                is_clean(text.as_bytes()) && HostPath::new(text).is_ok_and(|path| path.to_str() == Some(text)),
                "{text}"
            );
        }
        for text in ["", "a", "//", "/a/", "/a//b", "/.", "/./a", "/a/..", "/../a", "/a\0"] {
            assert!(!is_clean(text.as_bytes()), "{text}");
        }
        assert_eq!(constant!(GuestPath, "/etc/passwd").to_str(), Some("/etc/passwd"));
    }

    #[test]
    fn bytes_tell_what_components_do() -> Result<(), PathError> {
        let texts = ["/", "/a", "/a/b", "/a-b", "/ab", "/a/b/c", "/a.", "//a/./b/", "/b", "/.../..x"];
        let paths = texts.map(HostPath::new).into_iter().collect::<Result<Vec<_>, _>>()?;
        for (one, other) in paths.iter().flat_map(|one| paths.iter().map(move |other| (one, other))) {
            assert_eq!(one == other, one.as_path() == other.as_path(), "{one} {other}");
            assert_eq!(one.is_within(other), one.as_path().starts_with(other.as_path()), "{one} {other}");
            assert_eq!(one.cmp(other).is_eq(), one == other);
        }
        Ok(())
    }

    #[test]
    fn within_compares_whole_names() -> Result<(), PathError> {
        let root = HostPath::new("/home/me")?;
        assert!(HostPath::new("/home/me/x")?.is_within(&root));
        assert!(!HostPath::new("/home/mercury")?.is_within(&root));
        Ok(())
    }
}
