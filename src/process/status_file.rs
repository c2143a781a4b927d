//! What the helper reports to the launcher: one word, and at the end the exit code.

/// How far the command got; the launcher reads it from the session directory. Anything else in that file is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It runs.
    Started,
    /// It ran, and the helper saw it end with this code: the engine's client may not.
    Ended(u8),
    /// It ended, and the kernel killed something inside for want of memory.
    OutOfMemory,
    /// There is no such command.
    NotFound,
    /// It is there, and cannot be executed.
    NotExecutable,
    /// It is a program for another kind of machine.
    WrongArchitecture,
}

impl Report {
    const WORDS: [(Report, &str); 5] = [
        (Report::Started, "started"),
        (Report::OutOfMemory, "out-of-memory"),
        (Report::NotFound, "not-found"),
        (Report::NotExecutable, "not-executable"),
        (Report::WrongArchitecture, "wrong-architecture"),
    ];

    pub fn text(self) -> String {
        match (self, Self::WORDS.iter().find(|(known, _)| *known == self)) {
            (Report::Ended(code), _) => format!("ended {code}"),
            (_, word) => word.map_or("", |(_, word)| word).to_owned(),
        }
    }

    /// Reads a report.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().strip_prefix("ended ") {
            Some(code) => code.parse().ok().map(Report::Ended),
            None => Self::WORDS.iter().find(|(_, word)| *word == text.trim()).map(|(report, _)| *report),
        }
    }

    /// What an error of `exec` means.
    #[cfg(target_os = "linux")]
    pub fn of_exec_error(errno: i32) -> Self {
        match errno {
            libc::ENOENT | libc::ENOTDIR => Report::NotFound,
            _ => Report::NotExecutable,
        }
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Report::Started | Report::Ended(_) | Report::OutOfMemory => 0,
            Report::NotFound => 127,
            Report::NotExecutable | Report::WrongArchitecture => 126,
        }
    }
}

/// Where the report is written, below the control_dir.
pub const STATUS: &str = "status";

/// A report is one word or two.
pub const LONGEST_REPORT: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_one_of_six_words() {
        for report in Report::WORDS.map(|(report, _)| report).into_iter().chain([Report::Ended(0), Report::Ended(255)])
        {
            assert_eq!(Report::parse(&report.text()), Some(report));
        }
        assert_eq!(Report::parse("ended 256"), None);
        assert_eq!(Report::parse("ended"), None);
        assert_eq!(Report::parse("started\u{1b}[31m"), None);
        assert_eq!(Report::parse(""), None);
    }
}
