//! Finds the distributions in pip's cache. pip stores responses under a hash of their address, so
//! their names are read from their content.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::archive;

/// More files are not looked at.
const MAX_FILES: usize = 50_000;
/// pip's directories are at most six deep.
const MAX_DEPTH: usize = 8;
/// What precedes the content in a response that pip before 23.3 stored: a version, and the beginning
/// of a map in MessagePack.
const MAX_HEAD: usize = 64;

/// A distribution in the cache.
#[derive(Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// The project's name as an index writes it.
    pub project: String,
    /// The name of the file on an index.
    pub name: String,
    /// The path below the cache.
    pub place: String,
    pub path: PathBuf,
    /// Where the content begins in the file.
    pub offset: u64,
    pub length: u64,
}

/// Lists the distributions: responses that pip has stored, and wheels that it has built.
pub fn find(cache: &Path) -> Vec<CachedFile> {
    let mut found = Vec::new();
    let mut left = MAX_FILES;
    for (directory, read) in [("http-v2", response as Reader), ("http", response_with_content), ("wheels", built)] {
        visit(cache, Path::new(directory), MAX_DEPTH, &mut left, &mut |path, place| {
            if let Some((name, offset, length)) = read(path) {
                let project = archive::project(&name);
                found.extend(project.map(|project| CachedFile {
                    project,
                    name,
                    place: place.to_owned(),
                    path: path.to_owned(),
                    offset,
                    length,
                }));
            }
        });
    }
    found
}

/// Returns the name of the distribution in a file, and where it begins and how long it is.
type Reader = fn(&Path) -> Option<(String, u64, u64)>;

/// Calls `each` for the regular files below a directory.
fn visit(cache: &Path, place: &Path, depth: usize, left: &mut usize, each: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(cache.join(place)).into_iter().flatten().flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let (place, kind) = (place.join(entry.file_name()), entry.file_type());
        match kind {
            Ok(kind) if kind.is_dir() && depth > 0 => visit(cache, &place, depth - 1, left, each),
            Ok(kind) if kind.is_file() => {
                // A name that pip did not choose may need escapes in an address.
                if let Some(text) = place.to_str().filter(|text| archive::is_plain(&text.replace('/', ""))) {
                    each(&entry.path(), text);
                }
            }
            _ => {}
        }
    }
}

/// Since 23.3 the content of a response is a file of its own.
fn response(path: &Path) -> Option<(String, u64, u64)> {
    let is_content = path.extension().is_some_and(|extension| extension == "body");
    let length = path.metadata().ok().filter(|_| is_content)?.len();
    Some((archive::name(File::open(path).ok()?, 0, length)?, 0, length))
}

fn response_with_content(path: &Path) -> Option<(String, u64, u64)> {
    let mut file = File::open(path).ok()?;
    let (offset, length) = content(&mut file).ok()??;
    Some((archive::name(file, offset, length)?, offset, length))
}

/// Returns where the content of a stored response begins, and its length.
fn content(file: &mut File) -> io::Result<Option<(u64, u64)>> {
    let mut head = Vec::with_capacity(MAX_HEAD);
    file.take(MAX_HEAD as u64).read_to_end(&mut head)?;
    Ok(content_in(&head))
}

fn content_in(head: &[u8]) -> Option<(u64, u64)> {
    const KEY: &[u8] = b"\xa4body";
    head.starts_with(b"cc=4,").then_some(())?;
    let at = head.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let width = match head.get(at)? {
        0xc4 => 1,
        0xc5 => 2,
        0xc6 => 4,
        _ => return None,
    };
    let length = head.get(at + 1..at + 1 + width)?;
    let length = length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
    Some(((at + 1 + width) as u64, length))
}

/// A wheel that pip has built has its name.
fn built(path: &Path) -> Option<(String, u64, u64)> {
    let name = path.file_name()?.to_str().filter(|name| name.ends_with(".whl"))?;
    Some((name.to_owned(), 0, path.metadata().ok()?.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_stored_response_is_found() {
        let head = b"cc=4,\x82\xa8response\x86\xa4body\xc5\x01\x02PK\x03\x04";
        assert_eq!(content_in(head), Some((head.len() as u64 - 4, 0x102)));
        assert_eq!(content_in(b"cc=3,\x82\xa8response\x86\xa4body\xc4\x01P"), None);
        assert_eq!(content_in(b"cc=4,\x82\xa8response\x86\xa4body"), None);
        assert_eq!(content_in(b"cc=4,\x82\xa8response\x86\xa4body\xc6\0\0"), None);
        assert_eq!(content_in(b"cc=4,\x82\xa8response\x86\xa4body\xa1x"), None);
    }

    #[test]
    fn wheels_that_were_built_are_listed_and_links_are_not_followed() {
        let cache = tempfile::tempdir().unwrap();
        let directory = cache.path().join("wheels/aa/bb");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("Small_Thing-1.0-py3-none-any.whl"), "content").unwrap();
        fs::write(directory.join("origin.json"), "{}").unwrap();
        std::os::unix::fs::symlink("/", directory.join("link")).unwrap();
        let found = find(cache.path());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].project.as_str(), found[0].length), ("small-thing", 7));
        assert_eq!(found[0].place, "wheels/aa/bb/Small_Thing-1.0-py3-none-any.whl");
    }
}
