//! Keeps commits below `refs/sandpen` that would be lost otherwise: those of the user whose refs the
//! guest deletes or moves, and those of the guest where the host's ref moved as well.

use std::collections::{BTreeMap, BTreeSet};

use super::apply_refs::{RefChange, short};
use super::base::read_user_refs;
use super::exchange::GitDirExchange;
use super::host_git::{GitError, GitResult, HostGit};
use super::outgoing::Outgoing;
use super::refs::Refs;
use crate::facts::git::object_id::ObjectId;

/// At most this many refs are kept one by one.
const MAX_SINGLE: usize = 256;
/// At most this many names are tried for a ref.
const MAX_NAMES: usize = 50;
/// Refs of remotes can be fetched again, and marks of a bisection have no commits.
const NOT_KEPT: &[&str] = &["refs/remotes/", "refs/bisect/"];

impl GitDirExchange {
    fn kept_name(&self, name: &str) -> String {
        format!("refs/sandpen/{}/{}", self.id, name.trim_start_matches("refs/"))
    }

    /// Keeps the values that the user gave to refs, if no ref or reflog has them after the changes.
    /// Returns the names of the changed refs with those that keep their values.
    pub fn keep_lost(
        &self,
        git: &HostGit,
        changes: &[&RefChange],
        host: &Refs,
    ) -> GitResult<BTreeMap<String, (String, ObjectId)>> {
        let user = read_user_refs(&self.dir.base)?;
        let is_kept = |change: &RefChange| !NOT_KEPT.iter().any(|prefix| change.name.starts_with(prefix));
        let candidates = changes.iter().filter(|change| is_kept(change)).filter_map(|change| {
            let id = *user.get(&change.name)?;
            (Some(id) != change.now).then_some((*change, id))
        });
        let candidates: Vec<(&RefChange, ObjectId)> = candidates.collect();
        let mut lost = self.lost(git, &candidates, changes, host)?;
        // A commit that a branch has left is in its reflog, which Git deletes with the branch.
        lost.retain(|(change, _)| change.now.is_none() || !self.has_reflog(git, &change.name));
        let mut kept = BTreeMap::new();
        for ((change, id), saved) in lost.iter().zip(self.keep_refs(git, &lost, host)?) {
            kept.insert(change.name.clone(), (saved?, *id));
        }
        Ok(kept)
    }

    fn has_reflog(&self, git: &HostGit, name: &str) -> bool {
        if self.dir.is_reftable {
            return git.call(&self.dir.host, &["reflog", "exists", name]).run().is_ok();
        }
        self.dir.host.join("logs").join(name).is_file()
    }

    /// Returns the candidates that no ref has after the changes.
    fn lost<'a>(
        &self,
        git: &HostGit,
        candidates: &[(&'a RefChange, ObjectId)],
        changes: &[&RefChange],
        host: &Refs,
    ) -> GitResult<Vec<(&'a RefChange, ObjectId)>> {
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        // Annotated tags are objects as well, which the commits do not have.
        let is_tag = |change: &RefChange| change.name.starts_with("refs/tags/");
        let (tags, branches): (Vec<_>, Vec<_>) = candidates.iter().copied().partition(|(change, _)| is_tag(change));
        let commits: Vec<ObjectId> = branches.iter().map(|(_, id)| *id).collect();
        // Usually the new commits have the old ones among their ancestors.
        let new = branches.iter().filter_map(|(change, _)| change.now);
        let is_certain = tags.is_empty() && self.unreachable(git, &commits, new)?.is_empty();
        if is_certain {
            return Ok(Vec::new());
        }
        let mut after = host.ids.clone();
        for change in changes {
            match change.now {
                Some(id) => after.insert(change.name.clone(), id),
                None => after.remove(&change.name),
            };
        }
        let after: BTreeSet<ObjectId> = after.into_values().collect();
        let all: Vec<ObjectId> = candidates.iter().map(|(_, id)| *id).collect();
        let unreachable = self.unreachable(git, &all, after.iter().copied())?;
        let annotated = if tags.is_empty() { BTreeSet::new() } else { self.other_than_commits(git, &tags)? };
        let is_lost =
            |id: &ObjectId| if annotated.contains(id) { !after.contains(id) } else { unreachable.contains(id) };
        Ok(candidates.iter().copied().filter(|(_, id)| is_lost(id)).collect())
    }

    /// Returns the commits that cannot be reached from others; all of them if Git fails.
    fn unreachable(
        &self,
        git: &HostGit,
        ids: &[ObjectId],
        from: impl Iterator<Item = ObjectId>,
    ) -> GitResult<BTreeSet<ObjectId>> {
        let mut input: String = ids.iter().map(|id| format!("{id}\n")).collect();
        input.extend(from.map(|id| format!("^{id}\n")));
        let call = git.call(&self.dir.host, &["rev-list", "--ignore-missing", "--stdin"]).input(input.as_bytes())?;
        match call.run() {
            Ok(list) => Ok(String::from_utf8_lossy(&list).lines().filter_map(ObjectId::parse).collect()),
            Err(error) if error.is_temporary() => Err(error),
            Err(_) => Ok(ids.iter().copied().collect()),
        }
    }

    fn other_than_commits(&self, git: &HostGit, tags: &[(&RefChange, ObjectId)]) -> GitResult<BTreeSet<ObjectId>> {
        let input: String = tags.iter().map(|(_, id)| format!("{id}\n")).collect();
        let format = "--batch-check=%(objectname) %(objecttype)";
        let output = git.call(&self.dir.host, &["cat-file", format]).input(input.as_bytes())?.run()?;
        let text = String::from_utf8_lossy(&output).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(' ')).filter(|(_, kind)| *kind != "commit");
        Ok(lines.filter_map(|(id, _)| ObjectId::parse(id)).collect())
    }

