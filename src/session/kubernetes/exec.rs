//! Runs another command in the pod of a running sandbox, with the restrictions of the first one.

use std::ffi::OsString;

use super::error::ClusterError;
use super::kubectl::Kubectl;
use super::pod::Pod;
use crate::error::Result;
use crate::host::Host;
use crate::launch::GUEST;
use crate::link::StartRequest;
use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::signals::SignalQueue;
use crate::process::status_file::CommandStatus;
use crate::process::{KILLED, Outcome};
use crate::session::error::SessionError;
use crate::session::registry::Record;
use crate::session::remote::{self, Connection, RelayEnd};

/// Runs it with sandpen's streams, and waits for its end.
pub fn exec(host: &Host, record: &Record, command: Vec<OsString>) -> Result<Outcome> {
    let recorded = record.pod.as_ref().and_then(|pod| Some((pod, pod.uid.as_ref()?)));
    let Some((recorded, uid)) = recorded else { return Err(ClusterError::NotStartedYet.into()) };
    let client = record.client(&crate::facts::host_path(host));
    let cluster: Vec<OsString> = recorded.cluster.iter().map(OsString::from).collect();
    let kubectl = Kubectl { client: &client, cluster: &cluster, namespace: &recorded.namespace };
    let signals = SignalQueue::start().map_err(SessionError::Signals)?;
    let pod = Pod::existing(kubectl, &record.name, uid);
    let started = pod.exec(GUEST, &[&format!("{CONTROL_DIR}/sandpen"), "pod", "exec"].map(str::to_owned));
    // It is the launcher's, which deletes it.
    pod.leave();
    let lost = |message: String| ClusterError::Lost {
        message,
        pod: record.name.clone(),
        namespace: recorded.namespace.clone(),
    };
    let connection = Connection::resume(started?).map_err(|error| lost(error.message))?;
    let has_terminal = host.terminal.stdin && host.terminal.stdout;
    let request = StartRequest {
        directory: record.directory.clone().into(),
        terminal: has_terminal.then(remote::terminal_size),
        is_offline: recorded.is_offline,
        helper: HelperConfig {
            exec: true,
            append_path: record.append_path.clone(),
            nested: record.nested,
            ..HelperConfig::default()
        },
    };
    remote::describe(&connection.writer, &[], &command, &request).map_err(|error| lost(error.to_string()))?;
    match remote::relay_command(&connection, signals, has_terminal, None, None) {
        RelayEnd::Status(CommandStatus::Ended(code)) => Ok(Outcome::Exited(code)),
        RelayEnd::Status(CommandStatus::OutOfMemory) => Ok(KILLED),
        RelayEnd::Status(status) => Ok(Outcome::Exited(status.exit_code())),
        RelayEnd::GuestLost => Err(ClusterError::Ended { reason: "the sandbox has ended".into() }.into()),
        RelayEnd::Failed(message) => Err(ClusterError::Protocol { message }.into()),
        RelayEnd::Lost(error) => Err(lost(error.message).into()),
    }
}
