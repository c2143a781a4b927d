//! The helper (hidden subcommand `guest`), which starts the command inside a sandbox: the first
//! process of a container, the process that `sandbox-exec` starts, and the parent of every command
//! of `sandpen exec`. It prepares PATH, relays ports, starts the command, forwards signals, reaps
//! processes, and ends when the launcher does. It never reads the host's files.

#![allow(clippy::disallowed_methods, reason = "runs inside the sandbox, where there is no Host")]

mod channel;
mod command;
#[cfg(target_os = "linux")]
mod package_index;
#[cfg(target_os = "linux")]
mod pod;
mod relay;
mod remote_helper;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, getpgrp, getppid, kill_process, kill_process_group};
use rustix::stdio::stdin;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU};
use signal_hook::iterator::Signals;

pub use channel::main as channel;
pub use command::PreparedCommand;
#[cfg(target_os = "linux")]
pub use command::complete_paths;
#[cfg(target_os = "linux")]
pub use package_index::{BoundIndex, main as package_index};
#[cfg(target_os = "linux")]
pub use pod::main as pod;
pub use remote_helper::main as remote_helper;

use crate::plan::{CONTROL_DIR, HelperConfig};
use crate::process::cgroup_events::ran_out_of_memory;
#[cfg(target_os = "linux")]
use crate::process::descendants;
use crate::process::lock::{self, OWNER};
use crate::process::mount_identity::MountIdentities;
use crate::process::status_file::{self, CommandStatus, STATUS};
use crate::process::{Outcome, signals, terminal};
use command::{find, is_elf};

/// The places where a container sees its own control group: version 2, and memory of version 1.
const CONTROL_GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
/// The pause before a stopped command is resumed, so that one that stops itself in a loop does not
/// occupy a processor.
const RESUME_DELAY: Duration = Duration::from_millis(20);
/// The pause before a command asks again for a terminal that another process group has.
const TERMINAL_RETRY_DELAY: Duration = Duration::from_millis(200);
/// How often the helper checks that its parent is still the launcher.
const PARENT_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a command waits for the launcher's sockets, and how often it looks.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(30);
const SOCKET_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The signals that end the wait.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Git's own directories are less deep.
const MAX_OPENED_DEPTH: usize = 64;

/// The helper's `main`, with the arguments after `guest`.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let config = arguments.next().and_then(|json| serde_json::from_str::<HelperConfig>(json.to_str()?).ok());
    let Some(config) = config else { return ExitCode::from(2) };
    let ended = run(&config, arguments.collect());
    for directory in &config.opened {
        open_to_all(Path::new(directory), MAX_OPENED_DEPTH);
    }
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(status) => {
            report(&config, status);
            ExitCode::from(status.exit_code())
        }
    }
}

/// Lets every user read and remove what the command left in a directory: the launcher is another
/// one.
fn open_to_all(path: &Path, depth: usize) {
    let Ok(meta) = path.symlink_metadata() else { return };
    if meta.is_file() {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(meta.permissions().mode() | 0o444));
    } else if meta.is_dir() && depth > 0 {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o777));
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            open_to_all(&entry.path(), depth - 1);
        }
    }
}

/// Tells whether the helper and the command share a process group, and thereby signals and the
/// terminal.
#[derive(Clone, Copy)]
enum Grouping {
    /// In a container the command leads its own group. The helper forwards signals to it and makes
    /// it the foreground of the container's terminal.
    Separate,
    /// In a pod the command leads a session of its own, with a pseudo-terminal that the helper has made.
    #[cfg(target_os = "linux")]
    Session,
    /// Under Seatbelt the helper and the command are one group, which is not the launcher's. The
    /// launcher signals the whole group, so the helper forwards nothing.
    WithHelper { launcher: u32 },
}

impl Grouping {
    fn of(config: &HelperConfig) -> Self {
        config.launcher.map_or(Grouping::Separate, |launcher| Grouping::WithHelper { launcher })
    }

