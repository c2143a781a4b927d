//! Puts a pipe between the guest and a file of the host that is its stdin, stdout or stderr. With the
//! file itself the guest could change its mode, times and attributes (attack 34); Landlock and
//! read-only mounts do not apply to an open file.
//!
//! The launcher's own streams become the pipes, which the guest inherits, and are restored at the end.
//! Anonymous pipes, sockets and terminals are not files of the host; device nodes are replaced by the
//! sandbox's own (`native::walls`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FileType, OFlags, SeekFrom, Stat, fstat, fstatfs};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};

/// The file system of anonymous pipes.
const PIPEFS_MAGIC: i64 = 0x5049_5045;
/// Fewer switches between guest and launcher than with the kernel's 64 KiB.
const PIPE_SIZE: usize = 1 << 20;

/// The launcher's streams while pipes are in their places. Dropping it passes on what the guest has
/// written, and restores them.
#[derive(Debug, Default)]
pub struct RelayedStreams {
    input: Option<Relay>,
    outputs: Vec<Relay>,
}

#[derive(Debug)]
struct Relay {
    /// The file of the host.
    file: Arc<OwnedFd>,
    /// The launcher's end of the pipe.
    pipe: Arc<OwnedFd>,
    /// Whether the file was stdout and stderr; meaningless for stdin.
    streams: [bool; 2],
    /// Readable once the guest has ended.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RelayedStreams {
    /// Puts pipes in the places of files. Starts no thread, which a fork would not survive.
    pub fn open() -> io::Result<Self> {
        let mut relayed = RelayedStreams::default();
        if named(stdin())?.is_some() {
            let (relay, guests) = Relay::new(stdin(), Direction::Input)?;
            dup2_stdin(guests)?;
            relayed.input = Some(relay);
        }
        let (out, error) = (named(stdout())?, named(stderr())?);
        let is_one = |a: &Stat, b: &Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
        // One pipe for both, which keeps the order of what the guest writes.
        let is_both = matches!((&out, &error), (Some(out), Some(error)) if is_one(out, error));
        if out.is_some() {
            let (mut relay, guests) = Relay::new(stdout(), Direction::Output)?;
            relay.streams = [true, is_both];
            dup2_stdout(&guests)?;
            if is_both {
                dup2_stderr(&guests)?;
            }
            relayed.outputs.push(relay);
        }
        if error.is_some() && !is_both {
            let (mut relay, guests) = Relay::new(stderr(), Direction::Output)?;
            relay.streams = [false, true];
            dup2_stderr(guests)?;
            relayed.outputs.push(relay);
        }
        Ok(relayed)
    }

    /// Starts to copy. Called after the fork.
    pub fn start(&mut self) {
        if let Some(relay) = &mut self.input {
            relay.start(copy_input);
        }
        for relay in &mut self.outputs {
            relay.start(copy_output);
        }
    }
}

impl Drop for RelayedStreams {
    fn drop(&mut self) {
        if let Some(mut relay) = self.input.take() {
            let _ = relay.finish();
            // A later program that shares the file continues where the guest stopped reading.
            let unread = rustix::io::ioctl_fionread(stdin()).unwrap_or(0);
            let _ = rustix::fs::seek(&relay.file, SeekFrom::Current(-i64::try_from(unread).unwrap_or(0)));
            let _ = dup2_stdin(&relay.file);
        }
        for relay in &mut self.outputs {
            let _ = relay.finish();
            if relay.streams[0] {
                let _ = dup2_stdout(&relay.file);
            }
            if relay.streams[1] {
                let _ = dup2_stderr(&relay.file);
            }
        }
    }
}

enum Direction {
    Input,
    Output,
}

impl Relay {
    /// Returns the guest's end of the pipe, too.
    fn new(stream: BorrowedFd<'_>, direction: Direction) -> io::Result<(Self, OwnedFd)> {
        let file = stream.try_clone_to_owned()?;
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
        // Beyond the user's share of pipe memory it stays small.
        let _ = fcntl_setpipe_size(&read_end, PIPE_SIZE);
        let (pipe, guests) = match direction {
            Direction::Input => (write_end, read_end),
            Direction::Output => (read_end, write_end),
        };
        // Of this end only: the guest's is another open file.
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        let relay =
            Relay { file: Arc::new(file), pipe: Arc::new(pipe), streams: [false; 2], end: Arc::new(end), thread: None };
        Ok((relay, guests))
    }

    fn start(&mut self, copy: fn(&OwnedFd, &OwnedFd, &OwnedFd) -> io::Result<()>) {
        let (file, pipe, end) = (self.file.clone(), self.pipe.clone(), self.end.clone());
        // The thread closes the launcher's end of the pipe, so that the guest notices the end of the
        // file and a file that cannot be written.
        self.pipe = self.end.clone();
        self.thread = Some(std::thread::spawn(move || copy(&file, &pipe, &end)));
    }

    /// Waits until everything that the guest wrote is passed on.
    fn finish(&mut self) -> io::Result<()> {
        let _ = write(&*self.end, &1_u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

/// Returns what a stream is if it is a file or a pipe with a name.
fn named(stream: BorrowedFd<'_>) -> io::Result<Option<Stat>> {
    let stat = match fstat(stream) {
        Ok(stat) => stat,
        // The stream is closed.
        Err(Errno::BADF) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let is_named = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::BlockDevice => true,
        FileType::Fifo => fstatfs(stream)?.f_type != PIPEFS_MAGIC,
        _ => false,
    };
    Ok(is_named.then_some(stat))
}

/// Waits until the pipe is ready; returns `false` if the guest has ended.
fn await_pipe(pipe: &OwnedFd, flags: PollFlags, end: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut descriptors = [PollFd::new(pipe, flags), PollFd::new(end, PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Ok(_) => return Ok(descriptors[1].revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn copy_input(file: &OwnedFd, pipe: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
    while await_pipe(pipe, PollFlags::OUT, end)? {
        match splice(file.as_fd(), None, pipe.as_fd(), None, PIPE_SIZE, SpliceFlags::NONBLOCK) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing is in a named pipe yet, or the pipe is full although it has room for a page.
            Err(Errno::AGAIN) if !await_pipe(file, PollFlags::IN, end)? => return Ok(()),
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn copy_output(file: &OwnedFd, pipe: &OwnedFd, end: &OwnedFd) -> io::Result<()> {
    let mut is_running = true;
    loop {
        let moved = match splice(pipe.as_fd(), None, file.as_fd(), None, PIPE_SIZE, SpliceFlags::NONBLOCK) {
            // A file that is opened for appending.
            Err(Errno::INVAL) => append(file, pipe)?,
            moved => moved,
        };
        match moved {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if !is_running => return Ok(()),
            // What the guest wrote before its end is in the pipe now.
            Err(Errno::AGAIN) => is_running = await_pipe(pipe, PollFlags::IN, end)?,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Moves what is in the pipe; the inner error is that of reading.
fn append(file: &OwnedFd, pipe: &OwnedFd) -> io::Result<rustix::io::Result<usize>> {
    let mut buffer = vec![0; 64 << 10];
    let count = match read(pipe, &mut buffer) {
        Ok(count) => count,
        Err(errno) => return Ok(Err(errno)),
    };
    io::Write::write_all(&mut &File::from(file.try_clone()?), &buffer[..count])?;
    Ok(Ok(count))
}
