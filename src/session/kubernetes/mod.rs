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

pub use checkup::ClusterCheckup;
pub use exec::{exec, start as start_in_pod};
pub use recover::{delete_recorded, recover};

use error::ClusterError;
use kubectl::Kubectl;
use pod::{Pod, Started};
use recover::RecordedPod;

use super::channel::{ChannelThread, Existence};
use super::failure;
use super::registry;
use super::remote::{self, Connection, RelayEnd, Relayed, ReturnRecord, SentHelper};
use super::{Session, Streams};
use crate::config::value::NetworkMode;
use crate::error::Result;
use crate::launch::{KEEPER, KubernetesLaunch};
use crate::link::StartRequest;
use crate::process::Outcome;
use crate::process::ready::Startup;
use crate::process::signals::SignalQueue;
use crate::process::status_file::CommandStatus;
use crate::ui::progress::Progress;

/// A session in a cluster.
struct ClusterSession<'a, 's> {
    session: &'a mut Session<'s>,
    launch: &'a KubernetesLaunch,
}

/// Runs a pod and waits for the end of its command.
pub(super) fn run(
    session: &mut Session<'_>,
    launch: &KubernetesLaunch,
    mut signals: SignalQueue,
    streams: &mut Streams,
) -> Result<Outcome> {
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
    let client = pod.exec(KEEPER, &SentHelper::command())?;
    let helper = SentHelper::of(session.session.host);
    let connection = match Connection::open(client, helper, || signals.termination_signal())? {
        Startup::Ready(connection) => connection,
        Startup::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    let record = ReturnRecord::of(plan);
    let mut returns = remote::prepare_returns(plan, record.as_ref())?;
    remote::copy_files(plan, &launch.copies, record.as_ref(), &connection, ui)?;
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
    let terminal = streams.take_terminal()?;
    let _channel = ChannelThread::start(plan, &launch.client, &launch.channel, Existence::Now, None, ui);
    let _push = session.session.serve_pushes();
    remote::describe(&connection.writer, &plan.env, &plan.command, &request)
        .map_err(|error| session.lost(&pod, error.to_string()))?;
    session.session.repositories.exchange_in_background();
    let on_agent = session.session.gates.take_agent_action();
    let mut on_start = || streams.report_start();
    let relayed = Relayed {
        has_terminal: plan.terminal,
        returns: returns.as_mut(),
        on_ready: on_agent,
        on_start: Some(&mut on_start),
    };
    let end = remote::relay_command(&connection, signals, relayed);
    let is_lost = matches!(end, RelayEnd::Lost(_));
    let outcome = session.outcome(&mut pod, end);
    streams.finish(terminal, &outcome);
    let is_back = match (&mut returns, &session.session.record.pod) {
        (Some(returns), Some(recorded)) => {
            let there = RecordedPod { kubectl, name: &pod.name, recorded };
            remote::bring_back(returns, connection, is_lost, &there, ui).0
        }
        _ => true,
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
