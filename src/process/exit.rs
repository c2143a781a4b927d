//! How a sandbox ended, and the exit code it ends sandpen with: the one place where the two meet.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The guest exited.
    Exited(u8),
    /// The guest, or the engine's client, died of a signal.
    Signaled(i32),
}

impl Outcome {
    /// Of the engine's client, which passes the guest's code on.
    pub fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Outcome::Exited(code as u8),
            (None, Some(signal)) => Outcome::Signaled(signal),
            (None, None) => Outcome::Exited(1),
        }
    }

    /// The process exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Exited(code) => code,
            Outcome::Signaled(signal) => 128u8.wrapping_add(signal as u8),
        }
    }
}
