//! Keeps the commits of worktrees that were made inside and do not come out: one in a directory that
//! is not mounted, or one whose directory was removed.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::exchange::{GitDirExchange, open_private};
use super::host_git::{GitResult, HostGit};
use super::nested::plain_name;
use super::refs::{self, Head};
use super::report::Report;
use crate::facts::git::object_id::ObjectId;
use crate::plan::repository::PrivateWorktree;
use crate::process::untrusted_dir::UntrustedDir;

const MAX_WORKTREES: usize = 10_000;

impl GitDirExchange {
    /// Keeps each detached HEAD of a worktree as a ref, unless the host has its commits already. `given`
    /// are the worktrees that existed before.
    pub fn keep_worktrees(&mut self, git: &HostGit, given: &[PrivateWorktree], report: &mut Report) -> GitResult<()> {
        let heads = self.detached_heads(given).unwrap_or_default();
        let mut lost = Vec::new();
        for (name, id) in heads {
            let arguments = ["rev-list", "--max-count=1", id.as_str(), "--not", "--all", "--"];
            if git.call(&self.dir.host, &arguments).run().map_or(true, |output| !output.is_empty()) {
                lost.push((name, id));
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        let host = self.read_host(git)?;
        let wanted = lost.iter().map(|(_, id)| *id).collect();
        let taken = self.transfer.take(git, &self.dir, &wanted, &host.ids.values().copied().collect())?;
        for (number, (name, id)) in lost.iter().enumerate() {
            let shown = name.to_string_lossy();
            if let Some(reason) = taken.refused.get(id) {
                report.problems.push(format!("the HEAD of the worktree `{shown}` stays inside: {reason}"));
                continue;
            }
            let plain = plain_name(name);
            let is_same = |(other, _): &(OsString, ObjectId)| plain_name(other) == plain;
            let is_taken = lost.iter().take(number).any(is_same);
            let suffix = if is_taken { format!("-{number}") } else { String::new() };
            let kept = format!("refs/sandpen/{}/worktrees/{plain}{suffix}", self.id);
            git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run()?;
            report.keep_with(
                format!("the worktree `{shown}` does not come out, so its HEAD is kept as `{kept}`"),
                &["git", "log", "--oneline", &format!("HEAD..{kept}")],
            );
        }
        Ok(())
    }

    /// Lists the worktrees inside whose HEAD is detached at another commit than the one that they were
    /// given.
    fn detached_heads(&self, given: &[PrivateWorktree]) -> io::Result<Vec<(OsString, ObjectId)>> {
        let worktrees = open_private(&self.dir)?.directory(Path::new("worktrees"))?;
        let mut heads = Vec::new();
        for (name, _) in worktrees.entries(MAX_WORKTREES)? {
            let Ok(private) = worktrees.directory(Path::new(&name)) else { continue };
            let Some(head @ Head::Detached(id)) = refs::read_head(&private)? else { continue };
            let place = self.dir.private.join("worktrees").join(&name);
            let linked = given.iter().map(|tree| (&tree.private, &tree.base));
            let mut known = self.trees.iter().map(|tree| (&tree.private, &tree.base)).chain(linked);
            let base = known.find(|(private, _)| **private == place).map(|(_, base)| base);
            let given = base.and_then(|base| refs::read_head(&UntrustedDir::open(base).ok()?).ok()?);
            if given.as_ref() != Some(&head) {
                heads.push((name, id));
            }
        }
        heads.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(heads)
    }
}
