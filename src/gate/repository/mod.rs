//! Gives a sandbox a private Git directory, made from the host's, and brings commits, refs and the
//! index out of it.
//!
//! ```text
//!            make                       exchange: out, every second and at the end
//! host's ──────────► private directory ──────────────────────────► host's Git
//!        ◄──────────                      refs, index: read here, without Git
//!            give                         objects: copied, packed, verified
//! ```
//!
//! Everything in the private directory is untrusted. It is read here, by code that follows no links
//! and has limits; the host's Git never opens it.

mod apply_index;
mod apply_refs;
mod apply_tree;
mod aside;
mod base;
mod branch_move;
mod delayed_copy;
mod exchange;
mod git_dir_content;
mod give;
mod guest_state;
pub mod host_git;
mod host_state;
mod keep_refs;
mod kept;
mod kept_state;
mod lfs;
mod listed_files;
mod live;
mod locks;
mod make;
mod make_kept;
mod move_tree;
mod nested;
mod nested_baseline;
mod objects;
mod operation;
mod other_sessions;
mod outgoing;
mod refs;
mod report;
mod root;
mod saved;
mod search;
mod seen_directories;
mod settings;
mod stash;
mod transfer;
pub mod watched;
mod worktree_heads;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::event_log::EventLog;
use crate::path::HostPath;
use crate::plan::RepositoryGate;
use crate::process::bounded_work::Stopped;
use crate::process::lock;
pub use branch_move::{BranchMove, BranchMoveError};
use delayed_copy::DelayedCopy;
use exchange::{GitDirExchange, Moment};
use host_git::HostGit;
pub use kept_state::{KeptRepositories, RefReview};
pub use listed_files::listed_files;
pub use live::LiveExchange;
use locks::{lock_repository, share_repository};
pub use make_kept::{KeptIndexes, make_kept};
use nested::{Nested, NewWorktree};
use nested_baseline::{NestedBaseline, Searched};
use other_sessions::OtherSessions;
use report::Kept;
pub use report::Report;
use saved::{FILE, Saved, SavedRef, time_of_kill};
use watched::Stamps;

/// The name of the file with what live exchanges kept elsewhere.
const KEPT_FILE: &str = "kept.json";

/// The exchange between a sandbox and the host's repositories.
pub struct RepositoryExchange {
    gate: RepositoryGate,
    stamps: Stamps,
    baseline: NestedBaseline,
    searched: Searched,
    /// The time in seconds at which the launcher was killed, if it was.
    killed: Option<i64>,
    scratch: PathBuf,
    git: Option<HostGit>,
    dirs: Vec<GitDirExchange>,
    /// Files that the guest gets once it has started.
    delayed: Vec<Arc<DelayedCopy>>,
    /// The directory of the locks that keep two exchanges with one repository apart.
    locks: PathBuf,
    /// Locks that other sandboxes over the same repositories share.
    shared: Vec<File>,
    /// What exchanges kept elsewhere while the guest was running.
    kept: Vec<Kept>,
    log: Arc<EventLog>,
}

impl RepositoryExchange {
    /// Makes the private Git directories.
    pub fn start(gate: &RepositoryGate, session: &HostPath) -> io::Result<Self> {
        let mut exchange = Self::new(
            Saved { gate: gate.clone(), stamps: Stamps::default(), baseline: NestedBaseline::default() },
            session,
        )?;
        let known = nested::known(gate);
        let mut searched = std::mem::take(&mut exchange.searched);
        let is_large = searched.is_large();
        let mut search = || {
            let mut baseline = NestedBaseline::record(gate, &known, &mut searched)?;
            // Most workspaces contain no other repositories, and there may be hundreds of sessions.
            if !baseline.is_empty() {
                let others = OtherSessions::beside(session);
                baseline = NestedBaseline::record(gate, &known, &mut searched)?;
                others.correct(&mut baseline);
                // Another one may have started meanwhile.
                OtherSessions::beside(session).correct(&mut baseline);
            }
            Ok::<_, Stopped>((baseline, Stamps::of(&gate.watched)))
        };
        (exchange.baseline, exchange.stamps) = if is_large {
            std::thread::scope(|scope| {
                let search = scope.spawn(search);
                exchange.make()?;
                let searched = search.join().map_err(|_| io::Error::other("the search for repositories failed"))?;
                searched.map_err(io::Error::from)
            })?
        } else {
            exchange.make()?;
            search()?
        };
        exchange.searched = searched;
        let saved = SavedRef { gate, stamps: &exchange.stamps, baseline: &exchange.baseline };
        let written = saved.write(session);
        // Without a repository there is nothing to bring out after a kill.
        if !gate.repositories.is_empty() {
            written?;
        }
        Ok(exchange)
    }

