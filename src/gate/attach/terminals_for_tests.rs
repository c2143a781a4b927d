//! Terminals for the tests of server and client: real pseudo-terminals, one for the guest, one for
//! each user. The users' screens are kept by another emulator.
#![allow(clippy::disallowed_methods, reason = "starts programs on the guest's terminal")]

use std::any::Any;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};
use std::sync::RwLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use tempfile::TempDir;

use super::client::{AttachEnd, AttachError, AttachOptions, attach_stream};
use super::server::{self, AttachServer};

pub const LIMIT: Duration = Duration::from_secs(20);

/// A signal to this process reaches the clients of all tests, so the test of SIGTERM runs alone.
pub static SIGNALS: RwLock<()> = RwLock::new(());

/// Returns master and slave of a new pseudo-terminal.
pub fn open_pty(rows: u16, cols: u16) -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a master");
    grantpt(&master).expect("grantpt");
    unlockpt(&master).expect("unlockpt");
    let name: CString = ptsname(&master, Vec::new()).expect("a name");
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let slave = rustix::fs::open(name, flags, rustix::fs::Mode::empty()).expect("a slave");
    set_size(&slave, rows, cols);
    (master, slave)
}

pub fn set_size(terminal: &OwnedFd, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}

pub fn size_of(terminal: &impl AsFd) -> (u16, u16) {
    let size = tcgetwinsize(terminal).expect("a size");
    (size.ws_row, size.ws_col)
}

/// A served guest: what is written to `terminal` is its output.
pub struct Guest {
    pub directory: TempDir,
    pub terminal: File,
    pub server: Option<AttachServer>,
    _lock: Box<dyn Any>,
}

impl Guest {
    pub fn start(rows: u16, cols: u16) -> Self {
        let shared = SIGNALS.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        Guest::start_with(rows, cols, Box::new(shared))
    }

    pub fn start_with(rows: u16, cols: u16, lock: Box<dyn Any>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let (master, slave) = open_pty(1, 1);
        let mut settings = tcgetattr(&slave).expect("settings");
        settings.make_raw();
        tcsetattr(&slave, OptionalActions::Now, &settings).expect("raw mode");
        let server = AttachServer::start(master, listener, directory.path(), rows, cols).expect("a server");
        Guest { directory, terminal: File::from(slave), server: Some(server), _lock: lock }
    }

    pub fn print(&mut self, output: impl AsRef<[u8]>) {
        self.terminal.write_all(output.as_ref()).expect("output");
    }

    /// Reads as many bytes of input as are expected.
    pub fn input(&mut self, length: usize) -> String {
        let mut input = vec![0; length];
        let mut read = 0;
        while read < length {
            assert!(is_ready(&self.terminal, PollFlags::IN, LIMIT), "only {read} bytes of input");
            read += self.terminal.read(&mut input[read..]).expect("input");
        }
        String::from_utf8_lossy(&input).into_owned()
    }

    pub fn has_input(&self) -> bool {
        is_ready(&self.terminal, PollFlags::IN, Duration::from_millis(100))
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("socket")).expect("a connection")
    }

    pub fn attach(&self, rows: u16, cols: u16) -> User {
        self.attach_with(rows, cols, AttachOptions::default())
    }

    pub fn watch(&self, rows: u16, cols: u16) -> User {
        self.attach_with(rows, cols, AttachOptions { read_only: true, ..AttachOptions::default() })
    }

    pub fn attach_with(&self, rows: u16, cols: u16, options: AttachOptions) -> User {
        let (master, slave) = open_pty(rows, cols);
        let (sender, end) = mpsc::channel();
        let (stream, terminal) = (self.connect(), slave.try_clone().expect("a descriptor"));
        thread::spawn(move || {
            let _ = sender.send(attach_stream(stream, terminal.as_fd(), terminal.as_fd(), options));
        });
        let nonzero = |size| std::num::NonZeroU16::new(size).expect("not 0");
        User { master: File::from(master), slave, emulator: vt100::Parser::new(nonzero(rows), nonzero(cols), 0), end }
    }

    #[track_caller]
    pub fn wait_until_attached(&self, is_attached: bool) {
        let limit = Instant::now() + LIMIT;
        while server::is_attached(self.directory.path()) != is_attached {
            assert!(Instant::now() < limit, "attached is not {is_attached}");
            thread::yield_now();
        }
    }

    pub fn finish_in_thread(&mut self, exit_code: i32) -> Receiver<String> {
        let (sender, text) = mpsc::channel();
        let server = self.server.take().expect("a server");
        thread::spawn(move || sender.send(server.finish(exit_code)));
        text
    }

    pub fn finish(&mut self, exit_code: i32) -> String {
        self.server.take().expect("a server").finish(exit_code)
    }
}

/// A user's terminal with a client on it.
pub struct User {
    pub master: File,
    pub slave: OwnedFd,
    pub emulator: vt100::Parser,
    pub end: Receiver<Result<AttachEnd, AttachError>>,
}

