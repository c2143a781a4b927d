//! What runs inside (hidden subcommand `guest`): the first process of a container. It prepares PATH, relays ports, starts the
//! command, reaps and forwards signals, and ends when the launcher does. It never reads the host.

#![allow(clippy::disallowed_methods, reason = "runs inside the sandbox, where there is no Host")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
};

use crate::cgroup_events::ran_out_of_memory;
use crate::plan::PEN;

/// What the helper is told, as JSON in its first argument; the rest is the command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duties {
    /// Directories of the workspace that were on the host's PATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_path: Vec<String>,
    /// The same for PYTHONPATH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub append_python_path: Vec<String>,
    /// Published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forward: Vec<Forward>,
    /// A shell file read before the command starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<String>,
    /// Whether this is a further command in a running sandbox, which reports nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub further: bool,
    /// Where the proxy's port is handed over, when the network is filtered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// Whether the launcher's lock can be watched.
    #[serde(default)]
    pub owner: bool,
    /// Where the pen is, if not at its usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pen: Option<String>,
    /// The launcher, where it is the parent of this process (Seatbelt): helper and command are one group of processes, which
    /// signals reach without the helper's doing, and which ends when the launcher does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<u32>,
}

/// The way of the proxy's port out of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The directory that holds the socket.
    pub directory: String,
}

/// One published port: what arrives at `listen` goes to `port` on the guest's loopback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// Where the engine delivers.
    pub listen: u16,
    /// Where the guest listens.
    pub port: u16,
}

/// How far the command got; the launcher reads it from the session directory. Anything else in that file is no report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It runs.
    Started,
    /// It ran, and the helper saw its end.
    Ended,
    /// The same, and the kernel killed something inside for want of memory.
    OutOfMemory,
    /// There is no such command.
    NotFound,
    /// It is there, and cannot be executed.
    NotExecutable,
    /// It is a program for another kind of machine.
    WrongArchitecture,
}

impl Report {
    const ALL: [Report; 6] = [
        Report::Started,
        Report::Ended,
        Report::OutOfMemory,
        Report::NotFound,
        Report::NotExecutable,
        Report::WrongArchitecture,
    ];

    fn word(self) -> &'static str {
        match self {
            Report::Started => "started",
            Report::Ended => "ended",
            Report::OutOfMemory => "out-of-memory",
            Report::NotFound => "not-found",
            Report::NotExecutable => "not-executable",
            Report::WrongArchitecture => "wrong-architecture",
        }
    }

    /// Reads a report.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|report| report.word() == text.trim())
    }

    /// What an error of `exec` means.
    #[cfg(target_os = "linux")]
    pub fn of_exec_error(errno: i32) -> Self {
        match errno {
            libc::ENOENT | libc::ENOTDIR => Report::NotFound,
            _ => Report::NotExecutable,
        }
    }

    fn exit_code(self) -> u8 {
        match self {
            Report::Started | Report::Ended | Report::OutOfMemory => 0,
            Report::NotFound => 127,
            Report::NotExecutable | Report::WrongArchitecture => 126,
        }
    }
}

/// Where the report is written, below the pen.
pub const STATUS: &str = "status";

/// Where a container sees its own control group of version 2, or that of version 1 for memory.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// A report is one word.
pub const LONGEST_REPORT: u64 = 64;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The helper's `main`: the arguments after `guest`.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let duties = arguments.next().and_then(|json| serde_json::from_str::<Duties>(json.to_str()?).ok());
    let Some(duties) = duties else { return ExitCode::from(2) };
    match run(&duties, arguments.collect()) {
        Ok(code) => ExitCode::from(code),
        Err(failed) => {
            report(&duties, failed);
            ExitCode::from(failed.exit_code())
        }
    }
}

fn report(duties: &Duties, report: Report) {
    if duties.further {
        return;
    }
    // A pen that cannot be written costs a good explanation, not the run.
    let pen = duties.pen.as_deref().unwrap_or(PEN);
    let _ = fs::write(Path::new(pen).join(STATUS), report.word());
}

