//! Plans the SSH reverse tunnel into a Podman machine (R7): the sockets' paths there and the ssh
//! command line. Runs nothing.

use std::ffi::OsString;
use std::time::Duration;

use super::ssh::SshError;
use crate::facts::engines::connection::Connection;
use crate::path::{HostPath, MachinePath};
use crate::session_id::SessionId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPlan {
    /// The container is pinned to this connection.
    pub connection: Connection,
    /// The ssh program; `None` if it is not installed.
    pub program: Option<HostPath>,
    pub argv: Vec<OsString>,
    /// The agent's socket in the machine, which is mounted.
    pub socket: MachinePath,
    /// Assignments that precede the script which runs in the machine.
    pub parameters: String,
    /// Limits the time until the tunnel is ready (R7.4).
    pub timeout: Duration,
}

impl TunnelPlan {
    pub fn new(
        connection: Connection,
        agent: &HostPath,
        id: &SessionId,
        program: Option<HostPath>,
        timeout: Duration,
    ) -> Result<Self, SshError> {
        let agent = agent
            .to_str()
            .filter(|path| !path.contains([':', '\\', '%', '"', '$']) && !path.contains(char::is_whitespace));
        let agent = agent.ok_or(SshError::UnsupportedSocket)?;
        // The id is public, so the socket also has a random name that other users cannot guess.
        let secret = id.secret();
        let landing = format!("/tmp/sandpen-{id}.sock");
        let directory = format!("/tmp/sandpen-{id}");
        let socket = MachinePath::new(format!("{directory}/{secret}.sock"))
            .map_err(|source| SshError::UnsupportedName { source })?;
        let option = |text: &str| ["-o".to_owned(), text.to_owned()];
        let mut argv: Vec<String> = vec!["ssh".into(), "-F".into(), "/dev/null".into()];
        if let Some(identity) = &connection.identity {
            // ssh expands percent signs.
            argv.extend(["-i".into(), identity.replace('%', "%%")]);
            // Without an identity, Podman uses the agent's keys, and so must ssh.
            argv.extend(option("IdentitiesOnly=yes"));
        }
        argv.extend(["-p".into(), connection.port.to_string(), "-R".into(), format!("{landing}:{agent}")]);
        // The user's ssh configuration does not apply to the machine.
        for text in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "LogLevel=ERROR",
            "ExitOnForwardFailure=yes",
            "ServerAliveInterval=15",
            "ControlMaster=no",
            "ControlPath=none",
        ] {
            argv.extend(option(text));
        }
        argv.extend(option(&format!("ConnectTimeout={}", timeout.as_secs().max(1))));
        argv.extend(["-T".into(), format!("{}@{}", connection.user, connection.host), "sh".into(), "-s".into()]);
        let parameters = format!(
            "landing={landing}\ndirectory={directory}\nsocket={socket}\nlimit={}\n",
            timeout.as_secs().max(1) * 20
        );
        let argv = argv.into_iter().map(OsString::from).collect();
        Ok(TunnelPlan { connection, program, argv, socket, parameters, timeout })
    }
}
