//! Applies, in the right order, the walls: the restrictions of a process, as opposed to those of
//! its file system. They are the process limit, the capabilities, Landlock and the system call
//! filter; pid 1 and a process that enters later get the same ones.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;

use super::arguments::ArgumentArea;
use super::error::{Cause, Fault, SetupError, Stage};
use super::init::LAUNCHER_ENDED;
use super::link::{Link, Message};
use super::seccomp::{self, NewNamespaces, Program};
use super::{device, landlock, mountpoint, privileges, sys};
use crate::facts::engines::native::landlock_abi;

/// The restrictions to apply, made before the fork.
pub(crate) struct Walls {
    filter: Program,
    landlock_abi: u32,
    scope_signals: bool,
    arguments: ArgumentArea,
    namespaces: NewNamespaces,
    /// For an ordinary user, whose processes need no control group to be counted.
    pub process_limit: Option<u64>,
    /// The signal that the kernel sends to the process when the launcher ends.
    launcher_end: i32,
}

/// The one descriptor besides the standard streams that stays open, until exec closes it.
const LINK: i32 = 3;

impl Walls {
    pub fn for_first_process(namespaces: NewNamespaces) -> Self {
        Self {
            filter: seccomp::filter(namespaces),
            landlock_abi: landlock_abi(),
            scope_signals: true,
            arguments: ArgumentArea::of_this_process(),
            namespaces,
            process_limit: None,
            launcher_end: libc::SIGKILL,
        }
    }

    /// Landlock would block signals from an entering process to the processes that are already
    /// there, which are in another Landlock domain; the pid namespace blocks signals to all others.
    /// If the kernel killed it together with the launcher, the processes that its command left would
    /// go on; so it gets [`LAUNCHER_ENDED`] and kills them.
    pub fn for_entering_process(namespaces: NewNamespaces) -> Self {
        Self { scope_signals: false, launcher_end: LAUNCHER_ENDED, ..Self::for_first_process(namespaces) }
    }

    /// Confines the calling process and reports to the launcher, or reports the failure and exits.
    /// Afterwards only the standard streams and the link are open.
    pub fn apply(&self, link: Link) -> Link {
        // SAFETY: the only callers are `FirstProcess::run` and `EnteringProcess::run`. Both run in
        // a child that never returns into the frames below, keep no other value with a descriptor
        // in use after this call, and leave the process by `_exit` or exec, which drop nothing.
        let link = match unsafe { keep_only(link) } {
            Ok(link) => link,
            Err((link, errno)) => give_up(&link, Fault::at(Stage::Descriptors)(errno)),
        };
        let sent = match self.confine(&link) {
            Ok(()) => link.send(Message::Ready, None),
            Err(fault) => give_up(&link, fault),
        };
        match sent {
            Ok(()) => link,
            Err(_) => exit(1),
        }
    }

    fn confine(&self, link: &Link) -> Result<(), Fault> {
        if let Some(limit) = self.process_limit {
            privileges::limit_processes(limit).map_err(Fault::at(Stage::Limits))?;
        }
        device::use_own_nodes().map_err(Fault::at(Stage::Descriptors))?;
        // SAFETY: the area was read of this process before the fork, and nothing refers to it: the
        // launcher's arguments were copied at its start.
        unsafe { self.arguments.erase() };
        privileges::hide().map_err(Fault::at(Stage::Privileges))?;
        privileges::drop_all().map_err(Fault::at(Stage::Privileges))?;
        let files = self.namespaces == NewNamespaces::Denied;
        landlock::confine(self.landlock_abi, self.scope_signals, files).map_err(Fault::at(Stage::Landlock))?;
        seccomp::install(&self.filter).map_err(Fault::at(Stage::Seccomp))?;
        privileges::signal_at_end_of_parent(self.launcher_end).map_err(Fault::at(Stage::Parent))?;
        // The launcher may have died before the line above. `getppid` cannot tell, because it is 0
        // in another pid namespace either way; the launcher's end of the link is closed, though.
        match link.is_dead() {
            Ok(false) => Ok(()),
            Ok(true) => Err(Fault::at(Stage::Parent)(Errno::SRCH)),
            Err(errno) => Err(Fault::at(Stage::Parent)(errno)),
        }
    }
}

/// Moves the link to descriptor 3 and closes all others but the standard streams.
///
/// # Safety
/// Closes descriptors that other values own. The caller must neither use nor drop those values
/// afterwards: their numbers are free, and a later `open` may reuse them.
unsafe fn keep_only(link: Link) -> Result<Link, (Link, Errno)> {
    let fd = link.into_fd();
    let fd = if fd.as_raw_fd() == LINK {
        fd
    } else {
        // SAFETY: the arguments are numbers. Descriptor 3 may be closed, or open and owned by
        // another value; the call closes it, and the caller guarantees that its owner, if there is
        // one, is neither used nor dropped any more.
        let third = unsafe { libc::dup3(fd.as_raw_fd(), LINK, libc::O_CLOEXEC) };
        if let Err(errno) = sys::check(libc::c_long::from(third)) {
            return Err((Link::from_fd(fd), errno));
        }
        // `close_from` closes it.
        let _ = fd.into_raw_fd();
        // SAFETY: `dup3` has just opened descriptor 3. No other value owns the new descriptor; the
        // owner of the old one is gone, as above.
        unsafe { OwnedFd::from_raw_fd(LINK) }
    };
    // SAFETY: as the caller guarantees for the owners of descriptors from 4 on; `fd` is 3.
    match unsafe { sys::close_from(LINK as u32 + 1) } {
        Ok(()) => Ok(Link::from_fd(fd)),
        Err(errno) => Err((Link::from_fd(fd), errno)),
    }
}

/// Refuses a directory as a standard stream, through which the guest could leave the sandbox:
/// `openat(0, "..")`.
pub(crate) fn check_streams() -> Result<(), SetupError> {
    for number in 0..3_u8 {
        // SAFETY: borrowed for the length of one call, which fails if the descriptor is closed.
        let stream = unsafe { BorrowedFd::borrow_raw(i32::from(number)) };
        if mountpoint::is_directory(stream).unwrap_or(false) {
            return Err(SetupError::new(Cause::DirectoryAsStream(number)));
        }
    }
    Ok(())
}

/// Reports to the launcher why the set-up failed, and exits.
pub(crate) fn give_up(link: &Link, fault: Fault) -> ! {
    let _ = link.send(Message::Fault(fault), None);
    exit(1)
}

pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: exits without running the launcher's exit handlers a second time.
    unsafe { libc::_exit(code) }
}
