//! Reads and edits configuration files with Git itself.

#![allow(clippy::disallowed_methods, reason = "runs Git, which alone reads its files exactly")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::plan::GuardPlan;

/// A key and its value.
pub type Setting = (String, String);

/// Lists the settings of a file without its includes. Returns `None` if there is no Git or Git cannot
/// read the file.
pub fn list(plan: &GuardPlan, content: &[u8]) -> Option<Vec<Setting>> {
    let mut child = git(plan)?.args(["config", "--file", "-", "--no-includes", "--list", "-z"]).spawn().ok()?;
    let mut stdin = child.stdin.take()?;
    // Write in a thread: both the file and Git's output may exceed the size of a pipe.
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

/// Edits a private copy so that a key has exactly these values.
pub fn replace(plan: &GuardPlan, copy: &Path, key: &str, values: &[&str]) -> bool {
    let run = |arguments: &[&OsStr]| {
        let git = git(plan).map(|mut git| git.args(["config", "--file"]).arg(copy).args(arguments).status());
        git.is_some_and(|status| status.is_ok_and(|status| status.success()))
    };
    let word = |text: &str| OsStr::new(text).to_owned();
    run(&[&word("--unset-all"), &word(key)])
        && values.iter().all(|value| run(&[&word("--add"), &word(key), &word(value)]))
}

/// Returns a call of Git outside of any repository and without the user's configuration.
fn git(plan: &GuardPlan) -> Option<Command> {
    let mut command = Command::new(plan.git.as_ref()?);
    command.current_dir("/").env_clear().env("PATH", &plan.path).env("LC_ALL", "C");
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Some(command)
}
