//! Exchanges one Git directory with its private copy: what the guest changed comes out, what
//! changed on the host goes in. The state at the last exchange, the base, tells who changed what;
//! where both did, the host's value stays.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::host_git::{GitResult, HostGit};
use super::operation::{self, Operation};
use super::refs::{self, Head, Refs};
use super::report::Report;
use super::stash;
use super::transfer::{Taken, Transfer};
use super::{apply_index, give, kept, lfs};
use crate::facts::git::index::{self, Index, MAX_INDEX};
use crate::facts::git::object_id::ObjectId;
use crate::plan::repository::{PrivateGitDir, PrivateWorktree};
use crate::process::untrusted_dir::UntrustedDir;
use crate::ui::counted;

/// Refs that come out; the stash does as well, in another way.
const PASSING: &[&str] = &["refs/heads/", "refs/tags/", "refs/remotes/", "refs/notes/"];
/// Refs of an operation in one worktree, which have no meaning elsewhere.
const WORKTREE_REFS: &[&str] = &["refs/bisect/", "refs/rewritten/", "refs/worktree/", "refs/sandpen/"];
pub const STASH: &str = "refs/stash";
/// More changed refs than this do not come out: no work of a day has so many.
const MAX_CHANGED_REFS: usize = 50_000;
const MAX_CONFIG: u64 = 1 << 20;
/// The report names at most this many refs.
const MAX_NAMED: usize = 8;

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
    /// Refs that the guest deleted, with those that keep their commits.
    deleted: RefCell<Vec<(String, String)>>,
    transfer: Transfer,
    seen: Option<(u64, u64)>,
    /// Identifies hooks and other files that the guest was given; `None` if that is not known.
    given_files: Option<u64>,
    /// Whether anything was exchanged while the guest was running.
    is_begun: bool,
}

/// What a private Git directory contains now.
struct GuestState {
    refs: Refs,
    /// Whether the guest removed the repository and perhaps made another in its place.
    is_replaced: bool,
    trees: Vec<GuestTree>,
    /// `None` if it cannot be read.
    stash: Option<Vec<refs::ReflogEntry>>,
}

impl GuestState {
    /// Tells whether the branch of HEAD was removed, which Git does not do: then other refs may be
    /// missing because their file was removed.
    fn lacks_own_branch(&self, base: &Refs) -> bool {
        let heads = self.trees.iter().filter_map(|tree| tree.head.as_ref());
        heads.into_iter().any(|head| match head {
            Head::Branch(name) => base.ids.contains_key(name) && !self.refs.ids.contains_key(name),
            Head::Detached(_) => false,
        })
    }
}

