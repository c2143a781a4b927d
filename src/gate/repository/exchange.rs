//! Exchanges one Git directory with its private copy: what the guest changed comes out, what
//! changed on the host goes in. The state at the last exchange, the base, tells who changed what;
//! where both did, the host's value stays.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::apply_refs::{RefChange, changed_refs, passes, report_odd_refs, report_other_refs, wait_for_deletions};
use super::base::{read_base, write_base};
use super::delayed_copy::DelayedCopy;
use super::guest_state::GuestState;
use super::host_git::{GitResult, HostGit};
use super::operation::{self, Operation};
use super::outgoing::Outgoing;
use super::refs::{self, Head, Refs};
use super::report::Report;
use super::transfer::Transfer;
use super::{apply_index, give, kept, lfs, stash};
use crate::facts::git::object_id::ObjectId;
use crate::plan::repository::{PrivateGitDir, PrivateWorktree};
use crate::process::untrusted_dir::UntrustedDir;

pub const STASH: &str = "refs/stash";
/// More changed refs than this do not come out: no work of a day has so many.
const MAX_CHANGED_REFS: usize = 50_000;
const MAX_CONFIG: u64 = 1 << 20;
/// The most commits that come out although only a reflog names them.
const MAX_UNNAMED: usize = 256;

/// One working tree of a repository: the main one or a linked one.
pub struct WorkingTree {
    /// The Git directory on the host, the private one and the base.
    pub host: PathBuf,
    pub private: PathBuf,
    pub private_root: PathBuf,
    pub base: PathBuf,
    /// The index that the guest was given last.
    pub given_index: PathBuf,
    pub directory: Option<PathBuf>,
    /// The private index, if the guest gets its content later.
    pub delayed_index: Option<Arc<DelayedCopy>>,
}

impl WorkingTree {
    /// Opens the private Git directory. Links that the guest put above it are not followed.
    pub fn open(&self) -> io::Result<UntrustedDir> {
        UntrustedDir::open_below(&self.private_root, &self.private)
    }
}

/// Opens a private Git directory. Links that the guest put above it are not followed.
pub fn open_private(dir: &PrivateGitDir) -> io::Result<UntrustedDir> {
    UntrustedDir::open_below(&dir.private_root, &dir.private)
}

/// A Git directory with objects, and the working trees that use it.
pub struct GitDirExchange {
    pub dir: PrivateGitDir,
    pub trees: Vec<WorkingTree>,
    pub id: String,
    /// The directory in which the user runs Git.
    pub shown: PathBuf,
    /// Working trees of repositories made inside, which are out.
    pub remade: BTreeSet<PathBuf>,
    /// Whether no other sandbox over this repository is running, once this one has ended.
    pub is_alone: bool,
    pub transfer: Transfer,
    seen: Option<(u64, u64)>,
    /// Identifies hooks and other files that the guest was given; `None` if that is not known.
    given_files: Option<u64>,
    /// Whether anything was exchanged while the guest was running.
    is_begun: bool,
}

/// One of the two Git directories of an exchange.
#[derive(Clone, Copy)]
enum Side {
    Host,
    Private,
}

/// When an exchange happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The guest is running and may be in the middle of something.
    Running,
    /// The guest has ended.
    Ended,
}

impl GitDirExchange {
    pub fn new(dir: &PrivateGitDir, linked: &[PrivateWorktree], id: &str) -> Self {
        let main = WorkingTree {
            host: dir.host.clone(),
            private: dir.private.clone(),
            private_root: dir.private_root.clone(),
            base: dir.base.clone(),
            given_index: dir.given_index.clone(),
            directory: dir.work_tree.clone(),
            delayed_index: None,
        };
        let linked = linked.iter().filter(|tree| tree.work_tree.is_some()).map(|tree| WorkingTree {
            host: tree.host.clone(),
            private: tree.private.clone(),
            private_root: tree.private_root.clone(),
            base: tree.base.clone(),
            given_index: tree.given_index.clone(),
            directory: tree.work_tree.clone(),
            delayed_index: None,
        });
        GitDirExchange {
            transfer: Transfer::new(dir),
            dir: dir.clone(),
            trees: std::iter::once(main).chain(linked).collect(),
            id: id.to_owned(),
            shown: dir.work_tree.as_ref().unwrap_or(&dir.host).clone(),
            remade: BTreeSet::new(),
            is_alone: false,
            seen: None,
            given_files: None,
            is_begun: false,
        }
    }

    /// Returns a value that changes when the refs, the index or the settings of the private directory
    /// change.
    fn private_fingerprint(&self) -> u64 {
        self.fingerprint(Side::Private)
    }

