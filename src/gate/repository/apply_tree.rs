//! Applies HEAD, the index and an unfinished operation of one of the guest's working trees to the
//! host's.

use std::fs;

use super::apply_index;
use super::apply_refs::{RefResult, short};
use super::exchange::{GitDirExchange, WorkingTree};
use super::guest_state::GuestTree;
use super::host_git::{GitResult, HostGit};
use super::operation;
use super::outgoing::Outgoing;
use super::refs::{self, Head, Refs, head_text};
use super::report::Report;
use super::transfer::Taken;
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

impl GitDirExchange {
    /// Brings out HEAD, the index and an unfinished operation of a working tree.
    pub fn bring_tree(
        &self,
        out: &mut Outgoing,
        tree: &WorkingTree,
        now: &GuestTree,
        guest_refs: &Refs,
        refs: &RefResult,
    ) -> GitResult<()> {
        let git = out.git;
        let Some(head) = &now.head else {
            out.problem_at_end("HEAD is missing or broken inside: the host's stays as it is");
            return Ok(());
        };
        let given = refs::read_head(&UntrustedDir::open(&tree.base)?)?;
        let host = self.host_head(git, tree)?;
        if given.as_ref() != Some(head) && host.as_ref() != Some(head) {
            let is_out = is_out(head, refs, out.taken);
            if host == given && is_out {
                self.move_head(git, tree, head)?;
            } else {
                if let (Head::Detached(id), true, true) = (head, out.is_last(), is_out) {
                    let kept = format!("refs/sandpen/{}/HEAD", self.id);
                    git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run()?;
                    out.report.keep_with(
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
        match &now.index {
            Ok(Some((_, index))) if index.is_split || index.is_sparse => {
                out.keep_at_end("the index stays inside: sandpen does not read split or sparse indexes");
                let before = given.as_ref().and_then(|head| commit(head, out.base));
                if let (Some(before), Some(after)) = (before, commit(head, guest_refs)) {
                    self.move_index(git, tree, before, after)?;
                }
            }
            Err(error) => {
                out.problem_at_end(format!("the index inside cannot be read, so it does not come out: {error}"));
            }
            Ok(Some((content, index))) => apply_index::bring_out(out, self, tree, content, index)?,
            Ok(None) => {}
        }
        if out.is_last() {
            self.bring_operation(tree, now, out.report)?;
        }
        Ok(())
    }

    /// Changes the host's index from one commit to another as `git switch` does: entries that differ
    /// from the first commit stay, and no file is written. If that is not possible, nothing changes. The
    /// host's Git enters a repository that an entry names, so that one which is new stays inside.
    fn move_index(&self, git: &HostGit, tree: &WorkingTree, from: ObjectId, to: ObjectId) -> GitResult<()> {
        let Some(work_tree) = tree.directory.as_ref().filter(|_| from != to) else { return Ok(()) };
        let difference =
            git.call(&tree.host, &["diff-tree", "-r", "--no-renames", from.as_str(), to.as_str()]).run()?;
        if names_repository(&difference) {
            return Ok(());
        }
        let moved = git.call(&tree.host, &["read-tree", "-i", "-m", from.as_str(), to.as_str()]).run();
        match moved {
            Err(error) if error.is_temporary() => return Err(error),
            Err(_) => return Ok(()),
            Ok(_) => apply_index::refresh(git, tree, work_tree),
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

/// Tells whether a list of differences, with the old and the new mode first, has a new repository.
fn names_repository(difference: &[u8]) -> bool {
    difference.split(|byte| *byte == b'\n').any(|line| line.split(|byte| *byte == b' ').nth(1) == Some(b"160000"))
}

/// Tells whether the host has what HEAD names.
fn is_out(head: &Head, refs: &RefResult, taken: &Taken) -> bool {
    match head {
        Head::Branch(name) => !refs.held.contains(name),
        Head::Detached(id) => taken.kinds.contains_key(id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_new_mode_names_a_repository() {
        let line = |modes: &str| format!(":100644 100644 1 2 M\tx\n:{modes} 1 2 M\t160000 160000\n").into_bytes();
        assert!(names_repository(&line("000000 160000")) && names_repository(&line("160000 160000")));
        assert!(!names_repository(&line("160000 000000")) && !names_repository(&line("000000 100644")));
    }
}
