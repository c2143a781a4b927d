//! Reads HEAD, refs and reflogs of a Git directory that a guest may change at any time. Only the
//! `files` format is read; nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat};

pub use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

/// A million refs of ordinary length fit in 64 MiB.
const LARGEST_PACKED_REFS: u64 = 64 << 20;
/// A loose ref is an id, or `ref: ` and a name of at most `LONGEST_NAME` bytes.
const LARGEST_LOOSE_REF: u64 = LONGEST_NAME as u64 + 64;
/// Some 20,000 entries. Git never expires the reflog of the stash, which rarely has more than 100.
const LARGEST_REFLOG: u64 = 4 << 20;
/// Counts packed refs, and the files and directories below `refs`. The largest public repositories
/// have some hundred thousand refs.
const MOST_REFS: usize = 1_000_000;
/// Each level of `refs` keeps a descriptor open while it is read.
const DEEPEST_DIRECTORY: usize = 64;
/// The host stores a ref under a path of the same length, and below a reflog's directory.
const LONGEST_NAME: usize = 1024;
/// File names have at most 255 bytes, five of which Git needs for `.lock`.
const LONGEST_COMPONENT: usize = 250;
/// A ref that is renamed while its directory is listed can be missing from the list, so refs are
/// read again if they changed meanwhile.
const READ_ATTEMPTS: usize = 5;

/// The target that Git writes to HEAD if the refs are in a reftable.
const REFTABLE_HEAD: &str = "refs/heads/.invalid";

const RESERVED_NAMES: [&str; 4] = ["refs/heads/HEAD", "refs/heads", "refs/remotes", "refs/tags"];

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// The full name of a branch, which need not exist.
    Branch(String),
    Detached(ObjectId),
}

#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Refs {
    pub ids: BTreeMap<String, ObjectId>,
    /// The targets have valid names but need not exist.
    pub symbolic: BTreeMap<String, String>,
    /// Valid names of refs, or of directories of refs, that exist but cannot be read.
    pub broken: BTreeSet<String>,
    /// The number of files and packed refs that were skipped because of their names.
    pub odd: usize,
}

impl Refs {
    /// Returns whether the ref, or a directory above it, cannot be read. Such a ref has not been
    /// deleted although it has no value.
    pub fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(name) || parents(name).any(|parent| self.broken.contains(parent))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReflogEntry {
    pub old: ObjectId,
    pub new: ObjectId,
    /// Name, address, seconds and time zone, as in the file. Control characters are replaced by
    /// spaces, here and in the message.
    pub who: String,
    pub message: String,
}

/// Reads all refs of a Git directory. Fails if it has no `refs`, if they are in a reftable, or if
/// they do not stop changing.
pub fn read_refs(git_dir: &UntrustedDir) -> io::Result<Refs> {
    for _ in 0..READ_ATTEMPTS {
        let before = refs_fingerprint(git_dir);
        let refs = read_refs_once(git_dir)?;
        if refs_fingerprint(git_dir) == before {
            return Ok(refs);
        }
    }
    Err(io::Error::new(ErrorKind::ResourceBusy, "refs changed while they were read"))
}

/// Reads loose refs before packed ones: `git pack-refs` deletes a loose ref after it has packed it,
/// so that the opposite order could miss it in both places.
fn read_refs_once(git_dir: &UntrustedDir) -> io::Result<Refs> {
    if head_target(git_dir)?.as_deref() == Some(REFTABLE_HEAD) {
        return Err(io::Error::new(ErrorKind::Unsupported, "unsupported ref storage format `reftable`"));
    }
    let directory = git_dir.directory(Path::new("refs")).map_err(|error| {
        let message =
            if error.kind() == ErrorKind::NotFound { "not a git repository: no `refs`" } else { "cannot open `refs`" };
        io::Error::new(error.kind(), message)
    })?;
    let mut loose = LooseRefs { refs: Refs::default(), left: MOST_REFS };
    loose.read_directory(&directory, "refs", 0)?;
    let LooseRefs { mut refs, left } = loose;
    let packed = git_dir.read("packed-refs", LARGEST_PACKED_REFS);
    let packed = packed.map_err(|error| io::Error::new(error.kind(), format!("cannot read packed-refs: {error}")))?;
    if let Some(packed) = packed {
        add_packed_refs(&mut refs, &packed, left)?;
        separate_conflicts(&mut refs);
    }
    Ok(refs)
}

struct LooseRefs {
    refs: Refs,
    /// The number of files and directories that may still be read.
    left: usize,
}

impl LooseRefs {
    fn read_directory(&mut self, directory: &UntrustedDir, prefix: &str, depth: usize) -> io::Result<()> {
        let entries = directory.entries(self.left).map_err(too_many_refs)?;
        self.left = self.left.saturating_sub(entries.len());
        for (file_name, kind) in entries {
            if kind == FileType::RegularFile && file_name.as_encoded_bytes().ends_with(b".lock") {
                continue;
            }
            let name = file_name.to_str().map(|file_name| format!("{prefix}/{file_name}"));
            let Some(name) = name.filter(|name| has_valid_format(name)) else {
                self.refs.odd += 1;
                continue;
            };
            match kind {
                FileType::RegularFile => self.read_file(directory, &file_name, name)?,
                FileType::Directory if depth < DEEPEST_DIRECTORY => {
                    match directory.directory(Path::new(&file_name)) {
                        Ok(below) => self.read_directory(&below, &name, depth + 1)?,
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) if is_host_failure(&error) => return Err(error),
                        Err(_) => drop(self.refs.broken.insert(name)),
                    };
                }
                _ => drop(self.refs.broken.insert(name)),
            }
        }
        Ok(())
    }

