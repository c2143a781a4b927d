//! Uses the directory of a session again, because some file systems take milliseconds to create and
//! remove one. Only a directory whose guest has left nothing in it is kept: no name, no permission, no
//! attribute. It may be used by a session that prepares the same names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::spare;
use crate::config::value::EngineKind;
use crate::plan::{Plan, Prepare};
use crate::process::lock::{self, OWNER};
use crate::process::untrusted_dir::UntrustedDir;
use crate::session_id::random_name;

/// The directories that wait for a session, beside the sessions' directory.
const EMPTIED: &str = "emptied";
/// More are not kept.
const MAX_KEPT: usize = 8;
/// A directory with more names than this is not used again.
const MAX_NAMES: usize = 64;
/// The attributes of a file take no more than this, or it is not used again.
const MAX_ATTRIBUTES: usize = 1024;

/// What the session prepares in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Node {
    Directory(u32, Directory),
    EmptyFile,
    /// A directory for Git's objects.
    Objects,
}

type Directory = BTreeMap<OsString, Node>;

/// The names that a session prepares in its directory, and that must be the only ones at its end.
#[derive(Debug)]
pub struct Content(Directory);

impl Content {
    /// `None` if the directory of this session cannot be used again.
    pub fn of(plan: &Plan) -> Option<Self> {
        if plan.engine.kind != EngineKind::Native {
            return None;
        }
        let mut content = Directory::new();
        for item in &plan.prepare {
            let (path, node) = match item {
                Prepare::Directory { path, mode } => (path, Node::Directory(*mode, Directory::new())),
                Prepare::File { path, content } if content.is_empty() => (path, Node::EmptyFile),
                Prepare::Objects { path } => (path, Node::Objects),
                Prepare::File { path, .. } | Prepare::Copy { path, .. } | Prepare::Shared { path } => {
                    if path.is_within(&plan.session_dir) {
                        return None;
                    }
                    continue;
                }
                _ => continue,
            };
            if let Ok(below) = path.as_path().strip_prefix(plan.session_dir.as_path()) {
                insert(&mut content, below, node)?;
            }
        }
        Some(Content(content))
    }

    /// Tells whether a directory that is used again contains what an item prepares.
    pub fn contains(&self, item: &Prepare, session: &Path) -> bool {
        match item {
            Prepare::Directory { path, .. } | Prepare::File { path, .. } | Prepare::Objects { path } => {
                path.as_path().starts_with(session)
            }
            _ => false,
        }
    }

    fn key(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        format!("{:016x}-", hasher.finish())
    }

