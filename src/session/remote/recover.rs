//! Connects again to a sandbox whose connection was lost, or whose launcher was killed, and brings home what
//! its guest has changed. Knows no engine: the caller starts the engine's client.

use std::ffi::OsStr;
use std::process::Child;
use std::time::{Duration, Instant};

use super::connection::{Connection, LostLink};
use super::returns::{ReturnError, ReturnRecord, Returns};
use crate::kept_copy::CopyStore;
use crate::path::HostPath;
use crate::session::copied_workspace::CopiedWorkspace;
use crate::ui::Ui;

/// A helper that still waits for the former launcher answers late.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// What became of the work on another machine whose launcher has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovered {
    /// It is in the copy of the workspace.
    Back,
    /// The sandbox does not exist any more, or nothing was to come back from it.
    Gone,
    /// The engine does not answer, or the sandbox cannot be read now.
    Later,
}

/// The answer of an engine that is asked for a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    There,
    Gone,
    /// The engine does not answer.
    Unknown,
}

/// Brings everything home over a new connection.
pub fn reconnect(
    returns: &mut Returns,
    connect: impl Fn() -> Result<Child, String>,
    look: impl Fn() -> Presence,
) -> Result<(), ReturnError> {
    let limit = Instant::now() + RECONNECT_TIMEOUT;
    loop {
        let client = connect().map_err(|message| ReturnError::Lost(LostLink { message }))?;
        let done = Connection::resume(client).map_err(ReturnError::Lost);
        match done.and_then(|connection| returns.finish(&connection)) {
            Err(ReturnError::Lost(_)) if Instant::now() < limit && look() == Presence::There => {
                std::thread::sleep(RECONNECT_DELAY);
            }
            done => return done,
        }
    }
}

/// Brings home what a killed launcher has left, by the record in its session's directory.
pub fn recover(
    session: &HostPath,
    name: &str,
    connect: impl Fn() -> Result<Child, String>,
    look: impl Fn() -> Presence,
    ui: Ui,
) -> Recovered {
    // The copy has the id of the sandbox that made it.
    let store = CopyStore::beside(&above(session));
    let id = session.as_path().file_name().and_then(OsStr::to_str).unwrap_or_default();
    let copy = store.find(id);
    let Ok(lock) = copy.as_ref().map(|_| store.lock(id)).transpose() else { return Recovered::Later };
    let recovered = match look() {
        // Without a record the launcher was killed before it sent any file; without a copy, which the user has
        // discarded, there is no place.
        Presence::There => match ReturnRecord::read(session).filter(|_| copy.is_some()) {
            Some(record) => bring_back(&record, name, connect, look, ui),
            None => Recovered::Gone,
        },
        Presence::Gone => {
            ui.warn(&format!("the container `{name}` is gone, with what was not brought back"));
            Recovered::Gone
        }
        Presence::Unknown => Recovered::Later,
    };
    if let (Some(copy), Some(lock), true) = (copy, lock, recovered != Recovered::Later) {
        CopiedWorkspace::of_killed(store, copy, lock).finish(ui);
    }
    recovered
}

fn bring_back(
    record: &ReturnRecord,
    name: &str,
    connect: impl Fn() -> Result<Child, String>,
    look: impl Fn() -> Presence,
    ui: Ui,
) -> Recovered {
    let done = Returns::open(record).map_err(|error| ReturnError::Failed(error.to_string()));
    let done = done.and_then(|mut returns| {
        let done = reconnect(&mut returns, connect, look);
        returns.report(ui);
        done
    });
    match done {
        Ok(()) => Recovered::Back,
        Err(ReturnError::Failed(reason) | ReturnError::Lost(LostLink { message: reason })) => {
            ui.warn(&format!("what the sandbox `{name}` changed cannot be brought back now: {reason}"));
            Recovered::Later
        }
    }
}

/// Returns the directory of all sessions.
fn above(session: &HostPath) -> HostPath {
    let above = session.as_path().parent().and_then(|above| HostPath::new(above).ok());
    above.unwrap_or_else(|| session.clone())
}