    fn caught_signals(self) -> &'static [i32] {
        match self {
            Grouping::WithHelper { .. } => &signals::CAUGHT_UNDER_SEATBELT,
            _ => &signals::CAUGHT_IN_CONTAINER,
        }
    }

    fn forward(self, command: Pid, signal: i32) {
        if let (Grouping::Separate, Some(signal)) = (self, Signal::from_named_raw(signal)) {
            let _ = kill_process(command, signal);
        }
    }

    /// Resumes a stopped command: no process outside can, because the engine's client does not
    /// learn that it stopped.
    fn resume(self, command: Pid, stopped_by: Option<i32>) {
        thread::sleep(RESUME_DELAY);
        match self {
            #[cfg(target_os = "linux")]
            Grouping::Session => drop(kill_process_group(command, Signal::CONT)),
            Grouping::Separate => {
                terminal::set_foreground(stdin(), command);
                let _ = kill_process_group(command, Signal::CONT);
            }
            Grouping::WithHelper { .. } => {
                // It wants to read from the terminal, which belongs to the other members of a
                // pipeline at first, and to the shell while sandpen is in the background.
                if matches!(stopped_by, Some(SIGTTIN | SIGTTOU)) && !take_terminal() {
                    thread::sleep(TERMINAL_RETRY_DELAY);
                }
                let _ = kill_process_group(getpgrp(), Signal::CONT);
            }
        }
    }
}

/// Writes the status file. Without it the launcher can explain less; the command runs all the same.
fn report(config: &HelperConfig, status: CommandStatus) {
    if config.exec {
        return;
    }
    let control_dir = config.control_dir.as_deref().unwrap_or(CONTROL_DIR);
    let _ = status_file::write(&Path::new(control_dir).join(STATUS), status);
}

fn run(config: &HelperConfig, argv: Vec<OsString>) -> Result<u8, CommandStatus> {
    // No process inside may trace this one, which notices the launcher's end.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    confine(config.nested);
    if config.owner && !config.exec {
        refuse_replaced_mounts(&Path::new(CONTROL_DIR).join(OWNER))?;
    }
    if config.owner {
        lock::exit_when_released(&Path::new(CONTROL_DIR).join(OWNER));
    }
    let grouping = Grouping::of(config);
    if let Grouping::WithHelper { launcher } = grouping {
        end_with_parent(launcher);
        if terminal::is_interactive() {
            take_terminal();
        }
    }
    for forward in &config.forward {
        relay::serve(*forward);
    }
    #[cfg(target_os = "linux")]
    let _proxy = config.handover.as_ref().map(|handover| hand_over(Path::new(&handover.directory)));
    let prepared = PreparedCommand::new(config, argv, std::env::var_os("PATH"), std::env::var_os("PYTHONPATH"));
    // Registered before the command exists, so that no signal and no exit is missed.
    let caught = Signals::new(grouping.caught_signals());
    let mut signals = caught.map_err(|_| CommandStatus::NotExecutable)?;
    if let Some(signal) = wait_for(config, &mut signals) {
        return Ok(Outcome::Signaled(signal).exit_code());
    }
    // Written first: the command may end the engine's client before this process runs again. If the
    // command cannot be started, `main` overwrites it.
    report(config, CommandStatus::Starting);
    if config.detach {
        // The container's first process adopts it.
        return start(&prepared, grouping, &without_streams).map(|_| 0);
    }
    #[cfg(target_os = "linux")]
    if config.exec {
        descendants::adopt();
    }
    #[cfg(target_os = "linux")]
    let index = config.package_index.as_ref().and_then(BoundIndex::bind);
    let command = start(&prepared, grouping, &|_| ())?;
    report(config, CommandStatus::Started);
    #[cfg(target_os = "linux")]
    if let Some(index) = index {
        index.serve();
    }
    let Some(command) = Pid::from_raw(command.id() as i32) else { return Err(CommandStatus::NotExecutable) };
    #[cfg(target_os = "linux")]
    if let Some(byte) = config.client {
        end_with_client(byte, command);
    }
    if let Grouping::Separate = grouping {
        // The keys of the container's terminal, such as Ctrl-C, then signal the command's group.
        terminal::set_foreground(stdin(), command);
    }
    let code = supervise(command, grouping, &mut signals);
    // The first command of a sandbox takes all others with it.
    #[cfg(target_os = "linux")]
    if config.exec {
        descendants::end();
    }
    let is_out_of_memory = CONTROL_GROUPS.iter().any(|group| ran_out_of_memory(Path::new(group)));
    report(config, if is_out_of_memory { CommandStatus::OutOfMemory } else { CommandStatus::Ended(code) });
    Ok(code)
}

