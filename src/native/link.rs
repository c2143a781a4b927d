//! Connects a sandbox with its launcher by a pair of sockets: one message reports how the set-up
//! ended, then one each change of the guest's state. The guest itself never holds a socket of it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};

use super::error::{Fault, Stage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    Fault(Fault),
    /// From the launcher: it has opened the namespaces, so the child may hide and apply the walls.
    Go,
    /// The child has applied all walls.
    Ready,
    /// The pid, in the launcher's pid namespace, of the process that will enter a sandbox.
    Entering(i32),
    /// The command runs; for a launcher that asked for it.
    Started,
    Stopped(i32),
    Exited(i32),
    /// The command could not be executed, with this error of exec.
    NotStarted(i32),
    /// The port that the launcher serves is bound; the message carries the listening socket.
    Listening,
    /// From the launcher: it has closed the namespaces, so pid 1 may exit.
    End,
}

const LENGTH: usize = 10;

impl Message {
    fn encode(self) -> [u8; LENGTH] {
        let (kind, detail, step, value) = match self {
            Self::Fault(fault) => (0, fault.stage as u8, fault.step, fault.errno),
            Self::Ready => (1, 0, 0, 0),
            Self::Entering(pid) => (2, 0, 0, pid),
            Self::Stopped(signal) => (3, 0, 0, signal),
            Self::Exited(code) => (4, 0, 0, code),
            Self::Go => (5, 0, 0, 0),
            Self::End => (6, 0, 0, 0),
            Self::NotStarted(errno) => (7, 0, 0, errno),
            Self::Listening => (8, 0, 0, 0),
            Self::Started => (9, 0, 0, 0),
        };
        let mut bytes = [kind, detail, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[2..6].copy_from_slice(&step.to_ne_bytes());
        bytes[6..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    fn decode(bytes: [u8; LENGTH]) -> Option<Self> {
        let [kind, detail, a, b, c, d, e, f, g, h] = bytes;
        let value = i32::from_ne_bytes([e, f, g, h]);
        Some(match kind {
            0 => Self::Fault(Fault {
                stage: Stage::from_wire(detail)?,
                step: u32::from_ne_bytes([a, b, c, d]),
                errno: value,
            }),
            1 => Self::Ready,
            2 => Self::Entering(value),
            3 => Self::Stopped(value),
            4 => Self::Exited(value),
            5 => Self::Go,
            6 => Self::End,
            7 => Self::NotStarted(value),
            8 => Self::Listening,
            9 => Self::Started,
            _ => return None,
        })
    }
}

/// One end of the connection.
#[derive(Debug)]
pub(crate) struct Link(OwnedFd);

impl Link {
    pub fn pair() -> Result<(Self, Self)> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), Self(theirs)))
    }

    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    pub fn send(&self, message: Message, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = descriptor.as_slice();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let bytes = message.encode();
        // No SIGPIPE: the launcher may be gone, and the kernel will kill this process as well.
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Waits for a message; `None` if the other side has exited without one. Does not retry on
    /// EINTR.
    pub fn receive(&self) -> Result<Option<(Message, Option<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; LENGTH];
        let mut receive =
            || rustix::net::recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let got = match receive() {
            // The other side has exited without reading everything. The kernel reports this once,
            // before the messages that it has sent.
            Err(Errno::CONNRESET) => receive()?,
            got => got?,
        };
        if got.bytes == 0 {
            return Ok(None);
        }
        let message = Message::decode(bytes).ok_or(Errno::PROTO)?;
        let mut descriptor = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptor = received.last();
            }
        }
        Ok(Some((message, descriptor)))
    }

    /// Waits until the other side sends a message or exits.
    pub fn await_message(&self) {
        while matches!(self.receive(), Err(Errno::INTR)) {}
    }

    /// Whether the other side has exited.
    pub fn is_dead(&self) -> Result<bool> {
        let mut poll = [PollFd::new(&self.0, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut poll, Some(&now))?;
        Ok(poll[0].revents().contains(PollFlags::HUP))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
