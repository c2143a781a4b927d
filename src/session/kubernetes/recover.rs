//! Connects again to a pod whose connection was lost, or whose launcher was killed, and brings home what
//! its guest has changed.

use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use super::error::ClusterError;
use super::kubectl::{CallError, Kubectl};
use super::pod::{self, Pod};
use crate::kept_copy::CopyStore;
use crate::launch::KEEPER;
use crate::path::HostPath;
use crate::process::Client;
use crate::session::copied_workspace::CopiedWorkspace;
use crate::session::registry::PodRecord;
use crate::session::remote::{Connection, LostLink, Recovered, ReturnError, ReturnRecord, Returns, link_command};
use crate::ui::Ui;

/// A keeper that still waits for the former launcher answers late.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// No command waits longer for a cluster that may not be there.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Brings everything home over a new connection.
pub fn reconnect(pod: &Pod<'_>, returns: &mut Returns) -> Result<(), ReturnError> {
    let limit = Instant::now() + RECONNECT_TIMEOUT;
    loop {
        let lost = |error: ClusterError| ReturnError::Lost(LostLink { message: error.to_string() });
        let client = pod.exec(KEEPER, &link_command()).map_err(lost)?;
        let done = Connection::resume(client).map_err(ReturnError::Lost);
        match done.and_then(|connection| returns.finish(&connection)) {
            Err(ReturnError::Lost(_)) if Instant::now() < limit && pod.read().is_ok() => {
                std::thread::sleep(RECONNECT_DELAY);
            }
            done => return done,
        }
    }
}

/// Brings home what a killed launcher left in a pod, and deletes the pod.
pub fn recover(client: &Client, name: &str, recorded: &PodRecord, session: &HostPath, ui: Ui) -> Recovered {
    let cluster: Vec<OsString> = recorded.cluster.iter().map(OsString::from).collect();
    let kubectl = Kubectl { client, cluster: &cluster, namespace: &recorded.namespace };
    // The copy has the id of the sandbox that made it.
    let store = CopyStore::beside(&above(session));
    let id = session.as_path().file_name().and_then(OsStr::to_str).unwrap_or_default();
    let copy = store.find(id);
    let lock = match &copy {
        Some(_) => match store.lock(id) {
            Ok(lock) => Some(lock),
            Err(_) => return Recovered::Later,
        },
        None => None,
    };
    let recovered = match find(kubectl, name, recorded, ui) {
        Found::Pod(pod) => bring_back(pod, session, copy.is_some(), ui),
        Found::Nothing => Recovered::Gone,
        Found::Unknown => Recovered::Later,
    };
    if let (Some(copy), Some(lock), true) = (copy, lock, recovered != Recovered::Later) {
        CopiedWorkspace::of_killed(store, copy, lock).finish(ui);
    }
    recovered
}

enum Found<'a> {
    Pod(Pod<'a>),
    Nothing,
    Unknown,
}

/// Looks for the pod, and takes none that another process has made under the same name.
fn find<'a>(kubectl: Kubectl<'a>, name: &str, recorded: &PodRecord, ui: Ui) -> Found<'a> {
    let Some(uid) = &recorded.uid else {
        // The launcher was killed while it created the pod, in which nothing has run.
        let is_deleted = pod::delete_by_labels(&kubectl, Some(&recorded.labels));
        return if is_deleted { Found::Nothing } else { Found::Unknown };
    };
    let there = kubectl.call(&["get", "pod", name, "--output=jsonpath={.metadata.uid}"], None, LOOK_TIMEOUT);
    let is_there = match there {
        Ok(found) => found == uid.as_bytes(),
        Err(CallError::Failed(failure)) if failure.reason.as_deref() == Some("NotFound") => false,
        Err(_) => return Found::Unknown,
    };
    if is_there {
        return Found::Pod(Pod::existing(kubectl, name, uid));
    }
    ui.warn(&format!("the pod `{name}` is gone, with what was not brought back"));
    Found::Nothing
}

fn bring_back(mut pod: Pod<'_>, session: &HostPath, has_copy: bool, ui: Ui) -> Recovered {
    // Without a record the launcher was killed before it sent any file; without a copy, which the user has
    // discarded, there is no place.
    let Some(record) = ReturnRecord::read(session).filter(|_| has_copy) else {
        return if pod.delete() { Recovered::Gone } else { pod.leave_as(Recovered::Later) };
    };
    let done = Returns::open(&record).map_err(|error| ReturnError::Failed(error.to_string()));
    let done = done.and_then(|mut returns| {
        let done = reconnect(&pod, &mut returns);
        returns.report(ui);
        done
    });
    match done {
        Ok(()) => {
            pod.delete();
            Recovered::Back
        }
        Err(ReturnError::Failed(reason) | ReturnError::Lost(LostLink { message: reason })) => {
            ui.warn(&format!("what the sandbox `{}` changed cannot be brought back now: {reason}", pod.name));
            pod.leave_as(Recovered::Later)
        }
    }
}

/// Returns the directory of all sessions.
fn above(session: &HostPath) -> HostPath {
    let above = session.as_path().parent().and_then(|above| HostPath::new(above).ok());
    above.unwrap_or_else(|| session.clone())
}