    fn read_file(&mut self, directory: &UntrustedDir, file_name: &OsStr, name: String) -> io::Result<()> {
        let content = match directory.read(file_name, LARGEST_LOOSE_REF) {
            Ok(Some(content)) => content,
            Ok(None) => return Ok(()),
            Err(error) if is_host_failure(&error) => return Err(error),
            Err(_) => Vec::new(),
        };
        match parse_loose(&content) {
            _ if !is_valid_name(&name) => drop(self.refs.broken.insert(name)),
            Some(Value::Id(id)) => drop(self.refs.ids.insert(name, id)),
            Some(Value::Symbolic(target)) if is_valid_name(&target) => drop(self.refs.symbolic.insert(name, target)),
            _ => drop(self.refs.broken.insert(name)),
        }
        Ok(())
    }
}

fn too_many_refs(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::FileTooLarge {
        return io::Error::new(error.kind(), format!("more than {MOST_REFS} refs"));
    }
    error
}

enum Value {
    Id(ObjectId),
    /// The name is not checked yet.
    Symbolic(String),
}

/// Parses the content of HEAD or of a loose ref as Git does: white space after an id ends it.
fn parse_loose(content: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(content).ok()?;
    if let Some(target) = text.strip_prefix("ref:") {
        return Some(Value::Symbolic(target.trim_ascii().to_owned()));
    }
    let id = text.split(|c: char| c.is_ascii_whitespace()).next()?;
    ObjectId::parse(id).filter(|id| !id.is_null()).map(Value::Id)
}

