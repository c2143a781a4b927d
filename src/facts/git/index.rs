//! Parses Git's index, versions 2 to 4, from bytes that a guest controls. It neither opens files
//! nor runs Git.

use std::collections::BTreeMap;

use thiserror::Error;

pub use super::index_path::is_valid_path;
use super::object_id::ObjectId;

/// Git cannot check out a longer path on Linux.
const LONGEST_PATH: usize = 4096;
/// Version 4 stores only the part of a path that differs from the previous one, so that a small file
/// could expand to any size. A million files have paths of about 100 MiB.
const MOST_PATH_BYTES: usize = 256 << 20;

const SIGNATURE: &[u8; 4] = b"DIRC";
/// Signature, version and number of entries.
const HEADER_SIZE: usize = 12;
/// Times, device, inode, mode, user, group and size, before the id.
const STAT_SIZE: usize = 40;
const MODE_OFFSET: usize = 24;
const FLAGS_SIZE: usize = 2;
/// The signature and the size of an extension.
const EXTENSION_HEADER_SIZE: usize = 8;
/// Git makes each entry of versions 2 and 3 a multiple of this size, and ends it with 1 to 8 zeros.
const ENTRY_ALIGNMENT: usize = 8;

const FLAG_ASSUME_VALID: u16 = 0x8000;
const FLAG_EXTENDED: u16 = 0x4000;
const STAGE_SHIFT: u32 = 12;
/// The length of the path, or all ones if it is longer.
const LENGTH_MASK: u16 = 0x0fff;
const EXTENDED_SKIP_WORKTREE: u16 = 0x4000;
const EXTENDED_INTENT_TO_ADD: u16 = 0x2000;

pub const MODE_DIRECTORY: u32 = 0o040_000;
pub const MODE_LINK: u32 = 0o120_000;
pub const MODE_GITLINK: u32 = 0o160_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub mode: u32,
    pub id: ObjectId,
    pub is_skip_worktree: bool,
    pub is_intent_to_add: bool,
    pub is_assumed_valid: bool,
}

#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// By path and stage. Paths are not checked; see [`is_valid_path`].
    pub entries: BTreeMap<(Vec<u8>, u8), Entry>,
    /// Most entries are in another file, `sharedindex.*`.
    pub is_split: bool,
    /// Some entries are directories of a sparse checkout.
    pub is_sparse: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum IndexError {
    #[error("index file smaller than expected")]
    Truncated,
    #[error("bad index signature")]
    Signature,
    #[error("bad index version {0}")]
    Version(u32),
    #[error("unknown index entry format")]
    Entry,
    #[error("malformed name field in the index")]
    Path,
    #[error("paths in the index are too long")]
    TooLong,
    #[error("unordered stage entries in index")]
    Order,
    #[error("index uses `{0}` extension, which is not supported")]
    Extension(String),
    #[error("index is split")]
    Split,
    #[error("object ids of {0} bytes are not supported")]
    IdLength(usize),
}

/// Parses an index whose object ids have `id_len` bytes, 20 or 32.
///
/// The checksum at the end is not compared: the guest can compute it as well, and Git itself writes
/// zeros there if `index.skipHash` is set.
pub fn parse(content: &[u8], id_len: usize) -> Result<Index, IndexError> {
    let mut entries = Vec::new();
    let mut path_bytes = 0;
    let mut has_directory = false;
    let end = for_each_entry(content, id_len, |raw| {
        path_bytes += raw.path.len();
        if path_bytes > MOST_PATH_BYTES {
            return Err(IndexError::TooLong);
        }
        if raw.path.contains(&0) {
            return Err(IndexError::Path);
        }
        has_directory |= raw.mode == MODE_DIRECTORY;
        let entry = Entry {
            mode: raw.mode,
            id: ObjectId::from_bytes(raw.id).ok_or(IndexError::IdLength(id_len))?,
            is_skip_worktree: raw.extended & EXTENDED_SKIP_WORKTREE != 0,
            is_intent_to_add: raw.extended & EXTENDED_INTENT_TO_ADD != 0,
            is_assumed_valid: raw.flags & FLAG_ASSUME_VALID != 0,
        };
        entries.push(((raw.path.to_vec(), (raw.flags >> STAGE_SHIFT) as u8 & 3), entry));
        Ok(())
    })?;
    let extensions = read_extensions(content, end, id_len)?;
    if extensions.is_split {
        // An entry that replaces one of the shared index has no path.
        entries.retain(|((path, _), _)| !path.is_empty());
    } else {
        check_order(&entries)?;
    }
    Ok(Index {
        entries: entries.into_iter().collect(),
        is_split: extensions.is_split,
        is_sparse: extensions.is_sparse || has_directory,
    })
}

