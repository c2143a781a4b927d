//! Tells whether the repository that the host's Git made has everything that could be lost with the
//! guest's: commits, whatever names them, and what is staged or stashed.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use crate::facts::git::index::{self, Index, MAX_INDEX, MODE_GITLINK};
use crate::facts::git::object_id::ObjectId;
use crate::gate::repository::exchange::STASH;
use crate::gate::repository::{kept, operation, refs};
use crate::process::untrusted_dir::UntrustedDir;

const MAX_TOP_ENTRIES: usize = 10_000;
/// Contain the commits of other worktrees and of submodules, which do not come out.
const OTHER_REPOSITORIES: [&str; 2] = ["modules", "worktrees"];

/// Compares the guest's Git directory with the new one.
pub fn is_complete(guest: &UntrustedDir, fresh: &Path, id_len: usize) -> io::Result<bool> {
    let fresh = UntrustedDir::open(fresh)?;
    Ok(has_refs(guest, &fresh)?
        && has_stash(guest, &fresh)?
        && has_index(guest, &fresh, id_len)?
        && has_operation(guest, &fresh, id_len)
        && has_ordinary_names(guest)?)
}

fn has_refs(guest: &UntrustedDir, fresh: &UntrustedDir) -> io::Result<bool> {
    let (inside, out) = (refs::read_refs(guest)?, refs::read_refs(fresh)?);
    let are_readable = inside.broken.is_empty() && inside.odd == 0;
    let is_out = |(name, id): (&String, &ObjectId)| name == STASH || out.ids.get(name) == Some(id);
    Ok(are_readable && inside.ids.iter().all(is_out) && refs::read_head(guest)? == refs::read_head(fresh)?)
}

fn has_stash(guest: &UntrustedDir, fresh: &UntrustedDir) -> io::Result<bool> {
    let list = |dir| -> io::Result<BTreeSet<ObjectId>> {
        Ok(refs::read_reflog(dir, STASH)?.into_iter().map(|entry| entry.new).collect())
    };
    let mut inside = list(guest)?;
    inside.extend(refs::read_refs(guest)?.ids.get(STASH));
    Ok(inside.is_subset(&list(fresh)?))
}

/// An entry that names another repository has no content.
fn has_index(guest: &UntrustedDir, fresh: &UntrustedDir, id_len: usize) -> io::Result<bool> {
    let read = |dir: &UntrustedDir| match dir.read("index", MAX_INDEX)? {
        Some(content) => index::parse(&content, id_len).map_err(io::Error::other),
        None => Ok(Index::default()),
    };
    let (inside, out) = (read(guest)?, read(fresh)?);
    let mut entries = inside.entries.iter().filter(|(_, entry)| entry.mode != MODE_GITLINK);
    let is_whole = !inside.is_split && !inside.is_sparse;
    Ok(is_whole && entries.all(|(key, entry)| out.entries.get(key).is_some_and(|there| there.id == entry.id)))
}

fn has_operation(guest: &UntrustedDir, fresh: &UntrustedDir, id_len: usize) -> bool {
    let read = |dir| operation::read(dir, id_len, refs::is_valid_name);
    !operation::is_in_progress(guest) || read(guest).is_ok() && read(guest) == read(fresh)
}

/// Tells whether there are only files that Git makes in its ordinary work.
fn has_ordinary_names(guest: &UntrustedDir) -> io::Result<bool> {
    for (name, _) in guest.entries(MAX_TOP_ENTRIES)? {
        let text = name.to_string_lossy();
        if !kept::is_ordinary(&text) && !text.ends_with(".lock") {
            return Ok(false);
        }
        let is_other = OTHER_REPOSITORIES.contains(&text.as_ref());
        if is_other && !guest.directory(Path::new(&name))?.entries(MAX_TOP_ENTRIES)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
