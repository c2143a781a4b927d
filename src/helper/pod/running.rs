//! A command that runs: its streams, its signals and its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use signal_hook::iterator::Signals;

use super::guest::{Described, Event};
use super::pump::{send_output, write_input};
use crate::helper::command::PreparedCommand;
use crate::helper::{CONTROL_GROUPS, Grouping, start, supervise, wait_for, without_streams};
use crate::link::{LinkFrame, LinkWriter, StartRequest, Stream, Window};
use crate::process::cgroup_events::ran_out_of_memory;
use crate::process::controlling_terminal;
use crate::process::descendants;
use crate::process::status_file::CommandStatus;

/// The variables by which Kubernetes names its own server to every container.
const CLUSTER_VARIABLES: &str = "KUBERNETES_";

pub struct Running {
    command: Pid,
    /// `None` once the input has ended.
    input: Option<mpsc::Sender<Vec<u8>>>,
    /// The master of the command's pseudo-terminal.
    terminal: Option<OwnedFd>,
    windows: [Arc<Window>; 2],
}

/// The ends of the command's streams: the command's, and this process's.
struct Streams {
    command: [OwnedFd; 3],
    input: OwnedFd,
    outputs: Vec<(OwnedFd, Stream)>,
    terminal: Option<OwnedFd>,
}

impl Running {
    /// Confines this process and starts the command. One without streams is not waited for.
    pub fn start(
        described: Described,
        request: &StartRequest,
        link: &LinkWriter,
        events: mpsc::Sender<Event>,
    ) -> Result<Self, CommandStatus> {
        let failed = |_: io::Error| CommandStatus::NotExecutable;
        confine(request.is_offline).map_err(failed)?;
        // Relative commands are looked up there, as everywhere.
        std::env::set_current_dir(&request.directory).map_err(failed)?;
        let caught = Signals::new(Grouping::Separate.caught_signals());
        let mut signals = caught.map_err(failed)?;
        if wait_for(&request.helper, &mut signals).is_some() {
            return Err(CommandStatus::Ended(crate::process::KILLED.exit_code()));
        }
        let path = described.variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let python_path = described.variables.iter().find(|(name, _)| name == "PYTHONPATH");
        let prepared = PreparedCommand::new(
            &request.helper,
            described.arguments,
            path.or_else(|| std::env::var_os("PATH")),
            python_path.map(|(_, value)| value.clone()).or_else(|| std::env::var_os("PYTHONPATH")),
        );
        let set_variables = |command: &mut Command| {
            for (name, _) in std::env::vars_os() {
                if name.as_encoded_bytes().starts_with(CLUSTER_VARIABLES.as_bytes()) {
                    command.env_remove(name);
                }
            }
            let variables = described.variables.iter();
            let is_path = |name: &&(std::ffi::OsString, _)| name.0 == "PATH" || name.0 == "PYTHONPATH";
            command.envs(variables.filter(|pair| !is_path(pair)).map(|(name, value)| (name, value)));
        };
        if request.helper.detach {
            // The container's first process adopts it.
            let configure = |command: &mut Command| {
                set_variables(command);
                without_streams(command);
            };
            start(&prepared, Grouping::Separate, &configure)?;
            return Err(CommandStatus::Ended(0));
        }
        let streams = Streams::open(request.terminal).map_err(failed)?;
        descendants::adopt();
        let configure = |command: &mut Command| {
            set_variables(command);
            let [stdin, stdout, stderr] = &streams.command;
            for (stream, set) in [
                (stdin, Command::stdin as fn(&mut Command, OwnedFd) -> &mut Command),
                (stdout, Command::stdout),
                (stderr, Command::stderr),
            ] {
                if let Ok(stream) = stream.try_clone() {
                    set(command, stream);
                }
            }
            if streams.terminal.is_some() {
                controlling_terminal::take(command);
            }
        };
        let grouping = if streams.terminal.is_some() { Grouping::Session } else { Grouping::Separate };
        let child = start(&prepared, grouping, &configure)?;
        let Streams { command: _, input, outputs, terminal } = streams;
        let command = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(CommandStatus::NotExecutable)?;
        let windows = [Arc::new(Window::default()), Arc::new(Window::default())];
        let (ended, of_outputs) = pipe().map_err(failed)?;
        let senders: Vec<JoinHandle<()>> = outputs
            .into_iter()
            .filter_map(|(source, stream)| {
                let window = windows[usize::from(stream == Stream::Stderr)].clone();
                Some(send_output(source, ended.try_clone().ok()?, stream, window, link.clone()))
            })
            .collect();
        std::thread::spawn(move || {
            let code = supervise(command, Grouping::Separate, &mut signals);
            descendants::end();
            drop(of_outputs);
            for sender in senders {
                let _ = sender.join();
            }
            let is_out_of_memory = CONTROL_GROUPS.iter().any(|group| ran_out_of_memory(Path::new(group)));
            let killed = code == crate::process::KILLED.exit_code();
            let status =
                if is_out_of_memory && killed { CommandStatus::OutOfMemory } else { CommandStatus::Ended(code) };
            let _ = events.send(Event::Ended(status));
        });
        Ok(Running { command, input: Some(write_input(input, link.clone())), terminal, windows })
    }

    pub fn handle(&mut self, frame: LinkFrame) {
        match frame {
            LinkFrame::Input(bytes) => {
                if let Some(input) = &self.input {
                    let _ = input.send(bytes);
                }
            }
            LinkFrame::InputEnd => self.input = None,
            LinkFrame::Resize { rows, columns } => {
                if let Some(terminal) = &self.terminal {
                    let _ = tcsetwinsize(terminal, size(rows, columns));
                }
            }
            LinkFrame::Signal(libc::SIGKILL) => {
                let _ = kill_process_group(self.command, Signal::KILL);
                descendants::end();
            }
            LinkFrame::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    let _ = kill_process(self.command, signal);
                }
            }
            LinkFrame::Credit { stream, bytes } => {
                self.windows[usize::from(stream == Stream::Stderr)].add(bytes as usize);
            }
            _ => {}
        }
    }
}

impl Streams {
    fn open(terminal: Option<(u16, u16)>) -> io::Result<Self> {
        let Some((rows, columns)) = terminal else {
            let ((stdin, input), (output, stdout), (errors, stderr)) = (pipe()?, pipe()?, pipe()?);
            let outputs = vec![(output, Stream::Stdout), (errors, Stream::Stderr)];
            return Ok(Streams { command: [stdin, stdout, stderr], input, outputs, terminal: None });
        };
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
        tcsetwinsize(&slave, size(rows, columns))?;
        let outputs = vec![(master.try_clone()?, Stream::Stdout)];
        let command = [slave.try_clone()?, slave.try_clone()?, slave];
        Ok(Streams { command, input: master.try_clone()?, outputs, terminal: Some(master) })
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((read, write))
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Installs the filters of system calls. Without a network the command can make no sockets but those
/// of the local system, which needs no right and no network plugin.
fn confine(is_offline: bool) -> io::Result<()> {
    crate::native::install_container_filter(false)?;
    if is_offline {
        crate::native::install_offline_filter()?;
    }
    Ok(())
}