/// Requires Git's order, in which no path appears twice, apart from the stages of a conflict.
fn check_order(entries: &[((Vec<u8>, u8), Entry)]) -> Result<(), IndexError> {
    if entries.first().is_some_and(|((path, _), _)| path.is_empty()) {
        return Err(IndexError::Path);
    }
    let is_ordered = entries.is_sorted_by(|(a, _), (b, _)| a < b && (a.1 != 0 || a.0 != b.0));
    if is_ordered { Ok(()) } else { Err(IndexError::Order) }
}

/// Returns the paths of gitlinks, without storing the other entries. It is called at every launch.
/// Fails if the index is split, because the other file may contain some, too.
pub fn gitlinks(content: &[u8], id_len: usize) -> Result<Vec<Vec<u8>>, IndexError> {
    let mut paths = Vec::new();
    let mut path_bytes = 0;
    let end = for_each_entry(content, id_len, |raw| {
        if raw.mode == MODE_GITLINK {
            path_bytes += raw.path.len();
            if path_bytes > MOST_PATH_BYTES {
                return Err(IndexError::TooLong);
            }
            if raw.path.contains(&0) {
                return Err(IndexError::Path);
            }
            paths.push(raw.path.to_vec());
        }
        Ok(())
    })?;
    if read_extensions(content, end, id_len)?.is_split { Err(IndexError::Split) } else { Ok(paths) }
}

struct RawEntry<'a> {
    mode: u32,
    id: &'a [u8],
    flags: u16,
    /// Zero if the entry has no extended flags.
    extended: u16,
    /// May contain zeros; Git does not store any.
    path: &'a [u8],
}

