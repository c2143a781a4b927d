//! `sandpen exec`: runs another command in a running sandbox, with the restrictions of the first one.
//! It ends with all that it started, unless it is detached.

use std::ffi::OsString;

use crate::config::value::EngineKind;
use crate::error::{Diagnostic, Kind, Result};
use crate::facts;
use crate::host::Host;
use crate::plan::HelperConfig;
use crate::process::Outcome;
use crate::session::{self, ContainerCommand, cleanup};
use crate::ui::Ui;

#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("`exec --detach` does not work with the engine sandbox-exec")]
    DetachSeatbelt,
}

impl Diagnostic for ExecError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }
}

pub fn run(id: &str, detach: bool, command: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let host = Host::read()?;
    cleanup::sweep(&host, ui);
    let record = cleanup::find_running(&host, id)?;
    #[cfg(target_os = "linux")]
    if record.engine == EngineKind::Native.name() {
        let enter = if detach { session::leave_in_native } else { session::enter_native };
        return enter(&record, command, ui);
    }
    if record.engine == EngineKind::SandboxExec.name() {
        if detach {
            return Err(ExecError::DetachSeatbelt.into());
        }
        return session::enter_seatbelt(&host, &facts::session_base(&host).join(&record.id), command, ui);
    }
    if record.engine == EngineKind::Kubernetes.name() {
        return session::exec_in_pod(&host, &record, &command, detach);
    }
    if record.is_elsewhere() {
        return session::exec_elsewhere(&host, &record, &command, detach);
    }
    let mut prepared = ContainerCommand::new(&host, &record)?;
    prepared.has_terminal = host.terminal.stdin && host.terminal.stdout && !detach;
    if record.has_helper {
        // The helper installs the same seccomp filter as for the first command.
        let client = prepared.client_byte().filter(|_| !detach);
        let append_path = record.append_path.clone();
        prepared.helper = Some(HelperConfig {
            exec: true,
            client,
            detach,
            append_path,
            nested: record.nested,
            ..HelperConfig::default()
        });
        prepared.command = command;
    } else {
        prepared.is_detached = detach;
        prepared.command = if command.is_empty() { vec!["sh".into()] } else { command };
    }
    prepared.run()
}
