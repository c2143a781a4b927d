//! Finds the ssh process of a tunnel in the process table.

use std::fs;
use std::path::PathBuf;

use crate::support::{Running, TIMEOUT, eventually, holds_within};

#[derive(Debug)]
pub struct TunnelProcess {
    pub pid: u32,
    pub command_line: String,
    pub directory: PathBuf,
    /// sshd creates the socket here, before it is moved into `directory`.
    pub landing: PathBuf,
}

impl TunnelProcess {
    #[track_caller]
    pub fn of(running: &Running) -> Self {
        Self::find(running).expect("ssh runs as a child of sandpen")
    }

    /// Waits for the tunnel of a sandbox that is about to start.
    #[track_caller]
    pub fn opening(running: &Running) -> Self {
        let mut found = None;
        eventually("ssh runs", || {
            found = Self::find(running);
            found.is_some()
        });
        found.expect("the tunnel was found")
    }

    fn find(running: &Running) -> Option<Self> {
        running.children().into_iter().find_map(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let words: Vec<String> =
                line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let forward = words.iter().skip_while(|word| *word != "-R").nth(1)?;
            let landing = PathBuf::from(forward.split(':').next()?);
            Some(TunnelProcess { pid, directory: landing.with_extension(""), landing, command_line: words.join(" ") })
        })
    }

    /// Asserts that ssh exits and that its sockets in the machine are removed.
    #[track_caller]
    pub fn assert_gone(&self) {
        let gone = || has_exited(self.pid) && !self.directory.exists() && !self.landing.exists();
        assert!(holds_within(TIMEOUT, gone), "the tunnel still exists: {self:?}");
    }
}

/// Returns whether a process has exited, reaped or not.
pub fn has_exited(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim().starts_with('Z'))
}
