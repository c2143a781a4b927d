//! Brings out tracking settings and new remotes, and names the settings and hooks that stay inside.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::exchange::{GitDirExchange, Moment, WorkingTree, open_private, read_config};
use super::host_git::{GitResult, HostGit};
use super::refs;
use super::report::{Kept, Report};
use super::settings::{self, KeptSetting, SettingChange};
use crate::facts::git::syntax;
use crate::plan::push::MARK;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted;

/// Hooks that are larger are named, but not kept.
const MAX_HOOK: u64 = 1 << 20;
const MAX_HOOKS: usize = 100;
/// Files by which a worktree's Git directory names others.
const POINTERS: [&str; 2] = ["commondir", "gitdir"];
const MAX_TOP_ENTRIES: usize = 10_000;
/// The report names at most this many settings of a repository.
const MAX_NAMED: usize = 8;

/// Brings out the settings that may come out, where the host's are still the given ones.
pub fn bring_settings(
    git: &HostGit,
    dir: &PrivateGitDir,
    id: &str,
    shown: &Path,
    moment: Moment,
    report: &mut Report,
) -> GitResult<()> {
    let given = fs::read(dir.base.join("config")).unwrap_or_default();
    let now = match open_private(dir).and_then(|private| read_config(&private)) {
        Ok(now) => now,
        Err(error) => {
            if moment == Moment::Ended {
                report.keep("the setting stays inside: `config`");
                report.problems.push(format!("the configuration inside cannot be read: {error}"));
            }
            return Ok(());
        }
    };
    if given == now {
        return Ok(());
    }
    let changes = settings::changes(&given, &now);
    let host = untrusted::read(&dir.host.join("config"), 1 << 20).unwrap_or_default();
    let host = syntax::settings(&host).unwrap_or_default();
    for change in &changes.accepted {
        apply(git, dir, id, change, &host, report)?;
    }
    if moment == Moment::Ended {
        report_settings(shown, &changes.kept_inside, report);
    }
    Ok(())
}

/// Names the settings that stay inside in one line, with the commands that make them.
fn report_settings(shown: &Path, kept: &[KeptSetting], report: &mut Report) {
    if kept.is_empty() {
        return;
    }
    let names: Vec<String> = kept.iter().take(MAX_NAMED).map(|kept| format!("`{}`", kept.key)).collect();
    let more = kept.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let place = shown.to_string_lossy().into_owned();
    let commands = kept.iter().take(MAX_NAMED).filter_map(|kept| {
        let value = kept.value.as_ref()?;
        Some(["git", "-C", &place, "config", &kept.key, value].map(OsString::from).to_vec())
    });
    let verb = if kept.len() == 1 { "the setting stays" } else { "settings stay" };
    let what = format!("{verb} inside: {}{more}", names.join(", "));
    report.kept.push(Kept { what, commands: commands.collect() });
}

fn value<'a>(settings: &'a [(String, String)], key: &str) -> Option<&'a String> {
    settings.iter().rfind(|(known, _)| known == key).map(|(_, value)| value)
}

/// Makes a change with the host's Git, if the host has what the guest was given.
fn apply(
    git: &HostGit,
    dir: &PrivateGitDir,
    id: &str,
    change: &SettingChange,
    host: &[(String, String)],
    report: &mut Report,
) -> GitResult<()> {
    match change {
        SettingChange::Set { key, given, value: new } if value(host, key) == given.as_ref() => {
            git.call(&dir.host, &["config", key, new]).run()?;
            // A push would go elsewhere than before.
            if let Some(given) = given.as_ref().filter(|_| key.ends_with(".remote")) {
                let what = format!("the sandbox changed `{key}` from `{given}` to `{new}`");
                report.keep_with(what, &["git", "config", key, given]);
            }
        }
        SettingChange::Unset { key, given } if value(host, key) == Some(given) => {
            git.call(&dir.host, &["config", "--unset-all", key]).run()?;
        }
        SettingChange::AddRemote { name, url, fetch } if value(host, &format!("remote.{name}.url")).is_none() => {
            // First, so that the push gate never takes the remote for one of the user's.
            git.call(&dir.host, &["config", &format!("remote.{name}.{MARK}"), id]).run()?;
            git.call(&dir.host, &["config", &format!("remote.{name}.url"), url]).run()?;
            git.call(&dir.host, &["config", &format!("remote.{name}.fetch"), fetch]).run()?;
        }
        _ => {}
    }
    Ok(())
}

