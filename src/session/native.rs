//! Runs a native sandbox: this process is the launcher, a fork of it is the first process inside.

use std::ffi::OsString;

use rustix::process::Signal;

use super::signals::Caught;
use super::{Outcome, failure};
use crate::engine::native::{Command, Event, Group, Init, NativeLaunch, Terminal, launch_error, spawn};
use crate::error::{Error, Result};
use crate::guest;
use crate::plan::Plan;
use crate::ui::Ui;

/// Runs it to its end.
pub fn run(plan: &Plan, launch: &NativeLaunch, caught: Caught, ui: Ui) -> Result<Outcome> {
    let terminal = Terminal::of_caller();
    let mut sandbox = launch.sandbox.clone();
    sandbox.group = Terminal::group(terminal.as_ref());
    let own_group = sandbox.group == Group::Own;
    let had_foreground = terminal.as_ref().is_some_and(Terminal::in_foreground) && own_group;
    // From here until the sandbox stands there is one thread, as a fork demands.
    let spawned = spawn(&sandbox, |init| start(init, launch, own_group, had_foreground));
    let mut child = spawned.map_err(|error| launch_error(&error))?;
    for downgrade in &child.downgrades {
        ui.warn(&format!("{}: {} ({})", downgrade.asked, downgrade.got, downgrade.reason));
    }
    let forwarder = caught.forward_to(child.pid().as_raw_nonzero().get().unsigned_abs());
    let mut not_started = None;
    let code = loop {
        match child.event() {
            Ok(Event::Exited(code)) => break Ok(code),
            Ok(Event::NotStarted(errno)) => not_started = Some(errno),
            Ok(Event::Stopped(_)) if own_group => {
                if let Some(terminal) = &terminal {
                    terminal.suspend(child.guest());
                }
                let _ = child.signal(Signal::CONT);
            }
            // In a shared group the terminal stops, and resumes, everyone alike.
            Ok(Event::Stopped(_)) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => break Err(Error::launch("the sandbox cannot be waited for").cause(error)),
        }
    };
    drop(forwarder);
    drop(child);
    if let Some(terminal) = &terminal {
        terminal.reclaim(had_foreground);
    }
    if let Some(errno) = not_started {
        failure::explain_command(plan, guest::Start::of_exec_error(errno), ui);
    }
    code.map(|code| Outcome::Exited(code as u8))
}

/// The first process inside, behind all walls: finds the command and stays with it.
fn start(init: &Init, launch: &NativeLaunch, own_group: bool, foreground: bool) -> i32 {
    let variable =
        |name: &str| launch.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.reveal().to_owned());
    let ready = guest::Ready::new(&launch.duties, launch.argv.clone(), variable("PATH"), variable("PYTHONPATH"));
    let replaced = [("PATH", Some(&ready.path)), ("PYTHONPATH", ready.python_path.as_ref())];
    let kept =
        launch.env.iter().filter(|(name, _)| !replaced.iter().any(|(other, value)| name == other && value.is_some()));
    let env = kept.map(|(name, value)| (OsString::from(name), value.reveal().to_owned()));
    let added = replaced.iter().filter_map(|(name, value)| Some((OsString::from(name), (*value)?.clone())));
    let Some(mut command) = Command::new(&ready.command, env.chain(added), &ready.path) else { return 126 };
    command.own_group = own_group;
    command.foreground = foreground;
    init.run_guest(&command)
}
