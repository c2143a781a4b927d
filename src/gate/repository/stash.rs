//! Brings out the stash, which Git keeps as a reflog: entries that the guest added are stored by the
//! host's Git, those that it dropped are dropped, unless the host's stash changed meanwhile.

use std::fs;

use super::exchange::STASH;
use super::host_git::{GitResult, HostGit};
use super::outgoing::Outgoing;
use super::refs::{self, ReflogEntry};
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted_dir::UntrustedDir;

/// Git itself has no limit; nobody keeps so many.
const MAX_ENTRIES: usize = 1000;

pub fn bring_out(out: &mut Outgoing, dir: &PrivateGitDir, given: &[ReflogEntry], now: &[ReflogEntry]) -> GitResult<()> {
    let git = out.git;
    let has = |list: &[ReflogEntry], entry: &ReflogEntry| list.iter().any(|other| other.new == entry.new);
    if now.len() > MAX_ENTRIES || given.iter().map(|entry| entry.new).eq(now.iter().map(|entry| entry.new)) {
        return Ok(());
    }
    let host = host_entries(git, dir)?;
    let is_unchanged = host.iter().map(|entry| entry.new).eq(given.iter().map(|entry| entry.new));
    if is_unchanged {
        // The newest has the number 0.
        for (number, entry) in host.iter().rev().enumerate().collect::<Vec<_>>().into_iter().rev() {
            if !has(now, entry) {
                let name = format!("{STASH}@{{{number}}}");
                git.call(&dir.host, &["reflog", "delete", "--rewrite", "--updateref", &name]).run()?;
                let what = format!("the stash entry `{}` was dropped inside", entry.message);
                out.report.keep_with(what, &["git", "stash", "store", "-m", &entry.message, entry.new.as_str()]);
            }
        }
        if !host.is_empty() && host.iter().all(|entry| !has(now, entry)) {
            git.call(&dir.host, &["update-ref", "-d", STASH]).run()?;
        }
    }
    for entry in now.iter().filter(|entry| !has(&host, entry) && out.taken.kinds.contains_key(&entry.new)) {
        // Git refuses a commit that is not a stash.
        let stored = git.call(&dir.host, &["stash", "store", "-q", "-m", &entry.message, entry.new.as_str()]).run();
        if let Err(error) = stored {
            out.report.problems.push(format!("a stash entry stays inside: {error}"));
        }
    }
    save_given(dir, now)?;
    Ok(())
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
