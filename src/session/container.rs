//! Runs a container through its engine's client.

#![allow(clippy::disallowed_methods, reason = "the session starts the engine's client")]

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use super::directory::SessionDirectory;
use super::proxy::Filter;
use super::proxy_process::Opened as Filtering;
use super::registry::BackgroundSweep;
use super::tunnel::{Opened, Tunnel};
use super::{failure, registry};
use crate::error::{Error, Result};
use crate::facts::engines::checkup::CHECKUP_TIMEOUT;
use crate::facts::engines::machine::HOST_SERVICE;
use crate::facts::image::{self, Inspection};
use crate::host::Host;
use crate::launch::ContainerLaunch;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::process::signals::{Receiver, SignalQueue};
use crate::process::status_file::{LONGEST_REPORT, Report, STATUS};
use crate::process::untrusted;
use crate::process::{Client, Outcome, terminal};
use crate::ui::Ui;
use crate::ui::progress::Progress;
use crate::vars;

/// Runs it to its end.
pub fn run(
    host: &Host,
    plan: &Plan,
    launch: &ContainerLaunch,
    directory: &SessionDirectory,
    sweep: &mut BackgroundSweep,
    mut caught: SignalQueue,
    ui: Ui,
) -> Result<Outcome> {
    for (path, content) in &launch.files {
        directory.write_private(path, content)?;
    }
    // Opened before anything else, closed after the container has ended (guards drop in reverse order).
    let _tunnel = match launch.tunnel.as_ref().map(|tunnel| Tunnel::open(tunnel, ui, || caught.ending())).transpose()? {
        Some(Opened::Ready(tunnel)) => Some(tunnel),
        Some(Opened::Interrupted(signal)) => return Ok(Outcome::Signaled(signal)),
        None => None,
    };
    let engine = launch.client.clone();
    let engine_command = move |argv: &[OsString]| client(&engine, argv);
    let interrupted = || caught.ending();
    let filter = match Filter::for_container(plan, launch.sidecar.as_ref(), engine_command, ui, interrupted)? {
        Filtering::Ready(filter) => filter,
        Filtering::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    let _terminal = terminal::TerminalGuard::remember();
    let mut container = ContainerGuard { launch, name: plan.id.name(), armed: true };
    let mut command = client(&launch.client, &launch.argv)?;
    for (name, value) in &launch.inherited {
        command.env(name, value.reveal());
    }
    ui.verbose(&format!("starting: {}", crate::ui::shell::shell_words(&launch.argv)));
    let mut child = command.spawn().map_err(|error| failure::client_missing(plan, &error))?;
    sweep.start();
    let report = plan.helper.as_ref().map(|_| plan.session_dir.join(STATUS));
    let waiting = report.clone().map(|report| until_started(plan, launch, report, ui));
    let (engine, end) = (launch.client.clone(), launch.end.clone());
    let filter = filter.map(|mut filter| {
        let (engine, end) = (engine.clone(), end.clone());
        filter.supervise(None, Box::new(move || end_container(&engine, &end)));
        filter
    });
    let forwarder = caught.forward_to(Receiver::Process(child.id()), report, move || end_container(&engine, &end));
    let status =
        child.wait().map_err(|error| Error::launch("the engine's client cannot be waited for").cause(error))?;
    drop((forwarder, waiting));
    let outcome = Outcome::of(status);
    let report = plan.helper.as_ref().and_then(|_| {
        let report = untrusted::read(plan.session_dir.join(STATUS).as_path(), LONGEST_REPORT).ok()?;
        Report::parse(&report)
    });
    // A client that exited has removed its container (`--rm`). One that was killed has not, nor one that left before the guest.
    // One that a signal made exit before the guest had started leaves it made and not started.
    let is_unfinished = match report {
        Some(report) => report == Report::Started,
        None => plan.helper.is_some() && outcome != Outcome::Exited(0),
    };
    container.armed = matches!(outcome, Outcome::Signaled(_)) || is_unfinished;
    drop(container);
    let judged = failure::judge(host, plan, launch, outcome, report, ui);
    if judged.is_err() && plan.keep.is_some() {
        // What never ran is not worth keeping, and the client leaves it without `--rm`.
        end_container(&launch.client, &launch.remove);
    }
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    judged
}

/// Says that the engine is waited for, unless the command runs, or the engine itself shows how it pulls the image.
fn until_started(plan: &Plan, launch: &ContainerLaunch, report: HostPath, ui: Ui) -> Progress {
    let (client, image) = (launch.client.clone(), plan.image.as_ref().map(|image| image.reference.clone()));
    Progress::beside(ui, format!("{} to start the sandbox", plan.engine.kind.name()), move || {
        let starts = || std::fs::metadata(report.as_path()).is_ok_and(|meta| meta.len() == 0);
        let pulls = |image| matches!(image::inspect_within(&client, image, CHECKUP_TIMEOUT), Inspection::Missing);
        starts() && !image.as_ref().is_some_and(pulls) && starts()
    })
}

/// Runs an engine command to its end with this process's own streams, for `exec`.
pub fn attach(engine: &Client, argv: &[OsString]) -> Result<Outcome> {
    let _terminal = terminal::TerminalGuard::remember();
    let status = client(engine, argv)?.status();
    status.map(Outcome::of).map_err(|error| Error::launch("the engine cannot be started").cause(error))
}

/// Runs an engine command to its end where the user can watch, for `build` and `pull`. All it says goes to stderr: stdout belongs
/// to the guest.
pub fn run_engine(engine: &Client, argv: &[OsString]) -> Result<Outcome> {
    let watched = std::io::stderr().as_fd().try_clone_to_owned();
    let stdout = watched.map_or_else(|_| Stdio::null(), Stdio::from);
    let status = client(engine, argv)?.stdin(Stdio::null()).stdout(stdout).status();
    status.map(Outcome::of).map_err(|error| Error::launch("the engine cannot be started").cause(error))
}

/// R6.1's second check: whether the machine keeps an agent's socket that the guest can use. Starts a container of the sandbox's own
/// image, as the guest's user.
pub fn host_service_is_there(launch: &ContainerLaunch, plan: &Plan) -> bool {
    let Some(image) = &plan.image else { return false };
    let mut argv: Vec<OsString> = ["docker", "run", "--rm", "--network", "none"].map(OsString::from).into();
    // Without capabilities, as the guest: root inside may not write where permissions forbid it.
    argv.extend(["--cap-drop", "ALL", "--security-opt", "no-new-privileges"].map(OsString::from));
    // A bind of a missing source is an error, where --volume would make a directory in the machine.
    argv.extend(["--mount".into(), format!("type=bind,source={HOST_SERVICE},target=/probe").into()]);
    argv.extend(["--env".into(), format!("{}=1", vars::GIT_DISCOVERY).into()]);
    if let (Some(uid), Some(gid), true) = (plan.user.uid, plan.user.gid, plan.user.is_host_user()) {
        argv.extend(["--user".into(), format!("{uid}:{gid}").into()]);
    }
    argv.extend(
        ["--group-add", "0", "--entrypoint", "test", image.reference.as_str(), "-S", "/probe", "-a", "-w", "/probe"]
            .map(OsString::from),
    );
    let probe = client(&launch.client, &argv)
        .map(|mut command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status());
    matches!(probe, Ok(Ok(status)) if status.success())
}

/// The engine's client: its own program, and a PATH without mounted directories.
fn client(engine: &Client, argv: &[OsString]) -> Result<Command> {
    let program = engine.program.as_ref().ok_or_else(|| Error::launch("the engine's program is not on PATH"))?;
    let mut command = Command::new(program.as_path());
    command.args(argv.iter().skip(1)).env("PATH", &engine.path);
    Ok(command)
}

/// Ends a container, and removes it unless it is kept, without a word.
fn end_container(engine: &Client, argv: &[OsString]) {
    if let Ok(mut command) = client(engine, argv) {
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Ends the container when its client could not.
struct ContainerGuard<'a> {
    launch: &'a ContainerLaunch,
    name: String,
    armed: bool,
}

impl Drop for ContainerGuard<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        registry::until_settled(&self.name, || end_container(&self.launch.client, &self.launch.end));
    }
}
