//! Brings out the stash, which Git keeps as a reflog: entries that the guest added are stored by the
//! host's Git, those that it dropped are dropped, unless the host's stash changed meanwhile.

use std::fs;

use super::exchange::STASH;
use super::host_git::{GitError, GitResult, HostGit};
use super::outgoing::Outgoing;
use super::refs::{self, ReflogEntry};
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted_dir::UntrustedDir;

/// Git itself has no limit; nobody keeps so many.
const MAX_ENTRIES: usize = 1000;

pub fn bring_out(out: &mut Outgoing, dir: &PrivateGitDir, given: &[ReflogEntry], now: &[ReflogEntry]) -> GitResult<()> {
    let git = out.git;
    let has = |list: &[ReflogEntry], entry: &ReflogEntry| list.iter().any(|other| other.new == entry.new);
    if given.iter().map(|entry| entry.new).eq(now.iter().map(|entry| entry.new)) {
        return Ok(());
    }
    if now.len() > MAX_ENTRIES {
        out.refuse_at_end(format!("{} stash entries stay inside: too many", now.len()));
        return Ok(());
    }
    let mut host = host_entries(git, dir)?;
    let is_unchanged = host.iter().map(|entry| entry.new).eq(given.iter().map(|entry| entry.new));
    let (kept, dropped): (Vec<_>, Vec<_>) = host.iter().cloned().partition(|entry| has(now, entry));
    if let Some(newest) = host.last().filter(|_| is_unchanged && !dropped.is_empty()) {
        // Git drops entries by number, and a stash that the user pushes at this moment changes the
        // numbers. So all are removed if the newest is still the same, and the others stored again.
        if let Err(error) = git.call(&dir.host, &["update-ref", "-d", STASH, newest.new.as_str()]).run() {
            return if error.is_temporary() { Err(error) } else { Ok(()) };
        }
        for entry in &kept {
            store(git, dir, entry, &entry.who).or_else(|_| store(git, dir, entry, ""))?;
        }
        for entry in dropped.iter().rev() {
            let what = format!("the stash entry `{}` was dropped inside", entry.message);
            out.report.keep_with(what, &["git", "stash", "store", "-m", &entry.message, entry.new.as_str()]);
        }
        host = kept;
    }
    let mut is_complete = true;
    for entry in now.iter().filter(|entry| !has(&host, entry)) {
        // Git refuses a commit that is not a stash.
        let stored = match out.taken.refused.get(&entry.new) {
            Some(reason) => Err(GitError::Failed { what: "stash".into(), code: None, message: reason.clone() }),
            None => store(git, dir, entry, ""),
        };
        if let Err(error) = stored {
            if error.is_temporary() {
                return Err(error);
            }
            is_complete = false;
            out.refuse_at_end(format!("a stash entry stays inside: {error}"));
        }
    }
    if is_complete {
        save_given(dir, now)?;
    }
    Ok(())
}

/// Stores an entry for this committer, or the user if it is empty.
fn store(git: &HostGit, dir: &PrivateGitDir, entry: &ReflogEntry, who: &str) -> GitResult<()> {
    let call = git.call(&dir.host, &["stash", "store", "-q", "-m", &entry.message, entry.new.as_str()]);
    call.committer(who).run().map(|_| ())
}

fn host_entries(git: &HostGit, dir: &PrivateGitDir) -> GitResult<Vec<ReflogEntry>> {
    if !dir.is_reftable {
        return Ok(refs::read_reflog(&UntrustedDir::open(&dir.host)?, STASH)?);
    }
    let list = git.call(&dir.host, &["reflog", "show", "--format=%H %gs", STASH]).run().unwrap_or_default();
    let text = String::from_utf8_lossy(&list).into_owned();
    let entries = text.lines().filter_map(|line| {
        let (id, message) = line.split_once(' ')?;
        let new = crate::facts::git::object_id::ObjectId::parse(id)?;
        Some(ReflogEntry { old: new, new, who: String::new(), message: message.to_owned() })
    });
    let mut entries: Vec<_> = entries.collect();
    entries.reverse();
    Ok(entries)
}

fn save_given(dir: &PrivateGitDir, entries: &[ReflogEntry]) -> std::io::Result<()> {
    let file = dir.base.join("logs").join(STASH);
    if let Some(above) = file.parent() {
        fs::create_dir_all(above)?;
    }
    let lines: String =
        entries.iter().map(|entry| format!("{} {} {}\t{}\n", entry.old, entry.new, entry.who, entry.message)).collect();
    fs::write(file, lines)
}