/// Calls `visit` for each entry, and returns the offset after the last one.
fn for_each_entry(
    content: &[u8],
    id_len: usize,
    mut visit: impl FnMut(RawEntry<'_>) -> Result<(), IndexError>,
) -> Result<usize, IndexError> {
    if !matches!(id_len, 20 | 32) {
        return Err(IndexError::IdLength(id_len));
    }
    if content.get(..4).ok_or(IndexError::Truncated)? != SIGNATURE {
        return Err(IndexError::Signature);
    }
    let version = read_u32(content, 4)?;
    if !(2..=4).contains(&version) {
        return Err(IndexError::Version(version));
    }
    let count = read_u32(content, 8)? as usize;
    // The checksum follows the entries and the extensions.
    let content = content.len().checked_sub(id_len).and_then(|end| content.get(..end)).ok_or(IndexError::Truncated)?;
    let fixed_size = STAT_SIZE + id_len + FLAGS_SIZE;
    let room = content.len().checked_sub(HEADER_SIZE).ok_or(IndexError::Truncated)?;
    if count > room / (fixed_size + 1) {
        return Err(IndexError::Truncated);
    }
    let mut offset = HEADER_SIZE;
    let mut previous = Vec::new();
    for _ in 0..count {
        let rest = content.get(offset..).ok_or(IndexError::Truncated)?;
        let (fixed, variable) = rest.split_at_checked(fixed_size).ok_or(IndexError::Truncated)?;
        let mode = read_u32(fixed, MODE_OFFSET)?;
        let id = fixed.get(STAT_SIZE..STAT_SIZE + id_len).ok_or(IndexError::Truncated)?;
        let flags = read_u16(fixed, STAT_SIZE + id_len)?;
        let mut extended = 0;
        let mut name_offset = 0;
        if flags & FLAG_EXTENDED != 0 {
            extended = read_u16(variable, 0)?;
            name_offset = FLAGS_SIZE;
            if extended & !(EXTENDED_SKIP_WORKTREE | EXTENDED_INTENT_TO_ADD) != 0 {
                return Err(IndexError::Entry);
            }
        }
        let name = variable.get(name_offset..).ok_or(IndexError::Truncated)?;
        let (path, name_size) = if version == 4 {
            let name_size = expand_path(&mut previous, name, flags & LENGTH_MASK)?;
            (previous.as_slice(), name_size)
        } else {
            let length = flags & LENGTH_MASK;
            let path = string(name, if length == LENGTH_MASK { end_of_string(name)? } else { usize::from(length) })?;
            let unpadded = fixed_size + name_offset + path.len();
            let size = (unpadded + ENTRY_ALIGNMENT) & !(ENTRY_ALIGNMENT - 1);
            (path, size - fixed_size - name_offset)
        };
        if path.len() > LONGEST_PATH {
            return Err(IndexError::TooLong);
        }
        if path.len().min(usize::from(LENGTH_MASK)) != usize::from(flags & LENGTH_MASK) {
            return Err(IndexError::Path);
        }
        visit(RawEntry { mode, id, flags, extended, path })?;
        offset += fixed_size + name_offset + name_size;
    }
    if offset > content.len() { Err(IndexError::Truncated) } else { Ok(offset) }
}

/// Makes the path of a version 4 entry from the previous one, and returns the size it has in the
/// file.
fn expand_path(previous: &mut Vec<u8>, name: &[u8], length: u16) -> Result<usize, IndexError> {
    let (removed, number_size) = read_varint(name)?;
    let kept = previous.len().checked_sub(removed).ok_or(IndexError::Path)?;
    let added = name.get(number_size..).ok_or(IndexError::Truncated)?;
    let added_length = if length == LENGTH_MASK {
        end_of_string(added)?
    } else {
        usize::from(length).checked_sub(kept).ok_or(IndexError::Path)?
    };
    let added = string(added, added_length)?;
    previous.truncate(kept);
    previous.extend_from_slice(added);
    Ok(number_size + added.len() + 1)
}

/// Returns the first `length` bytes, which a zero must follow.
fn string(bytes: &[u8], length: usize) -> Result<&[u8], IndexError> {
    match bytes.get(length) {
        Some(0) => bytes.get(..length).ok_or(IndexError::Truncated),
        Some(_) => Err(IndexError::Path),
        None => Err(IndexError::Truncated),
    }
}

fn end_of_string(bytes: &[u8]) -> Result<usize, IndexError> {
    // No path is longer, and without this limit each of many entries could be as long as the file.
    let longest = bytes.get(..=LONGEST_PATH);
    let end = longest.unwrap_or(bytes).iter().position(|byte| *byte == 0);
    end.ok_or(if longest.is_some() { IndexError::TooLong } else { IndexError::Truncated })
}

/// Reads a number in the encoding of pack offsets, and returns the size it has in the file.
fn read_varint(bytes: &[u8]) -> Result<(usize, usize), IndexError> {
    let mut value = 0usize;
    for (index, byte) in bytes.iter().enumerate() {
        value = value
            .checked_mul(128)
            .and_then(|value| value.checked_add(usize::from(byte & 127)))
            .ok_or(IndexError::Path)?;
        if byte & 128 == 0 {
            return Ok((value, index + 1));
        }
        value = value.checked_add(1).ok_or(IndexError::Path)?;
    }
    Err(IndexError::Truncated)
}

struct Extensions {
    is_split: bool,
    is_sparse: bool,
}

/// Reads the names of the extensions. Git ignores those it does not know if they start with an
/// upper-case letter.
fn read_extensions(content: &[u8], mut offset: usize, id_len: usize) -> Result<Extensions, IndexError> {
    let end = content.len().checked_sub(id_len).ok_or(IndexError::Truncated)?;
    let mut found = Extensions { is_split: false, is_sparse: false };
    while offset < end {
        let name = content.get(offset..end).and_then(|rest| rest.get(..4)).ok_or(IndexError::Truncated)?;
        match name {
            b"link" => found.is_split = true,
            b"sdir" => found.is_sparse = true,
            [b'A'..=b'Z', ..] => {}
            _ => return Err(IndexError::Extension(name.escape_ascii().to_string())),
        }
        let size = read_u32(content, offset + 4)? as usize;
        offset = offset
            .checked_add(EXTENSION_HEADER_SIZE)
            .and_then(|offset| offset.checked_add(size))
            .ok_or(IndexError::Truncated)?;
    }
    if offset == end { Ok(found) } else { Err(IndexError::Truncated) }
}

fn read_u32(bytes: &[u8], offset: usize) -> Result<u32, IndexError> {
    let bytes = bytes.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(IndexError::Truncated)?;
    Ok(u32::from_be_bytes(*bytes))
}

fn read_u16(bytes: &[u8], offset: usize) -> Result<u16, IndexError> {
    let bytes = bytes.get(offset..).and_then(|rest| rest.first_chunk()).ok_or(IndexError::Truncated)?;
    Ok(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::facts::git::test_repository::TestRepository;

    const SHA1: usize = 20;

    fn content(repository: &TestRepository) -> Vec<u8> {
        std::fs::read(repository.at(".git/index")).unwrap()
    }

    fn version(content: &[u8]) -> u32 {
        read_u32(content, 4).unwrap()
    }

    /// Lists entries in the format of `git ls-files --stage`.
    fn listed(index: &Index) -> Vec<String> {
        let line = |((path, stage), entry): (&(Vec<u8>, u8), &Entry)| {
            format!("{:06o} {} {stage}\t{}", entry.mode, entry.id, String::from_utf8_lossy(path))
        };
        index.entries.iter().map(line).collect()
    }

    fn listed_by_git(repository: &TestRepository) -> Vec<String> {
        let text = repository.git(&["ls-files", "--stage", "-z", "--sparse"]);
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    /// Makes an index with conflicts, gitlinks, links, long and odd names, and all flags.
    fn varied(options: &[&str], version: &str) -> TestRepository {
        let repository = TestRepository::new(options);
        let blob = repository.git_with_input(&["hash-object", "-w", "--stdin"], b"text");
        let commit = repository.commit("first");
        let mut lines = String::new();
        for n in 0..300 {
            lines += &format!("100644 {blob} 0\tdirectory/{n:0width$}\n", width = n % 40);
        }
        for stage in 1..=3 {
            lines += &format!("100755 {blob} {stage}\tconflict/{stage}\n100644 {blob} {stage}\tconflict/all\n");
        }
        for length in [4000, 4094, 4095, 4096] {
            lines += &format!("100644 {blob} 0\tlong/{}\n", "x".repeat(length - 5));
        }
        lines += &format!("120000 {blob} 0\tlink\n160000 {commit} 0\tsub/module\n160000 {commit} 0\tzz\n");
        lines += &format!("100644 {blob} 0\tz\\b é\n");
        repository.git_with_input(&["update-index", "--index-info"], lines.as_bytes());
        if version != "2" {
            repository.write("new", "new");
            repository.git(&["add", "--intent-to-add", "new"]);
            repository.git(&["update-index", "--skip-worktree", "directory/1"]);
        }
        repository.git(&["update-index", "--assume-unchanged", "directory/0"]);
        repository.git(&["update-index", "--index-version", version]);
        repository
    }

    #[test]
    fn entries_are_those_of_git() {
        for (format, id_len) in [("--object-format=sha1", SHA1), ("--object-format=sha256", 32)] {
            for expected in ["2", "3", "4"] {
                let repository = varied(&[format], expected);
                let content = content(&repository);
                assert_eq!(version(&content).to_string(), expected);
                let index = parse(&content, id_len).unwrap();
                assert_eq!(listed(&index), listed_by_git(&repository), "version {expected}");
                assert!(!index.is_split && !index.is_sparse);
                assert_eq!(gitlinks(&content, id_len).unwrap(), [b"sub/module".to_vec(), b"zz".to_vec()]);
                for ((path, _), entry) in &index.entries {
                    let is_extended = expected != "2";
                    assert_eq!(entry.is_intent_to_add, is_extended && path == b"new");
                    assert_eq!(entry.is_skip_worktree, is_extended && path == b"directory/1");
                    assert_eq!(entry.is_assumed_valid, path == b"directory/0");
                }
                assert!(parse(&content, if id_len == SHA1 { 32 } else { SHA1 }).is_err());
            }
        }
    }

    #[test]
    fn split_and_sparse_indexes_are_recognised() {
        let repository = varied(&[], "3");
        repository.git(&["update-index", "--split-index"]);
        repository.write("added", "x");
        repository.write("file", "changed");
        repository.git(&["add", "added", "file"]);
        let index = parse(&content(&repository), SHA1).unwrap();
        assert!(index.is_split);
        assert!(index.entries.contains_key(&(b"added".to_vec(), 0)) && index.entries.len() == 1, "{index:?}");
        assert_eq!(gitlinks(&content(&repository), SHA1), Err(IndexError::Split));

        let repository = TestRepository::new(&[]);
        for path in ["a/1", "a/2", "b/1"] {
            repository.write(path, "x");
        }
        repository.git(&["add", "."]);
        repository.commit("first");
        repository.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "a"]);
        let index = parse(&content(&repository), SHA1).unwrap();
        assert!(index.is_sparse && !index.is_split);
        assert_eq!(listed(&index), listed_by_git(&repository));
        assert_eq!(index.entries[&(b"b/".to_vec(), 0)].mode, MODE_DIRECTORY);
        assert_eq!(gitlinks(&content(&repository), SHA1).unwrap(), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn extensions_of_git_are_accepted_and_unknown_ones_refused() {
        let repository = varied(&[], "2");
        repository.git(&["update-index", "--force-untracked-cache"]);
        repository.git(&[
            "-c",
            "index.threads=2",
            "-c",
            "index.recordEndOfIndexEntries=true",
            "update-index",
            "--force-write-index",
        ]);
        let content = content(&repository);
        let has = |name: &[u8]| content.windows(4).any(|bytes| bytes == name);
        assert!(has(b"UNTR") && has(b"EOIE"));
        let index = parse(&content, SHA1).unwrap();
        let (start, checksum) = content.split_at(content.len() - SHA1);
        let with = |extension: &[u8]| [start, extension, checksum].concat();
        assert_eq!(parse(&with(b"ABCD\0\0\0\x01x"), SHA1).as_ref(), Ok(&index));
        assert!(parse(&with(b"link\0\0\0\0"), SHA1).unwrap().is_split);
        assert!(parse(&with(b"sdir\0\0\0\0"), SHA1).unwrap().is_sparse);
        for name in [b"abcd", b"\0\0\0\0", b"lonk"] {
            let content = with(&[name.as_slice(), b"\0\0\0\0"].concat());
            assert_eq!(parse(&content, SHA1), Err(IndexError::Extension(name.escape_ascii().to_string())));
            assert!(gitlinks(&content, SHA1).is_err());
        }
        for extension in [b"A" as &[u8], b"ABCD\0\0\0\x02x", b"ABCD\xff\xff\xff\xff"] {
            assert_eq!(parse(&with(extension), SHA1), Err(IndexError::Truncated), "{extension:?}");
        }
    }

    /// Makes one entry of version 2 or, if it has a number for the removed bytes, of version 4.
    fn entry(flags: u16, name: &[u8]) -> Vec<u8> {
        let mut entry = vec![0; STAT_SIZE + SHA1];
        entry[MODE_OFFSET..MODE_OFFSET + 4].copy_from_slice(&MODE_GITLINK.to_be_bytes());
        entry.extend(flags.to_be_bytes());
        entry.extend(name);
        entry
    }

    fn index(version: u32, count: u32, entries: &[Vec<u8>]) -> Vec<u8> {
        let header = [SIGNATURE.as_slice(), &version.to_be_bytes(), &count.to_be_bytes()].concat();
        [header, entries.concat(), vec![0; SHA1]].concat()
    }

    #[test]
    fn malformed_entries_are_refused() {
        let good = |path: u8| entry(1, &[path, 0]);
        assert_eq!(parse(&index(2, 2, &[good(b'a'), good(b'b')]), SHA1).unwrap().entries.len(), 2);
        let staged = |stage: u16, path: u8| entry(stage << STAGE_SHIFT | 1, &[path, 0]);
        assert_eq!(parse(&index(2, 2, &[staged(1, b'a'), staged(3, b'a')]), SHA1).unwrap().entries.len(), 2);
        let cases = [
            (vec![], IndexError::Truncated),
            (b"DIRX".to_vec(), IndexError::Signature),
            (index(1, 0, &[]), IndexError::Version(1)),
            (index(5, 0, &[]), IndexError::Version(5)),
            (index(2, 1, &[]), IndexError::Truncated),
            (index(2, u32::MAX, &[good(b'a')]), IndexError::Truncated),
            (index(4, u32::MAX, &[good(b'a')]), IndexError::Truncated),
            (index(2, 1, &[entry(2, b"a\0")]), IndexError::Truncated),
            (index(2, 1, &[entry(1, b"ab\0\0\0\0\0\0\0\0")]), IndexError::Path),
            (index(2, 1, &[entry(3, b"a\0b\0\0\0\0\0\0\0")]), IndexError::Path),
            (index(2, 1, &[entry(0, b"\0\0")]), IndexError::Path),
            (index(2, 1, &[entry(LENGTH_MASK, b"a\0")]), IndexError::Path),
            (index(2, 1, &[entry(LENGTH_MASK, &[b'a'; 5000])]), IndexError::TooLong),
            (index(2, 1, &[entry(LENGTH_MASK, &[b'a'; 500])]), IndexError::Truncated),
            (index(3, 1, &[entry(FLAG_EXTENDED | 1, b"\x80\0a\0\0\0\0\0\0\0")]), IndexError::Entry),
            (index(3, 1, &[entry(FLAG_EXTENDED | 1, b"\0\x01a\0\0\0\0\0\0\0")]), IndexError::Entry),
            (index(2, 2, &[good(b'b'), good(b'a')]), IndexError::Order),
            (index(2, 2, &[good(b'a'), good(b'a')]), IndexError::Order),
            (index(2, 2, &[staged(0, b'a'), staged(1, b'a')]), IndexError::Order),
            (index(2, 2, &[staged(2, b'a'), staged(1, b'a')]), IndexError::Order),
            (index(4, 1, &[entry(1, b"\x01a\0")]), IndexError::Path),
            (index(4, 1, &[entry(1, b"\0ab\0")]), IndexError::Path),
            (index(4, 2, &[entry(2, b"\0ab\0"), entry(1, b"\0\0")]), IndexError::Path),
            (index(4, 1, &[entry(1, &[0xff; 30])]), IndexError::Path),
            (index(4, 1, &[entry(1, &[0x80; 5])]), IndexError::Truncated),
        ];
        for (number, (content, error)) in cases.into_iter().enumerate() {
            assert_eq!(parse(&content, SHA1).err(), Some(error), "case {number}");
        }
        assert_eq!(parse(&index(2, 0, &[]), 16), Err(IndexError::IdLength(16)));
        let zero = index(2, 1, &[entry(3, b"a\0b\0\0\0\0\0\0\0")]);
        assert_eq!(gitlinks(&zero, SHA1), Err(IndexError::Path));
    }

    #[test]
    fn prefix_compression_cannot_fill_the_memory() {
        let long = [b"\0".as_slice(), &[b'a'; LONGEST_PATH - 4], b"0000\0"].concat();
        let mut entries = vec![entry(LENGTH_MASK, &long)];
        for number in 1..=(MOST_PATH_BYTES / LONGEST_PATH) as u32 {
            let changed = char::from_u32(0x10000 + number).unwrap().to_string();
            assert_eq!(changed.len(), 4);
            entries.push(entry(LENGTH_MASK, &[b"\x04", changed.as_bytes(), b"\0"].concat()));
        }
        let content = index(4, entries.len() as u32, &entries);
        assert!(content.len() < 6 << 20);
        for result in [parse(&content, SHA1).err(), gitlinks(&content, SHA1).err()] {
            assert_eq!(result, Some(IndexError::TooLong));
        }
        let longer = entry(LENGTH_MASK, &[b"\0".as_slice(), b"x", b"\0"].concat());
        assert_eq!(parse(&index(4, 2, &[entry(LENGTH_MASK, &long), longer]), SHA1).err(), Some(IndexError::TooLong));
    }

    #[test]
    fn a_hundred_thousand_entries_are_parsed_quickly() {
        let repository = TestRepository::new(&[]);
        let blob = repository.git_with_input(&["hash-object", "-w", "--stdin"], b"text");
        let line = |n: u32| {
            let (mode, path) =
                if n.is_multiple_of(10_000) { (160_000, "module") } else { (100_644, "source/component") };
            format!("{mode} {blob} 0\t{path}-{}/file-{n:06}.rs\n", n / 100)
        };
        let lines: String = (0..100_000).map(line).collect();
        repository.git_with_input(&["update-index", "--index-info"], lines.as_bytes());
        for version in ["2", "4"] {
            repository.git(&["update-index", "--index-version", version]);
            let content = content(&repository);
            let start = Instant::now();
            let index = parse(&content, SHA1).unwrap();
            let parsed = start.elapsed();
            let start = Instant::now();
            let links = gitlinks(&content, SHA1).unwrap();
            let scanned = start.elapsed();
            assert_eq!((index.entries.len(), links.len()), (100_000, 10));
            assert!(listed(&index) == listed_by_git(&repository), "version {version}");
            // These limits only fail if the cost is not linear; other programs use the processor, too.
            assert!(parsed.as_millis() < 1000 && scanned.as_millis() < 100, "{parsed:?} {scanned:?}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

        #[test]
        fn random_bytes_are_parsed_without_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            version in 0u32..6,
            count in 0u32..4,
            sha256 in proptest::prelude::any::<bool>(),
        ) {
            let id_len = if sha256 { 32 } else { SHA1 };
            let _ = parse(&bytes, id_len);
            let content = index(version, count, &[bytes]);
            let _ = (parse(&content, id_len), gitlinks(&content, id_len));
        }
    }

    #[test]
    fn changed_indexes_are_parsed_without_panic() {
        use proptest::prelude::any;
        use proptest::test_runner::{Config, TestRunner};

        for (version, format, id_len) in
            [("2", "sha1", SHA1), ("3", "sha256", 32), ("4", "sha1", SHA1), ("4", "sha256", 32)]
        {
            let original = content(&varied(&[&format!("--object-format={format}")], version));
            let change = (any::<proptest::sample::Index>(), any::<u8>());
            let changes = proptest::collection::vec(change, 1..8);
            let cut = proptest::option::weighted(0.2, any::<proptest::sample::Index>());
            let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(1000) });
            let tested = runner.run(&(changes, cut), |(changes, cut)| {
                let mut content = original.clone();
                for (at, value) in changes {
                    content[at.index(original.len())] = value;
                }
                if let Some(cut) = cut {
                    content.truncate(cut.index(original.len()));
                }
                if let (Ok(index), Ok(links)) = (parse(&content, id_len), gitlinks(&content, id_len)) {
                    let is_link =
                        |path: &Vec<u8>| (0..4).any(|stage| index.entries.contains_key(&(path.clone(), stage)));
                    proptest::prop_assert!(links.iter().all(is_link));
                }
                Ok(())
            });
            tested.unwrap();
        }
    }
}
