//! Passes the output of a command on, and its input in.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::link::{LinkFrame, LinkWriter, Stream, Window};

const BUFFER: usize = 32 * 1024;

/// Sends what a descriptor yields. After the end of the command, which closes the other end of
/// `ended`, it sends what is left and stops, although a process in the background may hold the
/// descriptor open.
pub fn send_output(
    source: OwnedFd,
    ended: OwnedFd,
    stream: Stream,
    window: Arc<Window>,
    link: LinkWriter,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut buffer = vec![0; BUFFER];
        while wait(&source, &ended) {
            let Some(most) = window.take(BUFFER) else { return };
            let read = rustix::io::read(&source, buffer.get_mut(..most).unwrap_or_default());
            window.add(most - read.unwrap_or(0).min(most));
            match read {
                // A pseudo-terminal that no process has open any more answers EIO.
                Ok(0) | Err(Errno::IO) => return,
                Ok(count) => {
                    let bytes = buffer.get(..count).unwrap_or_default().to_vec();
                    if link.send(&LinkFrame::Output { stream, bytes }).is_err() {
                        return;
                    }
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return,
            }
        }
    })
}

/// Waits until there is output; returns `false` if the command has ended and there is none.
fn wait(source: &OwnedFd, ended: &OwnedFd) -> bool {
    loop {
        let mut descriptors =
            [PollFd::new(source, PollFlags::IN), PollFd::from_borrowed_fd(ended.as_fd(), PollFlags::IN)];
        match poll(&mut descriptors, None) {
            Ok(_) => return !descriptors[0].revents().is_empty(),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Writes input to a descriptor, and says when it is written. Dropping the sender closes it.
pub fn write_input(target: OwnedFd, link: LinkWriter) -> mpsc::Sender<Vec<u8>> {
    let (sender, inputs) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        for bytes in inputs {
            let length = u32::try_from(bytes.len()).unwrap_or_default();
            if write_all(&target, &bytes).is_err() {
                // The command reads no more: what still comes is dropped, and the launcher goes on.
                let _ = link.send(&LinkFrame::Credit { stream: Stream::Stdin, bytes: length });
                continue;
            }
            let _ = link.send(&LinkFrame::Credit { stream: Stream::Stdin, bytes: length });
        }
    });
    sender
}

fn write_all(target: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(target, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(target, PollFlags::OUT)], None);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
