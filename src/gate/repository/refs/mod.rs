//! Reads HEAD, refs and reflogs of a Git directory that a guest may change at any time. Only the
//! `files` format is read; nothing is written.

mod fingerprint;
mod head;
mod loose;
mod name;
mod packed;
mod reflog;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;
use fingerprint::refs_fingerprint;
pub use fingerprint::{fingerprint, stat_hash};
pub use head::{Head, head_text, read_head};
use head::{REFTABLE_HEAD, head_target};
use loose::LooseRefs;
pub use name::is_valid_name;
use name::parents;
use packed::{LARGEST_PACKED_REFS, add_packed_refs};
pub use reflog::{ReflogEntry, read_reflog};

/// Counts packed refs, and the files and directories below `refs`. The largest public repositories
/// have some hundred thousand refs.
const MOST_REFS: usize = 1_000_000;
/// Each level of `refs` keeps a descriptor open while it is read.
const DEEPEST_DIRECTORY: usize = 64;
/// A ref that is renamed while its directory is listed can be missing from the list, so refs are
/// read again if they changed meanwhile.
const READ_ATTEMPTS: usize = 5;

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

fn too_many_refs(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::FileTooLarge {
        return io::Error::new(error.kind(), format!("more than {MOST_REFS} refs"));
    }
    error
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
