//! Shows a text with the user's pager, the one that Git would use for `git diff`.

#![allow(clippy::disallowed_methods, reason = "starts the user's own pager, as Git does")]

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::ui::Ui;

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
    let path = facts::search_path(host);
    let git = path.find("git")?;
    // In the user's home, so that no file of the workspace has a say.
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(git.as_path());
        command.args(arguments).current_dir(host.home.as_path()).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.env("PATH", path.for_host()).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let configured = ask(&["config", "--get", "pager.diff"]).filter(|pager| pager != "true");
    let pager = configured.or_else(|| ask(&["var", "GIT_PAGER"]))?;
    (!pager.is_empty() && pager != "cat" && pager != "false").then_some(pager)
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
