//! Names a distribution by its content: a wheel by the directory and the tags in it, a source
//! distribution by its first directory. Reads a bounded part of it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use flate2::read::{DeflateDecoder, GzDecoder};

/// The record at the end of a zip file, without a comment.
const END_RECORD: usize = 22;
/// The longest comment.
const MAX_COMMENT: u64 = 0xffff;
/// The list of the files of the largest wheels has some MB.
const MAX_LIST: u64 = 32 << 20;
/// The file with the tags has some hundred bytes.
const MAX_TAGS: u64 = 64 << 10;
/// How much of a source distribution is unpacked to find its first name.
const MAX_SOURCE: u64 = 1 << 20;

/// Returns the name of the file on an index. The distribution is `length` bytes at `offset`.
pub fn name(mut file: File, offset: u64, length: u64) -> Option<String> {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, offset).ok()?;
    let name = match magic {
        [b'P', b'K', 3, 4] => wheel(&Zip { file, offset, length }),
        [0x1f, 0x8b, ..] => {
            file.seek(SeekFrom::Start(offset)).ok()?;
            source(file.take(length))
        }
        _ => None,
    };
    name.filter(|name| is_plain(name))
}

/// Tells whether a name needs no escapes in an address.
pub fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+!".contains(&byte))
}

/// Returns the project of a distribution, by the name of its file.
pub fn project(name: &str) -> Option<String> {
    let project = match name.strip_suffix(".tar.gz") {
        Some(source) => source.rsplit_once('-')?.0,
        None => name.strip_suffix(".whl")?.split_once('-')?.0,
    };
    Some(normalized(project))
}

