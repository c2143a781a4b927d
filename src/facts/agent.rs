//! Asks an SSH agent how many keys it holds, by one message of five bytes and without `ssh-add`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::host::Host;
use crate::path::HostPath;
use crate::vars;

/// The agent that `SSH_AUTH_SOCK` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum AgentFacts {
    /// Forwarding is off, so the agent was not looked for.
    NotAsked,
    /// The variable is not set.
    Unset,
    /// The variable names a path that does not exist.
    Missing {
        path: String,
    },
    /// The path exists, but no agent answers there.
    Silent {
        path: HostPath,
        error: String,
    },
    Answers {
        socket: HostPath,
        keys: u32,
    },
}

/// Every launch waits for the agent. One that the system starts on demand (launchd) needs a moment.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);
/// A message of one byte: `SSH_AGENTC_REQUEST_IDENTITIES`.
const REQUEST_IDENTITIES: [u8; 5] = [0, 0, 0, 1, 11];
const IDENTITIES_ANSWER: u8 = 12;

impl AgentFacts {
    pub fn look(host: &Host) -> Self {
        let Some(value) = host.env.path(vars::SSH_AUTH_SOCK) else { return AgentFacts::Unset };
        let real = value.canonicalize().ok().and_then(|real| HostPath::new(real).ok());
        let Some(socket) = real else { return AgentFacts::Missing { path: value.display().to_string() } };
        match count_agent_keys(socket.as_path()) {
            Ok(keys) => AgentFacts::Answers { socket, keys },
            Err(error) => AgentFacts::Silent { path: socket, error: reason(&error) },
        }
    }
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("no answer within {} s", AGENT_TIMEOUT.as_secs()),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "it closes the connection".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Connects to an agent and asks for its identities.
pub fn count_agent_keys(socket: &Path) -> std::io::Result<u32> {
    let mut agent = UnixStream::connect(socket)?;
    agent.set_read_timeout(Some(AGENT_TIMEOUT))?;
    agent.set_write_timeout(Some(AGENT_TIMEOUT))?;
    agent.write_all(&REQUEST_IDENTITIES)?;
    // Length, type and number of keys; the keys that follow are not needed.
    let mut answer = [0; 9];
    agent.read_exact(&mut answer)?;
    if answer[4] != IDENTITIES_ANSWER {
        return Err(std::io::Error::other("it does not speak the agent protocol, or refuses this user"));
    }
    Ok(u32::from_be_bytes([answer[5], answer[6], answer[7], answer[8]]))
}
