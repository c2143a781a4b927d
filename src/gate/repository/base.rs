//! Reads and saves the base: the refs that the guest was given, or that the last exchange made the
//! same inside and outside.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::refs::{self, Refs};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

/// Reads the refs that the guest was given.
pub fn read_base(base: &Path) -> io::Result<Refs> {
    refs::read_refs(&UntrustedDir::open(base)?)
}

/// Saves the refs of the last exchange.
pub fn write_base(base: &Path, refs: &Refs) -> io::Result<()> {
    let mut text = String::from("# pack-refs with: sorted \n");
    text.extend(refs.ids.iter().map(|(name, id)| format!("{id} {name}\n")));
    let new = base.join("packed-refs.new");
    fs::write(&new, text)?;
    fs::rename(new, base.join("packed-refs"))
}

/// The refs as the user made them: those at the start, and those that the user changed later and
/// that the guest was given.
const USER_REFS: &str = "user-refs";

/// Remembers the refs at the start. `packed-refs` is never changed, only replaced.
pub fn keep_user_refs(base: &Path) -> io::Result<()> {
    fs::hard_link(base.join("packed-refs"), base.join(USER_REFS))
}

/// Reads the refs as the user made them; none of a repository that the guest made.
pub fn read_user_refs(base: &Path) -> io::Result<BTreeMap<String, ObjectId>> {
    match fs::read(base.join(USER_REFS)) {
        Ok(text) => Ok(parse_list(&String::from_utf8_lossy(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

pub fn write_user_refs(base: &Path, refs: &BTreeMap<String, ObjectId>) -> io::Result<()> {
    let text: String = refs.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
    let new = base.join("user-refs.new");
    fs::write(&new, text)?;
    fs::rename(new, base.join(USER_REFS))
}

/// Parses lines of the form `ID NAME`.
pub fn parse_list(text: &str) -> BTreeMap<String, ObjectId> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(id, name)| Some((name.to_owned(), ObjectId::parse(id)?))).collect()
}
