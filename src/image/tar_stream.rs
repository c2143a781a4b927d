//! Reads the entries of a tar stream, with limits on everything that is held in memory. Parses names
//! and sizes, and decides nothing about them.
//!
//! The `tar` crate parses the headers. Its iterator is not used: it reads long names and extended
//! headers of any length into memory.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// Longer than any path that a kernel accepts.
const LONGEST_NAME: u64 = 16 * 1024;
/// Extended headers hold names, times and extended attributes.
const LONGEST_EXTENSION: u64 = 1024 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub struct TarEntry {
    pub path: PathBuf,
    pub kind: TarKind,
    pub size: u64,
    /// The permissions, with the set-id and sticky bits.
    pub mode: u32,
    /// Seconds since 1970.
    pub modified: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum TarKind {
    File,
    Directory,
    Symlink(PathBuf),
    HardLink(PathBuf),
    Fifo,
    /// A character or block device.
    Device,
}

/// A tar stream that is read from start to end.
pub struct TarStream<R> {
    inner: R,
    /// How much of the current entry's content has not been read.
    left: u64,
    /// What follows the content up to the next header.
    padding: u64,
}

/// What extended headers say about the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<i64>,
    is_sparse: bool,
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.into())
}

impl<R: Read> TarStream<R> {
    pub fn new(inner: R) -> Self {
        TarStream { inner, left: 0, padding: 0 }
    }

    /// Returns the next entry; `None` at the end of the archive. What was not read of the content of
    /// the previous one is skipped.
    pub fn next(&mut self) -> io::Result<Option<TarEntry>> {
        let mut extension = Extension::default();
        loop {
            self.skip_to_header()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let size = header.entry_size().map_err(|_| invalid("an entry of the archive has no valid size"))?;
            match kind {
                EntryType::GNULongName => extension.path = Some(self.name(size)?),
                EntryType::GNULongLink => extension.link = Some(self.name(size)?),
                EntryType::XHeader => {
                    extension.read(&self.content(size, LONGEST_EXTENSION, "an extended header")?)?
                }
                // Applies to all entries, and no writer of images puts names or sizes there.
                EntryType::XGlobalHeader => drop(self.content(size, LONGEST_EXTENSION, "an extended header")?),
                _ => return self.entry(&header, size, extension).map(Some),
            }
        }
    }

    fn entry(&mut self, header: &Header, size: u64, extension: Extension) -> io::Result<TarEntry> {
        let path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
        let path = PathBuf::from(OsString::from_vec(path));
        let link = || {
            let link = extension.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
            link.map(|link| PathBuf::from(OsString::from_vec(link)))
                .filter(|link| !link.as_os_str().is_empty())
                .ok_or_else(|| invalid(format!("`{}` is a link without a target", path.display())))
        };
        if extension.is_sparse || header.entry_type() == EntryType::GNUSparse {
            return Err(invalid(format!(
                "`{}` is a sparse file, which layers of images do not contain",
                path.display()
            )));
        }
        let is_directory_name = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        let kind = match header.entry_type() {
            // Old archives mark directories by their names only.
            EntryType::Regular | EntryType::Continuous if is_directory_name => TarKind::Directory,
            EntryType::Regular | EntryType::Continuous => TarKind::File,
            EntryType::Directory => TarKind::Directory,
            EntryType::Symlink => TarKind::Symlink(link()?),
            EntryType::Link => TarKind::HardLink(link()?),
            EntryType::Fifo => TarKind::Fifo,
            EntryType::Char | EntryType::Block => TarKind::Device,
            other => {
                let kind = char::from(other.as_byte()).escape_default();
                return Err(invalid(format!("`{}` has the unknown type `{kind}`", path.display())));
            }
        };
        // Only files have content, whatever the header says.
        let size = if kind == TarKind::File { extension.size.unwrap_or(size) } else { 0 };
        self.begin(size)?;
        let mode = header.mode().map_err(|_| invalid(format!("`{}` has no valid mode", path.display())))?;
        let modified = extension
            .modified
            .unwrap_or_else(|| header.mtime().ok().and_then(|time| time.try_into().ok()).unwrap_or(0));
        Ok(TarEntry { path, kind, size, mode, modified })
    }

    fn begin(&mut self, size: u64) -> io::Result<()> {
        self.left = size;
        self.padding = size.checked_next_multiple_of(BLOCK).ok_or_else(|| invalid("an entry is too large"))? - size;
        Ok(())
    }

    /// Reads a header; `None` at the end, which is a block of zeros or the end of the stream.
    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < block.len() {
            match self.inner.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(invalid("the archive ends within a header")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = |range: &[u8]| range.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let expected = sum(&block[..148]) + sum(&block[156..]) + 8 * u32::from(b' ');
        if header.cksum().ok() != Some(expected) {
            return Err(invalid("a header of the archive has a wrong checksum"));
        }
        Ok(Some(header))
    }

    /// Reads a name, which ends at the first NUL.
    fn name(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut name = self.content(size, LONGEST_NAME, "a name")?;
        if let Some(end) = name.iter().position(|byte| *byte == 0) {
            name.truncate(end);
        }
        Ok(name)
    }

    fn content(&mut self, size: u64, most: u64, what: &str) -> io::Result<Vec<u8>> {
        if size > most {
            return Err(invalid(format!("the archive contains {what} of {size} bytes")));
        }
        self.begin(size)?;
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        Ok(content)
    }

    fn skip_to_header(&mut self) -> io::Result<()> {
        self.left += std::mem::take(&mut self.padding);
        io::copy(self, &mut io::sink()).map(drop)
    }

    pub fn into_inner(self) -> R {
        self.inner
    }
}

/// Reads the content of the current entry.
impl<R: Read> Read for TarStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(invalid("the archive ends within a file"));
        }
        self.left -= count as u64;
        Ok(count)
    }
}

impl Extension {
    /// Reads records of the form `LENGTH KEY=VALUE\n`.
    fn read(&mut self, mut records: &[u8]) -> io::Result<()> {
        let malformed = || invalid("an extended header of the archive is malformed");
        while !records.is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
            let length = std::str::from_utf8(&records[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length =
                length.filter(|length| *length > space + 1 && *length <= records.len()).ok_or_else(malformed)?;
            let (record, rest) = records.split_at(length);
            records = rest;
            let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(malformed)?;
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            let text = || std::str::from_utf8(value).ok();
            match key {
                b"path" if value.contains(&0) => return Err(malformed()),
                b"linkpath" if value.contains(&0) => return Err(malformed()),
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(text().and_then(|text| text.parse().ok()).ok_or_else(malformed)?),
                b"mtime" => {
                    let seconds = text().map(|text| text.split('.').next().unwrap_or(text));
                    self.modified = seconds.and_then(|seconds| seconds.parse().ok());
                }
                _ if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the parts of a name in an archive, in which a leading `/` and `.` mean nothing; `None` if
/// it leads upwards.
pub fn parts(path: &Path) -> Option<PathBuf> {
    use std::path::Component;
    let mut below = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => below.push(name),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(below)
}