impl User {
    #[track_caller]
    pub fn wait_until_raw(&mut self) {
        let limit = Instant::now() + LIMIT;
        while tcgetattr(&self.slave).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ECHO)) {
            assert!(Instant::now() < limit, "the terminal is not in raw mode");
            self.show(Duration::from_millis(10));
        }
    }

    pub fn type_keys(&mut self, keys: &[u8]) {
        self.master.write_all(keys).expect("keys");
    }

    /// Shows output until the screen is as expected.
    #[track_caller]
    pub fn wait_for(&mut self, expected: impl Fn(&vt100::Screen) -> bool) {
        let limit = Instant::now() + LIMIT;
        while !expected(self.emulator.screen()) {
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "the screen is\n{}", self.emulator.screen().contents());
            self.show(left);
        }
    }

    #[track_caller]
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait_for(|screen| screen.contents().contains(text));
    }

    /// Shows output that comes within some time.
    pub fn show(&mut self, timeout: Duration) {
        let mut buffer = [0; 4096];
        if is_ready(&self.master, PollFlags::IN, timeout) {
            let length = self.master.read(&mut buffer).unwrap_or_default();
            self.emulator.process(&buffer[..length]);
        }
    }

    #[track_caller]
    pub fn end(&mut self) -> AttachEnd {
        let limit = Instant::now() + LIMIT;
        loop {
            if let Ok(end) = self.end.try_recv() {
                while is_ready(&self.master, PollFlags::IN, Duration::ZERO) {
                    self.show(Duration::ZERO);
                }
                return end.expect("attached");
            }
            assert!(Instant::now() < limit, "the client does not end");
            self.show(Duration::from_millis(10));
        }
    }

    /// Describes each cell and the modes.
    pub fn screen(&self) -> Vec<String> {
        let screen = self.emulator.screen();
        let (rows, cols) = screen.size();
        let cell = |row, col| {
            let cell = screen.cell(row, col).expect("a cell");
            let text = if cell.contents().is_empty() { " " } else { cell.contents() };
            let style = (cell.fgcolor(), cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse());
            let style = (text != " ").then_some(style);
            format!("{row},{col}: {text:?} {:?} {:?} {style:?}", cell.is_wide(), cell.bgcolor())
        };
        let modes = format!(
            "{:?}",
            (
                (screen.cursor_position(), screen.hide_cursor(), screen.cursor_style(), screen.alternate_screen()),
                (screen.application_cursor(), screen.application_keypad(), screen.bracketed_paste()),
                (screen.mouse_protocol_mode(), screen.mouse_protocol_encoding()),
            )
        );
        let cells = (0..rows.get()).flat_map(|row| (0..cols.get()).map(move |col| (row, col)));
        cells.map(|(row, col)| cell(row, col)).chain([modes]).collect()
    }

    /// Shows output until the screen is this one.
    #[track_caller]
    pub fn wait_for_screen(&mut self, expected: &[String]) {
        let limit = Instant::now() + LIMIT;
        while self.screen() != expected && Instant::now() < limit {
            self.show(limit.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)));
        }
        assert_eq!(self.screen(), expected);
    }

    /// Shows output until the terminal is as it was before the client. The kernel passes the last
    /// bytes on some time after the client has written them.
    #[track_caller]
    pub fn wait_until_usual(&mut self) {
        let limit = Instant::now() + LIMIT;
        while !self.is_usual() {
            assert!(Instant::now() < limit, "the terminal is not restored: {:?}", self.screen().last());
            self.show(Duration::from_millis(10));
        }
    }

    fn is_usual(&self) -> bool {
        let screen = self.emulator.screen();
        let is_echoing = tcgetattr(&self.slave).is_ok_and(|settings| settings.local_modes.contains(LocalModes::ECHO));
        let has_modes = screen.bracketed_paste() || screen.application_cursor() || screen.application_keypad();
        let has_mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
        is_echoing && !has_modes && !has_mouse && !screen.alternate_screen() && !screen.hide_cursor()
    }
}

pub fn is_ready(file: &File, flags: PollFlags, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).expect("a time");
    let mut fds = [PollFd::new(file, flags)];
    poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Stops a program, and waits until it is stopped.
pub fn stop(program: &Child) {
    let pid = i32::try_from(program.id()).ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a pid"), Signal::STOP).expect("a signal");
    let stopped = waitpid(pid, WaitOptions::UNTRACED).expect("a child");
    assert!(stopped.is_some_and(|(_, status)| status.stopped()));
}

/// Starts a program on the guest's terminal; `None` if it is not installed.
pub fn spawn(guest: &Guest, program: &[&str], file: &std::path::Path) -> Option<Child> {
    let stream = || std::process::Stdio::from(guest.terminal.try_clone().expect("a descriptor"));
    let mut command = Command::new("setsid");
    command.arg("--ctty").args(program).arg(file).env("TERM", "xterm-256color");
    let is_installed = Command::new(program[0]).arg("--version").output().is_ok();
    is_installed.then(|| command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().ok()).flatten()
}
