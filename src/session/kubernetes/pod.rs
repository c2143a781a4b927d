//! Creates the pod, waits until its keeper runs, and deletes it. Every wait ends with the cluster's
//! own reason.

use std::fs::{self, File};
use std::io::BufReader;
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::error::ClusterError;
use super::kubectl::{CALL_TIMEOUT, CallError, Kubectl};
use super::state::{PodState, state};
use crate::launch::KEEPER;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::session::remote::with_pipes;

/// How long a pod may take to start, if nothing says why it does not.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a node may be missing: one that the cluster adds takes longer, but then it says so.
const SCHEDULE_TIMEOUT: Duration = Duration::from_secs(20);
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the node may take to say whether the keeper's container runs.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first question to the node; each is twice the one before.
const FIRST_PROBE_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// How often the events of a pod that does not start are read.
const EVENT_INTERVAL: Duration = Duration::from_secs(4);
/// How long a warning of the node may stay without the pod starting.
const WARNING_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_EVENTS: usize = 5;
/// Warnings of nodes on which pods start all the same.
const HARMLESS: [&str; 1] = ["MissingClusterDNS"];

/// A pod that was created. Dropping it deletes it.
pub struct Pod<'a> {
    kubectl: Kubectl<'a>,
    pub name: String,
    pub uid: String,
    is_deleted: bool,
}

/// The end of a wait.
pub enum Started {
    Ready,
    /// A signal asked sandpen to end.
    Interrupted(i32),
}

impl<'a> Pod<'a> {
    /// Creates the pod. The manifest is written to the session's directory, which only this user reads.
    pub fn create(kubectl: Kubectl<'a>, manifest: &Value, plan: &Plan) -> Result<Self, ClusterError> {
        let path = plan.session_dir.join("pod.json");
        let input = write(&path, manifest)?;
        let created = kubectl.call(&["create", "--filename=-", "--output=json"], Some(input), CALL_TIMEOUT);
        let answer = match created {
            Ok(answer) => answer,
            Err(error) => {
                // It may exist although the answer was lost.
                let error = explain(&kubectl, error, ("create", "pods"));
                if let ClusterError::Silent { .. } | ClusterError::Unreachable { .. } = error {
                    delete_by_labels(&kubectl, manifest.pointer("/metadata/labels"));
                }
                return Err(error);
            }
        };
        let uid = serde_json::from_slice::<Value>(&answer).ok().and_then(|pod| {
            let uid = pod.pointer("/metadata/uid")?.as_str()?;
            Some(uid.to_owned())
        });
        let name = plan.id.name();
        let Some(uid) = uid else {
            delete_by_labels(&kubectl, manifest.pointer("/metadata/labels"));
            return Err(ClusterError::Protocol { message: "kubectl does not print the pod that it created".into() });
        };
        Ok(Pod { kubectl, name, uid, is_deleted: false })
    }

    /// Runs a command in one of the containers, over pipes.
    pub fn exec(&self, container: &str, command: &[String]) -> Result<Child, ClusterError> {
        let container = format!("--container={container}");
        let mut arguments = vec!["exec", "--stdin", &container, &self.name, "--"];
        arguments.extend(command.iter().map(String::as_str));
        self.kubectl.start(&arguments, with_pipes)
    }

    /// Waits until the keeper's container runs. The node is asked, too: the cluster's answer comes up to two
    /// seconds later, and not before the hook that waits for the keeper's sockets.
    pub fn await_start(&self, interrupted: impl FnMut() -> Option<i32>) -> Result<Started, ClusterError> {
        let arguments = ["get", "pod", &self.name, "--watch", "--output=json"];
        let mut watch = self.kubectl.start(&arguments, |command| {
            command.stdout(Stdio::piped());
        })?;
        let result = self.follow(&mut watch, interrupted);
        let _ = watch.kill();
        let _ = watch.wait();
        result
    }