    /// Keeps values of refs below `refs/sandpen`, if possible in one transaction. Returns the names, or
    /// why a value could not be kept; fails if another attempt may succeed.
    pub fn keep_refs(
        &self,
        git: &HostGit,
        values: &[(&RefChange, ObjectId)],
        host: &Refs,
    ) -> GitResult<Vec<GitResult<String>>> {
        let is_new = |name: &str| !host.ids.contains_key(&self.kept_name(name));
        let new = values.iter().filter(|(change, _)| is_new(&change.name));
        let input: String =
            new.map(|(change, id)| format!("create {}\0{id}\0", self.kept_name(&change.name))).collect();
        let is_created = !input.is_empty()
            && git.call(&self.dir.host, &["update-ref", "--stdin", "-z"]).input(input.as_bytes())?.run().is_ok();
        let mut single = 0;
        let mut names = Vec::new();
        for (change, id) in values {
            let saved = if is_created && is_new(&change.name) {
                Ok(self.kept_name(&change.name))
            } else {
                single += 1;
                if single > MAX_SINGLE { Err(too_many()) } else { self.keep_ref(git, &change.name, *id) }
            };
            match saved {
                Err(error) if error.is_temporary() => return Err(error),
                saved => names.push(saved),
            }
        }
        Ok(names)
    }

    /// Keeps a value of a ref below `refs/sandpen`. Never replaces a value that is not an ancestor.
    /// Returns the name.
    fn keep_ref(&self, git: &HostGit, name: &str, id: ObjectId) -> GitResult<String> {
        let first = self.kept_name(name);
        // A branch `x` is in the way of `x/y`.
        let flat = format!("refs/sandpen/{}/{}", self.id, name.trim_start_matches("refs/").replace('/', "-"));
        let more = (2..MAX_NAMES).map(|number| format!("{flat}-{number}"));
        let mut failure = None;
        for kept in [first, flat.clone()].into_iter().chain(more) {
            let there = git.call(&self.dir.host, &["rev-parse", "--verify", "--quiet", &kept]).run().ok();
            let there = there.and_then(|output| ObjectId::parse(String::from_utf8_lossy(&output).trim_end()));
            let result = match there {
                Some(there) if there == id => return Ok(kept),
                Some(there) => {
                    let is_ancestor = ["merge-base", "--is-ancestor", there.as_str(), id.as_str()];
                    if git.call(&self.dir.host, &is_ancestor).run().is_err() {
                        continue;
                    }
                    git.call(&self.dir.host, &["update-ref", &kept, id.as_str(), there.as_str()]).run()
                }
                None => {
                    let none = "0".repeat(id.as_str().len());
                    git.call(&self.dir.host, &["update-ref", &kept, id.as_str(), &none]).run()
                }
            };
            match result {
                Ok(_) => return Ok(kept),
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(too_many))
    }

    /// Names a ref of the user that the guest deleted or moved, and the one that keeps its value.
    pub fn report_kept(&self, out: &mut Outgoing, change: &RefChange, kept: &str) {
        let name = short(&change.name);
        let what = if change.now.is_none() {
            format!("`{name}` was deleted inside, and its commits are kept as `{kept}`")
        } else {
            format!("`{name}` was moved inside, and its former commits are kept as `{kept}`")
        };
        out.report.keep_with(what, &["git", "update-ref", &change.name, kept]);
    }

    /// Removes a ref that keeps a value, because the ref with this value was not changed.
    pub fn discard_kept(&self, git: &HostGit, kept: &str, id: ObjectId) {
        let _ = git.call(&self.dir.host, &["update-ref", "-d", kept, id.as_str()]).run();
    }

    /// Keeps the guest's values of refs that moved on the host as well.
    pub fn keep_beside(&self, out: &mut Outgoing, changes: &[&RefChange], host: &Refs) -> GitResult<()> {
        for change in changes.iter().filter(|change| change.now.is_none()) {
            let name = short(&change.name);
            out.keep_at_end(format!("`{name}` was deleted inside, but moved on the host: it stays"));
        }
        let moved: Vec<_> = changes.iter().filter_map(|change| Some((*change, change.now?))).collect();
        for ((change, _), saved) in moved.iter().zip(self.keep_refs(out.git, &moved, host)?) {
            let name = short(&change.name);
            match saved {
                Ok(kept) if out.is_last() => out.report.keep_with(
                    format!("`{name}` moved on the host meanwhile, so the sandbox's is kept as `{kept}`"),
                    &["git", "log", "--oneline", &format!("{name}..{kept}")],
                ),
                Ok(_) => {}
                Err(error) => out.refuse_at_end(format!("`{name}` cannot be brought out: {error}")),
            }
        }
        Ok(())
    }
}

fn too_many() -> GitError {
    GitError::Failed { what: "update-ref".into(), code: None, message: "too many refs below `refs/sandpen`".into() }
}