struct GuestTree {
    head: Option<Head>,
    /// The content of the index, unless it is the base's.
    index: io::Result<Option<(Vec<u8>, Index)>>,
    operation: Result<Operation, String>,
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
        };
        let linked = linked.iter().filter(|tree| tree.work_tree.is_some()).map(|tree| WorkingTree {
            host: tree.host.clone(),
            private: tree.private.clone(),
            private_root: tree.private_root.clone(),
            base: tree.base.clone(),
            given_index: tree.given_index.clone(),
            directory: tree.work_tree.clone(),
        });
        GitDirExchange {
            transfer: Transfer::new(dir),
            dir: dir.clone(),
            trees: std::iter::once(main).chain(linked).collect(),
            id: id.to_owned(),
            shown: dir.work_tree.as_ref().unwrap_or(&dir.host).clone(),
            remade: BTreeSet::new(),
            is_alone: false,
            deleted: RefCell::default(),
            seen: None,
            given_files: None,
            is_begun: false,
        }
    }

    /// Returns a value that changes when the refs, the index or the settings of the private directory
    /// change.
    fn private_fingerprint(&self) -> u64 {
        self.fingerprint(WorkingTree::open)
    }

    fn host_fingerprint(&self) -> u64 {
        let table = fs::metadata(self.dir.host.join("reftable/tables.list")).map_or(0, |meta| {
            use std::os::unix::fs::MetadataExt;
            meta.ino() ^ meta.mtime_nsec().unsigned_abs()
        });
        self.fingerprint(|tree| UntrustedDir::open(&tree.host)) ^ table
    }

    fn fingerprint(&self, open: fn(&WorkingTree) -> io::Result<UntrustedDir>) -> u64 {
        let of_files = |dir: &UntrustedDir| {
            ["config", "hooks"].map(|name| dir.stat(name).map_or(0, |stat| refs::stat_hash(&stat)))
        };
        let of_tree = |dir: UntrustedDir| {
            of_files(&dir).into_iter().fold(refs::fingerprint(&dir), |all, one| all.rotate_left(7) ^ one)
        };
        let each = self.trees.iter().map(|tree| open(tree).map_or(0, of_tree));
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

    /// Tells whether the guest may have made files that stay inside.
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
        self.is_begun || self.seen.is_none_or(|(private, _)| private != self.private_fingerprint())
    }

    /// Exchanges everything. Fails if the host's Git does; the next exchange continues then.
    pub fn exchange(&mut self, git: &HostGit, moment: Moment, report: &mut Report) -> GitResult<()> {
        let before = self.fingerprints();
        self.is_begun = true;
        let guest = match self.read_guest(moment) {
            Ok(guest) => guest,
            Err(error) => {
                report
                    .problems
                    .push(format!("the repository inside cannot be read, so nothing of it comes out: {error}"));
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
            if !guest.is_replaced {
                give::bring_in(self, git, &guest.refs)?;
            }
            // The guest may have written while this ran: then the next exchange looks again.
            self.seen = (self.fingerprints().0 == before.0 || self.is_given(&guest)).then(|| self.fingerprints());
        }
        Ok(())
    }

    /// Tells whether the private directory is what this exchange has read or written.
    fn is_given(&self, guest: &GuestState) -> bool {
        let Ok(dir) = open_private(&self.dir) else { return false };
        let Ok(base) = read_base(&self.dir.base) else { return false };
        refs::read_refs(&dir).is_ok_and(|now| now.ids == base.ids || now.ids == guest.refs.ids)
    }

    fn id_len(&self) -> usize {
        if self.dir.is_sha256 { 32 } else { 20 }
    }

    fn read_guest(&self, moment: Moment) -> io::Result<GuestState> {
        let dir = open_private(&self.dir)?;
        let refs = refs::read_refs(&dir)?;
        let mut trees = Vec::new();
        for tree in &self.trees {
            let Ok(private) = tree.open() else {
                trees.push(GuestTree { head: None, index: Ok(None), operation: Ok(Operation::default()) });
                continue;
            };
            let operation = if operation::is_in_progress(&private) {
                match moment {
                    // Its files come out at the end.
                    Moment::Running => Err(String::new()),
                    Moment::Ended => operation::read(&private, self.id_len(), refs::is_valid_name),
                }
            } else {
                Ok(Operation::default())
            };
            // A part that cannot be read stays inside; the others come out.
            let head = refs::read_head(&private).unwrap_or(None);
            trees.push(GuestTree { head, index: self.read_index(tree, &private), operation });
        }
        // The ref without its reflog means that the file was removed, and not that entries were dropped.
        let stash = refs::read_reflog(&dir, STASH).ok();
        let stash = stash.filter(|entries| !entries.is_empty() || !refs.ids.contains_key(STASH));
        // A repository that was not replaced uses the host's objects.
        let alternates = UntrustedDir::open(&self.dir.private_objects)?.read("info/alternates", MAX_CONFIG)?;
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
        if content == given {
            return Ok(None);
        }
        let parsed =
            index::parse(&content, self.id_len()).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some((content, parsed)))
    }

    /// Reads the refs of the host's repository.
    pub fn read_host(&self, git: &HostGit) -> GitResult<Refs> {
        if !self.dir.is_reftable {
            return Ok(refs::read_refs(&UntrustedDir::open(&self.dir.host)?)?);
        }
        let format = "--format=%(if)%(symref)%(then)%(else)%(objectname) %(refname)%(end)";
        let list = git.call(&self.dir.host, &["for-each-ref", format]).run()?;
        Ok(Refs { ids: parse_list(&String::from_utf8_lossy(&list)), ..Refs::default() })
    }

    /// Reads the host's HEAD of a working tree.
    pub fn host_head(&self, git: &HostGit, tree: &WorkingTree) -> GitResult<Option<Head>> {
        if !self.dir.is_reftable {
            return Ok(refs::read_head(&UntrustedDir::open(&tree.host)?)?);
        }
        let name = git.call(&tree.host, &["symbolic-ref", "--quiet", "HEAD"]).run();
        let text = |output: Vec<u8>| String::from_utf8_lossy(&output).trim_end().to_owned();
        Ok(match name {
            Ok(name) => Some(Head::Branch(text(name))),
            Err(_) => ObjectId::parse(&text(git.call(&tree.host, &["rev-parse", "--verify", "HEAD"]).run()?))
                .map(Head::Detached),
        })
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
            report.problems.push(format!("{} refs changed inside, more than can come out", changes.len()));
            return Ok(());
        }
        let (passing, other): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| passes(&change.name, moment));
        let given_stash = refs::read_reflog(&UntrustedDir::open(&self.dir.base)?, STASH)?;
        let mut wanted: BTreeSet<ObjectId> = passing.iter().filter_map(|change| change.now).collect();
        wanted.extend(guest.stash.iter().flatten().map(|entry| entry.new));
        for (tree, now) in self.trees.iter().zip(&guest.trees) {
            wanted.extend(match &now.head {
                Some(Head::Detached(id)) => Some(*id),
                _ => None,
            });
            wanted.extend(now.operation.iter().flat_map(Operation::ids).filter_map(|id| ObjectId::parse(&id)));
            wanted.extend(apply_index::wanted(
                tree,
                now.index.as_ref().ok().and_then(Option::as_ref).map(|(_, index)| index),
                self.id_len(),
            )?);
        }
        lfs::bring_out(&self.dir, git.scratch())?;
        let known: BTreeSet<ObjectId> = host.ids.values().copied().collect();
        wanted.retain(|id| !known.contains(id));
        let mut taken = self.transfer.take(git, &self.dir, &wanted, &known)?;
        taken.kinds.extend(known.iter().map(|id| (*id, String::new())));
        let refs = self.bring_refs(git, &passing, host, &taken, guest.is_replaced, moment, report)?;
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
            stash::bring_out(git, &self.dir, &given_stash, now, &taken, report)?;
        }
        for (tree, now) in self.trees.iter().zip(&guest.trees) {
            self.bring_tree(git, tree, now, &guest.refs, &refs, &taken, moment, report)?;
        }
        if moment == Moment::Ended {
            for change in other.iter().filter(|change| {
                !WORKTREE_REFS.iter().any(|prefix| change.name.starts_with(prefix)) && change.name != STASH
            }) {
                report.keep(format!(
                    "`{}` stays inside: only branches, tags, notes and remote-tracking refs come out",
                    change.name
                ));
            }
        }
        if moment == Moment::Ended {
            self.report_deleted(report);
            report_odd_refs(&guest.refs, report);
            self.bring_symbolic(git, &guest.refs, host, report)?;
        }
        kept::bring_settings(git, &self.dir, &self.shown, moment, report)?;
        Ok(())
    }

    /// Updates the host's refs that the guest changed and the host did not.
    #[allow(clippy::too_many_arguments, reason = "each is a part of one exchange")]
    fn bring_refs(
        &self,
        git: &HostGit,
        changes: &[RefChange],
        host: &Refs,
        taken: &Taken,
        is_replaced: bool,
        moment: Moment,
        report: &mut Report,
    ) -> GitResult<RefResult> {
        let mut result = RefResult::default();
        let mut updates = Vec::new();
        for change in changes {
            let there = host.ids.get(&change.name).copied();
            if there == change.now {
                result.settled.insert(change.name.clone());
            } else if let Some(reason) = change.now.and_then(|id| taken.refused.get(&id)) {
                result.held.insert(change.name.clone());
                if moment == Moment::Ended {
                    report.problems.push(format!("`{}` stays inside: {reason}", short(&change.name)));
                }
            } else if let Some(kind) = wrong_kind(change, taken) {
                result.held.insert(change.name.clone());
                if moment == Moment::Ended {
                    report
                        .problems
                        .push(format!("`{}` stays inside: it is a {kind}, not a commit", short(&change.name)));
                }
            } else if there == change.before && !is_replaced {
                updates.push(change);
            } else {
                result.held.insert(change.name.clone());
                self.keep_beside(git, change, moment, report);
            }
        }
        let message = format!("sandpen {}", self.id);
        let update = |updates: &[&RefChange]| -> GitResult<()> {
            let input: Vec<u8> = updates.iter().flat_map(|change| change.command()).collect();
            git.call(&self.dir.host, &["update-ref", "-m", &message, "--stdin", "-z"]).input(&input)?.run().map(|_| ())
        };
        // One transaction for all; if one ref was moved at this moment, each for itself.
        let is_done = updates.is_empty() || update(&updates).is_ok();
        for change in updates {
            if is_done || update(&[change]).is_ok() {
                result.settled.insert(change.name.clone());
                match (change.before, change.now) {
                    (Some(before), None) => self.keep_deleted(git, &change.name, before),
                    _ => report.brought.push(short(&change.name).to_owned()),
                }
            } else {
                result.held.insert(change.name.clone());
                self.keep_beside(git, change, moment, report);
            }
        }
        Ok(result)
    }

    /// Brings out the default branches of remotes, which are symbolic refs. Others stay inside.
    fn bring_symbolic(&self, git: &HostGit, guest: &Refs, host: &Refs, report: &mut Report) -> GitResult<()> {
        for (name, target) in &guest.symbolic {
            let remote = name.strip_prefix("refs/remotes/").and_then(|rest| rest.strip_suffix("/HEAD"));
            let is_default = remote.is_some_and(|remote| target.starts_with(&format!("refs/remotes/{remote}/")));
            if host.symbolic.get(name) == Some(target) {
                continue;
            }
            if is_default && !host.symbolic.contains_key(name) && !host.ids.contains_key(name) {
                git.call(&self.dir.host, &["symbolic-ref", name, target]).run()?;
            } else {
                report.keep(format!("`{}` stays inside: it is a symbolic ref", short(name)));
            }
        }
        Ok(())
    }

    /// Keeps the commits of a deleted ref that no other ref has.
    fn keep_deleted(&self, git: &HostGit, name: &str, id: ObjectId) {
        let arguments = ["rev-list", "--max-count=1", id.as_str(), "--not", "--all", "--"];
        let is_lost = git.call(&self.dir.host, &arguments).run().map_or(true, |output| !output.is_empty());
        let kept = format!("refs/sandpen/{}/{}", self.id, name.trim_start_matches("refs/"));
        if is_lost
            && !name.starts_with("refs/remotes/")
            && git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run().is_ok()
        {
            self.deleted.borrow_mut().push((name.to_owned(), kept));
        }
    }

    /// Names the branches and tags that the guest deleted and whose commits no other ref has.
    fn report_deleted(&self, report: &mut Report) {
        for (name, kept) in self.deleted.borrow().iter() {
            let what = format!("`{}` was deleted inside, and its commits are kept as `{kept}`", short(name));
            report.keep_with(what, &["git", "update-ref", name, kept]);
        }
    }

    /// Keeps the guest's value of a ref that moved on the host as well.
    fn keep_beside(&self, git: &HostGit, change: &RefChange, moment: Moment, report: &mut Report) {
        let name = short(&change.name);
        let Some(id) = change.now else {
            if moment == Moment::Ended {
                report.keep(format!("`{name}` was deleted inside, but moved on the host: it stays"));
            }
            return;
        };
        let kept = format!("refs/sandpen/{}/{}", self.id, change.name.trim_start_matches("refs/"));
        let saved = git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run();
        if moment == Moment::Ended {
            match saved {
                Ok(_) => report.keep_with(
                    format!("`{name}` moved on the host meanwhile, so the sandbox's is kept as `{kept}`"),
                    &["git", "log", "--oneline", &format!("{name}..{kept}")],
                ),
                Err(error) => report.problems.push(format!("`{name}` cannot be brought out: {error}")),
            }
        }
    }

    /// Brings out HEAD, the index and an unfinished operation of a working tree.
    #[allow(clippy::too_many_arguments, reason = "each is a part of one exchange")]
    fn bring_tree(
        &self,
        git: &HostGit,
        tree: &WorkingTree,
        now: &GuestTree,
        guest_refs: &Refs,
        refs: &RefResult,
        taken: &Taken,
        moment: Moment,
        report: &mut Report,
    ) -> GitResult<()> {
        let Some(head) = &now.head else {
            if moment == Moment::Ended {
                report.problems.push("HEAD is missing or broken inside: the host's stays as it is".into());
            }
            return Ok(());
        };
        let given = refs::read_head(&UntrustedDir::open(&tree.base)?)?;
        let host = self.host_head(git, tree)?;
        if given.as_ref() != Some(head) && host.as_ref() != Some(head) {
            if host == given && is_out(head, refs, taken) {
                self.move_head(git, tree, head)?;
            } else {
                if let (Head::Detached(id), Moment::Ended, true) = (head, moment, is_out(head, refs, taken)) {
                    let kept = format!("refs/sandpen/{}/HEAD", self.id);
                    git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run()?;
                    report.keep_with(
                        format!("HEAD moved on the host meanwhile, so the sandbox's is kept as `{kept}`"),
                        &["git", "log", "--oneline", &format!("HEAD..{kept}")],
                    );
                }
                return Ok(());
            }
        }
        fs::write(tree.base.join("HEAD"), head_text(head))?;
        // The index belongs to the commit of HEAD: with another one, files that are committed inside
        // would be staged outside.
        let host_refs = self.read_host(git)?;
        let commit = |head: &Head, refs: &Refs| match head {
            Head::Branch(name) => refs.ids.get(name).copied(),
            Head::Detached(id) => Some(*id),
        };
        let outside = self.host_head(git, tree)?;
        if outside.as_ref().and_then(|head| commit(head, &host_refs)) != commit(head, guest_refs) {
            return Ok(());
        }
        if let (Err(error), Moment::Ended) = (&now.index, moment) {
            report.problems.push(format!("the index inside cannot be read, so it does not come out: {error}"));
        }
        if let Ok(Some((content, index))) = &now.index {
            apply_index::bring_out(git, self, tree, content, index, taken, moment, report)?;
        }
        if moment == Moment::Ended {
            self.bring_operation(tree, now, report)?;
        }
        Ok(())
    }

    fn move_head(&self, git: &HostGit, tree: &WorkingTree, head: &Head) -> GitResult<()> {
        // The form of Git's own messages, from which it knows the previous branch.
        let name_of = |head: &Head| match head {
            Head::Branch(name) => short(name).to_owned(),
            Head::Detached(id) => id.to_string(),
        };
        let before = self.host_head(git, tree)?.map_or_else(String::new, |head| name_of(&head));
        let message = format!("checkout: moving from {before} to {}", name_of(head));
        match head {
            Head::Branch(name) => git.call(&tree.host, &["symbolic-ref", "-m", &message, "HEAD", name]).run(),
            Head::Detached(id) => {
                let update = |message: &str, id: &ObjectId| {
                    git.call(&tree.host, &["update-ref", "--no-deref", "-m", message, "HEAD", id.as_str()]).run()
                };
                // Git names the commit at which HEAD was detached, not the latest one.
                let log = tree.open().and_then(|dir| refs::read_reflog(&dir, "HEAD"));
                let log = log.unwrap_or_default();
                let detached = log.iter().rfind(|entry| entry.message.starts_with("checkout: moving from "));
                if let Some(entry) = detached.filter(|entry| entry.new != *id) {
                    let _ = update(&entry.message, &entry.new);
                    update(&format!("sandpen {}", self.id), id)
                } else {
                    update(&message, id)
                }
            }
        }
        .map(|_| ())
    }

    /// Writes the files of an unfinished operation, or removes those of one that the guest finished.
    fn bring_operation(&self, tree: &WorkingTree, now: &GuestTree, report: &mut Report) -> GitResult<()> {
        let given = UntrustedDir::open(&tree.base)?;
        let before = operation::read(&given, self.id_len(), refs::is_valid_name).unwrap_or_default();
        match &now.operation {
            Err(reason) => report.keep(format!("an unfinished operation stays inside: {reason}")),
            Ok(operation) if *operation == before => {}
            Ok(operation) => {
                if !operation::apply(&tree.host, &before, operation)? {
                    report.keep("an unfinished operation stays inside: the host has another one");
                }
            }
        }
        Ok(())
    }
}

