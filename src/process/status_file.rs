//! The status file, in which the helper reports to the launcher how far the command got. The guest
//! can write to it too: any other text is not a status.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The progress of the command, from its start to its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandStatus {
    /// It is about to be executed. It may run already.
    Starting,
    /// It is running.
    Started,
    /// It exited with this code. The helper knows the code even if the engine's client lost it.
    Ended(u8),
    /// It ended, and the kernel killed a process inside because memory ran out.
    OutOfMemory,
    /// There is no such command.
    NotFound,
    /// The file exists and cannot be executed.
    NotExecutable,
    /// The file is a program for another architecture.
    WrongArchitecture,
    /// The engine mounted something that was not planned, so the command was not started.
    MountReplaced,
}

impl CommandStatus {
    const NAMES: [(CommandStatus, &str); 7] = [
        (CommandStatus::Starting, "starting"),
        (CommandStatus::Started, "started"),
        (CommandStatus::OutOfMemory, "out-of-memory"),
        (CommandStatus::NotFound, "not-found"),
        (CommandStatus::NotExecutable, "not-executable"),
        (CommandStatus::WrongArchitecture, "wrong-architecture"),
        (CommandStatus::MountReplaced, "mount-replaced"),
    ];

    /// Returns the content of the file.
    pub fn to_text(self) -> String {
        match (self, Self::NAMES.iter().find(|(status, _)| *status == self)) {
            (CommandStatus::Ended(code), _) => format!("ended {code}"),
            (_, name) => name.map_or("", |(_, name)| name).to_owned(),
        }
    }

    /// Parses the content of the file.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_prefix("ended ") {
            Some(code) => code.parse().ok().map(CommandStatus::Ended),
            None => Self::NAMES.iter().find(|(_, name)| *name == text.trim()).map(|(status, _)| *status),
        }
    }

    /// Translates an error of `exec`.
    #[cfg(target_os = "linux")]
    pub fn from_exec_error(errno: i32) -> Self {
        match errno {
            libc::ENOENT | libc::ENOTDIR => CommandStatus::NotFound,
            _ => CommandStatus::NotExecutable,
        }
    }

    /// Returns whether the command may still run.
    pub fn is_running(self) -> bool {
        matches!(self, CommandStatus::Starting | CommandStatus::Started)
    }

    /// Returns the exit code with which shells report a command that could not be executed; 0 for
    /// one that was.
    pub fn exit_code(self) -> u8 {
        match self {
            CommandStatus::Starting | CommandStatus::Started | CommandStatus::Ended(_) | CommandStatus::OutOfMemory => {
                0
            }
            CommandStatus::NotFound => 127,
            CommandStatus::NotExecutable | CommandStatus::WrongArchitecture | CommandStatus::MountReplaced => 126,
        }
    }
}

/// The file's name in the control directory.
pub const STATUS: &str = "status";

/// The most bytes that are read of it.
pub const MAX_STATUS_BYTES: u64 = 64;

/// Replaces the content of the file, so that the launcher never reads an empty one in between.
pub fn write(file: &Path, status: CommandStatus) -> io::Result<()> {
    let text = format!("{:<LENGTH$}", status.to_text());
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(file)?;
    file.write_all(text.as_bytes())?;
    // The guest may have made it longer.
    file.set_len(text.len() as u64)
}

/// The length of every status in the file; blanks follow.
const LENGTH: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_survives_the_file_and_other_text_is_none() {
        let statuses = CommandStatus::NAMES.map(|(status, _)| status);
        for status in statuses.into_iter().chain([CommandStatus::Ended(0), CommandStatus::Ended(255)]) {
            assert_eq!(CommandStatus::parse(&status.to_text()), Some(status));
        }
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(STATUS);
        std::fs::write(&file, "x".repeat(100)).expect("written");
        for status in [CommandStatus::WrongArchitecture, CommandStatus::Started] {
            write(&file, status).expect("written");
            assert_eq!(CommandStatus::parse(&std::fs::read_to_string(&file).expect("read")), Some(status));
        }
        for text in ["ended 256", "ended", "started\u{1b}[31m", ""] {
            assert_eq!(CommandStatus::parse(text), None, "{text:?}");
        }
    }
}
