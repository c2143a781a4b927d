//! Gives a sandbox a socket of its own at `/ssh-agent`. Listing and signing pass to the host's agent;
//! everything else is refused, and the agent does not see it.
//!
//! ```text
//! guest ──► socket in the session's directory ──► connection ──► host's agent
//!                    accepted by the launcher      one thread     SSH_AUTH_SOCK
//! ```
//!
//! With `--ssh-host`, a signature is given only for a session with a verified server, or for a commit.
//! Every byte from the socket is untrusted. There is no thread before the first connection.

mod certificate;
mod confirm;
mod connection;
mod destinations;
mod known_hosts;
mod public_key;
mod purpose;
mod request;
mod revoked_keys;
mod session;
mod slots;
mod upstream;
mod usage;
mod wire;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use confirm::Confirmations;
use connection::Connection;
use destinations::Destinations;
use session::SeenSessions;
use slots::Slots;
use usage::Usage;

pub use certificate::HostCertificate;
pub use confirm::{ANSWER_TIMEOUT, QuestionInbox};
pub use purpose::Purpose;
pub use request::Request;

use crate::event_log::EventLog;
use crate::plan::AgentGatePlan;
use crate::process::signals::ReadyAction;
use crate::ui::Ui;

/// A connection needs little more than its message.
const STACK_SIZE: usize = 256 << 10;

/// The gate of one sandbox. Its socket is removed with the session's directory.
pub struct AgentGate {
    shared: Arc<Shared>,
    listener: Option<UnixListener>,
}

/// What all connections share.
pub struct Shared {
    plan: AgentGatePlan,
    usage: Usage,
    slots: Slots,
    destinations: Destinations,
    sessions: SeenSessions,
    confirmations: Confirmations,
}

impl AgentGate {
    /// Makes the socket. Connections wait until the action of [`take_action`](Self::take_action) is
    /// carried out.
    pub fn open(plan: &AgentGatePlan, log: Arc<EventLog>) -> io::Result<Self> {
        let listener = bind(plan.socket.as_path(), if plan.is_open { 0o666 } else { 0o600 })?;
        if let (false, Some(feature)) = (!plan.is_limited, public_key::missing_cpu_feature()) {
            let text = format!(
                "--ssh-host cannot be enforced: this processor lacks `{feature}`, with which servers are verified"
            );
            return Err(io::Error::other(text));
        }
        let shared = Shared {
            plan: plan.clone(),
            usage: Usage::new(log),
            slots: Slots::default(),
            destinations: Destinations::default(),
            sessions: SeenSessions::default(),
            confirmations: Confirmations::default(),
        };
        Ok(AgentGate { shared: Arc::new(shared), listener: Some(listener) })
    }

    /// Returns the action for the first connection: it starts the thread that accepts this and all
    /// others.
    pub fn take_action(&mut self) -> Option<ReadyAction> {
        let listener = self.listener.take()?;
        let shared = self.shared.clone();
        let action = Box::new(move |listener: OwnedFd| {
            let accept = move || accept(&UnixListener::from(listener), &shared);
            // Without a thread the guest's connections are closed with the listener.
            let _ = thread::Builder::new().name("ssh-agent".into()).stack_size(STACK_SIZE).spawn(accept);
        });
        Some(ReadyAction { descriptor: listener.into(), action })
    }

    /// Prints what was refused; with `-v` also what was signed.
    pub fn close(&self, ui: Ui) {
        self.shared.usage.print(ui);
    }
}

/// Binds a socket. Its path may be longer than a socket's address allows, so on Linux the directory's
/// descriptor stands for it.
fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    #[cfg(target_os = "linux")]
    let (_directory, path) = {
        use std::os::fd::AsRawFd;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let directory = fs::File::open(parent)?;
        let short = Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        (directory, short)
    };
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(listener)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                // Too many open files, for example. The next connection may work.
                thread::sleep(slots::RETRY_INTERVAL);
                continue;
            }
        };
        let Some(slot) = shared.slots.take(&stream) else { continue };
        let shared = shared.clone();
        let serve = move || Connection::new(stream, slot, &shared).serve();
        let _ = thread::Builder::new().name("ssh-agent".into()).stack_size(STACK_SIZE).spawn(serve);
    }
}

#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod tests;
