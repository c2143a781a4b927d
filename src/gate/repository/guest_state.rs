//! Reads what a private Git directory contains: refs, the stash, and for each working tree HEAD, the
//! index and an unfinished operation. Follows no links.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::apply_index;
use super::delayed_copy::is_incomplete;
use super::exchange::{GitDirExchange, Moment, STASH, WorkingTree, open_private};
use super::operation::{self, Operation};
use super::refs::{self, Head, Refs};
use crate::facts::git::index::{self, Index, MAX_INDEX};
use crate::process::untrusted_dir::UntrustedDir;

const MAX_ALTERNATES: u64 = 1 << 20;

/// What a private Git directory contains now.
pub struct GuestState {
    pub refs: Refs,
    /// Whether the guest removed the repository and perhaps made another in its place.
    pub is_replaced: bool,
    pub trees: Vec<GuestTree>,
    /// `None` if it cannot be read.
    pub stash: Option<Vec<refs::ReflogEntry>>,
}

impl GuestState {
    /// Tells whether the branch of HEAD was removed, which Git does not do: then other refs may be
    /// missing because their file was removed.
    pub fn lacks_own_branch(&self, base: &Refs) -> bool {
        let heads = self.trees.iter().filter_map(|tree| tree.head.as_ref());
        heads.into_iter().any(|head| match head {
            Head::Branch(name) => base.ids.contains_key(name) && !self.refs.ids.contains_key(name),
            Head::Detached(_) => false,
        })
    }
}

pub struct GuestTree {
    pub head: Option<Head>,
    /// The content of the index, unless it is the base's.
    pub index: io::Result<Option<(Vec<u8>, Index)>>,
    pub operation: Result<Operation, String>,
}

impl GitDirExchange {
    pub fn read_guest(&self, moment: Moment) -> io::Result<GuestState> {
        let dir = open_private(&self.dir)?;
        let refs = refs::read_refs(&dir)?;
        let mut trees = Vec::new();
        for tree in &self.trees {
            let Ok(private) = tree.open() else {
                trees.push(GuestTree { head: None, index: Ok(None), operation: Ok(Operation::default()) });
                continue;
            };
            let operation = match moment {
                Moment::Ended => operation::read(&private, self.id_len(), refs::is_valid_name),
                // Its files come out at the end.
                Moment::Running if operation::is_in_progress(&private) => Err(String::new()),
                Moment::Running => Ok(Operation::default()),
            };
            // A part that cannot be read stays inside; the others come out.
            let head = refs::read_head(&private).unwrap_or(None);
            trees.push(GuestTree { head, index: self.read_index(tree, &private), operation });
        }
        // The ref without its reflog means that the file was removed, and not that entries were dropped.
        let stash = refs::read_reflog(&dir, STASH).ok();
        let stash = stash.filter(|entries| !entries.is_empty() || !refs.ids.contains_key(STASH));
        // A repository that was not replaced uses the host's objects.
        let alternates = UntrustedDir::open(&self.dir.private_objects)?.read("info/alternates", MAX_ALTERNATES)?;
        let alternates = alternates.unwrap_or_default();
        let uses =
            |path: &PathBuf| alternates.split(|byte| *byte == b'\n').any(|line| line == path.as_os_str().as_bytes());
        let is_replaced = !self.dir.alternates.iter().all(uses);
        Ok(GuestState { refs, is_replaced, trees, stash })
    }

    /// Reads the guest's index, unless its content is the base's.
    fn read_index(&self, tree: &WorkingTree, private: &UntrustedDir) -> io::Result<Option<(Vec<u8>, Index)>> {
        let Some(content) = private.read("index", MAX_INDEX)? else { return Ok(None) };
        let given = fs::read(&tree.given_index).unwrap_or_default();
        if is_incomplete(&content, &given) || content == given && !apply_index::has_held(tree) {
            return Ok(None);
        }
        let parsed =
            index::parse(&content, self.id_len()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some((content, parsed)))
    }
}