    /// Records what comes out while the guest is running.
    pub fn record_in(&mut self, log: Arc<EventLog>) {
        self.log = log;
    }

    /// Makes the private directories.
    fn make(&mut self) -> io::Result<()> {
        // Only a native guest starts so quickly, and only in memory does a lease not depend on a file
        // system of the user.
        let may_delay = self.gate.memory_dir.is_some();
        for repository in &self.gate.repositories {
            let delayed = make::make(repository, self.git.as_ref(), may_delay)?;
            for (private, copy) in delayed {
                let copy = Arc::new(copy);
                let mut trees = self.dirs.iter_mut().flat_map(|dir| &mut dir.trees);
                if let Some(tree) = trees.find(|tree| tree.private == private) {
                    tree.delayed_index = Some(Arc::clone(&copy));
                }
                self.delayed.push(copy);
            }
            if self.gate.is_other_user {
                make::open_to_all(repository)?;
            }
        }
        self.dirs.iter_mut().for_each(GitDirExchange::mark_exchanged);
        Ok(())
    }

    /// Continues the exchange of a launcher that was killed.
    pub fn of_session(session: &HostPath) -> Option<Self> {
        let saved = Saved::read(session)?;
        let killed = time_of_kill(&session.join(FILE).as_path().metadata().ok()?);
        let mut exchange = Self::new(saved, session).ok()?;
        exchange.killed = killed;
        Some(exchange)
    }

    /// Returns the directory in memory that a session uses.
    pub fn memory_dir(session: &HostPath) -> Option<PathBuf> {
        Saved::read(session)?.gate.memory_dir
    }

    /// Removes what a later command needs to continue the exchange of a session.
    pub fn forget(session: &HostPath) {
        let _ = fs::remove_file(session.join(FILE).as_path());
    }

