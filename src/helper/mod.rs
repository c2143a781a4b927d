//! What runs inside (hidden subcommand `guest`): the first process of a container. It prepares PATH, relays ports, starts the
//! command, reaps and forwards signals, and ends when the launcher does. It never reads the host.

#![allow(clippy::disallowed_methods, reason = "runs inside the sandbox, where there is no Host")]

mod ready;
mod relay;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

pub use ready::Ready;

use crate::plan::{CONTROL_DIR, Handover, HelperConfig};
use crate::process::cgroup_events::ran_out_of_memory;
use crate::process::lock;
use crate::process::status_file::{Report, STATUS};
use ready::{find, is_elf};
use relay::relay;

/// Where a container sees its own control group of version 2, or that of version 1 for memory.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// The helper's `main`: the arguments after `guest`.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let helper_config = arguments.next().and_then(|json| serde_json::from_str::<HelperConfig>(json.to_str()?).ok());
    let Some(helper_config) = helper_config else { return ExitCode::from(2) };
    match run(&helper_config, arguments.collect()) {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            report(&helper_config, failed);
            ExitCode::from(failed.exit_code())
        }
    }
}

fn report(helper_config: &HelperConfig, report: Report) {
    if helper_config.further {
        return;
    }
    // A pen that cannot be written costs a good explanation, not the run.
    let control_dir = helper_config.control_dir.as_deref().unwrap_or(CONTROL_DIR);
    let _ = fs::write(Path::new(control_dir).join(STATUS), report.text());
}

fn run(helper_config: &HelperConfig, command: Vec<OsString>) -> Result<u8, Report> {
    // Nothing inside may look into or attach to this process, which holds the walls' only watch.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    confine();
    if helper_config.owner {
        lock::exit_with_owner(Path::new(CONTROL_DIR));
    }
    if let Some(launcher) = helper_config.launcher {
        watch_parent(launcher);
        let [input, output] = [rustix::stdio::stdin(), rustix::stdio::stdout()];
        if rustix::termios::isatty(input) && rustix::termios::isatty(output) {
            take_terminal();
        }
    }
    for forward in &helper_config.forward {
        relay(*forward);
    }
    #[cfg(target_os = "linux")]
    let _proxy = helper_config.handover.as_ref().map(hand_over);
    let Ready { command, path, python_path } =
        Ready::new(helper_config, command, std::env::var_os("PATH"), std::env::var_os("PYTHONPATH"));
    let (name, arguments) = command.split_first().ok_or(Report::NotFound)?;
    let program = find(name, &path)?;
    // Registered before the child exists, so that no signal and no death is missed.
    let mut caught = vec![SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT];
    if helper_config.launcher.is_some() {
        // In one group with the command, what stops it would stop the one who resumes it.
        caught.extend([SIGTSTP, SIGTTIN, SIGTTOU]);
    }
    let mut signals = signal_hook::iterator::Signals::new(caught).map_err(|_| Report::NotExecutable)?;
    let spawn = |program: &Path, name: &OsStr, arguments: &[OsString]| {
        let mut child = Command::new(program);
        child.arg0(name).args(arguments).env("PATH", &path);
        if helper_config.launcher.is_none() {
            child.process_group(0);
        }
        if let Some(python_path) = &python_path {
            child.env("PYTHONPATH", python_path);
        }
        child.spawn()
    };
    let child = match spawn(&program, name, arguments) {
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            if is_elf(&program) {
                return Err(Report::WrongArchitecture);
            }
            // A script without `#!`: shells run it with sh, and so does execvp.
            let with_script: Vec<OsString> =
                std::iter::once(program.into_os_string()).chain(arguments.iter().cloned()).collect();
            spawn(Path::new("/bin/sh"), OsStr::new("sh"), &with_script).map_err(|_| Report::NotExecutable)?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Report::NotFound),
        Err(_) => return Err(Report::NotExecutable),
        Ok(child) => child,
    };
    report(helper_config, Report::Started);
    let Some(child) = Pid::from_raw(child.id() as i32) else { return Err(Report::NotExecutable) };
    if helper_config.launcher.is_none() {
        // Ctrl-C and Ctrl-\ then reach the command's own group, as they would outside.
        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), child);
    }
    let code = supervise(child, helper_config.launcher.is_some(), &mut signals);
    let ran_out = GROUPS.iter().any(|group| ran_out_of_memory(Path::new(group)));
    report(helper_config, if ran_out { Report::OutOfMemory } else { Report::Ended(code) });
    Ok(code)
}