/// What the launcher's other process inside makes.
enum Awaited<'a> {
    Socket(&'a Path),
    /// A port of the loopback on which it listens.
    Port(u16),
}

impl Awaited<'_> {
    fn is_there(&self) -> bool {
        match self {
            Awaited::Socket(path) => path.exists(),
            Awaited::Port(port) => TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok(),
        }
    }
}

/// Waits until the launcher has made its sockets inside; returns a signal that arrived before. Without
/// them the command runs all the same.
fn wait_for(config: &HelperConfig, signals: &mut Signals) -> Option<i32> {
    let limit = Instant::now() + SOCKET_TIMEOUT;
    let sockets = config.awaited.iter().map(|socket| (socket.clone(), Awaited::Socket(Path::new(socket))));
    let port = config.awaited_port.map(|port| (format!("port {port}"), Awaited::Port(port)));
    for (socket, awaited) in sockets.chain(port) {
        while !awaited.is_there() {
            if let Some(signal) = signals.pending().find(|signal| ENDING.contains(signal)) {
                return Some(signal);
            }
            if Instant::now() > limit {
                let message = format!("sandpen: the launcher did not make {socket} in time, so it does not work\n");
                let _ = io::Write::write_all(&mut io::stderr(), message.as_bytes());
                return None;
            }
            thread::sleep(SOCKET_POLL_INTERVAL);
        }
    }
    None
}

/// Starts nothing if the engine mounted other files than the launcher has planned.
fn refuse_replaced_mounts(identities: &Path) -> Result<(), CommandStatus> {
    let identities = MountIdentities::read(identities);
    let replaced = match &identities {
        Ok(identities) => identities.replaced(),
        Err(_) => Some(CONTROL_DIR),
    };
    let Some(place) = replaced else { return Ok(()) };
    let message = format!("sandpen: {place:?} inside is not the file or directory that was planned\n");
    let _ = io::Write::write_all(&mut io::stderr(), message.as_bytes());
    Err(CommandStatus::MountReplaced)
}

/// Lets the command read and print nothing.
fn without_streams(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// Starts the command. `configure` sets its streams, unless they are the helper's.
fn start(
    prepared: &PreparedCommand,
    grouping: Grouping,
    configure: &dyn Fn(&mut Command),
) -> Result<Child, CommandStatus> {
    let (name, arguments) = prepared.argv.split_first().ok_or(CommandStatus::NotFound)?;
    let program = find(name, &prepared.path)?;
    match spawn(prepared, grouping, configure, &program, name, arguments) {
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            if is_elf(&program) {
                return Err(CommandStatus::WrongArchitecture);
            }
            // A script without `#!` is run with sh, as shells and execvp do.
            let script: Vec<OsString> =
                std::iter::once(program.into_os_string()).chain(arguments.iter().cloned()).collect();
            spawn(prepared, grouping, configure, Path::new("/bin/sh"), OsStr::new("sh"), &script)
                .map_err(|_| CommandStatus::NotExecutable)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CommandStatus::NotFound),
        Err(_) => Err(CommandStatus::NotExecutable),
        Ok(child) => Ok(child),
    }
}