/// Names of files and directories that Git creates in its ordinary work, or that come out in another
/// way.
const ORDINARY: &[&str] = &[
    "AUTO_MERGE",
    "COMMIT_EDITMSG",
    "FETCH_HEAD",
    "HEAD",
    "NOTES_EDITMSG",
    "ORIG_HEAD",
    "REBASE_HEAD",
    "TAG_EDITMSG",
    "branches",
    "config",
    "config.worktree",
    "description",
    "gc.log",
    "gc.pid",
    "gitk.cache",
    "hooks",
    "index",
    "info",
    "lfs",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "refs",
    "rr-cache",
    "shallow",
    "sharedindex.",
    "worktrees",
    "BISECT_",
    "CHERRY_PICK_HEAD",
    "MERGE_",
    "REVERT_HEAD",
    "SQUASH_MSG",
    "rebase-apply",
    "rebase-merge",
    "sequencer",
];

/// Files that an editor may change in their place, without a trace in the directory.
const EDITED: [&str; 3] = ["MERGE_MSG", "rebase-merge/git-rebase-todo", "sequencer/todo"];

/// Returns a value that changes when an operation begins or continues, and when the files change that
/// the functions below report; `None` if they cannot be read.
pub fn fingerprint(exchange: &GitDirExchange) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    let top = open_private(&exchange.dir).ok()?;
    if let Ok(hooks) = top.directory(Path::new("hooks")) {
        for (name, _) in hooks.entries(MAX_HOOKS).ok()? {
            (&name, refs::stat_hash(&hooks.stat(&name).ok()?)).hash(&mut hasher);
        }
    }
    for tree in &exchange.trees {
        let private = tree.open().ok()?;
        refs::stat_hash(&rustix::fs::fstat(&private).ok()?).hash(&mut hasher);
        for name in POINTERS.iter().chain(&EDITED) {
            private.stat(name).ok().map(|stat| refs::stat_hash(&stat)).hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}

/// Tells whether Git creates a file or directory of this name in its ordinary work.
pub fn is_ordinary(name: &str) -> bool {
    ORDINARY.iter().any(|known| name == *known || known.ends_with(['_', '.']) && name.starts_with(known))
}

/// Names other files that were made at the top of the Git directory.
pub fn report_names(dir: &PrivateGitDir, report: &mut Report) {
    let entries = open_private(dir).and_then(|private| private.entries(MAX_TOP_ENTRIES)).unwrap_or_default();
    let new = entries.iter().filter(|(name, kind)| {
        let text = name.to_string_lossy();
        let is_link = *kind == rustix::fs::FileType::Symlink && text != "config";
        let is_there = dir.host.join(name).symlink_metadata().is_ok() || text.ends_with(".lock");
        is_link || !is_ordinary(&text) && !is_there
    });
    let mut names: Vec<String> = new.map(|(name, _)| format!("`{}`", name.to_string_lossy())).collect();
    names.sort();
    if !names.is_empty() {
        let more = names.len().saturating_sub(MAX_NAMED);
        names.truncate(MAX_NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        report.keep(format!("other files in the Git directory stay inside: {}{more}", names.join(", ")));
    }
}

/// Names the files by which a worktree's Git directory names others, if they were changed.
pub fn report_pointers(tree: &WorkingTree, report: &mut Report) {
    let host = &tree.host;
    let Ok(private) = tree.open() else { return };
    for name in POINTERS {
        let Ok(given) = untrusted::read_bytes(&host.join(name), MAX_HOOK) else { continue };
        if private.read(name, MAX_HOOK).ok().flatten().as_ref() != Some(&given) {
            report.keep(format!("`{name}` of the worktree `{}` stays inside", host.display()));
        }
    }
}

/// Names hooks that are new or changed inside, and keeps a copy of each. `git_dir` is the Git
/// directory in which they would run.
pub fn report_hooks(dir: &PrivateGitDir, git_dir: &Path, aside: &Path, report: &mut Report) {
    let Ok(private) = open_private(dir) else { return };
    let Ok(hooks) = private.directory(Path::new("hooks")) else { return };
    let mut entries = hooks.entries(MAX_HOOKS).unwrap_or_default();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (name, kind) in entries {
        let host = dir.host.join("hooks").join(&name);
        // Git runs neither its examples nor names that start with a dot, such as the self-test's.
        let is_unused = name.to_string_lossy().ends_with(".sample") || name.to_string_lossy().starts_with('.');
        if !kind.is_file() || is_unused {
            continue;
        }
        let content = hooks.read(Path::new(&name), MAX_HOOK).ok().flatten();
        if content.is_some() && content == untrusted::read_bytes(&host, MAX_HOOK).ok() {
            continue;
        }
        let shown = name.to_string_lossy();
        let directory = aside.join("hooks").join(crate::plan::flat_name(git_dir));
        let kept = directory.join(&name);
        let saved = content
            .is_some_and(|content| fs::create_dir_all(&directory).and_then(|()| fs::write(&kept, content)).is_ok());
        let what = format!("the hook `{shown}` stays inside");
        let target = git_dir.join("hooks").join(&name);
        match (saved, kept.to_str(), target.to_str()) {
            (true, Some(kept), Some(target)) => report.keep_with(what, &["install", "-m", "755", kept, target]),
            _ => report.keep(what),
        }
    }
}
