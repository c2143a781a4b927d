//! Brings out repositories that were made or changed in the working tree: `git clone`, `git init`,
//! a submodule. The guest's Git directory is taken away, and the host's Git makes a new one from
//! verified objects, refs, index and ordinary remotes.
//!
//! All of it is built in the session's directory, and put in its place by a rename that follows no
//! link.

mod complete;
mod pointer;
mod remake;
mod restore;
mod submodule;
mod taken;
mod worktree;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::git_dir_content::GitDirContent;
use super::host_git::HostGit;
use super::move_tree::move_out;
use super::nested_baseline::{NestedBaseline, Searched, odd_content};
use super::report::Report;
use super::root::{open_directory, open_parent};
use super::search::{Found, FoundKind};
use crate::plan::RepositoryGate;
use crate::process::bounded_work::{self, Stopped};
use crate::process::untrusted_dir::UntrustedDir;
use remake::Remake;
pub use worktree::{NewWorktree, add_worktree, plain_name};

/// The search for repositories after the guest has ended.
pub struct Nested<'a> {
    pub gate: &'a RepositoryGate,
    pub git: &'a HostGit,
    /// A directory of the session.
    pub scratch: &'a Path,
    /// The repositories that were there before.
    pub baseline: &'a NestedBaseline,
    pub searched: &'a mut Searched,
    /// The time in seconds at which the launcher was killed, if it was.
    pub killed: Option<i64>,
    pub count: usize,
    /// Working trees whose repository is out.
    pub remade: BTreeSet<PathBuf>,
    /// Working trees that `git worktree add` made inside.
    pub worktrees: Vec<NewWorktree>,
    /// Git directories that the host's Git made.
    pub installed: BTreeSet<PathBuf>,
    /// Whether no other sandbox over the same repositories is running.
    pub is_alone: bool,
    /// Whether the session's directory contains something that another attempt may bring out.
    pub has_failed: bool,
}

impl Nested<'_> {
    pub fn bring_out(&mut self, report: &mut Report) {
        self.resume(report);
        self.fill_submodules(report);
        for root in &self.gate.roots {
            let known = self.known();
            let found = match self.searched.search(self.gate, root, &known) {
                Ok(found) => found,
                Err(stopped) => return self.stop(root, stopped, report),
            };
            for found in found {
                if let Err(stopped) = bounded_work::check() {
                    return self.stop(root, stopped, report);
                }
                let path = &found.path;
                let brought = match found.kind {
                    FoundKind::GitDir | FoundKind::Bare => self.repository(root, &found, report),
                    FoundKind::Pointer => self.pointer(root, path, report),
                    FoundKind::Odd => self.set_aside(root, path, "is neither a file nor a directory", report),
                    FoundKind::Unreadable => {
                        report.problems.push(format!("`{}` cannot be searched for repositories", path.display()));
                        Ok(())
                    }
                };
                if let Err(error) = brought {
                    if let Some(stopped) = bounded_work::stop(&error) {
                        return self.stop(root, stopped, report);
                    }
                    report.problems.push(format!("`{}` cannot be brought out: {error}", path.display()));
                }
            }
        }
    }

    /// Leaves the rest to the next command.
    fn stop(&mut self, root: &Path, stopped: Stopped, report: &mut Report) {
        self.has_failed = true;
        report.problems.push(format!(
            "the search for repositories in `{}` is not complete ({stopped}): do not use Git there before it is",
            root.display()
        ));
    }

    fn known(&self) -> Vec<PathBuf> {
        known(self.gate)
    }

    /// Restores a repository of the user, or makes one of the guest anew.
    fn repository(&mut self, root: &Path, found: &Found, report: &mut Report) -> io::Result<()> {
        let path = found.path.as_path();
        if self.installed.contains(path) {
            return Ok(());
        }
        let (parent, name) = open_parent(root, path)?;
        let git_dir = open_directory(root, path)?;
        if let Some(before) = self.baseline.git_dir(path) {
            return match self.restore(&git_dir, path, before, report) {
                Ok(true) => Ok(()),
                Err(error) if bounded_work::stop(&error).is_some() => Err(error),
                _ => self.disable(&git_dir, path, report),
            };
        }
        if self.is_later(found) {
            return Ok(());
        }
        if found.kind == FoundKind::Bare {
            return match GitDirContent::of(&git_dir) {
                Ok(content) if content.is_harmless() => Ok(()),
                Err(error) if bounded_work::stop(&error).is_some() => Err(error),
                _ => self.disable(&git_dir, path, report),
            };
        }
        let remake = Remake { place: self.next_place(), work_tree: path.parent(), git_dir: path.to_owned() };
        // Renaming a directory needs the permission to write it and the one above it.
        let _ = parent.grant_own_access();
        let _ = git_dir.grant_own_access();
        if let Err(error) = self.take(&remake, &parent, &name) {
            self.disable(&git_dir, path, report)?;
            return Err(error);
        }
        let made = self.remake(&remake, report);
        self.install(made, &remake, &parent, &name, report);
        Ok(())
    }

    /// Takes HEAD away, without which Git does not use a directory.
    fn disable(&mut self, git_dir: &UntrustedDir, path: &Path, report: &mut Report) -> io::Result<()> {
        let kept = self.next_aside("HEAD-");
        let _ = git_dir.grant_own_access();
        move_out(git_dir, Path::new("HEAD"), &kept)?;
        let head = path.join("HEAD");
        report.keep_with(
            format!(
                "`{}` is a Git directory with settings or hooks of the sandbox, so its HEAD is set aside",
                path.display()
            ),
            &["mv", &kept.to_string_lossy(), &head.to_string_lossy()],
        );
        Ok(())
    }

    /// Tells whether something was made after the launcher was killed, and so by the user. The search
    /// has seen it before its permissions were changed here.
    fn is_later(&self, found: &Found) -> bool {
        self.killed.is_some_and(|killed| found.since.is_some_and(|since| since > killed))
    }

    fn set_aside(&mut self, root: &Path, path: &Path, reason: &str, report: &mut Report) -> io::Result<()> {
        if self
            .baseline
            .odd
            .iter()
            .any(|(known, before)| known == path && odd_content(root, path).as_ref() == Some(before))
        {
            return Ok(());
        }
        let (parent, name) = open_parent(root, path)?;
        let kept = self.next_aside("git-");
        move_out(&parent, &name, &kept)?;
        report.keep_with(
            format!("`{}`, made inside, {reason}, so it is set aside", path.display()),
            &["mv", &kept.to_string_lossy(), &path.to_string_lossy()],
        );
        Ok(())
    }
}

/// Lists the Git directories that the guest could not write, and their `.git` files.
pub fn known(gate: &RepositoryGate) -> Vec<PathBuf> {
    let full = gate.repositories.iter().flat_map(|repository| &repository.full);
    let full = full.flat_map(|dir| [Some(dir.host.clone()), dir.work_tree.as_ref().map(|tree| tree.join(".git"))]);
    let linked = gate.repositories.iter().flat_map(|repository| &repository.worktrees);
    let linked = linked.map(|dir| dir.work_tree.as_ref().map(|tree| tree.join(".git")));
    full.chain(linked).flatten().chain(gate.fixed.iter().cloned()).collect()
}
