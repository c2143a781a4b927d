//! Reads reflogs.

use std::io::{self, ErrorKind};
use std::path::Path;

use super::name::is_valid_name;
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

/// Some 20,000 entries. Git never expires the reflog of the stash, which rarely has more than 100.
const LARGEST_REFLOG: u64 = 4 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReflogEntry {
    pub old: ObjectId,
    pub new: ObjectId,
    /// Name, address, seconds and time zone, as in the file. Control characters are replaced by
    /// spaces, here and in the message.
    pub who: String,
    pub message: String,
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
