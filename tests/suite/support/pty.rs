//! Provides a real pseudo-terminal with a shell in it, made with `rustix`. No test needs the
//! patterns, logging or process table of an expect library.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

use super::process::{TIMEOUT, holds_within};

/// Runs the command, prints its exit code, and keeps running, because the terminal loses its
/// settings when its session leader exits. Keys that come after the end are dropped.
const SHELL: &str = r#"trap : INT QUIT; "$@"; echo "[ended $?]"; while read -r _; do :; done"#;

pub struct Pty {
    terminal: File,
    shell: Child,
    said: Arc<Mutex<String>>,
    reader: Option<Reader>,
    read_up_to: usize,
    /// Holds the settings before the command started.
    pub initial_settings: String,
}

/// A thread that reads from the terminal until `stop` is closed.
struct Reader {
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Pty {
    /// Runs a command in a new terminal of 30 lines and 100 columns.
    pub fn start(command: &Command) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.env_clear().args(["-c", SHELL, "sh"]).arg(command.get_program()).args(command.get_args());
        Self::of(shell, command)
    }

    /// Runs a command as the leader of a new terminal's session, as a terminal window does.
    pub fn leader(command: &Command) -> Self {
        let mut leader = Command::new(command.get_program());
        leader.env_clear().args(command.get_args());
        Self::of(leader, command)
    }

    /// Runs a script in a new terminal; its `"$@"` is the command.
    pub fn script(script: &str, command: &Command) -> Self {
        let mut shell = Command::new("/bin/sh");
        shell.env_clear();
        let script = format!("{script}; echo \"[ended $?]\"; while read -r _; do :; done");
        shell.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
        Self::of(shell, command)
    }

    /// Runs an interactive shell in a new terminal, with the command's environment and directory;
    /// `$run` is the command.
    pub fn interactive(command: &Command) -> Self {
        let mut shell = Command::new("/bin/bash");
        shell.env_clear();
        let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().expect("text")).collect();
        assert!(
            !words.iter().any(|word| word.contains([' ', '\''])),
            "words that need quotes are not supported: {words:?}"
        );
        shell.args(["--norc", "--noprofile", "-i"]).env("run", words.join(" ")).env("PS1", "[prompt] ");
        Self::of(shell, command)
    }

    fn of(mut shell: Command, surroundings: &Command) -> Self {
        shell.envs(surroundings.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.current_dir(surroundings.get_current_dir().expect("a directory"));
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("unlocked");
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let name = ptsname(&terminal, Vec::new()).expect("a name");
        let end: OwnedFd =
            rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("its end");
        let initial_settings = settings(&terminal);
        let stream = || end.try_clone().expect("a descriptor");
        shell.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: both calls are plain system calls, which is all that may happen between fork and
        // exec.
        unsafe {
            shell.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let shell = shell.spawn().expect("the shell starts");
        let terminal = File::from(terminal);
        let said = Arc::new(Mutex::new(String::new()));
        let reader = Reader::start(terminal.try_clone().expect("a descriptor"), said.clone());
        Pty { terminal, shell, said, reader: Some(reader), read_up_to: 0, initial_settings }
    }

    /// Closes the terminal, as its window does.
    pub fn hang_up(&mut self) {
        if let Some(Reader { stop, thread }) = self.reader.take() {
            drop(stop);
            thread.join().expect("the reader ends");
        }
        self.terminal = File::open("/dev/null").expect("/dev/null");
    }

    /// Sends keys to the terminal.
    pub fn send(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("the terminal accepts input");
    }

    /// Waits for a text after the one that was found last.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let mut searched_up_to = self.read_up_to;
        let found = holds_within(TIMEOUT, || {
            let said = self.said.lock().expect("text");
            let at = said.as_bytes()[searched_up_to..].windows(text.len()).position(|part| part == text.as_bytes());
            if let Some(at) = at {
                self.read_up_to = searched_up_to + at + text.len();
            }
            // A flood of output is searched once, and not again every time.
            searched_up_to = searched_up_to.max((said.len() + 1).saturating_sub(text.len()));
            at.is_some()
        });
        assert!(found, "no `{text}` in {:?}", self.end_of_output());
    }

    fn end_of_output(&self) -> String {
        let said = self.said();
        let part = &said.as_bytes()[self.read_up_to.max(said.len().saturating_sub(20_000))..];
        String::from_utf8_lossy(part).into_owned()
    }

    /// Waits until the command has ended with this exit code, whatever it printed before.
    #[track_caller]
    pub fn expect_end(&self, code: i32) {
        let end = format!("[ended {code}]");
        let ended = holds_within(TIMEOUT, || {
            let said = self.said.lock().expect("text");
            let tail = &said.as_bytes()[said.len().saturating_sub(200)..];
            String::from_utf8_lossy(tail).contains(&end)
        });
        assert!(ended, "no `{end}` at the end of {:?}", self.end_of_output());
    }

    /// Returns all output so far.
    pub fn said(&self) -> String {
        self.said.lock().expect("text").clone()
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.terminal, size).expect("a size");
    }

    /// Returns the terminal's settings as text, for comparisons.
    pub fn settings(&self) -> String {
        settings(&self.terminal)
    }

    /// Returns whether input arrives key by key and not line by line.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.terminal).expect("settings").local_modes.contains(LocalModes::ICANON)
    }

    /// Returns the process that the shell started.
    pub fn child(&self) -> u32 {
        let children = children(self.shell.id());
        assert_eq!(children.len(), 1, "{children:?}");
        children[0]
    }
}

impl Reader {
    fn start(mut terminal: File, said: Arc<Mutex<String>>) -> Self {
        let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
        let thread = thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            loop {
                let mut descriptors = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(&stopped, PollFlags::IN)];
                let _ = poll(&mut descriptors, None);
                if !descriptors[1].revents().is_empty() {
                    return;
                }
                let Ok(count @ 1..) = terminal.read(&mut buffer) else { return };
                said.lock().expect("text").push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        Reader { stop, thread }
    }
}

fn settings(terminal: impl AsFd) -> String {
    let Termios { input_modes, output_modes, control_modes, local_modes, .. } = tcgetattr(terminal).expect("settings");
    format!("{input_modes:?} {output_modes:?} {control_modes:?} {local_modes:?}")
}

/// Returns the children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect()
}

impl Drop for Pty {
    fn drop(&mut self) {
        for pid in children(self.shell.id()).into_iter().chain([self.shell.id()]) {
            let pid = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}