fn run(duties: &Duties, command: Vec<OsString>) -> Result<u8, Report> {
    // Nothing inside may look into or attach to this process, which holds the walls' only watch.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    confine();
    if duties.owner {
        watch_owner();
    }
    if let Some(launcher) = duties.launcher {
        watch_parent(launcher);
        let [input, output] = [rustix::stdio::stdin(), rustix::stdio::stdout()];
        if rustix::termios::isatty(input) && rustix::termios::isatty(output) {
            take_terminal();
        }
    }
    for forward in &duties.forward {
        relay(*forward);
    }
    #[cfg(target_os = "linux")]
    let _proxy = duties.handover.as_ref().map(hand_over);
    let Ready { command, path, python_path } =
        Ready::new(duties, command, std::env::var_os("PATH"), std::env::var_os("PYTHONPATH"));
    let (name, arguments) = command.split_first().ok_or(Report::NotFound)?;
    let program = find(name, &path)?;
    // Registered before the child exists, so that no signal and no death is missed.
    let mut caught = vec![SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT];
    if duties.launcher.is_some() {
        // In one group with the command, what stops it would stop the one who resumes it.
        caught.extend([SIGTSTP, SIGTTIN, SIGTTOU]);
    }
    let mut signals = signal_hook::iterator::Signals::new(caught).map_err(|_| Report::NotExecutable)?;
    let spawn = |program: &Path, name: &OsStr, arguments: &[OsString]| {
        let mut child = Command::new(program);
        child.arg0(name).args(arguments).env("PATH", &path);
        if duties.launcher.is_none() {
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
    report(duties, Report::Started);
    let Some(child) = Pid::from_raw(child.id() as i32) else { return Err(Report::NotExecutable) };
    if duties.launcher.is_none() {
        // Ctrl-C and Ctrl-\ then reach the command's own group, as they would outside.
        let _ = rustix::termios::tcsetpgrp(rustix::stdio::stdin(), child);
    }
    let code = supervise(child, duties.launcher.is_some(), &mut signals);
    let ran_out = GROUPS.iter().any(|group| ran_out_of_memory(Path::new(group)));
    report(duties, if ran_out { Report::OutOfMemory } else { Report::Ended });
    Ok(code)
}

/// The native engine's filter on top of the container's own: engines let through what they differ in (new user namespaces,
/// keyrings, io_uring). Every thread and process from here on has it.
fn confine() {
    #[cfg(target_os = "linux")]
    if let Err(errno) = crate::engine::native::confine_container() {
        // Fails closed: a guest that was promised this wall does not run without it.
        let words = format!("sandpen: the system call filter cannot be installed: {errno}\n");
        let _ = io::Write::write_all(&mut io::stderr(), words.as_bytes());
        std::process::exit(126);
    }
}

#[cfg(target_os = "linux")]
/// Binds the proxy's port and gives it away; the connection stays open for as long as this process lives.
fn hand_over(handover: &Handover) -> std::os::unix::net::UnixStream {
    crate::proxy::offer(Path::new(&handover.directory), crate::plan::PROXY_PORT).unwrap_or_else(|error| {
        // Without it nothing would be reached, and nobody would know why.
        let words = format!("sandpen: the proxy cannot be reached from inside: {error}\n");
        let _ = io::Write::write_all(&mut io::stderr(), words.as_bytes());
        std::process::exit(126);
    })
}

/// The command as it is executed, after the duties that change it.
pub struct Ready {
    /// The command: a shell if none was named, wrapped if a file is read first.
    pub command: Vec<OsString>,
    /// PATH, with the workspace's directories at its end.
    pub path: OsString,
    /// PYTHONPATH likewise; `None` when it is neither set nor added to.
    pub python_path: Option<OsString>,
}

impl Ready {
    /// Applies the duties. Looks for shells, so it must be called inside.
    pub fn new(duties: &Duties, command: Vec<OsString>, path: Option<OsString>, python_path: Option<OsString>) -> Self {
        let path = append(path.unwrap_or_else(|| DEFAULT_PATH.into()), &duties.append_path);
        let python_path = append(python_path.unwrap_or_default(), &duties.append_python_path);
        let command = if command.is_empty() { vec![shell(&path)] } else { command };
        let command = match &duties.startup {
            Some(file) => with_startup(file, &path, command),
            None => command,
        };
        Ready { command, path, python_path: Some(python_path).filter(|value| !value.is_empty()) }
    }
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

/// Appends directories to a PATH-like value.
fn append(value: OsString, directories: &[String]) -> OsString {
    let mut value = value;
    for directory in directories {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(directory);
    }
    value
}

fn shell(path: &OsStr) -> OsString {
    ["bash", "sh"].into_iter().find(|name| find(OsStr::new(name), path).is_ok()).unwrap_or("sh").into()
}

/// Reads the file in a shell, then becomes the command. The text is fixed; the file and the command are its arguments.
fn with_startup(file: &str, path: &OsStr, command: Vec<OsString>) -> Vec<OsString> {
    let script = r#". "$0"; exec "$@""#;
    [shell(path), "-c".into(), script.into(), file.into()].into_iter().chain(command).collect()
}

/// Looks a command up as `execvp` does.
fn find(name: &OsStr, path: &OsStr) -> Result<PathBuf, Report> {
    let candidates: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(name)]
    } else {
        std::env::split_paths(path).map(|directory| directory.join(name)).collect()
    };
    let mut answer = Report::NotFound;
    for candidate in candidates {
        match candidate.metadata() {
            Ok(meta) if meta.is_file() && meta.permissions().mode() & 0o111 != 0 => return Ok(candidate),
            Ok(_) => answer = Report::NotExecutable,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => answer = Report::NotExecutable,
            Err(_) => {}
        }
    }
    Err(answer)
}

fn is_elf(program: &Path) -> bool {
    let mut magic = [0; 4];
    fs::File::open(program).and_then(|mut file| io::Read::read_exact(&mut file, &mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// The launcher holds a write lock on a file that the guest can only read. A read lock is granted the moment the launcher is
/// gone, however it went; the guest has no way to hold it off.
pub fn watch_owner() {
    let Ok(lock) = fs::File::open(Path::new(PEN).join("owner")) else { return };
    thread::spawn(move || {
        if crate::session::lock::wait_for_release(&lock).is_ok() {
            // As the first process, this takes every other one inside along.
            std::process::exit(137);
        }
    });
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
        crate::session::foreground::give_terminal_to(rustix::process::getpgrp());
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

fn relay(forward: Forward) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", forward.listen)) else { return };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                // Servers listen on one of the two loopbacks, or on all addresses.
                let server = TcpStream::connect(("127.0.0.1", forward.port))
                    .or_else(|_| TcpStream::connect(("::1", forward.port)));
                if let Ok(server) = server {
                    pump(client, server);
                }
            });
        }
    });
}