fn spawn(
    prepared: &PreparedCommand,
    grouping: Grouping,
    configure: &dyn Fn(&mut Command),
    program: &Path,
    name: &OsStr,
    arguments: &[OsString],
) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env("PATH", &prepared.path);
    if let Grouping::Separate = grouping {
        command.process_group(0);
    }
    if let Some(python_path) = &prepared.python_path {
        command.env("PYTHONPATH", python_path);
    }
    configure(&mut command);
    command.spawn()
}

/// Installs the native engine's system call filter on top of the container's. The engines differ in
/// what they allow (new user namespaces, keyrings, io_uring); this filter is the same for all.
fn confine(nested: bool) {
    let _ = nested;
    #[cfg(target_os = "linux")]
    if let Err(errno) = crate::native::install_container_filter(nested) {
        // A command that was promised the filter must not run without it.
        fail(&format!("cannot install the system call filter: {errno}"));
    }
}

/// Binds the proxy's port and gives the listener to the proxy. The connection stays open as long as
/// this process lives.
#[cfg(target_os = "linux")]
fn hand_over(directory: &Path) -> std::os::unix::net::UnixStream {
    crate::proxy::offer(directory, crate::proxy::PROXY_PORT)
        .unwrap_or_else(|error| fail(&format!("cannot connect the sandbox to its proxy: {error}")))
}

#[cfg(target_os = "linux")]
fn fail(message: &str) -> ! {
    let _ = io::Write::write_all(&mut io::stderr(), format!("sandpen: {message}\n").as_bytes());
    std::process::exit(CommandStatus::NotExecutable.exit_code().into());
}

/// Forwards signals to the command and reaps every child until the command has ended.
fn supervise(command: Pid, grouping: Grouping, signals: &mut Signals) -> u8 {
    for signal in signals.forever() {
        if signal != SIGCHLD {
            grouping.forward(command, signal);
            continue;
        }
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if pid != command {
                continue;
            }
            if !status.stopped() {
                return Outcome::from_wait(status).exit_code();
            }
            grouping.resume(command, status.stopping_signal());
        }
    }
    1
}

/// Ends the command when its client has ended: as a terminal that hangs up does, and with SIGKILL if
/// it does not end by that.
#[cfg(target_os = "linux")]
fn end_with_client(byte: u32, command: Pid) {
    let owner = Path::new(CONTROL_DIR).join(OWNER);
    let watched = lock::when_byte_is_released(&owner, byte, move || {
        let _ = kill_process_group(command, Signal::HUP);
        thread::sleep(signals::GRACE_PERIOD);
        descendants::end();
        std::process::exit(crate::process::KILLED.exit_code().into());
    });
    if let Err(error) = watched {
        fail(&format!("cannot watch the client: {error}"));
    }
}

/// Kills the group when the launcher is no longer the parent. For Seatbelt: macOS has neither a
/// signal for the parent's death nor a pid namespace, and the profile hides the lock.
fn end_with_parent(launcher: u32) {
    let is_parent = move || getppid().is_some_and(|parent| parent.as_raw_nonzero().get().unsigned_abs() == launcher);
    thread::spawn(move || {
        while is_parent() {
            thread::sleep(PARENT_POLL_INTERVAL);
        }
        let _ = kill_process_group(getpgrp(), Signal::KILL);
    });
}

/// Takes the terminal's foreground for the group of helper and command, if the launcher's group has
/// it; returns whether it did.
fn take_terminal() -> bool {
    let launcher = getppid().and_then(|parent| rustix::process::getpgid(Some(parent)).ok());
    let launcher_has_it = launcher.is_some() && rustix::termios::tcgetpgrp(stdin()).ok() == launcher;
    if launcher_has_it {
        terminal::set_foreground(stdin(), getpgrp());
    }
    launcher_has_it
}
