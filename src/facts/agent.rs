//! Whether the SSH agent answers and how many keys it holds: one message of five bytes, no `ssh-add`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;

use crate::host::Host;
use crate::path::HostPath;
use crate::vars;

/// What `SSH_AUTH_SOCK` leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum AgentFacts {
    /// Forwarding is off; nobody looked.
    NotAsked,
    /// The variable is not set.
    Unset,
    /// The variable names nothing.
    Missing {
        /// What it says.
        path: String,
    },
    /// Something is there, but no agent answers.
    Silent {
        /// Where.
        path: HostPath,
        /// Why.
        error: String,
    },
    /// An agent answers.
    Answers {
        /// Where.
        socket: HostPath,
        /// How many keys it lists.
        keys: u32,
    },
}

/// An agent that takes longer than this would hold up every launch. One that the system starts on demand (launchd) takes a moment.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);
const REQUEST_IDENTITIES: [u8; 5] = [0, 0, 0, 1, 11];
const IDENTITIES_ANSWER: u8 = 12;

impl AgentFacts {
    /// Asks the agent that `SSH_AUTH_SOCK` names.
    pub fn look(host: &Host) -> Self {
        let Some(value) = host.env.path(vars::SSH_AUTH_SOCK) else { return AgentFacts::Unset };
        let real = value.canonicalize().ok().and_then(|real| HostPath::new(real).ok());
        let Some(socket) = real else { return AgentFacts::Missing { path: value.display().to_string() } };
        match count_keys(&socket) {
            Ok(keys) => AgentFacts::Answers { socket, keys },
            Err(error) => AgentFacts::Silent { path: socket, error: reason(&error) },
        }
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {} s", AGENT_TIMEOUT.as_secs()),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => "it hangs up".to_owned(),
        _ => error.to_string(),
    }
}

fn count_keys(socket: &HostPath) -> std::io::Result<u32> {
    let mut agent = UnixStream::connect(socket.as_path())?;
    agent.set_read_timeout(Some(AGENT_TIMEOUT))?;
    agent.set_write_timeout(Some(AGENT_TIMEOUT))?;
    agent.write_all(&REQUEST_IDENTITIES)?;
    // Length, type, number of keys; the keys themselves are not needed.
    let mut answer = [0; 9];
    agent.read_exact(&mut answer)?;
    if answer[4] != IDENTITIES_ANSWER {
        return Err(std::io::Error::other("it does not speak the agent protocol, or refuses this user"));
    }
    Ok(u32::from_be_bytes([answer[5], answer[6], answer[7], answer[8]]))
}