/// Adds the refs of `packed-refs` that are not loose.
fn add_packed_refs(refs: &mut Refs, content: &[u8], mut left: usize) -> io::Result<()> {
    let unexpected = || io::Error::new(ErrorKind::InvalidData, "unexpected line in packed-refs");
    if content.last().is_some_and(|last| *last != b'\n') {
        return Err(io::Error::new(ErrorKind::InvalidData, "unterminated line in packed-refs"));
    }
    for (number, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let is_header = number == 0 && line.starts_with(b"#");
        // The last line ends with a newline, after which there is nothing.
        if is_header || line.is_empty() || line.starts_with(b"^") {
            continue;
        }
        left = left.checked_sub(1).ok_or_else(|| too_many_refs(ErrorKind::FileTooLarge.into()))?;
        let space = line.iter().position(|byte| *byte == b' ').ok_or_else(unexpected)?;
        let (id, name) = line.split_at(space);
        let id = std::str::from_utf8(id).ok().and_then(ObjectId::parse).ok_or_else(unexpected)?;
        let name = name.get(1..).and_then(|name| std::str::from_utf8(name).ok());
        let Some(name) = name.filter(|name| is_valid_name(name)) else {
            refs.odd += 1;
            continue;
        };
        if refs.symbolic.contains_key(name) || refs.is_broken(name) || refs.ids.contains_key(name) {
            continue;
        }
        if id.is_null() {
            refs.broken.insert(name.to_owned());
        } else {
            refs.ids.insert(name.to_owned(), id);
        }
    }
    Ok(())
}

/// Marks a ref as broken if another one has the name of a directory above it. Git cannot make such
/// refs, and on the host they would make the update of all refs fail.
fn separate_conflicts(refs: &mut Refs) {
    let is_ref = |name: &str| refs.ids.contains_key(name) || refs.symbolic.contains_key(name);
    let names = refs.ids.keys().chain(refs.symbolic.keys());
    let conflicts: Vec<String> = names.filter(|name| parents(name).any(is_ref)).cloned().collect();
    for name in conflicts {
        refs.ids.remove(&name);
        refs.symbolic.remove(&name);
        refs.broken.insert(name);
    }
}

/// Returns the names of the directories above a ref.
fn parents(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').filter_map(|(end, _)| name.get(..end))
}

/// Reads HEAD; `None` if it is missing or neither a branch nor a commit.
pub fn read_head(git_dir: &UntrustedDir) -> io::Result<Option<Head>> {
    Ok(match read_head_value(git_dir)? {
        Some(Value::Id(id)) => Some(Head::Detached(id)),
        Some(Value::Symbolic(name)) if name.starts_with("refs/heads/") && is_valid_name(&name) => {
            Some(Head::Branch(name))
        }
        _ => None,
    })
}

fn head_target(git_dir: &UntrustedDir) -> io::Result<Option<String>> {
    let value = read_head_value(git_dir)?;
    Ok(value.and_then(|value| if let Value::Symbolic(target) = value { Some(target) } else { None }))
}

