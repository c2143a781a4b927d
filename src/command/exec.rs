//! `sandpen exec`: runs another command in a running sandbox, with the restrictions of the first one.

use std::ffi::OsString;

use crate::config::value::EngineKind;
use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::Outcome;
use crate::session::registry::Record;
use crate::session::{self, cleanup};
use crate::ui::Ui;

pub fn run(id: &str, command: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let host = Host::read()?;
    cleanup::sweep(&host, ui);
    let record = cleanup::find_running(&host, id)?;
    #[cfg(target_os = "linux")]
    if record.engine == EngineKind::Native.name() {
        return session::enter_native(&record, command, ui);
    }
    if record.engine == EngineKind::SandboxExec.name() {
        return session::enter_seatbelt(&host, &facts::session_base(&host).join(&record.id), command, ui);
    }
    let argv = container_argv(&host, &record, command);
    session::attach(&record.client(&facts::host_path(&host)), &argv)
}

fn container_argv(host: &Host, record: &Record, command: Vec<OsString>) -> Vec<OsString> {
    let mut argv: Vec<OsString> = vec![record.engine.clone().into(), "exec".into(), "--interactive".into()];
    if host.terminal.stdin && host.terminal.stdout {
        argv.push("--tty".into());
    }
    argv.extend(["--workdir".into(), record.directory.clone().into()]);
    if let Some((uid, gid)) = record.user {
        argv.extend(["--user".into(), format!("{uid}:{gid}").into()]);
    }
    argv.push(record.name.clone().into());
    if record.has_helper {
        // The helper installs the same seccomp filter as for the first command.
        let config = HelperConfig { exec: true, append_path: record.append_path.clone(), ..HelperConfig::default() };
        let json = serde_json::to_string(&config).unwrap_or_default();
        argv.extend([format!("{CONTROL_DIR}/sandpen").into(), "guest".into(), json.into()]);
        argv.extend(command);
    } else {
        argv.extend(if command.is_empty() { vec!["sh".into()] } else { command });
    }
    argv
}
