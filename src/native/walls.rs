//! Raises, in the right order, every wall that stands around a process and not around a file
//! system; the same for pid 1 and for a process that enters later.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

use crate::launch::native::step::{Group, Sandbox};
use crate::native::confine::{self, Landlock};
use crate::native::error::{Cause, Fault, SetupError, Stage};
use crate::native::link::{Link, Message};
use crate::native::seccomp::{self, Policy, Program};
use crate::native::{privileges, sys};

/// What the walls are made of; drawn before the fork.
pub(crate) struct Walls {
    filter: Program,
    scope_signals: bool,
    /// For an ordinary user without a control group.
    pub process_limit: Option<u64>,
}

/// The one descriptor besides the standard streams that stays open, until exec closes it.
const LINK: i32 = 3;

impl Walls {
    /// For pid 1.
    pub fn of(sandbox: &Sandbox) -> Self {
        let shared = sandbox.group == Group::Shared;
        let filter = seccomp::filter(Policy { guard_group: shared && !confine::scopes_signals() });
        Self { filter, scope_signals: true, process_limit: None }
    }

    /// For a process that enters. Landlock would keep its signals from the processes that are
    /// already there, whose scope is another; the pid namespace keeps them from all others.
    pub fn of_entering(sandbox: &Sandbox) -> Self {
        Self { scope_signals: sandbox.group == Group::Shared, ..Self::of(sandbox) }
    }

    /// Confines the calling process, or ends it; afterwards only the standard streams and the
    /// link are open, and the launcher knows.
    pub fn raise(&self, link: Link) -> Link {
        // SAFETY: nothing that owns another descriptor is used or dropped after this, because the
        // child goes on to the guest and never returns into its caller's frames.
        let link = match unsafe { keep_only(link) } {
            Ok(link) => link,
            Err((link, errno)) => give_up(&link, Fault::at(Stage::Descriptors)(errno)),
        };
        let told = match self.confine(&link) {
            Ok(level) => link.send(Message::Ready(level), None),
            Err(fault) => give_up(&link, fault),
        };
        match told {
            Ok(()) => link,
            Err(_) => exit(1),
        }
    }

    fn confine(&self, link: &Link) -> Result<Landlock, Fault> {
        if let Some(limit) = self.process_limit {
            privileges::limit_processes(limit).map_err(Fault::at(Stage::Limits))?;
        }
        privileges::hide().map_err(Fault::at(Stage::Privileges))?;
        privileges::drop_all().map_err(Fault::at(Stage::Privileges))?;
        let level = confine::confine(self.scope_signals).map_err(Fault::at(Stage::Landlock))?;
        seccomp::install(&self.filter).map_err(Fault::at(Stage::Seccomp))?;
        privileges::die_with_parent().map_err(Fault::at(Stage::Parent))?;
        // The launcher may have died before the line above; in another pid namespace its id is 0
        // either way, but its end of the link is closed.
        match link.is_dead() {
            Ok(false) => Ok(level),
            Ok(true) => Err(Fault::at(Stage::Parent)(Errno::SRCH)),
            Err(errno) => Err(Fault::at(Stage::Parent)(errno)),
        }
    }
}

/// # Safety
/// Closes descriptors that other values own; the caller must never use or drop those.
unsafe fn keep_only(link: Link) -> Result<Link, (Link, Errno)> {
    let fd = link.into_fd();
    let fd = if fd.as_raw_fd() == LINK {
        fd
    } else {
        // SAFETY: whoever owned descriptor 3 is not used any more, as the caller vouches.
        let mut third = unsafe { OwnedFd::from_raw_fd(LINK) };
        if let Err(errno) = rustix::io::dup3(&fd, &mut third, rustix::io::DupFlags::CLOEXEC) {
            let _ = third.into_raw_fd();
            return Err((Link::from_fd(fd), errno));
        }
        let _ = fd.into_raw_fd();
        third
    };
    // SAFETY: as above, for 4 and more.
    match unsafe { sys::close_from(LINK as u32 + 1) } {
        Ok(()) => Ok(Link::from_fd(fd)),
        Err(errno) => Err((Link::from_fd(fd), errno)),
    }
}

/// A directory among the standard streams is a way out of the sandbox: `openat(0, "..")`.
pub(crate) fn check_streams() -> Result<(), SetupError> {
    for number in 0..3_u8 {
        // SAFETY: borrowed for the length of one call, which a closed descriptor only fails.
        let stream = unsafe { BorrowedFd::borrow_raw(i32::from(number)) };
        if crate::native::mountpoint::is_directory(stream).unwrap_or(false) {
            return Err(SetupError::new(Cause::DirectoryAsStream(number)));
        }
    }
    Ok(())
}

/// Tells the launcher why there will be no sandbox, and ends.
pub(crate) fn give_up(link: &Link, fault: Fault) -> ! {
    let _ = link.send(Message::Fault(fault), None);
    exit(1)
}

pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: ends the process without running the launcher's exit handlers a second time.
    unsafe { libc::_exit(code) }
}