/// The refs that are the same inside and outside, and those that did not come out.
#[derive(Debug, Default)]
struct RefResult {
    settled: BTreeSet<String>,
    held: BTreeSet<String>,
}

/// Names refs that cannot be read.
fn report_odd_refs(refs: &Refs, report: &mut Report) {
    let names: Vec<String> = refs.broken.iter().take(MAX_NAMED).map(|name| format!("`{}`", short(name))).collect();
    let count = refs.broken.len() + refs.odd;
    if count > 0 {
        let names = if names.is_empty() { String::new() } else { format!(": {}", names.join(", ")) };
        report
            .problems
            .push(format!("{} inside cannot be read, and so does not come out{names}", counted(count, "ref")));
    }
}

/// Returns the type of the object that a branch names, if it is not a commit.
fn wrong_kind<'a>(change: &RefChange, taken: &'a Taken) -> Option<&'a str> {
    let kind = taken.kinds.get(&change.now?).map(String::as_str).filter(|_| change.name.starts_with("refs/heads/"));
    kind.filter(|kind| !matches!(*kind, "" | "commit"))
}

/// Tells whether the host has what HEAD names.
fn is_out(head: &Head, refs: &RefResult, taken: &Taken) -> bool {
    match head {
        Head::Branch(name) => !refs.held.contains(name),
        Head::Detached(id) => taken.kinds.contains_key(id),
    }
}

