//! Runs a command in a pod: creates it, copies the files, relays the command, brings the changes back and
//! deletes the pod.
//!
//! ```text
//! create ─► keeper runs ─► helper and files are sent ─► command ─► changes come back ─► delete
//! ```

mod checkup;
mod error;
mod exec;
mod kubectl;
mod pod;
mod recover;
mod state;

use std::ffi::OsString;

pub use checkup::ClusterCheckup;
pub use exec::exec;
pub use recover::{Recovered, recover};

use error::ClusterError;
use kubectl::Kubectl;
use pod::{Pod, Started};

use super::Session;
use super::channel::{ChannelThread, Existence};
use super::failure;
use super::registry::{self, PodRecord};
use super::remote::{self, Connection, RelayEnd, RemoteError, ReturnError, ReturnRecord, Returns, SentHelper};
use crate::config::value::NetworkMode;
use crate::error::Result;
use crate::launch::{KEEPER, KubernetesLaunch};
use crate::link::{LinkFrame, StartRequest};
use crate::process::signals::SignalQueue;
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
    let helper = SentHelper::read(&helper)?;
    let client = pod.exec(KEEPER, &helper.command())?;
    let connection = Connection::open(client, session.session.host, helper)?;
    let record = ReturnRecord::of(plan);
    let mut returns = session.prepare_returns(record.as_ref())?;
    session.copy(&connection, record.as_ref())?;
    if let Some(signal) = signals.termination_signal() {
        return Ok(Outcome::Signaled(signal));
    }
    session.session.gates.start(plan);
    let request = StartRequest {
        directory: plan.workdir.as_path().to_owned(),
        terminal: plan.terminal.then(remote::terminal_size),
        is_offline: plan.network.mode == NetworkMode::Off,
        helper: plan.helper_config.clone(),
    };
    let _channel = ChannelThread::start(plan, &launch.client, &launch.channel, Existence::Now, ui);
    let _push = session.session.serve_pushes();
    remote::describe(&connection.writer, &plan.env, &plan.command, &request)
        .map_err(|error| session.lost(&pod, error.to_string()))?;
    session.session.repositories.exchange_in_background();
    let on_agent = session.session.gates.take_agent_action();
    let end = remote::relay_command(&connection, signals, plan.terminal, returns.as_mut(), on_agent);
    let is_lost = matches!(end, RelayEnd::Lost(_));
    let outcome = session.outcome(&mut pod, end);
    let is_back = match &mut returns {
        Some(returns) => session.bring_back(&pod, connection, is_lost, returns),
        None => true,
    };
    if !is_back {
        pod.leave();
        session.session.is_waiting = true;
        return outcome;
    }
    if !pod.delete() {
        ui.warn(&format!("the pod `{}` may still exist; `sandpen prune` deletes it", pod.name));
    }
    outcome
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
        let missing = || RemoteError::NoHelper { arch: self.session.host.arch.to_owned() };
        Ok(self.launch.helper.clone().ok_or_else(missing)?)
    }

    /// Makes the places for what comes back, and the record by which another command goes on.
    fn prepare_returns(&self, record: Option<&ReturnRecord>) -> Result<Option<Returns>> {
        let Some(record) = record else { return Ok(None) };
        let path = &self.session.plan.session_dir;
        let failed = |source| ClusterError::Write { path: path.to_string(), source };
        record.write(path).map_err(failed)?;
        Ok(Some(Returns::open(record).map_err(failed)?))
    }

    /// Brings home what the guest has changed, over a new connection if the first one was lost. Returns
    /// whether everything is back.
    fn bring_back(&self, pod: &Pod<'_>, connection: Connection, is_lost: bool, returns: &mut Returns) -> bool {
        let ui = self.session.ui;
        let _progress = Progress::start(ui, "the changes to come back");
        let first = if is_lost { None } else { Some(returns.finish(&connection)) };
        drop(connection);
        let done = match first {
            Some(Ok(())) => Ok(()),
            Some(Err(failed @ ReturnError::Failed(_))) => Err(failed),
            Some(Err(ReturnError::Lost(_))) | None => recover::reconnect(pod, returns),
        };
        returns.report(ui);
        let reason = match done {
            Ok(()) => return true,
            Err(ReturnError::Failed(reason)) => reason,
            Err(ReturnError::Lost(lost)) => lost.message,
        };
        ui.warn(&format!("the last changes are still in the pod `{}`: {reason}", pod.name));
        ui.hint("the pod keeps them for an hour, and the next `sandpen diff` or `sandpen ps` brings them");
        false
    }

    /// Copies the files of the plan, and waits until they are written.
    fn copy(&self, connection: &Connection, record: Option<&ReturnRecord>) -> Result<()> {
        let progress = Progress::start(self.session.ui, "the workspace to be copied");
        let sent = remote::send_files(
            self.session.plan,
            &self.launch.copies,
            record.map(|record| &record.request),
            &connection.writer,
        );
        let answer = match sent {
            Ok(sent) => connection.next().map(|frame| (frame, sent)),
            // What the keeper or kubectl said explains a broken connection.
            Err(error @ RemoteError::Copy { .. }) => match connection.next() {
                Ok(LinkFrame::Failed(message)) => return Err(RemoteError::Copy { message }.into()),
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
            Ok((LinkFrame::Failed(message), _)) => Err(RemoteError::Copy { message }.into()),
            Ok(_) => Err(RemoteError::Protocol { message: "another frame than the end of the copy".into() }.into()),
            Err(lost) => Err(RemoteError::Copy { message: lost.message }.into()),
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
