//! Plans the SSH reverse tunnel into a Podman machine (R7): the socket's names there and the ssh command line.

use std::ffi::OsString;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::facts::engines::connection::Connection;
use crate::path::{HostPath, MachinePath};
use crate::session_id::SessionId;

/// A tunnel as data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPlan {
    /// The connection, to which the container is pinned.
    pub connection: Connection,
    /// The ssh program.
    pub program: Option<HostPath>,
    /// Its command line.
    pub argv: Vec<OsString>,
    /// The socket in the machine.
    pub socket: MachinePath,
    /// The script's parameters, as assignments of its first lines.
    pub parameters: String,
    /// How long readiness is waited for (R7.4).
    pub timeout: Duration,
}

impl TunnelPlan {
    /// Plans the tunnel for a session.
    pub fn new(
        connection: Connection,
        agent: &HostPath,
        id: &SessionId,
        program: Option<HostPath>,
        timeout: Duration,
    ) -> Result<Self> {
        let agent = agent
            .to_str()
            .filter(|path| !path.contains([':', '\\', '%', '"', '$']) && !path.contains(char::is_whitespace));
        let agent = agent.ok_or_else(|| {
            Error::launch(
                "the SSH agent's socket has a name that ssh cannot forward (blanks, colons, percent or dollar signs)",
            )
            .hint("start an agent at a plain path: `eval $(ssh-agent)`")
        })?;
        // The secret part of the name is as random as the id is public.
        let secret = id.secret();
        let landing = format!("/tmp/sandpen-{id}.sock");
        let directory = format!("/tmp/sandpen-{id}");
        let socket = MachinePath::new(format!("{directory}/{secret}.sock"))
            .map_err(|error| Error::launch("the session's name is not one for a socket").cause(error))?;
        let option = |text: &str| ["-o".to_owned(), text.to_owned()];
        let mut argv: Vec<String> = vec!["ssh".into(), "-F".into(), "/dev/null".into()];
        if let Some(identity) = &connection.identity {
            // ssh expands percent signs in it.
            argv.extend(["-i".into(), identity.replace('%', "%%")]);
            // Without a key of the connection's own, Podman asks the agent; so does ssh then.
            argv.extend(option("IdentitiesOnly=yes"));
        }
        argv.extend(["-p".into(), connection.port.to_string(), "-R".into(), format!("{landing}:{agent}")]);
        // The user's own ssh configuration has no say in reaching the machine.
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
