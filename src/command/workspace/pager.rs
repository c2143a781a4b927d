//! Shows a text with the user's pager, the one that Git would use for `git diff`, and changes its look with
//! the filter of `git add -p`.

#![allow(clippy::disallowed_methods, reason = "starts the user's own programs, as Git does")]

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::ui::Ui;

/// How many times as long as a text its coloured form may be.
const MAX_GROWTH: u64 = 1000;

/// Writes a text to stdout, or to the pager if stdout is a terminal.
pub fn show(host: &Host, text: &[u8], ui: Ui) -> Result<()> {
    let pager = if host.terminal.stdout { pager(host) } else { None };
    if let Some(pager) = pager
        && page(host, &pager, text)
    {
        return Ok(());
    }
    ui.bytes(text)
}

/// Asks the user's Git for its pager; `None` if there is none.
fn pager(host: &Host) -> Option<String> {
    let configured = ask_git(host, &["config", "--get", "pager.diff"]).filter(|pager| pager != "true");
    let pager = configured.or_else(|| ask_git(host, &["var", "GIT_PAGER"]))?;
    (!pager.is_empty() && pager != "cat" && pager != "false").then_some(pager)
}

/// Asks the user's Git in the user's home, so that no file of the workspace has a say.
fn ask_git(host: &Host, arguments: &[&str]) -> Option<String> {
    let path = facts::search_path(host);
    let mut command = Command::new(path.find("git")?.as_path());
    command.args(arguments).current_dir(host.home.as_path()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.env("PATH", path.for_host()).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
}

/// The program that Git's `interactive.diffFilter` names, such as `delta --color-only`.
pub struct DiffFilter<'a> {
    host: &'a Host,
    command: String,
}

impl<'a> DiffFilter<'a> {
    pub fn of_user(host: &'a Host) -> Option<Self> {
        let command = ask_git(host, &["config", "--get", "interactive.diffFilter"])?;
        (!command.is_empty()).then_some(DiffFilter { host, command })
    }

    /// Returns the lines of a text as the filter writes them; `None` unless they are as many as before.
    pub fn lines(&self, text: &[u8]) -> Option<Vec<Vec<u8>>> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.command]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.env("PATH", facts::host_path(self.host)).spawn().ok()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut filtered = Vec::new();
        let read = std::thread::scope(|scope| {
            scope.spawn(move || input.map(|mut input| input.write_all(text)));
            let largest = MAX_GROWTH * text.len() as u64 + MAX_GROWTH;
            output.map(|output| output.take(largest).read_to_end(&mut filtered))
        });
        let has_ended = child.wait().is_ok_and(|status| status.success());
        let is_read = read.is_some_and(|read| read.is_ok());
        if !(has_ended && is_read) {
            return None;
        }
        let lines = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        Some(lines(&filtered)).filter(|filtered| filtered.len() == lines(text).len())
    }
}

/// Runs the pager; returns whether it could be started.
fn page(host: &Host, pager: &str, text: &[u8]) -> bool {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", pager]).stdin(Stdio::piped()).env("PATH", facts::host_path(host));
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if host.env.text(name).is_none() {
            command.env(name, value);
        }
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut input) = child.stdin.take() {
        // The user may leave the pager early.
        let _ = input.write_all(text);
    }
    child.wait().is_ok_and(|status| status.code() != Some(127))
}
