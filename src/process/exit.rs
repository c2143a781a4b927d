//! Translates the end of a process into an exit code. No other file adds 128 to a signal's number.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::WaitStatus;
use serde::{Deserialize, Serialize};

/// The end of a sandbox: an exit code or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The guest exited with this code.
    Exited(u8),
    /// The guest, or the engine's client, was killed by this signal.
    Signaled(i32),
}

/// The outcome of a process that was killed with SIGKILL: by `kill -9`, by the kernel when memory
/// ran out, or by sandpen when it did not end in time.
pub const KILLED: Outcome = Outcome::Signaled(libc::SIGKILL);

impl Outcome {
    /// Converts what `wait` returned for a child that has ended.
    pub(crate) fn from_wait(status: WaitStatus) -> Self {
        Outcome::from(ExitStatus::from_raw(status.as_raw()))
    }

    /// Returns the exit code that a shell would report: 128 + n for a process killed by signal n.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Exited(code) => code,
            Outcome::Signaled(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Outcome::Exited(code as u8),
            (None, Some(signal)) => Outcome::Signaled(signal),
            (None, None) => Outcome::Exited(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_becomes_128_plus_its_number() {
        assert_eq!(Outcome::from(ExitStatus::from_raw(libc::SIGTERM)).exit_code(), 143);
        assert_eq!(Outcome::from(ExitStatus::from_raw(7 << 8)).exit_code(), 7);
        assert_eq!(KILLED.exit_code(), 137);
    }
}
