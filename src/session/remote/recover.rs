//! Connects again to a sandbox whose connection was lost, or whose launcher was killed, and brings home what
//! its guest has changed. Knows no engine: an `Elsewhere` starts the engine's client.

use std::ffi::OsStr;
use std::process::Child;
use std::time::{Duration, Instant};

use super::connection::{Connection, LostLink};
use super::returns::{ReturnError, ReturnRecord, Returns};
use crate::kept_copy::CopyStore;
use crate::path::HostPath;
use crate::session::copied_workspace::CopiedWorkspace;
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// A helper that still waits for the former launcher answers late.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// A sandbox on another machine, as its engine knows it.
pub trait Elsewhere {
    /// What the engine calls it, for messages.
    const KIND: &'static str;

    fn name(&self) -> &str;

    /// Starts a client that runs the command of `link_command` there.
    fn connect(&self) -> Result<Child, String>;

    fn look(&self) -> Presence;

    /// Removes it, once nothing in it is needed; returns whether the engine answered.
    fn remove(&self) -> bool;
}

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
    /// It was not complete when its launcher ended, and is removed.
    NeverStarted,
    /// The engine does not answer.
    Unknown,
}

/// Brings everything home at the end of a sandbox, over a new connection if the first one was lost. Returns
/// whether everything is back, and the connection if it is still usable.
pub fn bring_back<T: Elsewhere>(
    returns: &mut Returns,
    connection: Connection,
    is_lost: bool,
    sandbox: &T,
    ui: Ui,
) -> (bool, Option<Connection>) {
    let progress = Progress::start(ui, "the changes to come back");
    let first = if is_lost { None } else { Some(returns.finish(&connection)) };
    let (done, connection) = match first {
        Some(Err(ReturnError::Lost(_))) | None => {
            // The helper serves one launcher at a time.
            drop(connection);
            (reconnect(returns, sandbox), None)
        }
        Some(done) => (done, Some(connection)),
    };
    drop(progress);
    returns.report(ui);
    if let Err(ReturnError::Failed(reason) | ReturnError::Lost(LostLink { message: reason })) = done {
        let kind = T::KIND;
        ui.warn(&format!("the last changes are still in the {kind} `{}`: {reason}", sandbox.name()));
        ui.hint(&format!("the {kind} keeps them for an hour, and the next `sandpen diff` or `sandpen ps` brings them"));
        return (false, connection);
    }
    (true, connection)
}

/// Brings everything home over a new connection.
fn reconnect(returns: &mut Returns, sandbox: &impl Elsewhere) -> Result<(), ReturnError> {
    let limit = Instant::now() + RECONNECT_TIMEOUT;
    loop {
        let client = sandbox.connect().map_err(|message| ReturnError::Lost(LostLink { message }))?;
        let done = Connection::resume(client).map_err(ReturnError::Lost);
        match done.and_then(|connection| returns.finish(&connection)) {
            Err(ReturnError::Lost(_)) if Instant::now() < limit && sandbox.look() == Presence::There => {
                std::thread::sleep(RECONNECT_DELAY);
            }
            done => return done,
        }
    }
}

/// Brings home what a killed launcher has left, by the record in its session's directory, and removes the
/// sandbox.
pub fn recover<T: Elsewhere>(session: &HostPath, sandbox: &T, ui: Ui) -> Recovered {
    // The copy has the id of the sandbox that made it.
    let store = CopyStore::beside(&above(session));
    let id = session.as_path().file_name().and_then(OsStr::to_str).unwrap_or_default();
    let copy = store.find(id);
    let Ok(lock) = copy.as_ref().map(|_| store.lock(id)).transpose() else { return Recovered::Later };
    let recovered = match sandbox.look() {
        // Without a record the launcher was killed before it sent any file; without a copy, which the user has
        // discarded, there is no place.
        Presence::There => match ReturnRecord::read(session).filter(|_| copy.is_some()) {
            Some(record) => from_record(&record, sandbox, ui),
            None if sandbox.remove() => Recovered::Gone,
            None => Recovered::Later,
        },
        Presence::Gone => {
            ui.warn(&format!("the {} `{}` is gone, with what was not brought back", T::KIND, sandbox.name()));
            Recovered::Gone
        }
        Presence::NeverStarted => Recovered::Gone,
        Presence::Unknown => Recovered::Later,
    };
    if let (Some(copy), Some(lock), true) = (copy, lock, recovered != Recovered::Later) {
        CopiedWorkspace::of_killed(store, copy, lock).finish(ui);
    }
    recovered
}

fn from_record(record: &ReturnRecord, sandbox: &impl Elsewhere, ui: Ui) -> Recovered {
    let done = Returns::open(record).map_err(|error| ReturnError::Failed(error.to_string()));
    let done = done.and_then(|mut returns| {
        let done = reconnect(&mut returns, sandbox);
        returns.report(ui);
        done
    });
    match done {
        Ok(()) => {
            sandbox.remove();
            Recovered::Back
        }
        Err(ReturnError::Failed(reason) | ReturnError::Lost(LostLink { message: reason })) => {
            let name = sandbox.name();
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
