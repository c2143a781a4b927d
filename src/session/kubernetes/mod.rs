//! Runs a command in a pod: creates it, copies the files, relays the command, deletes the pod.
//!
//! ```text
//! create ─► keeper runs ─► helper and files are sent ─► command ─► delete
//! ```

mod connection;
mod error;
mod kubectl;
mod pod;
mod relay;
mod seed;
mod state;

use std::ffi::OsString;

use connection::Connection;
use error::ClusterError;
use kubectl::Kubectl;
use pod::{Pod, Started};
use relay::{RawCaller, RelayEnd};

use super::Session;
use super::failure;
use super::registry::{self, PodRecord};
use crate::config::value::NetworkMode;
use crate::error::Result;
use crate::launch::KubernetesLaunch;
use crate::link::{LinkFrame, StartRequest};
use crate::plan::{Plan, VariableValue};
use crate::process::signals::{SignalQueue, SignalTarget};
use crate::process::status_file::CommandStatus;
use crate::process::{Client, Outcome};
use crate::ui::progress::Progress;
use crate::ui::{counted, size};

/// Above this many bytes the copy is announced.
const ANNOUNCED: u64 = 32 << 20;

/// A session in a cluster.
struct ClusterSession<'a, 's> {
    session: &'a mut Session<'s>,
    launch: &'a KubernetesLaunch,
}

/// Runs a pod and waits for the end of its command.
pub(super) fn run(session: &mut Session<'_>, launch: &KubernetesLaunch, mut signals: SignalQueue) -> Result<Outcome> {
    let (plan, ui) = (session.plan, session.ui);
    session.record_start()?;
    session.repositories.begin_delayed_copies();
    let mut session = ClusterSession { session, launch };
    let kubectl = Kubectl { client: &launch.client, cluster: &launch.cluster, namespace: &launch.namespace };
    let progress = Progress::start(ui, "the cluster to start the pod");
    let mut pod = Pod::create(kubectl, &launch.manifest, plan)?;
    session.record_pod(&pod);
    session.session.sweep.start();
    if let Started::Interrupted(signal) = pod.await_start(|| signals.termination_signal())? {
        return Ok(Outcome::Signaled(signal));
    }
    drop(progress);
    let helper = session.host_helper()?;
    let connection = Connection::open(pod.kubectl(), &pod.name, session.session.host, &helper)?;
    session.copy(&connection)?;
    if let Some(signal) = signals.termination_signal() {
        return Ok(Outcome::Signaled(signal));
    }
    session.session.gates.start(plan);
    let request = StartRequest {
        directory: plan.workdir.as_path().to_owned(),
        terminal: plan.terminal.then(relay::terminal_size),
        is_offline: plan.network.mode == NetworkMode::Off,
        helper: plan.helper_config.clone(),
    };
    describe(plan, &connection, &request).map_err(|error| session.lost(&pod, error.to_string()))?;
    let to_command = connection.writer.clone();
    let has_terminal = plan.terminal;
    let target = SignalTarget::Remote(Box::new(move |signal| {
        if let Some(frame) = relay::signal_frame(signal.as_raw(), has_terminal) {
            let _ = to_command.send(&frame);
        }
    }));
    let to_command = connection.writer.clone();
    let kill = move || drop(to_command.send(&LinkFrame::Signal(libc::SIGKILL)));
    let raw = RawCaller::enter(plan.terminal);
    let forwarder = signals.forward_in_thread(target, None, kill, None);
    let end = relay::run(&connection, || ());
    drop((forwarder, raw));
    let outcome = session.outcome(&mut pod, end);
    drop(connection);
    if outcome.is_ok() && !pod.delete() {
        ui.warn(&format!("the pod `{}` may still exist; `sandpen prune` deletes it", pod.name));
    }
    outcome
}

/// Describes the command to the guest, and starts it.
fn describe(plan: &Plan, connection: &Connection, request: &StartRequest) -> std::io::Result<()> {
    let link = &connection.writer;
    for variable in &plan.env {
        let mut pair = std::ffi::OsString::from(format!("{}=", variable.name));
        match &variable.value {
            VariableValue::Plain(value) => pair.push(value),
            VariableValue::Secret(secret) => pair.push(secret.reveal()),
        }
        link.send(&LinkFrame::Variable(pair))?;
    }
    for word in &plan.command {
        link.send(&LinkFrame::Argument(word.clone()))?;
    }
    link.send(&LinkFrame::Start(serde_json::to_string(request)?))
}