/// The native engine's filter on top of the container's own: engines let through what they differ in (new user namespaces,
/// keyrings, io_uring). Every thread and process from here on has it.
fn confine() {
    #[cfg(target_os = "linux")]
    if let Err(errno) = crate::native::confine_container() {
        // Fails closed: a guest that was promised this wall does not run without it.
        let words = format!("sandpen: the system call filter cannot be installed: {errno}\n");
        let _ = io::Write::write_all(&mut io::stderr(), words.as_bytes());
        std::process::exit(126);
    }
}

#[cfg(target_os = "linux")]
/// Binds the proxy's port and gives it away; the connection stays open for as long as this process lives.
fn hand_over(handover: &Handover) -> std::os::unix::net::UnixStream {
    crate::proxy::offer(Path::new(&handover.directory), crate::proxy::PROXY_PORT).unwrap_or_else(|error| {
        // Without it nothing would be reached, and nobody would know why.
        let words = format!("sandpen: the proxy cannot be reached from inside: {error}\n");
        let _ = io::Write::write_all(&mut io::stderr(), words.as_bytes());
        std::process::exit(126);
    })
}

/// Forwards signals to the command and reaps whatever dies, until the command itself has.
fn supervise(child: Pid, one_group: bool, signals: &mut signal_hook::iterator::Signals) -> u8 {
    for signal in signals.forever() {
        if signal != SIGCHLD {
            if let (Some(signal), false) = (Signal::from_named_raw(signal), one_group) {
                let _ = rustix::process::kill_process(child, signal);
            }
            continue;
        }
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid != child {
                continue;
            }
            if status.stopped() {
                // Nobody outside could resume it: the engine's client does not know that it stopped (Ctrl-Z).
                thread::sleep(Duration::from_millis(20));
                if one_group {
                    resume(status.stopping_signal());
                    continue;
                }
                let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), child);
                let _ = rustix::process::kill_process_group(child, Signal::CONT);
            } else if let Some(signal) = status.terminating_signal() {
                return 128 + signal as u8;
            } else {
                return status.exit_status().unwrap_or(1) as u8;
            }
        }
    }
    1
}

/// Where no lock can be watched and no kernel ends the guest with its launcher: the parent is looked at, again and again.
fn watch_parent(launcher: u32) {
    let is_there = move || {
        rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get().unsigned_abs() == launcher)
    };
    thread::spawn(move || {
        while is_there() {
            thread::sleep(Duration::from_millis(100));
        }
        let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), Signal::KILL);
    });
}

/// Becomes the terminal's foreground if the launcher is: the command's group is this one.
fn take_terminal() -> bool {
    let launcher = rustix::process::getppid().and_then(|parent| rustix::process::getpgid(Some(parent)).ok());
    let takes = launcher.is_some() && rustix::termios::tcgetpgrp(rustix::stdio::stdin()).ok() == launcher;
    if takes {
        crate::process::foreground::give_terminal_to(rustix::process::getpgrp());
    }
    takes
}

/// Nobody outside could resume a command that was stopped. One that wants to read gets the terminal, as soon as it can be had: in a
/// pipeline it is left to the others at first, and in the background it is the shell's.
fn resume(stopped_by: Option<i32>) {
    let wants_terminal = matches!(stopped_by, Some(SIGTTIN | SIGTTOU));
    if wants_terminal && !take_terminal() {
        thread::sleep(Duration::from_millis(200));
    }
    let _ = rustix::process::kill_process_group(rustix::process::getpgrp(), Signal::CONT);
}
