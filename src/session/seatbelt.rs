//! Runs a sandbox of macOS Seatbelt: `sandbox-exec` becomes the guest helper, which starts the command. All of them are one group
//! of processes: it gets the terminal, every signal that is sent to sandpen, and its end.

#![allow(clippy::disallowed_methods, reason = "the session starts sandbox-exec")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::directory::SessionDirectory;
use super::failure;
use super::proxy::Filter;
use super::proxy_process::Opened;
use super::registry::BackgroundSweep;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::launch::{SeatbeltEntry, SeatbeltLaunch};
use crate::path::HostPath;
use crate::plan::HelperConfig;
use crate::plan::{Plan, Secret};
use crate::process::foreground::Foreground;
use crate::process::signals::{Receiver, SignalQueue};
use crate::process::status_file::{LONGEST_REPORT, Report, STATUS};
use crate::process::untrusted;
use crate::process::{Outcome, terminal};
use crate::ui::Ui;

/// How a further command gets in, in the session's directory.
const ENTRY: &str = "entry.json";

/// Runs it to its end.
pub fn run(
    host: &Host,
    plan: &Plan,
    launch: &SeatbeltLaunch,
    directory: &SessionDirectory,
    sweep: &mut BackgroundSweep,
    mut caught: SignalQueue,
    ui: Ui,
) -> Result<Outcome> {
    let mut filter = match Filter::for_shared_network(host, plan, ui, || caught.ending())? {
        Opened::Ready(filter) => filter,
        Opened::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    directory.write_private(&launch.file, &Secret::new(&launch.profile))?;
    // Without it no further command gets in; the sandbox runs all the same.
    if let Ok(entry) = serde_json::to_string(&launch.entry) {
        let _ = directory.write_private(&plan.session_dir.join(ENTRY), &Secret::new(entry));
    }
    let env = launch.env.iter().map(|(name, value)| (name.into(), value.reveal().to_owned()));
    let program = launch.program.as_ref().map(HostPath::as_path);
    let command = command(program, &launch.argv, plan.workdir.as_path(), env)?;
    ui.verbose(&format!("starting: {}", crate::ui::shell::shell_words(&launch.argv)));
    sweep.start();
    let outcome = supervise(command, caught, filter.as_mut())?;
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    let report = untrusted::read(plan.session_dir.join(STATUS).as_path(), LONGEST_REPORT).ok();
    judge(plan, outcome, report.as_deref().and_then(Report::parse), ui)
}

/// Runs a further command behind the same walls: the same profile with the same parameters, and the same environment. Secrets are
/// taken from the caller's, if they are there.
pub fn enter(host: &Host, session: &HostPath, argv: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let caught = SignalQueue::start().map_err(|error| Error::launch("signals cannot be caught").cause(error))?;
    let entry: SeatbeltEntry = fs::read(session.join(ENTRY).as_path())
        .map_err(|error| error.to_string())
        .and_then(|json| serde_json::from_slice(&json).map_err(|error| error.to_string()))
        .map_err(|error| Error::launch("the sandbox has just ended, or cannot be entered").cause(error))?;
    let helper_config = HelperConfig { further: true, launcher: Some(host.process.pid), ..HelperConfig::default() };
    let helper_config = serde_json::to_string(&helper_config).unwrap_or_default();
    let words: Vec<OsString> = entry.argv.iter().cloned().chain([helper_config.into()]).chain(argv).collect();
    let kept = entry.env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let secrets = entry.secrets.iter().filter_map(|name| Some((name.into(), host.env.raw(name)?.to_owned())));
    let command = command(entry.program.as_deref(), &words, &entry.directory, kept.chain(secrets))?;
    ui.verbose(&format!("starting: {}", crate::ui::shell::shell_words(&words)));
    supervise(command, caught, None)
}

fn command(
    program: Option<&Path>,
    argv: &[OsString],
    directory: &Path,
    env: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Command> {
    let program = program.ok_or_else(|| Error::launch("there is no `/usr/bin/sandbox-exec` here"))?;
    let mut command = Command::new(program);
    command.args(argv.iter().skip(1)).current_dir(directory).process_group(0).env_clear().envs(env);
    Ok(command)
}

/// Stays with the group until its first process ends, and ends the rest.
fn supervise(mut command: Command, caught: SignalQueue, filter: Option<&mut Filter>) -> Result<Outcome> {
    // Dropped in reverse order: first the terminal comes back, then its settings.
    let _terminal = terminal::TerminalGuard::remember();
    let mut foreground = Foreground::remember();
    let mut child = command.spawn().map_err(|error| Error::launch("`sandbox-exec` cannot be started").cause(error))?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| Error::launch("sandbox-exec has no process id"))?;
    foreground.expect(group);
    let end = move || {
        let _ = kill_process_group(group, Signal::KILL);
    };
    if let Some(filter) = filter {
        filter.supervise(None, Box::new(end));
    }
    let forwarder = caught.forward_to(Receiver::Group(group), None, end);
    // Not reaped yet, so that the number of the group cannot be another's when it is killed.
    while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
    }
    drop(forwarder);
    end();
    let status = child.wait().map_err(|error| Error::launch("sandbox-exec cannot be waited for").cause(error))?;
    Ok(Outcome::of(status))
}

/// Decides between the guest's own end and a sandbox that did not come about.
fn judge(plan: &Plan, outcome: Outcome, report: Option<Report>, ui: Ui) -> Result<Outcome> {
    match report {
        Some(report @ (Report::NotFound | Report::NotExecutable | Report::WrongArchitecture)) => {
            failure::explain_command(plan, report, ui);
            Ok(outcome)
        }
        Some(Report::Started | Report::Ended(_) | Report::OutOfMemory) => Ok(outcome),
        None if matches!(outcome, Outcome::Signaled(_)) => Ok(outcome),
        None => Err(Error::launch("sandbox-exec could not start the sandbox; its own words are above")
            .hint("`sandpen explain` shows the exact command line and the profile")),
    }
}