    fn new(saved: Saved, session: &HostPath) -> io::Result<Self> {
        let Saved { gate, stamps, baseline } = saved;
        let scratch = session.as_path().to_owned();
        let dirs = gate.repositories.iter().flat_map(|repository| {
            let full = repository.full.iter().enumerate();
            full.map(|(number, dir)| {
                let linked = if number == 0 { repository.worktrees.as_slice() } else { &[] };
                GitDirExchange::new(dir, linked, &gate.id)
            })
        });
        let dirs = dirs.collect();
        let locks = gate.aside.with_file_name("locks");
        let git = HostGit::new(&gate, scratch.clone());
        let shared =
            gate.repositories.iter().filter_map(|repository| share_repository(&locks, &repository.common_dir).ok());
        let shared = shared.collect();
        let searched = Searched::load(&gate, &nested::known(&gate));
        let kept = fs::read(scratch.join(KEPT_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let kept = kept.unwrap_or_default();
        let (killed, delayed, log) = (None, Vec::new(), Arc::new(EventLog::disabled()));
        Ok(RepositoryExchange {
            git,
            dirs,
            delayed,
            gate,
            stamps,
            baseline,
            searched,
            killed,
            scratch,
            locks,
            shared,
            kept,
            log,
        })
    }

    #[cfg(target_os = "linux")]
    pub fn has_delayed_copies(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Copies large files to the guest, which has started.
    pub fn begin_delayed_copies(&self) {
        self.delayed.iter().for_each(DelayedCopy::begin);
    }

    /// Exchanges what changed since the last time. Problems are reported at the end, when they are
    /// still there.
    fn exchange_if_changed(&mut self) {
        let Some(git) = &self.git else { return };
        for dir in self.dirs.iter_mut().filter(|dir| dir.needs_exchange()) {
            let Ok(_lock) = lock_repository(&self.locks, &dir.dir.host) else { continue };
            let mut report = Report::default();
            let _ = dir.exchange(git, Moment::Running, &mut report);
            report.record_brought(&self.log);
            if !report.kept.is_empty() {
                report.add_kept_before(&self.kept);
                self.kept = report.kept;
                // The next command prints it if this process is killed.
                let _ = serde_json::to_vec(&self.kept).map(|text| fs::write(self.scratch.join(KEPT_FILE), text));
            }
        }
    }

    /// Brings out everything after the guest has ended. `Err` if the host's Git failed, so that the
    /// private directories must be kept for another attempt.
    pub fn finish(&mut self) -> Result<Report, Report> {
        let mut report = Report { changed: self.stamps.changed(&self.gate.watched), ..Report::default() };
        let mut has_failed = false;
        let needed: Vec<bool> = self.dirs.iter().map(GitDirExchange::needs_last_exchange).collect();
        if !needed.contains(&true) {
            self.delayed.iter().for_each(|copy| copy.cancel());
        }
        let (worktrees, has_nested_failed) = self.bring_out_nested(&mut report);
        has_failed |= has_nested_failed;
        for (dir, _) in self.dirs.iter_mut().zip(&needed).filter(|(_, is_needed)| **is_needed) {
            let Some(git) = &self.git else {
                report.problems.push("Git is not installed on the host, so commits made inside cannot come out".into());
                has_failed = true;
                break;
            };
            report.has_refused = false;
            let result = lock_repository(&self.locks, &dir.dir.host)
                .map_err(host_git::GitError::from)
                .and_then(|_lock| dir.exchange(git, Moment::Ended, &mut report));
            if let Err(error) = result {
                let problem = format!("the repository `{}` cannot be updated: {error}", dir.dir.host.display());
                if error.is_temporary() {
                    report.problems.push(problem);
                    has_failed = true;
                    continue;
                }
                report.refuse(problem);
            }
            has_failed |= report.has_refused && !aside::keep(&self.gate, &dir.dir, &mut report);
        }
        let exchanged = self.dirs.iter().zip(needed).filter_map(|(dir, is_needed)| is_needed.then_some(dir));
        for dir in exchanged.filter(|dir| dir.may_keep_files()) {
            kept::report_names(&dir.dir, &mut report);
            for tree in &dir.trees {
                kept::report_pointers(tree, &mut report);
            }
            kept::report_hooks(&dir.dir, &dir.dir.host, &self.gate.aside.join(&self.gate.id), &mut report);
        }
        for worktree in worktrees {
            if let Err(error) = self.bring_out_worktree(&worktree, &mut report) {
                let shown = worktree.directory.display();
                report.problems.push(format!("the worktree `{shown}` cannot be brought out: {error}"));
            }
        }
        if let Some(git) = &self.git {
            for dir in &mut self.dirs {
                let repository = self.gate.repositories.iter().find(|known| known.common_dir == dir.dir.host);
                let given = repository.map_or(&[][..], |repository| &repository.worktrees);
                if let Err(error) = dir.keep_worktrees(git, given, &mut report) {
                    report.problems.push(format!("the worktrees made inside cannot be kept: {error}"));
                    has_failed |= error.is_temporary();
                }
            }
        }
        report.add_kept_before(&self.kept);
        let _ = report.save_list(&self.gate.aside.join(&self.gate.id));
        if has_failed { Err(report) } else { Ok(report) }
    }

    /// Brings out repositories that were made in the working tree. Returns the worktrees that were,
    /// and whether another attempt is necessary.
    fn bring_out_nested(&mut self, report: &mut Report) -> (Vec<NewWorktree>, bool) {
        let Some(git) = &self.git else { return (Vec::new(), false) };
        let is_alone = self.shared.iter().all(lock::is_only_one);
        let mut nested = Nested {
            gate: &self.gate,
            git,
            scratch: &self.scratch,
            baseline: &self.baseline,
            searched: &mut self.searched,
            killed: self.killed,
            count: 0,
            remade: BTreeSet::new(),
            worktrees: Vec::new(),
            installed: BTreeSet::new(),
            is_alone,
            has_failed: false,
        };
        nested.bring_out(report);
        for dir in &mut self.dirs {
            dir.remade.clone_from(&nested.remade);
            dir.is_alone = is_alone;
        }
        (nested.worktrees, nested.has_failed)
    }

    fn bring_out_worktree(&mut self, worktree: &NewWorktree, report: &mut Report) -> host_git::GitResult<()> {
        let (Some(git), Some(repository)) = (&self.git, self.gate.repositories.get(worktree.repository)) else {
            return Ok(());
        };
        let place = self.scratch.join(format!("worktree-{}", crate::session_id::random_name()));
        let tree = nested::add_worktree(git, &self.gate.roots, repository, worktree, &place)?;
        let Some(dir) = self.dirs.iter_mut().find(|dir| dir.dir.host == repository.common_dir) else { return Ok(()) };
        dir.trees.push(tree);
        dir.exchange(git, Moment::Ended, report)
    }

    pub fn id(&self) -> &str {
        &self.gate.id
    }
}
