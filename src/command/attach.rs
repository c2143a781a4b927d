//! `sandpen attach`: shows the terminal of a detached sandbox, or the last screen of one that has
//! ended.

use crate::error::{Diagnostic, Kind, Result};
use crate::facts;
use crate::gate::attach::{AttachEnd, AttachOptions, DetachKeys, attach};
use crate::host::Host;
use crate::process::Outcome;
use crate::session::{cleanup, socket_of};
use crate::ui::Ui;

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
    if let Some((code, screen)) = cleanup::find_ended(&host, id) {
        ui.data(&format!("{}\n", screen.trim_end()))?;
        ui.notice(&format!("{id} has ended with exit code {code}"));
        return Ok(Outcome::Exited(code));
    }
    let record = cleanup::find_running(&host, id)?;
    if !record.detached {
        return Err(AttachCommandError::NotDetached(record.id).into());
    }
    let socket = socket_of(&facts::session_base(&host).join(&record.id));
    match attach(socket.as_path(), AttachOptions { read_only, detach_keys })? {
        AttachEnd::Ended(code) => Ok(Outcome::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
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