fn read_head_value(git_dir: &UntrustedDir) -> io::Result<Option<Value>> {
    match git_dir.read("HEAD", LARGEST_LOOSE_REF) {
        Ok(content) => Ok(content.as_deref().and_then(parse_loose)),
        Err(error) if is_host_failure(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Applies the rules of `git check-ref-format` to a full name. Four rules are added: no component
/// starts with `-`, which a command could take for an option; `refs/heads/HEAD` is refused, as `git
/// branch` does; so are the directories that Git keeps below `refs`; and the name is not too long
/// for a file.
pub fn is_valid_name(name: &str) -> bool {
    has_valid_format(name) && !RESERVED_NAMES.contains(&name)
}

/// Returns whether refs may have this name or may be in a directory of this name.
fn has_valid_format(name: &str) -> bool {
    let is_forbidden = |byte: u8| byte <= b' ' || byte == 0x7f || b"~^:?*[\\".contains(&byte);
    name.len() <= LONGEST_NAME
        && name.strip_prefix("refs/").is_some_and(|rest| rest.split('/').all(is_valid_component))
        && !name.bytes().any(is_forbidden)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
}

fn is_valid_component(component: &str) -> bool {
    (1..=LONGEST_COMPONENT).contains(&component.len())
        && !component.starts_with(['.', '-'])
        && !component.ends_with(".lock")
}

/// Reads the reflog of HEAD or of a ref, oldest entry first. Lines that are no entries are skipped,
/// as Git does. A missing reflog is empty.
pub fn read_reflog(git_dir: &UntrustedDir, name: &str) -> io::Result<Vec<ReflogEntry>> {
    if name != "HEAD" && !is_valid_name(name) {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("invalid refname: `{name}`")));
    }
    let content = git_dir.read(Path::new("logs").join(name), LARGEST_REFLOG)?.unwrap_or_default();
    Ok(content.split(|byte| *byte == b'\n').filter_map(parse_reflog_line).collect())
}

fn parse_reflog_line(line: &[u8]) -> Option<ReflogEntry> {
    let line = String::from_utf8_lossy(line);
    let (head, message) = line.split_once('\t').unwrap_or((&line, ""));
    let mut parts = head.splitn(3, ' ');
    let (old, new, who) = (parts.next()?, parts.next()?, parts.next()?);
    let without_control = |text: &str| text.replace(char::is_control, " ");
    Some(ReflogEntry {
        old: ObjectId::parse(old)?,
        new: ObjectId::parse(new)?,
        who: without_control(who),
        message: without_control(message),
    })
}

/// Returns a value that changes whenever HEAD, a ref, the stash or the index changes. It reads no
/// file, so that it can be called every second.
pub fn fingerprint(git_dir: &UntrustedDir) -> u64 {
    let mut hasher = DefaultHasher::new();
    refs_fingerprint(git_dir).hash(&mut hasher);
    // Dropping an older stash may change nothing but the reflog.
    for path in ["index", "logs/refs/stash"] {
        hash_stat(git_dir.stat(path), &mut hasher);
    }
    hasher.finish()
}

fn refs_fingerprint(git_dir: &UntrustedDir) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in ["HEAD", "packed-refs"] {
        hash_stat(git_dir.stat(name), &mut hasher);
    }
    let hashed = git_dir.directory(Path::new("refs")).and_then(|directory| {
        let mut left = MOST_REFS;
        hash_directory(&directory, 0, &mut left, &mut hasher)
    });
    hashed.is_ok().hash(&mut hasher);
    hasher.finish()
}

fn hash_directory(
    directory: &UntrustedDir,
    depth: usize,
    left: &mut usize,
    hasher: &mut DefaultHasher,
) -> io::Result<()> {
    let mut entries = directory.entries(*left)?;
    *left = left.saturating_sub(entries.len());
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, kind) in entries {
        name.hash(hasher);
        if kind != FileType::Directory {
            let stat = rustix::fs::statat(directory.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW);
            hash_stat(stat.map_err(io::Error::from), hasher);
        } else if depth < DEEPEST_DIRECTORY {
            let below = directory.directory(Path::new(&name));
            let hashed = below.and_then(|below| hash_directory(&below, depth + 1, left, hasher));
            hashed.is_ok().hash(hasher);
        }
    }
    // Separates the entries of this directory from those that follow it above.
    hasher.write_u8(0);
    Ok(())
}

fn hash_stat(stat: io::Result<Stat>, hasher: &mut DefaultHasher) {
    match stat {
        Ok(stat) => stat_hash(&stat).hash(hasher),
        Err(error) => error.raw_os_error().hash(hasher),
    }
}

/// Returns a value that changes when a file is written, replaced, or, for a directory, when a name
/// in it is added or removed.
pub fn stat_hash(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec).hash(&mut hasher);
    hasher.finish()
}

