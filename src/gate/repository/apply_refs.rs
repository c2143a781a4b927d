//! Applies the guest's changes of refs to the host's repository: only where the host's ref is still
//! the one that the guest was given. The guest's value of another one is kept below `refs/sandpen`.

use std::collections::BTreeSet;

use super::exchange::{GitDirExchange, Moment, STASH};
use super::host_git::{GitResult, HostGit};
use super::outgoing::Outgoing;
use super::refs::Refs;
use super::report::Report;
use super::transfer::Taken;
use crate::facts::git::object_id::ObjectId;
use crate::ui::counted;

/// Refs that come out; the stash does as well, in another way.
const PASSING: &[&str] = &["refs/heads/", "refs/tags/", "refs/remotes/", "refs/notes/"];
/// Refs of an operation in one worktree, which have no meaning elsewhere.
const WORKTREE_REFS: &[&str] = &["refs/bisect/", "refs/rewritten/", "refs/worktree/", "refs/sandpen/"];
/// The report names at most this many refs.
const MAX_NAMED: usize = 8;

/// A ref that differs from the base.
pub struct RefChange {
    pub name: String,
    pub before: Option<ObjectId>,
    pub now: Option<ObjectId>,
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

/// The refs that are the same inside and outside, and those that did not come out.
#[derive(Debug, Default)]
pub struct RefResult {
    pub settled: BTreeSet<String>,
    pub held: BTreeSet<String>,
}

impl GitDirExchange {
    /// Updates the host's refs that the guest changed and the host did not.
    pub fn bring_refs(
        &self,
        out: &mut Outgoing,
        changes: &[RefChange],
        host: &Refs,
        is_replaced: bool,
    ) -> GitResult<RefResult> {
        let (git, taken) = (out.git, out.taken);
        let mut result = RefResult::default();
        let mut updates = Vec::new();
        for change in changes {
            let there = host.ids.get(&change.name).copied();
            if there == change.now {
                result.settled.insert(change.name.clone());
            } else if let Some(reason) = change.now.and_then(|id| taken.refused.get(&id)) {
                result.held.insert(change.name.clone());
                out.problem_at_end(format!("`{}` stays inside: {reason}", short(&change.name)));
            } else if let Some(kind) = wrong_kind(change, taken) {
                result.held.insert(change.name.clone());
                out.problem_at_end(format!("`{}` stays inside: it is a {kind}, not a commit", short(&change.name)));
            } else if there == change.before && !is_replaced {
                updates.push(change);
            } else {
                result.held.insert(change.name.clone());
                self.keep_beside(out, change);
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
                    _ => out.report.brought.push(short(&change.name).to_owned()),
                }
            } else {
                result.held.insert(change.name.clone());
                self.keep_beside(out, change);
            }
        }
        Ok(result)
    }

    /// Brings out the default branches of remotes, which are symbolic refs. Others stay inside.
    pub fn bring_symbolic(&self, out: &mut Outgoing, guest: &Refs, host: &Refs) -> GitResult<()> {
        for (name, target) in &guest.symbolic {
            let remote = name.strip_prefix("refs/remotes/").and_then(|rest| rest.strip_suffix("/HEAD"));
            let is_default = remote.is_some_and(|remote| target.starts_with(&format!("refs/remotes/{remote}/")));
            if host.symbolic.get(name) == Some(target) {
                continue;
            }
            if is_default && !host.symbolic.contains_key(name) && !host.ids.contains_key(name) {
                out.git.call(&self.dir.host, &["symbolic-ref", name, target]).run()?;
            } else {
                out.report.keep(format!("`{}` stays inside: it is a symbolic ref", short(name)));
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
    pub fn report_deleted(&self, report: &mut Report) {
        for (name, kept) in self.deleted.borrow().iter() {
            let what = format!("`{}` was deleted inside, and its commits are kept as `{kept}`", short(name));
            report.keep_with(what, &["git", "update-ref", name, kept]);
        }
    }

    /// Keeps the guest's value of a ref that moved on the host as well.
    fn keep_beside(&self, out: &mut Outgoing, change: &RefChange) {
        let name = short(&change.name);
        let Some(id) = change.now else {
            out.keep_at_end(format!("`{name}` was deleted inside, but moved on the host: it stays"));
            return;
        };
        let kept = format!("refs/sandpen/{}/{}", self.id, change.name.trim_start_matches("refs/"));
        let saved = out.git.call(&self.dir.host, &["update-ref", &kept, id.as_str()]).run();
        if out.is_last() {
            match saved {
                Ok(_) => out.report.keep_with(
                    format!("`{name}` moved on the host meanwhile, so the sandbox's is kept as `{kept}`"),
                    &["git", "log", "--oneline", &format!("{name}..{kept}")],
                ),
                Err(error) => out.report.problems.push(format!("`{name}` cannot be brought out: {error}")),
            }
        }
    }
}

/// Lists the refs that differ from the base. A ref that cannot be read counts as unchanged.
pub fn changed_refs(base: &Refs, now: &Refs) -> Vec<RefChange> {
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

pub fn passes(name: &str, moment: Moment) -> bool {
    // The marks of a bisection belong to its other files, which come out at the end.
    let is_mark = name.starts_with("refs/bisect/") && moment == Moment::Ended;
    is_mark || PASSING.iter().any(|prefix| name.starts_with(prefix))
}

/// Names changed refs that do not come out.
pub fn report_other_refs(changes: &[RefChange], report: &mut Report) {
    let is_of_worktree = |name: &str| WORKTREE_REFS.iter().any(|prefix| name.starts_with(prefix));
    for change in changes.iter().filter(|change| !is_of_worktree(&change.name) && change.name != STASH) {
        report.keep(format!(
            "`{}` stays inside: only branches, tags, notes and remote-tracking refs come out",
            change.name
        ));
    }
}

/// Names refs that cannot be read.
pub fn report_odd_refs(refs: &Refs, report: &mut Report) {
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

/// Shortens a ref's name as Git does in messages.
pub fn short(name: &str) -> &str {
    ["refs/heads/", "refs/tags/", "refs/remotes/"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}
