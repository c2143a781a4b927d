//! The session's own name and directory, and what must be made in it before the launch.

use std::fmt;
use std::io::Read;

use crate::config::value::Name;
use crate::path::HostPath;

/// A sandbox's identity: random, so that nothing needs to be listed to find a free one, or the user's own choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionId {
    text: String,
    is_example: bool,
}

impl SessionId {
    /// A new one.
    pub fn random() -> Self {
        let mut bytes = [0; 6];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes));
        if random.is_err() {
            // Without a random source the clock still tells sessions apart.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            bytes.copy_from_slice(&now.as_nanos().to_le_bytes()[..6]);
        }
        SessionId { text: bytes.iter().map(|byte| format!("{byte:02x}")).collect(), is_example: false }
    }

    /// The user's choice.
    pub fn named(name: &Name) -> Self {
        SessionId { text: name.to_string(), is_example: false }
    }

    /// What `explain` shows, so that its output can be compared between calls.
    pub fn placeholder() -> Self {
        SessionId { text: "SESSION".into(), is_example: true }
    }

    /// The same, only explained.
    #[must_use]
    pub fn as_example(self) -> Self {
        SessionId { is_example: true, ..self }
    }

    /// Another one that only this session knows; the id itself is public.
    pub fn secret(&self) -> Self {
        if self.is_example { SessionId::placeholder() } else { SessionId::random() }
    }

    /// The container's name, the host name inside, and the value of `SANDBOX`.
    pub fn name(&self) -> String {
        format!("sandpen-{self}")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Something to make on the host before the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prepare {
    /// A directory of the session's own.
    Directory {
        /// Where.
        path: HostPath,
        /// Its permissions.
        mode: u32,
    },
    /// A file of the session's own.
    File {
        /// Where.
        path: HostPath,
        /// What it holds.
        content: String,
    },
    /// An empty file that the guest may write, whoever it is.
    Shared {
        /// Where.
        path: HostPath,
    },
    /// A mount point in a directory of the user's, below `root`; made only where no link leads out of it.
    Point {
        /// Where.
        path: HostPath,
        /// The directory that must not be left.
        root: HostPath,
        /// Whether it is a directory or a file.
        is_directory: bool,
    },
    /// A directory of the user's that stays: an agent's settings, a Python environment.
    Keep {
        /// Where.
        path: HostPath,
    },
}