pub fn head_text(head: &Head) -> String {
    match head {
        Head::Branch(name) => format!("ref: {name}\n"),
        Head::Detached(id) => format!("{id}\n"),
    }
}

/// A ref that differs from the base.
struct RefChange {
    name: String,
    before: Option<ObjectId>,
    now: Option<ObjectId>,
}

impl RefChange {
    /// Writes the line for `git update-ref --stdin -z`, which fails if the ref is not `before`.
    fn command(&self) -> Vec<u8> {
        let RefChange { name, before, now } = self;
        match (before, now) {
            (Some(before), Some(now)) => format!("update {name}\0{now}\0{before}\0"),
            (None, Some(now)) => format!("create {name}\0{now}\0"),
            (Some(before), None) => format!("delete {name}\0{before}\0"),
            (None, None) => String::new(),
        }
        .into_bytes()
    }
}

/// Lists the refs that differ from the base. A ref that cannot be read counts as unchanged.
fn changed_refs(base: &Refs, now: &Refs) -> Vec<RefChange> {
    let names: BTreeSet<&String> = base.ids.keys().chain(now.ids.keys()).collect();
    let changed = names.into_iter().filter(|name| base.ids.get(*name) != now.ids.get(*name));
    let readable = changed.filter(|name| !now.is_broken(name) && !now.symbolic.contains_key(*name));
    readable
        .map(|name| RefChange {
            name: name.clone(),
            before: base.ids.get(name).copied(),
            now: now.ids.get(name).copied(),
        })
        .collect()
}

fn passes(name: &str, moment: Moment) -> bool {
    // The marks of a bisection belong to its other files, which come out at the end.
    let is_mark = name.starts_with("refs/bisect/") && moment == Moment::Ended;
    is_mark || PASSING.iter().any(|prefix| name.starts_with(prefix))
}

/// Shortens a ref's name as Git does in messages.
fn short(name: &str) -> &str {
    ["refs/heads/", "refs/tags/", "refs/remotes/"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// Parses lines of the form `ID NAME`.
fn parse_list(text: &str) -> BTreeMap<String, ObjectId> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter_map(|(id, name)| Some((name.to_owned(), ObjectId::parse(id)?))).collect()
}

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

/// Reads a configuration file, which may be missing.
pub fn read_config(dir: &UntrustedDir) -> io::Result<Vec<u8>> {
    Ok(dir.read("config", MAX_CONFIG)?.unwrap_or_default())
}