    fn follow(&self, watch: &mut Child, mut interrupted: impl FnMut() -> Option<i32>) -> Result<Started, ClusterError> {
        let began = Instant::now();
        let (mut unschedulable, mut warned, mut events_at) = (None::<Instant>, None::<Instant>, began + EVENT_INTERVAL);
        let (mut probe_at, mut probe_interval) = (None::<Instant>, FIRST_PROBE_INTERVAL);
        let states = watched(watch);
        loop {
            if let Some(signal) = interrupted() {
                return Ok(Started::Interrupted(signal));
            }
            let now = match states.recv_timeout(SIGNAL_INTERVAL) {
                Ok(pod) => Some(state(&pod)),
                Err(RecvTimeoutError::Timeout) => None,
                // The watch ends when the API server does, or after some minutes.
                Err(RecvTimeoutError::Disconnected) => Some(state(&self.read()?)),
            };
            match now {
                Some(PodState::KeeperRuns) => return Ok(Started::Ready),
                Some(PodState::Failed(error)) => return Err(error),
                Some(PodState::Unschedulable(_)) => {
                    unschedulable.get_or_insert_with(Instant::now);
                }
                Some(PodState::Waiting) => unschedulable = None,
                Some(PodState::Scheduled) => {
                    unschedulable = None;
                    probe_at.get_or_insert_with(Instant::now);
                }
                None => {}
            }
            if probe_at.is_some_and(|at| Instant::now() >= at) {
                if self.keeper_answers() {
                    return Ok(Started::Ready);
                }
                probe_at = Some(Instant::now() + probe_interval);
                probe_interval = (probe_interval * 2).min(LONGEST_PROBE_INTERVAL);
            }
            if unschedulable.is_some_and(|since| since.elapsed() > SCHEDULE_TIMEOUT)
                && let PodState::Unschedulable(message) = state(&self.read()?)
            {
                return Err(ClusterError::Unschedulable { message });
            }
            if Instant::now() >= events_at {
                events_at = Instant::now() + EVENT_INTERVAL;
                let is_harmful = |reason: &str| !HARMLESS.contains(&reason) && unschedulable.is_none();
                let warning = self.warnings().into_iter().find(|(reason, _)| is_harmful(reason));
                if let Some((reason, message)) = warning
                    && warned.get_or_insert_with(Instant::now).elapsed() > WARNING_TIMEOUT
                {
                    return Err(ClusterError::NotStarted { reason, message });
                }
            }
            if began.elapsed() > START_TIMEOUT {
                let events = self.warnings().into_iter().map(|(reason, text)| format!("{reason}: {text}")).collect();
                return Err(ClusterError::Late { seconds: START_TIMEOUT.as_secs(), events });
            }
        }
    }

    /// Asks the node whether the keeper's container runs.
    fn keeper_answers(&self) -> bool {
        let container = format!("--container={KEEPER}");
        let arguments = ["exec", &container, &self.name, "--", "sh", "-c", ":"];
        self.kubectl.call(&arguments, None, PROBE_TIMEOUT).is_ok()
    }

    /// Reads the pod once.
    pub fn read(&self) -> Result<Value, ClusterError> {
        let read = self.kubectl.call(&["get", "pod", &self.name, "--output=json"], None, CALL_TIMEOUT);
        let answer = read.map_err(|error| match error {
            CallError::Failed(failure) if failure.reason.as_deref() == Some("NotFound") => {
                ClusterError::Ended { reason: failure.message }
            }
            error => explain(&self.kubectl, error, ("get", "pods")),
        })?;
        serde_json::from_slice(&answer).map_err(|error| ClusterError::Protocol { message: error.to_string() })
    }

    /// Reads the warnings about the pod, the latest first.
    fn warnings(&self) -> Vec<(String, String)> {
        let selector = format!("--field-selector=involvedObject.uid={},type=Warning", self.uid);
        let read = self.kubectl.call(&["get", "events", &selector, "--output=json"], None, CALL_TIMEOUT);
        let list: Value = read.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |event: &Value, key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let warnings = items.iter().rev().take(MAX_EVENTS);
        warnings.map(|event| (text(event, "reason"), text(event, "message"))).collect()
    }

