//! What the helper reports to the launcher: one word.

/// How far the command got; the launcher reads it from the session directory. Anything else in that file is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It runs.
    Started,
    /// It ran, and the helper saw its end.
    Ended,
    /// The same, and the kernel killed something inside for want of memory.
    OutOfMemory,
    /// There is no such command.
    NotFound,
    /// It is there, and cannot be executed.
    NotExecutable,
    /// It is a program for another kind of machine.
    WrongArchitecture,
}

impl Report {
    const ALL: [Report; 6] = [
        Report::Started,
        Report::Ended,
        Report::OutOfMemory,
        Report::NotFound,
        Report::NotExecutable,
        Report::WrongArchitecture,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Report::Started => "started",
            Report::Ended => "ended",
            Report::OutOfMemory => "out-of-memory",
            Report::NotFound => "not-found",
            Report::NotExecutable => "not-executable",
            Report::WrongArchitecture => "wrong-architecture",
        }
    }

    /// Reads a report.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|report| report.word() == text.trim())
    }

    /// What an error of `exec` means.
    #[cfg(target_os = "linux")]
    pub fn of_exec_error(errno: i32) -> Self {
        match errno {
            libc::ENOENT | libc::ENOTDIR => Report::NotFound,
            _ => Report::NotExecutable,
        }
    }

    pub(super) fn exit_code(self) -> u8 {
        match self {
            Report::Started | Report::Ended | Report::OutOfMemory => 0,
            Report::NotFound => 127,
            Report::NotExecutable | Report::WrongArchitecture => 126,
        }
    }
}

/// Where the report is written, below the pen.
pub const STATUS: &str = "status";

/// A report is one word.
pub const LONGEST_REPORT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_one_of_six_words() {
        for report in Report::ALL {
            assert_eq!(Report::parse(report.word()), Some(report));
        }
        assert_eq!(Report::parse("started\u{1b}[31m"), None);
        assert_eq!(Report::parse(""), None);
    }
}
