//! Runs a native sandbox: this process is the launcher, a fork of it is the first process inside.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;

use super::failure;
use super::proxy::Filter;
use super::proxy_process::Opened;
use super::registry::{BackgroundSweep, Record};
use crate::error::{Error, Result};
use crate::helper::Ready;
use crate::host::Host;
use crate::launch::native::NativeLaunch;
use crate::launch::native::step::{Group, NativeEntry};
use crate::native::{Child, Command, Event, Init, Terminal, enter as enter_sandbox, spawn};
use crate::plan::HelperConfig;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::process::release_pages;
use crate::process::signals::{self, Receiver, SignalQueue};
use crate::process::status_file::Report;
use crate::ui::Ui;

/// How the guest stands to the caller's terminal.
struct TerminalControl {
    terminal: Option<Terminal>,
    group: Group,
    had_foreground: bool,
}

impl TerminalControl {
    fn take() -> Self {
        let terminal = Terminal::of_caller();
        let group = Terminal::group(terminal.as_ref());
        let had_foreground = terminal.as_ref().is_some_and(Terminal::in_foreground) && group == Group::Own;
        TerminalControl { terminal, group, had_foreground }
    }

    fn start(&self, init: &Init, mut command: Command) -> i32 {
        command.own_group = self.group == Group::Own;
        command.foreground = self.had_foreground;
        init.run_guest(&command)
    }

    /// Stays with the sandbox until its end: its code, and what there is to report beyond it.
    fn supervise(&self, mut child: Child, caught: SignalQueue) -> Result<(Outcome, Option<Report>)> {
        let pid = child.pid();
        let kill = move || {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        };
        let receiver = Receiver::Process(pid.as_raw_nonzero().get().unsigned_abs());
        // In this thread: starting another takes longer than many a command.
        let mut courier = caught.courier(receiver, None, kill);
        let mut rest = Some(Instant::now() + release_pages::MIN_GUEST_TIME);
        let mut report = None;
        let code = loop {
            let mut ready = [child.poll(), courier.poll()];
            signals::wait(&mut ready, courier.deadline().into_iter().chain(rest).min());
            let is_event = !ready[0].revents().is_empty();
            courier.deliver();
            if rest.is_some_and(|rest| rest <= Instant::now()) {
                release_pages::release_code_pages();
                rest = None;
            }
            if !is_event {
                continue;
            }
            match child.event() {
                Ok(Event::Exited(code)) => break Ok(code),
                Ok(Event::NotStarted(errno)) => report = Some(Report::of_exec_error(errno)),
                Ok(Event::Stopped(_)) if self.group == Group::Own => {
                    if let Some(terminal) = &self.terminal {
                        terminal.suspend(child.guest());
                    }
                    let _ = child.signal(Signal::CONT);
                }
                // In a shared group the terminal stops, and resumes, everyone alike.
                Ok(Event::Stopped(_)) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => break Err(Error::launch("the sandbox cannot be waited for").cause(error)),
            }
        };
        if child.ran_out_of_memory() {
            report = Some(Report::OutOfMemory);
        }
        child.detach();
        if let Some(terminal) = &self.terminal {
            terminal.reclaim(self.had_foreground);
        }
        code.map(|code| (Outcome::Exited(code as u8), report))
    }
}

/// Runs it to its end. `note` is called before anything of the guest's runs.
pub fn run(
    host: &Host,
    plan: &Plan,
    launch: &NativeLaunch,
    sweep: &mut BackgroundSweep,
    mut caught: SignalQueue,
    note: impl FnOnce() -> Result<()>,
    ui: Ui,
) -> Result<Outcome> {
    let filter = match Filter::for_native(host, plan, ui, || caught.ending())? {
        Opened::Ready(filter) => filter,
        Opened::Interrupted(signal) => return Ok(Outcome::Signaled(signal)),
    };
    let seat = TerminalControl::take();
    let mut setup = launch.setup.clone();
    setup.group = seat.group;
    // Until pid 1 is there, this process has one thread, as a fork demands.
    let making = spawn(&setup, |init| match command(launch) {
        Some(command) => seat.start(init, command),
        None => 126,
    })?;
    // While pid 1 is busy with its mounts; it goes on to the guest only when it is told to.
    note()?;
    sweep.sweep_if_needed();
    let mut child = making.finish()?;
    let filter = filter.map(|mut filter| {
        let pid = child.pid();
        let kill = move || {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        };
        filter.supervise(child.listener.take(), Box::new(kill));
        filter
    });
    for downgrade in &child.downgrades {
        ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
    }
    let (outcome, report) = seat.supervise(child, caught)?;
    match report {
        Some(Report::OutOfMemory) => failure::explain_memory(plan, outcome, ui),
        Some(report) => failure::explain_command(plan, report, ui),
        None => {}
    }
    filter.map_or(Ok(()), |filter| filter.close(ui))?;
    Ok(outcome)
}

/// Runs a further command in a running sandbox, with the environment of its first one.
pub fn enter(record: &Record, argv: Vec<OsString>, ui: Ui) -> Result<Outcome> {
    let caught = SignalQueue::start().map_err(|error| Error::launch("signals cannot be caught").cause(error))?;
    let seat = TerminalControl::take();
    let environment = first_environment(record.owner.pid).ok_or_else(|| {
        Error::launch(format!("the sandbox `{}` has just ended, or its environment cannot be read", record.id))
    })?;
    let entry = NativeEntry { cwd: PathBuf::from(&record.directory), group: seat.group, pids: record.pids };
    let child = enter_sandbox(record.owner.pid, &entry, |init| {
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let ready = Ready::new(&HelperConfig::default(), argv.clone(), path, None);
        match Command::new(&ready.command, environment.iter().map(|(name, value)| (name, value)), &ready.path) {
            Some(command) => seat.start(init, command),
            None => 126,
        }
    })?;
    let (outcome, not_started) = seat.supervise(child, caught)?;
    if not_started.is_some() {
        let name = argv.first().map_or("sh".into(), |name| name.display().to_string());
        ui.notice(&format!("`{name}` was not found in the sandbox, or cannot be executed there"));
    }
    Ok(outcome)
}

/// The environment of the sandbox's first command: the launcher's child is pid 1 inside, whose first child is the command.
fn first_environment(launcher: u32) -> Option<Vec<(OsString, OsString)>> {
    let first_child = |pid: u32| -> Option<u32> {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    };
    let environ = std::fs::read(format!("/proc/{}/environ", first_child(first_child(launcher)?)?)).ok()?;
    let pairs = environ.split(|byte| *byte == 0).filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&entry[..at]).to_owned(), OsStr::from_bytes(&entry[at + 1..]).to_owned()))
    });
    Some(pairs.collect())
}

/// The command with exactly its environment. Looks for shells, so it is called inside.
fn command(launch: &NativeLaunch) -> Option<Command> {
    let variable =
        |name: &str| launch.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.reveal().to_owned());
    let ready = Ready::new(&launch.helper_config, launch.argv.clone(), variable("PATH"), variable("PYTHONPATH"));
    let replaced = [("PATH", Some(&ready.path)), ("PYTHONPATH", ready.python_path.as_ref())];
    let kept =
        launch.env.iter().filter(|(name, _)| !replaced.iter().any(|(other, value)| name == other && value.is_some()));
    let env = kept.map(|(name, value)| (OsString::from(name), value.reveal().to_owned()));
    let added = replaced.iter().filter_map(|(name, value)| Some((OsString::from(name), (*value)?.clone())));
    Command::new(&ready.command, env.chain(added), &ready.path)
}