    fn host_fingerprint(&self) -> u64 {
        let table = fs::metadata(self.dir.host.join("reftable/tables.list")).map_or(0, |meta| {
            use std::os::unix::fs::MetadataExt;
            meta.ino() ^ meta.mtime_nsec().unsigned_abs()
        });
        self.fingerprint(Side::Host) ^ table
    }

    fn fingerprint(&self, side: Side) -> u64 {
        let of_files = |dir: &UntrustedDir| {
            ["config", "hooks"].map(|name| dir.stat(name).map_or(0, |stat| refs::stat_hash(&stat)))
        };
        let of_tree = |dir: UntrustedDir, delayed_index: Option<&DelayedCopy>| {
            let of_refs = refs::fingerprint(&dir, delayed_index);
            of_files(&dir).into_iter().fold(of_refs, |all, one| all.rotate_left(7) ^ one)
        };
        let each = self.trees.iter().map(|tree| match side {
            Side::Host => UntrustedDir::open(&tree.host).map_or(0, |dir| of_tree(dir, None)),
            Side::Private => tree.open().map_or(0, |dir| of_tree(dir, tree.delayed_index.as_deref())),
        });
        each.fold(0_u64, |all, one| all.rotate_left(7) ^ one)
    }

    fn fingerprints(&self) -> (u64, u64) {
        (self.private_fingerprint(), self.host_fingerprint())
    }

    /// Remembers the present state as the one that needs no exchange.
    pub fn mark_exchanged(&mut self) {
        self.seen = Some(self.fingerprints());
        self.given_files = kept::fingerprint(self);
    }

    /// Tells whether the guest may have begun an operation, or made files that stay inside.
    pub fn may_keep_files(&self) -> bool {
        self.given_files.is_none() || self.given_files != kept::fingerprint(self)
    }

    /// Tells whether the private directory or the host's changed since the last exchange.
    pub fn needs_exchange(&self) -> bool {
        self.seen != Some(self.fingerprints())
    }

    /// Tells whether something may have to come out at the end. What is held back while the guest is
    /// running comes out then.
    pub fn needs_last_exchange(&self) -> bool {
        self.is_begun
            || self.seen.is_none_or(|(private, _)| private != self.private_fingerprint())
            || self.may_keep_files()
    }

    /// Exchanges everything. Fails if the host's Git does; the next exchange continues then.
    pub fn exchange(&mut self, git: &HostGit, moment: Moment, report: &mut Report) -> GitResult<()> {
        let before = self.fingerprints();
        self.is_begun = true;
        self.trees.iter().filter_map(|tree| tree.delayed_index.as_ref()).for_each(|copy| copy.complete());
        let guest = match self.read_guest(moment) {
            Ok(guest) => guest,
            Err(error) => {
                report.refuse(format!("the repository inside cannot be read, so nothing of it comes out: {error}"));
                return Ok(());
            }
        };
        let base = read_base(&self.dir.base)?;
        let host = self.read_host(git)?;
        let is_busy =
            moment == Moment::Running && guest.trees.iter().any(|tree| tree.operation != Ok(Operation::default()));
        if !is_busy {
            self.bring_out(git, &guest, &base, &host, moment, report)?;
        }
        if moment == Moment::Running {
            let is_complete = guest.is_replaced || give::bring_in(self, git, &guest.refs)?;
            // What either side wrote while this ran was perhaps not read: then there is another
            // exchange, and also after this one has written something.
            self.seen = is_complete.then_some(before);
        }
        Ok(())
    }

    pub fn id_len(&self) -> usize {
        if self.dir.is_sha256 { 32 } else { 20 }
    }