impl ClusterSession<'_, '_> {
    /// Adds the pod to the record, by which `prune` deletes it if this process is killed.
    fn record_pod(&mut self, pod: &Pod<'_>) {
        let Session { plan, record, .. } = &mut *self.session;
        if let Some(known) = &mut record.pod {
            known.uid = Some(pod.uid.clone());
        }
        let _ = registry::write(&plan.session_dir, record);
    }

    fn host_helper(&self) -> Result<crate::path::HostPath> {
        let missing = || ClusterError::NoHelper { arch: self.session.host.arch.to_owned() };
        Ok(self.launch.helper.clone().ok_or_else(missing)?)
    }

    /// Copies the files of the plan, and waits until they are written.
    fn copy(&self, connection: &Connection) -> Result<()> {
        let progress = Progress::start(self.session.ui, "the workspace to be copied");
        let sent = seed::send(self.session.plan, &self.launch.copies, &connection.writer);
        let answer = match sent {
            Ok(sent) => connection.next().map(|frame| (frame, sent)),
            // What the keeper or kubectl said explains a broken connection.
            Err(error @ ClusterError::Copy { .. }) => match connection.next() {
                Ok(LinkFrame::Failed(message)) => return Err(ClusterError::Copy { message }.into()),
                _ => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        drop(progress);
        match answer {
            Ok((LinkFrame::Received, sent)) => {
                let text = format!(
                    "{} ({}) copied into the pod",
                    counted(usize::try_from(sent.files).unwrap_or_default(), "file"),
                    size(sent.bytes)
                );
                if sent.bytes > ANNOUNCED {
                    self.session.ui.notice(&text)
                } else {
                    self.session.ui.verbose(&text)
                }
                Ok(())
            }
            Ok((LinkFrame::Failed(message), _)) => Err(ClusterError::Copy { message }.into()),
            Ok(_) => Err(ClusterError::Protocol { message: "another frame than the end of the copy".into() }.into()),
            Err(lost) => Err(ClusterError::Copy { message: lost.message }.into()),
        }
    }

    /// Returns the guest's outcome. An exit code counts only if the helper said it, or if the cluster
    /// says that the kernel killed the guest for its memory.
    fn outcome(&self, pod: &mut Pod<'_>, end: RelayEnd) -> Result<Outcome> {
        match end {
            RelayEnd::Status(CommandStatus::Ended(code)) => Ok(Outcome::Exited(code)),
            RelayEnd::Status(CommandStatus::OutOfMemory) => {
                failure::explain_memory(self.session.plan, crate::process::KILLED, self.session.ui);
                Ok(crate::process::KILLED)
            }
            RelayEnd::Status(status) => {
                failure::explain_command(self.session.plan, status, self.session.ui);
                Ok(Outcome::Exited(status.exit_code()))
            }
            RelayEnd::GuestLost => {
                let words = pod.read();
                if let Some(outcome) = words.as_ref().ok().and_then(state::killed_for_memory) {
                    failure::explain_memory(self.session.plan, outcome, self.session.ui);
                    return Ok(outcome);
                }
                let reason = words.as_ref().map_or_else(ToString::to_string, state::last_words);
                Err(ClusterError::Ended { reason }.into())
            }
            RelayEnd::Failed(message) => Err(ClusterError::Protocol { message }.into()),
            RelayEnd::Lost(lost) => match pod.read() {
                Err(ended @ ClusterError::Ended { .. }) => Err(ended.into()),
                _ => Err(self.lost(pod, lost.message).into()),
            },
        }
    }

    fn lost(&self, pod: &Pod<'_>, message: String) -> ClusterError {
        ClusterError::Lost { message, pod: pod.name.clone(), namespace: self.launch.namespace.clone() }
    }
}

/// Deletes the pod of a launcher that has ended; returns whether the cluster answered.
pub fn delete_recorded(client: &Client, name: &str, pod: &PodRecord) -> bool {
    let cluster: Vec<OsString> = pod.cluster.iter().map(OsString::from).collect();
    let kubectl = Kubectl { client, cluster: &cluster, namespace: &pod.namespace };
    match &pod.uid {
        Some(uid) => pod::delete_by_uid(&kubectl, name, uid),
        None => pod::delete_by_labels(&kubectl, Some(&pod.labels)),
    }
}

/// Refuses `run --detach`: the pod's command ends with its launcher.
pub fn refuse_detach() -> Result<()> {
    Err(ClusterError::Detach.into())
}
