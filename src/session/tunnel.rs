//! The SSH reverse tunnel into a Podman machine (R7): one ssh process and one private socket in the
//! machine, which are removed with the sandbox however it ends.

#![allow(clippy::disallowed_methods, reason = "the tunnel is an ssh process")]

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{Diagnostic, Kind, Result};
use crate::path::HostPath;
use crate::plan::TunnelPlan;
use crate::process::ready::{CompanionProcess, NotReady, Startup, Stderr, wait_for_line};
use crate::ui::Ui;
use crate::ui::progress::Progress;
use crate::ui::shell::shell_words;

/// The script that runs in the machine. It is sent through stdin, so that no shell command line has
/// to be quoted; its parameters are the session's random id and a number. It ends when stdin is
/// closed, also after `kill -9` of the launcher, and removes the socket then (R7.11).
///
/// sshd makes the socket with mode 0600, and a guest may be any user. So the script moves it into a
/// directory that can be entered but not listed, under a random name.
const SCRIPT: &str = include_str!("tunnel.sh");
/// The line that the script prints when the socket is ready.
const READY: &str = "ready";

/// The file with ssh's stderr, in the session's directory.
const STDERR: &str = "ssh-tunnel.log";
/// The most time that removing the tunnel may take (R7.11).
const EXIT_TIMEOUT: Duration = Duration::from_millis(1500);
/// How much earlier ssh gives up than sandpen: ssh's message names the cause.
const SSH_MARGIN: Duration = Duration::from_millis(300);

/// A running tunnel. Dropping it ends ssh and removes the socket from the machine (R7.9, R7.10).
#[derive(Debug)]
pub struct Tunnel {
    ssh: CompanionProcess,
}

/// Why there is no tunnel (R7.7, R7.8).
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    #[error("cannot find `ssh` on PATH to tunnel the SSH agent with")]
    NoSsh,
    #[error("the SSH tunnel cannot be started")]
    Start {
        connection: String,
        #[source]
        source: io::Error,
    },
    #[error("the SSH tunnel into the Podman machine could not be established")]
    Ended {
        connection: String,
        #[source]
        stderr: Option<Stderr>,
    },
    #[error("the SSH tunnel into the Podman machine was not ready within {seconds} s")]
    TimedOut {
        connection: String,
        seconds: u64,
        #[source]
        stderr: Option<Stderr>,
    },
}

impl Diagnostic for TunnelError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            TunnelError::NoSsh => vec!["install OpenSSH's client, or pass `--ssh-agent off`".into()],
            TunnelError::Start { connection, .. }
            | TunnelError::Ended { connection, .. }
            | TunnelError::TimedOut { connection, .. } => vec![
                format!(
                    "check that the machine is running: `podman machine list`, `podman machine start` (connection `{connection}`)"
                ),
                "or run without the SSH agent: `--ssh-agent off`".into(),
            ],
        }
    }
}

impl Tunnel {
    /// Starts ssh and waits until the machine reports that the socket is ready. After an error or a
    /// signal nothing is left running (R7.6–R7.8).
    pub fn open(
        plan: &TunnelPlan,
        session: &HostPath,
        ui: Ui,
        termination_signal: impl FnMut() -> Option<i32>,
    ) -> Result<Startup<Self>> {
        let program = plan.program.as_ref().ok_or(TunnelError::NoSsh)?;
        ui.verbose(&format!("SSH tunnel: {}", shell_words(&plan.argv)));
        let mut command = Command::new(program.as_path());
        command.args(&plan.argv[1..]).stdin(Stdio::piped());
        let connection = plan.connection.name.clone();
        let mut ssh = match CompanionProcess::start(command, session.join(STDERR).as_path().to_owned(), EXIT_TIMEOUT) {
            Ok(ssh) => ssh,
            Err(source) => return Err(TunnelError::Start { connection, source }.into()),
        };
        ssh.write(&format!("{}{SCRIPT}", plan.parameters));
        let lines = ssh.lines();
        let waiting = Progress::start(ui, format!("the SSH tunnel into the Podman machine `{connection}`"));
        let waited = wait_for_line(&lines, READY, plan.timeout + SSH_MARGIN, termination_signal);
        drop(waiting);
        match waited {
            Ok(Startup::Ready(())) => {
                let warn = move || {
                    ui.warn("the SSH tunnel into the Podman machine has ended: SSH keys no longer work in the sandbox");
                };
                ssh.watch(lines, |_| false, warn);
                Ok(Startup::Ready(Tunnel { ssh }))
            }
            Ok(Startup::Interrupted(signal)) => Ok(Startup::Interrupted(signal)),
            Err(NotReady::TimedOut) => {
                ssh.kill();
                let stderr = quote(&ssh);
                Err(TunnelError::TimedOut { connection, seconds: plan.timeout.as_secs(), stderr }.into())
            }
            Err(NotReady::Ended) => {
                // stdout is closed a moment before the process has ended and written its last
                // message.
                ssh.request_exit();
                Err(TunnelError::Ended { connection, stderr: quote(&ssh) }.into())
            }
        }
    }
}

impl Tunnel {
    /// Ends ssh at once. The script removes the socket when the machine notices.
    pub fn kill(&mut self) {
        self.ssh.kill();
    }
}

fn quote(ssh: &CompanionProcess) -> Option<Stderr> {
    ssh.stderr().map(|Stderr(text)| Stderr(format!("ssh says: {text}")))
}