/// Returns a project's name as an index writes it: in lower case, with one `-` for `-`, `_` and `.`.
pub fn normalized(project: &str) -> String {
    let parts = project.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// A zip file within another.
struct Zip {
    file: File,
    offset: u64,
    length: u64,
}

impl Zip {
    fn read(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        (at.checked_add(length)? <= self.length).then_some(())?;
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        self.file.read_exact_at(&mut bytes, self.offset + at).ok()?;
        Some(bytes)
    }

    /// Returns the list of the files: the central directory.
    fn list(&self) -> Option<Vec<u8>> {
        let tail_length = self.length.min(END_RECORD as u64 + MAX_COMMENT);
        let tail = self.read(self.length - tail_length, tail_length)?;
        let end = tail.windows(END_RECORD).rposition(|window| window.starts_with(b"PK\x05\x06"))?;
        let (length, at) = (number(&tail, end + 12, 4)?, number(&tail, end + 16, 4)?);
        (length <= MAX_LIST).then(|| self.read(at, length))?
    }
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// A wheel's name has the tags of its file `WHEEL`, which is in the directory `NAME-VERSION.dist-info`.
fn wheel(zip: &Zip) -> Option<String> {
    let list = zip.list()?;
    let mut at = 0;
    while list.get(at..at + 4) == Some(b"PK\x01\x02") {
        let field = |offset, width| number(&list, at + offset, width);
        let name_length = field(28, 2)? as usize;
        let name = list.get(at + 46..at + 46 + name_length)?;
        let distribution = std::str::from_utf8(name).ok().and_then(|name| name.strip_suffix(".dist-info/WHEEL"));
        if let Some(distribution) = distribution.filter(|name| !name.contains('/')) {
            let (method, length, start) = (field(10, 2)?, field(20, 4)?, field(42, 4)?);
            let head = zip.read(start, 30)?;
            let content = start + 30 + number(&head, 26, 2)? + number(&head, 28, 2)?;
            let packed = (length <= MAX_TAGS).then(|| zip.read(content, length))??;
            return wheel_name(distribution, &unpack(method, packed)?);
        }
        at += 46 + name_length + field(30, 2)? as usize + field(32, 2)? as usize;
    }
    None
}

fn unpack(method: u64, packed: Vec<u8>) -> Option<String> {
    match method {
        0 => String::from_utf8(packed).ok(),
        8 => {
            let mut text = String::new();
            DeflateDecoder::new(packed.as_slice()).take(MAX_TAGS).read_to_string(&mut text).ok()?;
            Some(text)
        }
        _ => None,
    }
}

/// Each tag is an interpreter, an ABI and a platform; a name has all of each.
fn wheel_name(distribution: &str, tags: &str) -> Option<String> {
    let mut parts: [Vec<&str>; 3] = Default::default();
    let mut build = None;
    for (key, value) in tags.lines().filter_map(|line| line.split_once(": ")) {
        match key {
            "Build" => build = Some(value.trim()),
            "Tag" => {
                for (part, text) in parts.iter_mut().zip(value.trim().splitn(3, '-')) {
                    if !part.contains(&text) {
                        part.push(text);
                    }
                }
            }
            _ => {}
        }
    }
    let tags = parts.map(|part| part.join("."));
    let named = [distribution].into_iter().chain(build).chain(tags.iter().map(String::as_str));
    let name = named.collect::<Vec<_>>().join("-");
    tags.iter().all(|tag| !tag.is_empty()).then(|| format!("{name}.whl"))
}

/// A source distribution has one directory, `NAME-VERSION`.
fn source(packed: impl Read) -> Option<String> {
    let mut archive = tar::Archive::new(GzDecoder::new(packed).take(MAX_SOURCE));
    let first = archive.entries().ok()?.next()?.ok()?;
    let path = first.path().ok()?;
    let directory = path.components().next()?.as_os_str().to_str()?;
    directory.rsplit_once('-').map(|_| format!("{directory}.tar.gz"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn projects_are_named_as_an_index_names_them() {
        assert_eq!(project("Foo.Bar__baz-1.0-py3-none-any.whl").as_deref(), Some("foo-bar-baz"));
        assert_eq!(project("python-dateutil-2.9.0.tar.gz").as_deref(), Some("python-dateutil"));
        assert_eq!(project("page.html"), None);
    }

    #[test]
    fn a_wheel_is_named_by_its_tags() {
        let tags =
            "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_17_x86_64\nTag: cp311-cp311-manylinux2014_x86_64\n";
        let name = "numpy-2.1.3-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl";
        assert_eq!(wheel_name("numpy-2.1.3", tags).as_deref(), Some(name));
        assert_eq!(
            wheel_name("a-1", "Build: 2\nTag: py2-none-any\nTag: py3-none-any\n").as_deref(),
            Some("a-1-2-py2.py3-none-any.whl")
        );
        assert_eq!(wheel_name("a-1", "Tag: py3\n"), None);
        assert_eq!(wheel_name("a-1", ""), None);
    }

    fn written(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    /// Makes a zip file with one stored file.
    fn zip(name: &str, content: &str) -> Vec<u8> {
        let (name_length, length) = ((name.len() as u16).to_le_bytes(), (content.len() as u32).to_le_bytes());
        let mut zip = [b"PK\x03\x04".as_slice(), &[0; 14], &length, &length, &name_length, &[0; 2]].concat();
        zip.extend([name.as_bytes(), content.as_bytes()].concat());
        let at = zip.len() as u32;
        zip.extend([b"PK\x01\x02".as_slice(), &[0; 16], &length, &length, &name_length, &[0; 16]].concat());
        zip.extend(name.as_bytes());
        let list = (zip.len() as u32 - at).to_le_bytes();
        zip.extend([b"PK\x05\x06".as_slice(), &[0; 8], &list, &at.to_le_bytes(), &[0; 2]].concat());
        zip
    }

    #[test]
    fn a_wheel_is_found_within_another_file() {
        let wheel = zip("small-1.0.dist-info/WHEEL", "Tag: py3-none-any\n");
        let file = written(&[b"before".as_slice(), &wheel, b"after"].concat());
        assert_eq!(name(file, 6, wheel.len() as u64).as_deref(), Some("small-1.0-py3-none-any.whl"));
        let other = zip("small-1.0.dist-info/RECORD", "");
        assert_eq!(name(written(&other), 0, other.len() as u64), None);
    }

    #[test]
    fn a_source_distribution_is_named_by_its_directory() {
        let mut archive = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        archive.append_data(&mut header, "small-1.0/setup.py", std::io::empty()).unwrap();
        let packed = archive.into_inner().unwrap().finish().unwrap();
        assert_eq!(name(written(&packed), 0, packed.len() as u64).as_deref(), Some("small-1.0.tar.gz"));
    }

    proptest::proptest! {
        /// The content is the guest's, so nothing in it may end the server.
        #[test]
        fn no_content_ends_the_server(prefix in 0_u8..3, mut content: Vec<u8>, length: u64) {
            let magic: &[u8] = [b"PK\x03\x04".as_slice(), b"\x1f\x8b\x08", b""][usize::from(prefix)];
            content.splice(0..0, magic.iter().copied());
            content.extend([b"PK\x05\x06".as_slice(), &[0; 18]].concat());
            for length in [content.len() as u64, length] {
                let _ = name(written(&content), 0, length);
            }
        }

        #[test]
        fn no_change_of_a_wheel_ends_the_server(at in 0_usize..160, byte: u8) {
            let mut wheel = zip("small-1.0.dist-info/WHEEL", "Tag: py3-none-any\n");
            let at = at % wheel.len();
            wheel[at] = byte;
            let length = wheel.len() as u64;
            let _ = name(written(&wheel), 0, length);
        }
    }
}