/// Returns whether the host is the cause of an error, for example because it has no descriptors
/// left. All other errors, such as a missing permission or a link, can be made by the guest.
pub fn is_host_failure(error: &io::Error) -> bool {
    let causes = [libc::EIO, libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| causes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::test_repository::{NotAFile, TestRepository, git};

    fn id(text: &str) -> ObjectId {
        ObjectId::parse(text).unwrap()
    }

    /// Lists refs as Git does, without symbolic ones.
    fn ids_by_git(repository: &TestRepository) -> BTreeMap<String, ObjectId> {
        let text = repository.git(&["for-each-ref", "--format=%(objectname) %(symref)%(refname)"]);
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(value, name)| (name.to_owned(), id(value))).filter(|(name, _)| !name.contains("HEAD")).collect()
    }

    #[test]
    fn packed_and_loose_refs_are_those_of_git() {
        for format in ["--object-format=sha1", "--object-format=sha256"] {
            let repository = TestRepository::new(&[format]);
            assert_eq!(read_refs(&repository.git_dir()).unwrap(), Refs::default());
            let first = repository.commit("first");
            repository.git(&["branch", "feature/one/two"]);
            repository.git(&["branch", "stays-packed"]);
            repository.git(&["tag", "-a", "-m", "annotated", "v1"]);
            repository.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
            repository.git(&["pack-refs", "--all"]);
            let second = repository.commit("second");
            assert_ne!(first, second);
            repository.git(&["tag", "ütf"]);
            repository.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
            repository.write(".git/refs/heads/main.lock", "");
            let refs = read_refs(&repository.git_dir()).unwrap();
            assert_eq!(refs.ids, ids_by_git(&repository));
            assert_eq!(refs.ids["refs/heads/main"], id(&second), "the loose ref counts");
            assert_eq!(refs.ids["refs/heads/stays-packed"], id(&first));
            let symbolic = ("refs/remotes/origin/HEAD".to_owned(), "refs/remotes/origin/main".to_owned());
            assert_eq!(refs.symbolic, BTreeMap::from([symbolic]));
            assert_eq!((refs.odd, refs.broken.len()), (0, 0));

            let packed = std::fs::read_to_string(repository.at(".git/packed-refs")).unwrap();
            let (header, rest) = packed.split_once('\n').unwrap();
            assert!(header.starts_with('#') && rest.contains("\n^"), "{packed}");
            repository.write(".git/packed-refs", rest);
            assert_eq!(read_refs(&repository.git_dir()).unwrap(), refs, "without header");
        }
    }

    #[test]
    fn ten_thousand_refs_are_read() {
        let repository = TestRepository::new(&[]);
        let commit = repository.commit("first");
        let input: String = (0..10_000).map(|n| format!("create refs/heads/b{}/{n} {commit}\n", n % 7)).collect();
        repository.git_with_input(&["update-ref", "--stdin"], input.as_bytes());
        assert_eq!(read_refs(&repository.git_dir()).unwrap().ids, ids_by_git(&repository));
        repository.git(&["pack-refs", "--all"]);
        let refs = read_refs(&repository.git_dir()).unwrap();
        assert_eq!(refs.ids.len(), 10_001);
        assert_eq!(refs.ids, ids_by_git(&repository));
    }

    #[test]
    fn refs_that_are_packed_or_unpacked_meanwhile_are_not_missed() {
        let repository = TestRepository::new(&[]);
        let commit = repository.commit("first");
        let input: String = (0..50).map(|n| format!("update refs/heads/b{n} {commit}\n")).collect();
        repository.git_with_input(&["update-ref", "--stdin"], input.as_bytes());
        std::thread::scope(|scope| {
            let packing = scope.spawn(|| {
                for _ in 0..30 {
                    repository.git(&["pack-refs", "--all"]);
                    for name in ["heads/main".to_owned()].into_iter().chain((0..50).map(|n| format!("heads/b{n}"))) {
                        let path = format!(".git/refs/{name}");
                        repository.write(&format!("{path}.lock"), &commit);
                        std::fs::rename(repository.at(&format!("{path}.lock")), repository.at(&path)).unwrap();
                    }
                    std::fs::remove_file(repository.at(".git/packed-refs")).unwrap();
                }
            });
            while !packing.is_finished() {
                match read_refs(&repository.git_dir()) {
                    Ok(refs) => assert_eq!(refs.ids.len(), 51),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ResourceBusy),
                }
            }
        });
    }

    #[test]
    fn head_is_a_branch_or_a_commit() {
        let repository = TestRepository::new(&[]);
        let head = || read_head(&repository.git_dir()).unwrap();
        assert_eq!(head(), Some(Head::Branch("refs/heads/main".into())), "unborn");
        let commit = repository.commit("first");
        repository.git(&["checkout", "-q", "--detach"]);
        assert_eq!(head(), Some(Head::Detached(id(&commit))));
        repository.write(".git/HEAD", format!("{commit}\nmore"));
        assert_eq!(head(), Some(Head::Detached(id(&commit))), "as Git reads it");
        let bad =
            ["", "ref:", "ref: refs/heads/", "ref: refs/heads/../x", "ref: refs/tags/x", "ref: refs/heads/-x", "x"];
        let long = format!("ref: refs/heads/{}", "x".repeat(2000));
        for content in bad.into_iter().chain([long.as_str(), &"0".repeat(40), &commit[1..], &format!("{commit}x")]) {
            repository.write(".git/HEAD", content);
            assert_eq!(head(), None, "{content}");
        }
        for kind in NotAFile::ALL {
            repository.replace_by(".git/HEAD", kind);
            assert_eq!(head(), None, "{kind:?}");
        }
        std::fs::remove_dir_all(repository.at(".git/HEAD"))
            .or_else(|_| std::fs::remove_file(repository.at(".git/HEAD")))
            .unwrap();
        assert_eq!(head(), None, "missing");
    }

    #[test]
    fn a_reftable_is_no_empty_list_of_refs() {
        let repository = TestRepository::new(&["--ref-format=reftable"]);
        assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(read_head(&repository.git_dir()).unwrap(), None);
        repository.git(&["refs", "migrate", "--ref-format=files"]);
        assert_eq!(read_refs(&repository.git_dir()).unwrap(), Refs::default());
        std::fs::remove_dir_all(repository.at(".git/refs")).unwrap();
        assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::NotFound);
        for kind in [NotAFile::Link, NotAFile::Pipe, NotAFile::Socket] {
            repository.replace_by(".git/refs", kind);
            assert!(read_refs(&repository.git_dir()).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn refs_that_cannot_be_read_are_broken_and_not_deleted() {
        let repository = TestRepository::new(&[]);
        let commit = repository.commit("first");
        repository.git(&["branch", "x"]);
        repository.git(&["pack-refs", "--all"]);
        let refs = || read_refs(&repository.git_dir()).unwrap();
        let intact = refs();
        for content in ["", "ref: x", &"0".repeat(40), &commit[1..], &"a".repeat(5000)] {
            repository.write(".git/refs/heads/x", content);
            let refs = refs();
            assert!(refs.is_broken("refs/heads/x") && !refs.is_broken("refs/heads/main"), "{content}: {refs:?}");
            assert_eq!(refs.ids.keys().collect::<Vec<_>>(), ["refs/heads/main"], "{content}");
        }
        for kind in NotAFile::ALL {
            repository.replace_by(".git/refs/heads/x", kind);
            if matches!(kind, NotAFile::Directory) {
                assert_eq!(refs(), intact, "an empty directory does not hide a packed ref");
            } else {
                assert!(refs().is_broken("refs/heads/x") && !refs().ids.contains_key("refs/heads/x"), "{kind:?}");
            }
        }
        for kind in [NotAFile::Link, NotAFile::Pipe, NotAFile::Socket] {
            repository.replace_by(".git/refs/heads", kind);
            assert!(refs().is_broken("refs/heads/x") && refs().ids.is_empty(), "{kind:?}");
        }
        repository.replace_by(".git/refs/heads", NotAFile::Directory);
        std::fs::remove_dir(repository.at(".git/refs/heads")).unwrap();
        repository.write(".git/refs/heads", &commit);
        assert!(refs().is_broken("refs/heads/x") && refs().ids.is_empty(), "a file in place of `refs/heads`");
    }

    #[test]
    fn packed_refs_that_git_refuses_are_an_error() {
        let repository = TestRepository::new(&[]);
        let commit = repository.commit("first");
        repository.git(&["pack-refs", "--all"]);
        let good = std::fs::read_to_string(repository.at(".git/packed-refs")).unwrap();
        let lines =
            [format!("{commit} refs/heads/x"), format!("{commit}\n"), "x refs/heads/x\n".into(), "# x\n".into()];
        for line in lines {
            repository.write(".git/packed-refs", format!("{good}{line}"));
            assert!(read_refs(&repository.git_dir()).is_err(), "{line}");
            assert!(!git(&repository.at(""), &["show-ref"], b"").0, "{line}");
        }
        for kind in NotAFile::ALL {
            repository.replace_by(".git/packed-refs", kind);
            assert!(read_refs(&repository.git_dir()).is_err(), "{kind:?}");
        }
        repository.replace_by(".git/packed-refs", NotAFile::Directory);
        std::fs::remove_dir(repository.at(".git/packed-refs")).unwrap();
        let file = std::fs::File::create(repository.at(".git/packed-refs")).unwrap();
        file.set_len(LARGEST_PACKED_REFS + 1).unwrap();
        assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn odd_names_are_counted_and_conflicts_broken() {
        let repository = TestRepository::new(&[]);
        let commit = repository.commit("first");
        let (null, invalid) = ("0".repeat(40), [b"\xff" as &[u8], b"a..b", b"-x", b"HEAD/../../x", b".x", b"x.lock"]);
        let mut packed = format!(
            "{commit} refs/heads/a\n{commit} refs/heads/a-b\n{commit} refs/heads/a/b/c\n{commit} refs/heads/main/x\n{null} refs/heads/null\n"
        )
        .into_bytes();
        for name in invalid {
            packed.extend([commit.as_bytes(), b" refs/heads/", name, b"\n"].concat());
        }
        repository.write(".git/packed-refs", packed);
        for name in ["-x", "a b", "HEAD~", ".lock"] {
            repository.write(&format!(".git/refs/heads/{name}"), &commit);
        }
        repository.write(".git/refs/heads/HEAD", &commit);
        let refs = read_refs(&repository.git_dir()).unwrap();
        assert_eq!(refs.ids.keys().collect::<Vec<_>>(), ["refs/heads/a", "refs/heads/a-b", "refs/heads/main"]);
        let broken = ["refs/heads/HEAD", "refs/heads/a/b/c", "refs/heads/main/x", "refs/heads/null"];
        assert_eq!(refs.broken.iter().collect::<Vec<_>>(), broken);
        assert_eq!(refs.odd, invalid.len() + 3, "a file named `.lock` is a lock");
    }

    #[test]
    fn deep_directories_and_many_refs_are_bounded() {
        let repository = TestRepository::new(&[]);
        let deep = format!(".git/refs/heads/{}x", "d/".repeat(DEEPEST_DIRECTORY + 5));
        repository.write(&deep, "1".repeat(40));
        let refs = read_refs(&repository.git_dir()).unwrap();
        assert_eq!((refs.ids.len(), refs.broken.len()), (0, 1));
        assert!(refs.is_broken(&deep[".git/".len()..]));

        let mut loose = LooseRefs { refs: Refs::default(), left: 5 };
        let directory = repository.git_dir().directory(Path::new("refs")).unwrap();
        let error = loose.read_directory(&directory, "refs", 0).unwrap_err();
        assert_eq!(error.to_string(), "more than 1000000 refs");
        let line = format!("{} refs/heads/x\n", "1".repeat(40));
        assert!(add_packed_refs(&mut Refs::default(), line.repeat(3).as_bytes(), 2).is_err());
        assert!(add_packed_refs(&mut Refs::default(), line.repeat(3).as_bytes(), 3).is_ok());
    }

    #[test]
    fn names_are_valid_if_git_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let mut names = Vec::new();
        let parts = [
            "", "x", ".", "..", "a.b", "a..b", ".a", "a.", "a.lock", ".lock", "lock", "a.lockx", "@", "@{", "a@{b",
            "a@b", "{", "a b", "a~", "a^", "a:", "a?", "a*", "a[", "a]", "a\\b", "a\tb", "a\x7f", "a\x01", "é",
            "\u{200c}", "a-", "HEAD", "a'\"$;",
        ];
        for part in parts {
            for name in ["refs/PART", "refs/heads/PART", "refs/heads/PART/x", "refs/PART/x", "PART", "PART/refs/x"] {
                names.push(name.replace("PART", part));
            }
        }
        for name in names {
            let git_accepts = git(directory.path(), &["check-ref-format", &name], b"").0;
            let is_expected = git_accepts && name.starts_with("refs/") && name != "refs/heads/HEAD";
            assert_eq!(is_valid_name(&name), is_expected, "{name:?}");
        }
        for name in ["refs/heads/-x", "refs/-/x", "refs/heads/HEAD", "refs/heads", "refs/tags"] {
            assert!(!is_valid_name(name), "{name}");
        }
        for name in ["refs/stash", "refs/heads/HEAD/x", "refs/remotes/origin/HEAD"] {
            assert!(is_valid_name(name), "{name}");
        }
        assert!(is_valid_name(&format!("refs/{}", "x".repeat(LONGEST_COMPONENT))));
        assert!(!is_valid_name(&format!("refs/{}", "x".repeat(LONGEST_COMPONENT + 1))));
        assert!(!is_valid_name(&format!("refs/{}x", "x/".repeat(LONGEST_NAME / 2))));
    }

    #[test]
    fn the_reflog_of_the_stash_is_read() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        for text in ["one", "two\tthree"] {
            repository.write("file", text);
            repository.git(&["stash", "push", "-m", text]);
        }
        let entries = read_reflog(&repository.git_dir(), "refs/stash").unwrap();
        let newest_first = repository.git(&["log", "-g", "--format=%H %gs", "refs/stash"]);
        let found: Vec<String> = entries.iter().rev().map(|entry| format!("{} {}", entry.new, entry.message)).collect();
        assert_eq!(found, newest_first.lines().collect::<Vec<_>>());
        assert!(entries[0].old.is_null() && entries[1].old == entries[0].new);
        assert!(entries[0].who.starts_with("C <c@example.com> "), "{entries:?}");
        assert!(entries[0].message.ends_with(": one"));

        let line = format!("{0} {0} a\x1b\0b <x> 1 +0\tm\0n\n", "1".repeat(40));
        repository.write(".git/logs/refs/stash", format!("bad\n\n{line}\t\n{}", line.trim_end()));
        let entries = read_reflog(&repository.git_dir(), "refs/stash").unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].who.as_str(), entries[0].message.as_str()), ("a  b <x> 1 +0", "m n"));
        assert_eq!(read_reflog(&repository.git_dir(), "refs/heads/none").unwrap(), []);
        assert!(read_reflog(&repository.git_dir(), "../config").is_err());
        for kind in NotAFile::ALL {
            repository.replace_by(".git/logs/refs/stash", kind);
            assert!(read_reflog(&repository.git_dir(), "refs/stash").is_err(), "{kind:?}");
        }
    }

    #[test]
    fn the_fingerprint_changes_with_every_change() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        let mut last = fingerprint(&repository.git_dir());
        assert_eq!(fingerprint(&repository.git_dir()), last);
        let commands: [&[&str]; 8] = [
            &["branch", "x/y"],
            &["branch", "-D", "x/y"],
            &["checkout", "-q", "--detach"],
            &["update-index", "--assume-unchanged", "file"],
            &["tag", "v1"],
            &["pack-refs", "--all"],
            &["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"],
            &["update-index", "--no-assume-unchanged", "file"],
        ];
        for command in commands {
            repository.git(command);
            let now = fingerprint(&repository.git_dir());
            assert_ne!(now, last, "{command:?}");
            last = now;
        }
        for text in ["one", "two"] {
            repository.write("file", text);
            repository.git(&["stash", "push", "-m", text]);
        }
        let stash = repository.git(&["rev-parse", "refs/stash"]);
        last = fingerprint(&repository.git_dir());
        repository.git(&["reflog", "delete", "refs/stash@{1}"]);
        assert_eq!(repository.git(&["rev-parse", "refs/stash"]), stash);
        assert_ne!(fingerprint(&repository.git_dir()), last, "an older stash is dropped");
    }
}