    fn bring_out(
        &mut self,
        git: &HostGit,
        guest: &GuestState,
        base: &Refs,
        host: &Refs,
        moment: Moment,
        report: &mut Report,
    ) -> GitResult<()> {
        let mut changes = changed_refs(base, &guest.refs);
        if guest.is_replaced {
            changes.retain(|change| change.now.is_some());
            if moment == Moment::Ended {
                report.problems.push("the repository was removed inside: the host's stays as it is".into());
            }
        } else if guest.lacks_own_branch(base) {
            changes.retain(|change| change.now.is_some());
            if moment == Moment::Ended {
                report.problems.push("the branch of HEAD is missing inside: no branch is deleted outside".into());
            }
        }
        if changes.len() > MAX_CHANGED_REFS {
            report.refuse(format!("{} refs changed inside, more than can come out", changes.len()));
            return Ok(());
        }
        let waiting = if moment == Moment::Running { wait_for_deletions(&mut changes) } else { BTreeSet::new() };
        let (passing, other): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| passes(&change.name, moment));
        let given_stash = refs::read_reflog(&UntrustedDir::open(&self.dir.base)?, STASH)?;
        let mut wanted = self.wanted_objects(&passing, guest)?;
        lfs::bring_out(&self.dir, git.scratch())?;
        let known: BTreeSet<ObjectId> = host.ids.values().copied().collect();
        wanted.retain(|id| !known.contains(id));
        let mut taken = self.transfer.take(git, &self.dir, &wanted, &known)?;
        taken.kinds.extend(known.iter().map(|id| (*id, String::new())));
        report.has_refused |= moment == Moment::Ended && !taken.refused.is_empty();
        if moment == Moment::Ended {
            let named = known.iter().chain(taken.kinds.keys()).copied().collect();
            self.take_unnamed(git, &named)?;
        }
        let mut out = Outgoing { git, moment, base, taken: &taken, report };
        let mut refs = self.bring_refs(&mut out, &passing, host, guest.is_replaced)?;
        refs.held.extend(waiting);
        if guest.is_replaced {
            return Ok(());
        }
        let mut base = base.clone();
        for change in passing.iter().filter(|change| refs.settled.contains(&change.name)) {
            match change.now {
                Some(id) => base.ids.insert(change.name.clone(), id),
                None => base.ids.remove(&change.name),
            };
        }
        write_base(&self.dir.base, &base)?;
        if let Some(now) = &guest.stash {
            stash::bring_out(&mut out, &self.dir, &given_stash, now)?;
        }
        for (tree, now) in self.trees.iter().zip(&guest.trees) {
            self.bring_tree(&mut out, tree, now, &guest.refs, &refs)?;
        }
        if moment == Moment::Ended {
            report_other_refs(&other, out.report);
            report_odd_refs(&guest.refs, out.report);
            self.bring_symbolic(&mut out, &guest.refs, host)?;
        }
        kept::bring_settings(git, &self.dir, &self.id, &self.shown, moment, out.report)?;
        Ok(())
    }

    /// Takes commits that only the guest's reflogs of HEAD name, such as those before `git commit
    /// --amend`. Like any that no ref names, they can be found by their ids until Git removes them.
    fn take_unnamed(&mut self, git: &HostGit, named: &BTreeSet<ObjectId>) -> GitResult<()> {
        let latest = |dir: &UntrustedDir| -> BTreeSet<ObjectId> {
            let log = refs::read_reflog(dir, "HEAD").unwrap_or_default();
            log.iter().rev().take(MAX_UNNAMED).map(|entry| entry.new).collect()
        };
        let mut ids = BTreeSet::new();
        for tree in &self.trees {
            let Ok(private) = tree.open() else { continue };
            let given = latest(&UntrustedDir::open(&tree.host)?);
            ids.extend(latest(&private).into_iter().filter(|id| !given.contains(id) && !named.contains(id)));
        }
        // Git may have removed some of them inside.
        self.transfer.take(git, &self.dir, &ids, named).map(|_| ())
    }

    /// Lists the objects that refs, the stash and the working trees of the guest need.
    fn wanted_objects(&self, changes: &[RefChange], guest: &GuestState) -> io::Result<BTreeSet<ObjectId>> {
        let mut wanted: BTreeSet<ObjectId> = changes.iter().filter_map(|change| change.now).collect();
        wanted.extend(guest.stash.iter().flatten().map(|entry| entry.new));
        for (tree, now) in self.trees.iter().zip(&guest.trees) {
            wanted.extend(match &now.head {
                Some(Head::Detached(id)) => Some(*id),
                _ => None,
            });
            // Git leaves files of an operation behind, whose objects it removes some day.
            let given = operation::read(&UntrustedDir::open(&tree.base)?, self.id_len(), refs::is_valid_name);
            let given = given.as_ref().map(Operation::ids).unwrap_or_default();
            let new = now.operation.iter().flat_map(Operation::ids).filter(|id| !given.contains(id));
            wanted.extend(new.filter_map(|id| ObjectId::parse(&id)));
            let index = now.index.as_ref().ok().and_then(Option::as_ref).map(|(_, index)| index);
            wanted.extend(apply_index::wanted(tree, index, self.id_len())?);
        }
        Ok(wanted)
    }
}

/// Reads a configuration file, which may be missing.
pub fn read_config(dir: &UntrustedDir) -> io::Result<Vec<u8>> {
    Ok(dir.read("config", MAX_CONFIG)?.unwrap_or_default())
}