/// Copies both ways until both ends are done.
fn pump(client: TcpStream, server: TcpStream) {
    let (Ok(mut client_in), Ok(mut server_in)) = (client.try_clone(), server.try_clone()) else { return };
    let (mut client_out, mut server_out) = (client, server);
    let upstream = thread::spawn(move || {
        let _ = io::copy(&mut client_in, &mut server_out);
        let _ = server_out.shutdown(std::net::Shutdown::Write);
    });
    let _ = io::copy(&mut server_in, &mut client_out);
    let _ = client_out.shutdown(std::net::Shutdown::Write);
    let _ = upstream.join();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_one_of_six_words() {
        for report in Report::ALL {
            assert_eq!(Report::parse(report.word()), Some(report));
        }
        assert_eq!(Report::parse("started\u{1b}[31m"), None);
        assert_eq!(Report::parse(""), None);
    }

    #[test]
    fn duties_survive_the_command_line() {
        let duties = Duties {
            append_path: vec!["/a b/\"c\"".into()],
            forward: vec![Forward { listen: 61000, port: 3000 }],
            startup: Some("/x".into()),
            owner: true,
            ..Duties::default()
        };
        let json = serde_json::to_string(&duties).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Duties>(&json).ok(), Some(duties));
    }

    #[test]
    fn commands_are_found_as_execvp_finds_them() {
        assert!(find(OsStr::new("sh"), OsStr::new("/nowhere:/bin")).is_ok());
        assert_eq!(find(OsStr::new("no-such-command"), OsStr::new("/bin")), Err(Report::NotFound));
        assert_eq!(find(OsStr::new("/etc/passwd"), OsStr::new("")), Err(Report::NotExecutable));
    }

    #[test]
    fn directories_are_appended_never_put_in_front() {
        assert_eq!(append("/bin".into(), &["/p/bin".into()]), "/bin:/p/bin");
        assert_eq!(append(OsString::new(), &["/p".into(), "/q".into()]), "/p:/q");
    }
}
