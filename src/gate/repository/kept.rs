//! Brings out tracking settings and new remotes, and names the settings and hooks that stay inside.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::exchange::{Moment, read_config};
use super::host_git::{GitResult, HostGit};
use super::report::{Kept, Report};
use super::settings::{self, KeptSetting, SettingChange};
use crate::facts::git::syntax;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

/// Hooks that are larger are named, but not kept.
const MAX_HOOK: u64 = 1 << 20;
const MAX_HOOKS: usize = 100;
/// The report names at most this many settings of a repository.
const MAX_NAMED: usize = 8;

/// Brings out the settings that may come out, where the host's are still the given ones.
pub fn bring_settings(git: &HostGit, dir: &PrivateGitDir, moment: Moment, report: &mut Report) -> GitResult<()> {
    let given = fs::read(dir.base.join("config")).unwrap_or_default();
    let now = read_config(&UntrustedDir::open(&dir.private)?)?;
    if given == now {
        return Ok(());
    }
    let changes = settings::changes(&given, &now);
    let host = untrusted::read(&dir.host.join("config"), 1 << 20).unwrap_or_default();
    let host = syntax::settings(&host).unwrap_or_default();
    for change in &changes.accepted {
        apply(git, dir, change, &host)?;
    }
    if moment == Moment::Ended {
        report_settings(dir, &changes.kept_inside, report);
    }
    Ok(())
}

/// Names the settings that stay inside in one line, with the commands that make them.
fn report_settings(dir: &PrivateGitDir, kept: &[KeptSetting], report: &mut Report) {
    if kept.is_empty() {
        return;
    }
    let names: Vec<String> = kept.iter().take(MAX_NAMED).map(|kept| format!("`{}`", kept.key)).collect();
    let more = kept.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let place = dir.work_tree.as_ref().unwrap_or(&dir.host).to_string_lossy().into_owned();
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
fn apply(git: &HostGit, dir: &PrivateGitDir, change: &SettingChange, host: &[(String, String)]) -> GitResult<()> {
    match change {
        SettingChange::Set { key, given, value: new } if value(host, key) == given.as_ref() => {
            git.call(&dir.host, &["config", key, new]).run()?;
        }
        SettingChange::Unset { key, given } if value(host, key) == Some(given) => {
            git.call(&dir.host, &["config", "--unset-all", key]).run()?;
        }
        SettingChange::AddRemote { name, url, fetch } if value(host, &format!("remote.{name}.url")).is_none() => {
            git.call(&dir.host, &["config", &format!("remote.{name}.url"), url]).run()?;
            git.call(&dir.host, &["config", &format!("remote.{name}.fetch"), fetch]).run()?;
        }
        _ => {}
    }
    Ok(())
}

/// Names hooks that are new or changed inside, and keeps a copy of each. `git_dir` is the Git
/// directory in which they would run.
pub fn report_hooks(dir: &PrivateGitDir, git_dir: &Path, aside: &Path, report: &mut Report) {
    let Ok(private) = UntrustedDir::open(&dir.private) else { return };
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
        let kept = aside.join("hooks").join(&name);
        let saved = content.is_some_and(|content| {
            fs::create_dir_all(aside.join("hooks")).and_then(|()| fs::write(&kept, content)).is_ok()
        });
        let what = format!("the hook `{shown}` stays inside");
        let target = git_dir.join("hooks").join(&name);
        match (saved, kept.to_str(), target.to_str()) {
            (true, Some(kept), Some(target)) => report.keep_with(what, &["install", "-m", "755", kept, target]),
            _ => report.keep(what),
        }
    }
}
