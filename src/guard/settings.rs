//! Git's own reading of a configuration file, and Git's own editing of a copy of one.

#![allow(clippy::disallowed_methods, reason = "only Git reads and edits Git's files as Git does")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::plan::GuardPlan;

/// One setting: its name and its value.
pub type Setting = (String, String);

/// The settings in a file's bytes, without following includes (Git would, for what comes from stdin). `None` where there is no Git, or Git cannot read them.
pub fn list(plan: &GuardPlan, content: &[u8]) -> Option<Vec<Setting>> {
    let mut child = git(plan)?.args(["config", "--file", "-", "--no-includes", "--list", "-z"]).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    // A file may be larger than the pipe while Git's answer is larger, too.
    let content = content.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&content));
    let output = child.wait_with_output().ok()?;
    let _ = writer.join();
    let is_read = output.status.success();
    let entries = output.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    is_read.then(|| entries.map(setting).collect())
}

fn setting(entry: &[u8]) -> Setting {
    let text = String::from_utf8_lossy(entry);
    let (key, value) = text.split_once('\n').unwrap_or((text.as_ref(), ""));
    (key.to_owned(), value.to_owned())
}

/// Edits a private copy so that a name has exactly these values.
pub fn replace(plan: &GuardPlan, copy: &Path, key: &str, values: &[&str]) -> bool {
    let run = |arguments: &[&OsStr]| {
        let git = git(plan).map(|mut git| git.args(["config", "--file"]).arg(copy).args(arguments).status());
        git.is_some_and(|status| status.is_ok_and(|status| status.success()))
    };
    let word = |text: &str| OsStr::new(text).to_owned();
    run(&[&word("--unset-all"), &word(key)])
        && values.iter().all(|value| run(&[&word("--add"), &word(key), &word(value)]))
}

/// Git, away from every repository, with nothing of the user's configuration.
fn git(plan: &GuardPlan) -> Option<Command> {
    let mut command = Command::new(plan.git.as_ref()?);
    command.current_dir("/").env_clear().env("PATH", &plan.path).env("LC_ALL", "C");
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Some(command)
}
