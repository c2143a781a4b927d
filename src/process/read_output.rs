//! Reads the output of a program, within limits of time and size.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::bounded_work;

/// How soon a program is given up when bounded work is stopped.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Reads until the end of the stream. Fails at the deadline, when bounded work is stopped, or if the
/// output has more than `max_size` bytes. Starts no thread, because the native engine forks later.
pub fn read_output(mut stream: impl Read + AsFd, deadline: Instant, max_size: usize) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        bounded_work::check()?;
        let left = deadline.checked_duration_since(Instant::now()).ok_or(ErrorKind::TimedOut)?;
        let left = Timespec::try_from(left.min(CHECK_INTERVAL)).map_err(|_| ErrorKind::TimedOut)?;
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&left)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        match stream.read(&mut part) {
            Ok(0) => return Ok(output),
            Ok(read) if output.len() + read <= max_size => output.extend_from_slice(&part[..read]),
            Ok(_) => return Err(io::Error::other("its output is too long")),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
