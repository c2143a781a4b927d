//! `sandpen attach`: shows the terminal of a detached sandbox, or the last screen of one that has
//! ended.

use std::time::Duration;

use crate::error::{Diagnostic, Kind, Result};
use crate::facts;
use crate::gate::attach::{AttachEnd, AttachError, AttachOptions, DetachKeys, attach};
use crate::host::Host;
use crate::process::Outcome;
use crate::session::{cleanup, socket_of};
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// How long a launcher may take to exit after its sandbox has ended.
const END_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
enum AttachCommandError {
    #[error("the sandbox `{0}` was not started with `run --detach`")]
    NotDetached(String),
    #[error("`{0}` is no list of keys")]
    Keys(String),
    #[error("the launcher of the sandbox `{0}` was killed")]
    Lost(String),
}

impl Diagnostic for AttachCommandError {
    fn kind(&self) -> Kind {
        match self {
            Self::Keys(_) => Kind::Usage,
            _ => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NotDetached(id) => vec![format!("`sandpen exec {id}` starts another command in it")],
            Self::Keys(_) => vec!["for example `ctrl-],d`".into()],
            Self::Lost(_) => Vec::new(),
        }
    }
}

pub fn run(id: &str, read_only: bool, keys: Option<&str>, ui: Ui) -> Result<Outcome> {
    let detach_keys = match keys {
        Some(keys) => keys.parse::<DetachKeys>().map_err(|_| AttachCommandError::Keys(keys.to_owned()))?,
        None => DetachKeys::default(),
    };
    let host = Host::read()?;
    cleanup::sweep(&host, ui);
    if let Some(outcome) = show_ended(&host, id, ui)? {
        return Ok(outcome);
    }
    let record = match cleanup::find_running(&host, id) {
        Ok(record) => record,
        // It may have ended since.
        Err(error) => return show_ended(&host, id, ui)?.ok_or(error),
    };
    if !record.detached {
        return Err(AttachCommandError::NotDetached(record.id).into());
    }
    let socket = socket_of(&facts::session_base(&host).join(&record.id));
    let attached = attach(socket.as_path(), AttachOptions { read_only, detach_keys });
    if matches!(attached, Err(AttachError::Connect { .. } | AttachError::NoAnswer { .. }) | Ok(AttachEnd::Lost)) {
        // The sandbox may just have ended, and its launcher not have written how.
        cleanup::await_end(&host, &record, END_TIMEOUT);
        if let Some(outcome) = show_ended(&host, &record.id, ui)? {
            return Ok(outcome);
        }
    }
    match attached? {
        AttachEnd::Ended(code) => {
            // As with `run`, commits have come out of the sandbox when the command returns.
            let progress = Progress::start(ui, format!("the launcher of {} to exit", record.id));
            cleanup::await_end(&host, &record, END_TIMEOUT);
            drop(progress);
            Ok(Outcome::Exited(u8::try_from(code).unwrap_or(u8::MAX)))
        }
        AttachEnd::Detached => {
            ui.notice(&format!("left {0} running; `sandpen attach {0}` comes back", record.id));
            Ok(Outcome::Exited(0))
        }
        AttachEnd::TakenOver => {
            ui.notice(&format!("another terminal has taken {} over", record.id));
            Ok(Outcome::Exited(0))
        }
        AttachEnd::Signal(signal) => Ok(Outcome::Signaled(signal)),
        AttachEnd::Lost => Err(AttachCommandError::Lost(record.id).into()),
    }
}

/// Prints the last screen of a sandbox that has ended, and returns its outcome.
fn show_ended(host: &Host, id: &str, ui: Ui) -> Result<Option<Outcome>> {
    let Some((code, screen)) = cleanup::find_ended(host, id) else { return Ok(None) };
    ui.data(&format!("{}\n", screen.trim_end()))?;
    ui.notice(&format!("{id} has ended with exit code {code}"));
    Ok(Some(Outcome::Exited(code)))
}
