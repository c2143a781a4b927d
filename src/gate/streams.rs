//! Keeps the files of the standard streams outside a sandbox in which Landlock does not restrict
//! files: the guest gets pipes, and threads of the launcher copy.
//!
//! Through `/proc/self/fd/0` a guest could open the file of its standard input again, for writing.
//! Pipes and sockets cannot be opened in another mode to any effect, and terminals are replaced by
//! `gate/terminal`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::isatty;

/// The file system of pipes that have no name.
const PIPE_FILE_SYSTEM: i64 = 0x5049_5045;
/// The devices `null`, `zero`, `full`, `random` and `urandom`, which every sandbox has.
const MEMORY_DEVICES: std::ops::RangeInclusive<u64> = 0x103..=0x109;

const BUFFER_SIZE: usize = 1 << 16;

/// The pipes of a guest that has not started yet.
#[derive(Debug, Default)]
pub struct StreamPipes(Vec<StreamPipe>);

#[derive(Debug)]
struct StreamPipe {
    /// The numbers of the streams that it replaces.
    streams: Vec<u8>,
    file: File,
    is_input: bool,
    reader: OwnedFd,
    writer: OwnedFd,
}

impl StreamPipes {
    /// Makes a pipe for every standard stream that is a file. Two streams with the same file share
    /// one, so that their order stays.
    pub fn open() -> io::Result<Self> {
        let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut pipes: Vec<StreamPipe> = Vec::new();
        for (number, stream) in (0..).zip(streams) {
            // A closed stream is nobody's file.
            let Ok(flags) = fcntl_getfl(stream) else { continue };
            let file = File::from(stream.try_clone_to_owned()?);
            let meta = file.metadata()?;
            if !needs_pipe(stream, &meta)? {
                continue;
            }
            let is_input = match flags & OFlags::RWMODE {
                OFlags::RDONLY => true,
                OFlags::WRONLY => false,
                _ => number == 0,
            };
            let is_same = |other: &&mut StreamPipe| {
                !is_input
                    && !other.is_input
                    && other.file.metadata().is_ok_and(|known| (known.dev(), known.ino()) == (meta.dev(), meta.ino()))
            };
            match pipes.iter_mut().find(is_same) {
                Some(same) => same.streams.push(number),
                None => {
                    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                    pipes.push(StreamPipe { streams: vec![number], file, is_input, reader, writer });
                }
            }
        }
        Ok(StreamPipes(pipes))
    }

    /// Returns the guest's ends, with the numbers of the streams that they replace.
    pub fn guest_ends(&self) -> Vec<(u8, BorrowedFd<'_>)> {
        let mut ends = Vec::new();
        for pipe in &self.0 {
            let end = if pipe.is_input { &pipe.reader } else { &pipe.writer };
            ends.extend(pipe.streams.iter().map(|number| (*number, end.as_fd())));
        }
        ends
    }

    /// Starts to copy, after the guest has got its ends. Other threads run from now on.
    pub fn relay(self) -> io::Result<StreamRelay> {
        let mut relay = StreamRelay::default();
        for StreamPipe { file, is_input, reader, writer, .. } in self.0 {
            if is_input {
                let (stop, stopper) = pipe_with(PipeFlags::CLOEXEC)?;
                relay.stoppers.push(stopper);
                let input = Input { file, reader, writer: Some(writer), stop };
                relay.threads.push(std::thread::Builder::new().spawn(move || drop(input.copy()))?);
            } else {
                drop(writer);
                // An error closes the pipe, as the guest sees from its next write.
                let copy = move || drop(io::copy(&mut File::from(reader), &mut &file));
                relay.threads.push(std::thread::Builder::new().spawn(copy)?);
            }
        }
        Ok(relay)
    }
}

fn needs_pipe(stream: BorrowedFd<'_>, meta: &std::fs::Metadata) -> io::Result<bool> {
    let kind = meta.file_type();
    Ok(if kind.is_fifo() {
        fstatfs(stream)?.f_type as i64 != PIPE_FILE_SYSTEM
    } else if kind.is_char_device() {
        !isatty(stream) && !MEMORY_DEVICES.contains(&meta.rdev())
    } else {
        !kind.is_socket()
    })
}

/// The threads that copy between files and pipes.
#[derive(Debug, Default)]
pub struct StreamRelay {
    threads: Vec<JoinHandle<()>>,
    /// Closed when the guest has ended, for the threads that copy input.
    stoppers: Vec<OwnedFd>,
}

impl StreamRelay {
    /// Waits until all that the guest has written has arrived. The guest must have ended.
    pub fn finish(self) {
        drop(self.stoppers);
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

struct Input {
    file: File,
    /// Kept open to count what the guest has not read.
    reader: OwnedFd,
    writer: Option<OwnedFd>,
    stop: OwnedFd,
}

impl Input {
    /// Copies until the guest ends, then moves the file back to what the guest has not read: the
    /// next command of a script goes on from there.
    fn copy(mut self) -> io::Result<()> {
        let unwritten = self.fill_pipe()?;
        // Waits for the end of the guest.
        let mut stopped = [PollFd::new(&self.stop, PollFlags::IN)];
        while poll(&mut stopped, None) == Err(Errno::INTR) {}
        let unread = unwritten as u64 + ioctl_fionread(&self.reader)?;
        self.file.seek(SeekFrom::Current(-unread.cast_signed()))?;
        Ok(())
    }

    /// Returns how much was read from the file and not written to the pipe.
    fn fill_pipe(&mut self) -> io::Result<usize> {
        let Some(writer) = self.writer.take() else { return Ok(0) };
        // The guest's end keeps its mode, which belongs to that end alone.
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        let mut buffer = vec![0; BUFFER_SIZE];
        loop {
            let length = self.file.read(&mut buffer)?;
            if length == 0 {
                return Ok(0);
            }
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                match rustix::io::write(&writer, rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(Errno::AGAIN) => {
                        let mut ready = [PollFd::new(&writer, PollFlags::OUT), PollFd::new(&self.stop, PollFlags::IN)];
                        while poll(&mut ready, None) == Err(Errno::INTR) {}
                        if !ready[1].revents().is_empty() {
                            return Ok(rest.len());
                        }
                    }
                    Err(Errno::INTR) => {}
                    Err(_) => return Ok(rest.len()),
                }
            }
        }
    }
}
