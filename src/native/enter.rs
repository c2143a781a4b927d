//! Runs a further command in a running sandbox, behind the same walls as the first.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use super::error::{Cause, Fault, SetupError, Stage};
use super::identity::Caller;
use super::init::Init;
use super::link::{Link, Message};
use super::namespaces::Namespaces;
use super::seccomp::NewNamespaces;
use super::session::SessionStreams;
use super::spawn::Child;
use super::sys::{self, Forked};
use super::walls::{self, Walls};
use super::{blueprint, cgroup, diagnose, privileges, session};
use crate::launch::native::step::NativeEntry;

/// How long the processes of an entering command may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandLifetime {
    /// Until the command or the process that entered has ended.
    Command,
    /// Until the sandbox has ended.
    Sandbox,
}

/// Like [`spawn`](super::spawn), into existing namespaces. `launcher` is the process that holds the
/// sandbox since its `spawn` returned; its control groups are joined.
///
/// Forks twice, because `setns` changes the pid namespace of future children only. The first child
/// is still a process of the host; it hides itself before it enters the namespaces, and exits
/// there. The second is created as a child of this process (`CLONE_PARENT`), so that this process
/// can wait for it and the kernel signals it when this process dies.
pub fn enter(
    launcher: u32,
    entry: &NativeEntry,
    streams: SessionStreams<'_>,
    lifetime: CommandLifetime,
    init: impl FnOnce(&Init) -> i32,
) -> Result<Child, SetupError> {
    walls::check_streams()?;
    let failed = |errno: Errno| diagnose::explain(Fault::at(Stage::Enter)(errno), &[]);
    let cwd = blueprint::working_directory(&entry.cwd, 0)?;
    let caller = Caller::current();
    let namespaces = Namespaces::of_launcher(launcher)
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::SRCH)))?;
    let cgroup_procs = cgroup::procs_of_launcher(launcher).map_err(|_| failed(Errno::ACCESS))?;
    let is_separate = !cgroup_procs.is_empty() || !cgroup::is_own_group_writable();
    let mut walls = Walls::for_entering_process(NewNamespaces::new(entry.nested, is_separate));
    if caller == Caller::User {
        walls.process_limit = entry.pids;
    }
    let entering = EnteringProcess { namespaces, cgroup_procs, caller, streams, lifetime, cwd: &cwd, walls };
    let (ours, theirs) = Link::pair().map_err(failed)?;
    let mask = sys::block_signals();
    // SAFETY: sandpen has one thread when it enters, as with `spawn`.
    let forked = match unsafe { sys::fork_with(0, None) } {
        Ok(Forked::Child) => {
            drop(ours);
            entering.run(theirs, &mask, init)
        }
        Ok(Forked::Parent { pid, .. }) => Ok(pid),
        Err(errno) => Err(failed(errno)),
    };
    sys::restore_signals(&mask);
    drop(theirs);
    let first = forked?;
    let second = await_entering(&ours);
    // The first child exits as soon as it has created the second.
    let _ = rustix::process::waitpid(Some(first), WaitOptions::empty());
    let (pid, pidfd) = second?;
    // Only now may the second child send anything: its messages must not arrive before `Entering`.
    let _ = ours.send(Message::Go, None);
    let mut child = Child::new(ours, pid, pidfd);
    child.await_ready(&[]).map(|()| child)
}

fn await_entering(link: &Link) -> Result<(Pid, OwnedFd), SetupError> {
    loop {
        match link.receive() {
            Err(Errno::INTR) => {}
            Ok(Some((Message::Entering(pid), pidfd))) => {
                return Pid::from_raw(pid).zip(pidfd).ok_or_else(|| SetupError::new(Cause::Died));
            }
            Ok(Some((Message::Fault(fault), _))) => return Err(diagnose::explain(fault, &[])),
            _ => return Err(SetupError::new(Cause::Died)),
        }
    }
}

/// Everything that the two children need, made before the first fork.
struct EnteringProcess<'a> {
    namespaces: Namespaces,
    cgroup_procs: Vec<OwnedFd>,
    caller: Caller,
    streams: SessionStreams<'a>,
    lifetime: CommandLifetime,
    cwd: &'a std::ffi::CStr,
    walls: Walls,
}

impl EnteringProcess<'_> {
    fn run(self, link: Link, mask: &libc::sigset_t, init: impl FnOnce(&Init) -> i32) -> ! {
        if let Err(errno) = self.enter_namespaces() {
            walls::give_up(&link, Fault::at(Stage::Enter)(errno));
        }
        // SAFETY: this process is a fork of one with a single thread, so it has one thread, too.
        match unsafe { sys::fork_with(libc::CLONE_PARENT as u64, None) } {
            Err(errno) => walls::give_up(&link, Fault::at(Stage::Enter)(errno)),
            Ok(Forked::Parent { pid, pidfd }) => {
                let pid = pid.as_raw_nonzero().get();
                let sent = link.send(Message::Entering(pid), Some(pidfd.as_fd()));
                walls::exit(i32::from(sent.is_err()))
            }
            Ok(Forked::Child) => {
                link.await_message();
                if let Err(errno) = session::begin(self.streams) {
                    walls::give_up(&link, Fault::at(Stage::Terminal)(errno));
                }
                if let Err(errno) = rustix::process::chdir(self.cwd) {
                    walls::give_up(&link, Fault::at(Stage::WorkingDirectory)(errno));
                }
                let link = self.walls.apply(link);
                Init::entered(link, *mask, self.lifetime == CommandLifetime::Sandbox).run(init)
            }
        }
    }

    fn enter_namespaces(&self) -> rustix::io::Result<()> {
        privileges::hide()?;
        cgroup::join(&self.cgroup_procs)?;
        self.namespaces.enter(self.caller)
    }
}
