//! Applies the guest's changes of refs to the host's repository: only where the host's ref is still
//! the one that the guest was given. The guest's value of another one is kept below `refs/sandpen`.

use std::collections::BTreeSet;

use super::exchange::{GitDirExchange, Moment, STASH};
use super::host_git::{GitError, GitResult, HostGit};
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
/// Each failed transaction halves a group of refs, so some ten refs are found among thousands.
const MAX_ATTEMPTS: usize = 128;
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
        let (mut updates, mut beside) = (Vec::new(), Vec::new());
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
                beside.push(change);
            }
        }
        let kept = self.keep_lost(git, &updates, host)?;
        let failed = self.update_refs(git, &updates)?;
        for change in updates {
            let kept = kept.get(&change.name);
            if failed.contains(change.name.as_str()) {
                if let Some((kept, id)) = kept {
                    self.discard_kept(git, kept, *id);
                }
                beside.push(change);
                continue;
            }
            result.settled.insert(change.name.clone());
            if let Some((kept, _)) = kept {
                self.report_kept(out, change, kept);
            }
            if change.now.is_some() {
                out.report.brought.push(short(&change.name).to_owned());
            }
        }
        result.held.extend(beside.iter().map(|change| change.name.clone()));
        self.keep_beside(out, &beside, host)?;
        Ok(result)
    }

    /// Updates refs, if possible in one transaction. If one of them was moved at this moment, halves
    /// of them find out which. Returns the names of those that were not updated.
    fn update_refs<'a>(&self, git: &HostGit, updates: &[&'a RefChange]) -> GitResult<BTreeSet<&'a str>> {
        let message = format!("sandpen {}", self.id);
        let update = |updates: &[&RefChange]| -> GitResult<()> {
            let input: Vec<u8> = updates.iter().flat_map(|change| change.command()).collect();
            git.call(&self.dir.host, &["update-ref", "-m", &message, "--stdin", "-z"]).input(&input)?.run().map(|_| ())
        };
        // A deleted branch `x` makes room for `x/y`.
        let (deleted, other): (Vec<_>, Vec<_>) = updates.iter().copied().partition(|change| change.now.is_none());
        let mut groups = vec![other, deleted];
        let mut failed = BTreeSet::new();
        let mut attempts = 0;
        while let Some(group) = groups.pop() {
            if group.is_empty() {
                continue;
            }
            attempts += 1;
            let is_exhausted = attempts > MAX_ATTEMPTS;
            if !is_exhausted && is_updated(update(&group))? {
                continue;
            }
            if is_exhausted || group.len() == 1 {
                failed.extend(group.iter().map(|change| change.name.as_str()));
            } else {
                let (first, second) = group.split_at(group.len() / 2);
                groups.extend([second.to_vec(), first.to_vec()]);
            }
        }
        Ok(failed)
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
}

/// Fails only if Git did not run to its end.
fn is_updated(result: GitResult<()>) -> GitResult<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.is_temporary() && !matches!(error, GitError::Failed { .. }) => Err(error),
        Err(_) => Ok(false),
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

/// Removes deletions from the changes, and the refs that take the place of deleted ones: a ref that is
/// missing while the guest runs may belong to a repository that is being removed. Returns the names of
/// refs that wait for the end.
pub fn wait_for_deletions(changes: &mut Vec<RefChange>) -> BTreeSet<String> {
    let deleted: BTreeSet<String> =
        changes.iter().filter(|change| change.now.is_none()).map(|change| change.name.clone()).collect();
    let is_above_deleted = |name: &str| {
        let below = format!("{name}/");
        deleted.range(below.clone()..).next().is_some_and(|first| first.starts_with(&below))
    };
    let is_below_deleted = |name: &str| {
        name.match_indices('/').any(|(end, _)| name.get(..end).is_some_and(|above| deleted.contains(above)))
    };
    let waits = |name: &str| deleted.contains(name) || is_above_deleted(name) || is_below_deleted(name);
    let waiting = changes.iter().filter(|change| waits(&change.name)).map(|change| change.name.clone()).collect();
    changes.retain(|change| !waits(&change.name));
    waiting
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

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, is_there: bool) -> RefChange {
        let id = ObjectId::parse(&"1".repeat(40));
        RefChange { name: name.into(), before: None, now: id.filter(|_| is_there) }
    }

    #[test]
    fn deletions_wait_with_what_takes_their_place() {
        let mut changes = vec![
            change("refs/heads/a", false),
            change("refs/heads/a/b", true),
            change("refs/heads/ab", true),
            change("refs/heads/c", true),
            change("refs/heads/c/d", false),
        ];
        let waiting = wait_for_deletions(&mut changes);
        let left: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(left, ["refs/heads/ab"]);
        assert_eq!(waiting.len(), 4);
    }
}