    /// Makes a session's directory of one with the same content, and returns its lock, which is taken
    /// before the directory has the session's name. `None` if there is none. Fails if the name is taken.
    pub fn take(&self, session: &Path) -> io::Result<Option<File>> {
        let key = self.key();
        let all = fs::read_dir(emptied(session)).into_iter().flatten().flatten();
        for entry in all.filter(|entry| entry.file_name().as_bytes().starts_with(key.as_bytes())) {
            // Another launcher may be taking it.
            let Ok(lock) = lock::take(&entry.path().join(OWNER)) else { continue };
            match fs::rename(entry.path(), session) {
                Ok(()) => return Ok(Some(lock)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Keeps a session's directory for another session; returns `false` if it must be removed.
    pub fn put_back(&self, session: &Path) -> bool {
        self.empty(session).unwrap_or(false) && self.keep(session).is_ok()
    }

    /// Removes what belongs to the session itself. Returns whether nothing else is left.
    fn empty(&self, session: &Path) -> io::Result<bool> {
        let top = UntrustedDir::open(session)?;
        for (name, kind) in top.entries(MAX_NAMES)? {
            if self.0.contains_key(&name) {
                continue;
            }
            match name.to_str() {
                _ if kind == FileType::Directory => return Ok(false),
                Some(OWNER) => {}
                _ => fs::remove_file(session.join(name))?,
            }
        }
        let fresh = Traits::of(&top)?;
        all_unchanged(&top, &self.0, &fresh)
    }

    fn keep(&self, session: &Path) -> io::Result<()> {
        let (place, key) = (emptied(session), self.key());
        let others: Vec<_> = fs::read_dir(&place).into_iter().flatten().flatten().collect();
        if others.len() >= MAX_KEPT {
            // Those that no session has used for long have another key.
            let mut other = others.iter().filter(|entry| !entry.file_name().as_bytes().starts_with(key.as_bytes()));
            // Locked, so that no session takes it meanwhile.
            let other = other.find_map(|entry| Some((entry.path(), lock::take(&entry.path().join(OWNER)).ok()?)));
            let (path, _lock) = other.ok_or(ErrorKind::StorageFull)?;
            super::directory::remove_all(&path);
        }
        let target = place.join(format!("{key}{}", random_name()));
        fs::rename(session, &target).or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                DirBuilder::new().mode(0o700).create(&place)?;
                fs::rename(session, &target)
            }
            _ => Err(error),
        })
    }
}

fn emptied(session: &Path) -> PathBuf {
    session.parent().unwrap_or(session).with_file_name(EMPTIED)
}

/// Adds a node and the directories above it. `None` if they contradict each other.
fn insert(content: &mut Directory, path: &Path, node: Node) -> Option<()> {
    let mut place = content;
    let mut names = path.components().peekable();
    while let Some(Component::Normal(name)) = names.next() {
        if names.peek().is_none() {
            let known = place.entry(name.to_owned()).or_insert_with(|| node.clone());
            return match (known, node) {
                (Node::Directory(..), Node::Directory(..)) => Some(()),
                (known, node) => (*known == node).then_some(()),
            };
        }
        let above = place.entry(name.to_owned()).or_insert(Node::Directory(0o755, Directory::new()));
        place = match above {
            Node::Directory(_, below) => below,
            _ => return None,
        };
    }
    None
}

/// What a guest could change of a file besides its content.
#[derive(PartialEq, Eq)]
struct Traits {
    owner: u32,
    group: u32,
    attributes: Vec<u8>,
    #[cfg(target_os = "linux")]
    flags: Result<rustix::fs::IFlags, rustix::io::Errno>,
}

impl Traits {
    fn of(file: &impl AsFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(file)?;
        let mut attributes = vec![0; MAX_ATTRIBUTES];
        let length = match rustix::fs::flistxattr(file, &mut attributes[..]) {
            Err(rustix::io::Errno::OPNOTSUPP) => 0,
            listed => listed?,
        };
        attributes.truncate(length);
        Ok(Traits {
            owner: stat.st_uid,
            group: stat.st_gid,
            attributes,
            #[cfg(target_os = "linux")]
            flags: rustix::fs::ioctl_getflags(file),
        })
    }
}

/// Tells whether a directory contains what was prepared in it and nothing else, all as it was made.
fn all_unchanged(directory: &UntrustedDir, content: &Directory, fresh: &Traits) -> io::Result<bool> {
    for (name, node) in content {
        let is_unchanged = match node {
            Node::EmptyFile => is_empty_file(directory, name, fresh)?,
            Node::Directory(mode, below) => {
                let inner = directory.directory(Path::new(name))?;
                is_plain(&inner, *mode, fresh)?
                    && inner.entries(MAX_NAMES)?.iter().all(|(name, _)| below.contains_key(name))
                    && all_unchanged(&inner, below, fresh)?
            }
            Node::Objects => {
                let objects = directory.directory(Path::new(name))?;
                let is_plain_below = |name: &&str| is_plain_at(&objects, OsStr::new(name), fresh);
                is_plain(&objects, 0o755, fresh)?
                    && spare::SUBDIRECTORIES.iter().all(|name| is_plain_below(name).unwrap_or(false))
                    && spare::is_empty(&objects)
            }
        };
        if !is_unchanged {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_plain_at(above: &UntrustedDir, name: &OsStr, fresh: &Traits) -> io::Result<bool> {
    is_plain(&above.directory(Path::new(name))?, 0o755, fresh)
}

/// Tells whether a directory has the properties of one that was just made.
fn is_plain(directory: &UntrustedDir, mode: u32, fresh: &Traits) -> io::Result<bool> {
    use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
    let stat = rustix::fs::fstat(directory.as_fd())?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    // A guest could leave a message in the times.
    rustix::fs::futimens(directory.as_fd(), &Timestamps { last_access: now, last_modification: now })?;
    Ok(permissions(&stat) == mode && Traits::of(directory)? == *fresh)
}

fn is_empty_file(above: &UntrustedDir, name: &OsStr, fresh: &Traits) -> io::Result<bool> {
    let Some(file) = above.file(Path::new(name))? else { return Ok(false) };
    let stat = rustix::fs::fstat(&file)?;
    let is_as_made = stat.st_size == 0 && stat.st_nlink == 1 && permissions(&stat) == 0o644;
    let traits = Traits::of(&file)?;
    Ok(is_as_made && traits.attributes == fresh.attributes && traits.owner == fresh.owner)
}

fn permissions(stat: &Stat) -> u32 {
    #[allow(clippy::useless_conversion, reason = "the type differs between platforms")]
    let mode: u32 = stat.st_mode.into();
    mode & 0o7777
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn content() -> Content {
        let mut content = Directory::new();
        for (path, node) in [
            ("home", Node::Directory(0o700, Directory::new())),
            ("home/.tool/bin", Node::Directory(0o755, Directory::new())),
            ("home/.gitconfig", Node::EmptyFile),
        ] {
            insert(&mut content, Path::new(path), node).expect("no contradiction");
        }
        Content(content)
    }

    /// Makes a directory of sessions with one session, as a guest that did nothing leaves it.
    fn session(base: &Path) -> io::Result<PathBuf> {
        let session = base.join("sessions").join(random_name());
        fs::create_dir_all(session.join("home/.tool/bin"))?;
        fs::set_permissions(session.join("home"), fs::Permissions::from_mode(0o700))?;
        for path in ["home/.tool", "home/.tool/bin"] {
            fs::set_permissions(session.join(path), fs::Permissions::from_mode(0o755))?;
        }
        for file in ["home/.gitconfig", OWNER, "session.json"] {
            fs::write(session.join(file), if file == "session.json" { "{}" } else { "" })?;
            fs::set_permissions(session.join(file), fs::Permissions::from_mode(0o644))?;
        }
        Ok(session)
    }

    #[test]
    fn an_emptied_directory_is_used_again() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        let session = session(base.path())?;
        assert!(content().put_back(&session) && !session.exists());
        let next = base.path().join("sessions/next");
        let other = Content(Directory::new());
        assert!(other.take(&next)?.is_none(), "its content is another one");
        let lock = content().take(&next)?.expect("a directory");
        assert_eq!(lock::is_held(&next.join(OWNER)), Some(true));
        drop(lock);
        let mut names: Vec<_> = fs::read_dir(&next)?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["home", OWNER]);
        assert!(content().take(&base.path().join("sessions/third"))?.is_none());
        Ok(())
    }

    #[test]
    fn a_name_that_is_taken_is_an_error() -> io::Result<()> {
        let base = tempfile::tempdir()?;
        assert!(content().put_back(&session(base.path())?));
        let taken = session(base.path())?;
        let kind = content().take(&taken).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(ErrorKind::DirectoryNotEmpty));
        Ok(())
    }

    /// Nothing passes from one guest to the next.
    #[test]
    fn nothing_that_a_guest_leaves_is_kept() -> io::Result<()> {
        type Change = fn(&Path) -> io::Result<()>;
        let changes: [(&str, Change); 9] = [
            ("a file", |home| fs::write(home.join("x"), "")),
            ("a directory", |home| fs::create_dir(home.join(".tool/bin/x"))),
            ("a mode", |home| fs::set_permissions(home, fs::Permissions::from_mode(0o777))),
            ("a mode below", |home| fs::set_permissions(home.join(".tool"), fs::Permissions::from_mode(0o1755))),
            ("a link", |home| {
                fs::remove_dir(home.join(".tool/bin"))?;
                std::os::unix::fs::symlink("/etc", home.join(".tool/bin"))
            }),
            ("content", |home| fs::write(home.join(".gitconfig"), "x")),
            ("a missing file", |home| fs::remove_file(home.join(".gitconfig"))),
            ("a hard link", |home| fs::hard_link(home.join(".gitconfig"), home.with_file_name("session.json.new"))),
            ("an attribute", |home| {
                let flags = rustix::fs::XattrFlags::empty();
                Ok(rustix::fs::setxattr(home.join(".tool"), "user.message", b"x", flags)?)
            }),
        ];
        for (what, change) in changes {
            let base = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR"))?;
            let session = session(base.path())?;
            change(&session.join("home"))?;
            let is_kept = content().put_back(&session);
            // A second name of an empty file is removed with the session's own files.
            assert_eq!(is_kept, what == "a hard link", "{what}");
        }
        Ok(())
    }
}
