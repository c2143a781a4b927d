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

use super::host_git::HostGit;
use super::move_tree::{move_out, open_granted};
use super::nested_baseline::{GitDirContent, NestedBaseline, Searched, odd_content};
use super::report::Report;
use super::search::Found;
use crate::plan::RepositoryGate;
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
            for found in self.searched.search(self.gate, root, &known) {
                let result = match &found {
                    Found::GitDir(path) => self.repository(root, path, false, report),
                    Found::Bare(path) => self.repository(root, path, true, report),
                    Found::Pointer(path) => self.pointer(root, path, report),
                    Found::Odd(path) => self.set_aside(root, path, "is neither a file nor a directory", report),
                    Found::Unreadable(path) => {
                        report.problems.push(format!("`{}` cannot be searched for repositories", path.display()));
                        Ok(())
                    }
                };
                if let Err(error) = result {
                    report.problems.push(format!("`{}` cannot be brought out: {error}", path(&found).display()));
                }
            }
        }
    }

    fn known(&self) -> Vec<PathBuf> {
        known(self.gate)
    }

    /// Restores a repository of the user, or makes one of the guest anew.
    fn repository(&mut self, root: &Path, path: &Path, is_bare: bool, report: &mut Report) -> io::Result<()> {
        if self.installed.contains(path) {
            return Ok(());
        }
        let (parent, name) = parent_of(root, path)?;
        let git_dir = if path == root { UntrustedDir::open(root)? } else { open_granted(&parent, &name)? };
        if let Some(before) = self.baseline.git_dir(path) {
            return match self.restore(&git_dir, path, before, report) {
                Ok(true) => Ok(()),
                _ => self.disable(&git_dir, path, report),
            };
        }
        if self.is_later(&git_dir) {
            return Ok(());
        }
        if is_bare {
            let is_harmless = GitDirContent::of(&git_dir).is_ok_and(|content| content.is_harmless());
            return if is_harmless { Ok(()) } else { self.disable(&git_dir, path, report) };
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

    /// Tells whether something was made after the launcher was killed, and so by the user.
    fn is_later(&self, entry: &UntrustedDir) -> bool {
        let Some(killed) = self.killed else { return false };
        rustix::fs::fstat(entry).is_ok_and(|stat| stat.st_ctime > killed)
    }

    fn set_aside(&mut self, root: &Path, path: &Path, reason: &str, report: &mut Report) -> io::Result<()> {
        if self.baseline.odd.iter().any(|(known, before)| known == path && odd_content(path).as_ref() == Some(before)) {
            return Ok(());
        }
        let (parent, name) = parent_of(root, path)?;
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

fn path(found: &Found) -> &Path {
    match found {
        Found::GitDir(path) | Found::Bare(path) | Found::Pointer(path) | Found::Odd(path) | Found::Unreadable(path) => {
            path
        }
    }
}

/// Opens the directory that contains a path, without following a link below `root`.
fn parent_of(root: &Path, path: &Path) -> io::Result<(UntrustedDir, PathBuf)> {
    let below = path.strip_prefix(root).map_err(|_| io::ErrorKind::InvalidInput)?;
    match below.file_name() {
        Some(name) => {
            let parent = UntrustedDir::open(root)?.directory(below.parent().unwrap_or(Path::new("")))?;
            Ok((parent, name.into()))
        }
        // The root itself.
        None => {
            let (parent, name) = (path.parent().unwrap_or(path), path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
            Ok((UntrustedDir::open(parent)?, name.into()))
        }
    }
}