    /// Takes a pod that another process created.
    pub fn existing(kubectl: Kubectl<'a>, name: &str, uid: &str) -> Self {
        Pod { kubectl, name: name.to_owned(), uid: uid.to_owned(), is_deleted: false }
    }

    /// Leaves the pod in the cluster, where its keeper holds the work.
    pub fn leave(mut self) {
        self.is_deleted = true;
    }

    /// Deletes the pod, and no other of the same name.
    pub fn delete(&mut self) -> bool {
        if std::mem::replace(&mut self.is_deleted, true) {
            return true;
        }
        let is_deleted = delete_by_uid(&self.kubectl, &self.name, &self.uid);
        self.is_deleted = is_deleted;
        is_deleted
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Reads the pods that a watch prints, in another thread.
fn watched(watch: &mut Child) -> mpsc::Receiver<Value> {
    let (sender, states) = mpsc::channel();
    if let Some(output) = watch.stdout.take() {
        std::thread::spawn(move || {
            let pods = serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>();
            for pod in pods.map_while(Result::ok) {
                if sender.send(pod).is_err() {
                    return;
                }
            }
        });
    }
    states
}

/// Deletes a pod if it still is the one with this uid. One that is gone counts as deleted.
pub fn delete_by_uid(kubectl: &Kubectl<'_>, name: &str, uid: &str) -> bool {
    let options = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 1,
        "preconditions": { "uid": uid },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{name}", kubectl.namespace);
    let Ok(input) = anonymous(options.to_string().as_bytes()) else { return false };
    let raw = format!("--raw={path}");
    match kubectl.call(&["delete", &raw, "--filename=-"], Some(input), CALL_TIMEOUT) {
        Ok(_) => true,
        Err(CallError::Failed(failure)) => matches!(failure.reason.as_deref(), Some("NotFound" | "Conflict")),
        Err(_) => false,
    }
}

/// Deletes a pod whose uid is not known: by the labels that name the session and this installation.
pub fn delete_by_labels(kubectl: &Kubectl<'_>, labels: Option<&Value>) -> bool {
    let words = labels
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let selector = format!("--selector={}", words.collect::<Vec<_>>().join(","));
    let arguments = ["delete", "pods", &selector, "--grace-period=1", "--wait=false"];
    kubectl.call(&arguments, None, CALL_TIMEOUT).is_ok()
}

/// Turns the failure of a call into what it means. The answer `Forbidden` means a missing right, or a
/// rule of the cluster such as a quota: the cluster is asked which.
pub fn explain(kubectl: &Kubectl<'_>, error: CallError, right: (&'static str, &'static str)) -> ClusterError {
    let namespace = kubectl.namespace.to_owned();
    let failure = match error {
        CallError::Local(error) => return error,
        CallError::Silent => return ClusterError::Silent { seconds: CALL_TIMEOUT.as_secs() },
        CallError::Failed(failure) => failure,
    };
    let (message, (verb, resource)) = (failure.message, right);
    match failure.reason.as_deref() {
        Some("Forbidden") if kubectl.can(verb, resource) == Some(false) => {
            ClusterError::Forbidden { verb, resource, namespace, message }
        }
        Some("NotFound") if verb == "create" => ClusterError::NoNamespace { namespace },
        Some("Unauthorized") => ClusterError::Unauthorized { message },
        Some(_) => ClusterError::Refused { namespace, message },
        None => ClusterError::Unreachable { message, server: None },
    }
}

fn write(path: &HostPath, manifest: &Value) -> Result<File, ClusterError> {
    let failed = |source| ClusterError::Write { path: path.to_string(), source };
    fs::write(path.as_path(), manifest.to_string()).map_err(failed)?;
    File::open(path.as_path()).map_err(failed)
}

/// Returns a pipe with a short text.
pub fn anonymous(text: &[u8]) -> std::io::Result<File> {
    let (read, write) = rustix::pipe::pipe()?;
    rustix::io::write(&write, text)?;
    Ok(read.into())
}
