//! Starts a sandbox: forks into new namespaces, sets everything up, and runs `init` as pid 1 only
//! if every single step has succeeded.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use super::blueprint::Blueprint;
use super::cgroup::{self, Cgroups, UnenforcedLimits};
use super::error::{Cause, Fault, SetupError, Stage};
use super::identity::{self, Caller, Maps};
use super::init::Init;
use super::link::{Link, Message};
use super::namespaces::Namespaces;
use super::seccomp::NewNamespaces;
use super::session::SessionStreams;
use super::skeleton::{self, Skeleton};
use super::sys::{self, Forked};
use super::walls::{self, Walls};
use super::{diagnose, privileges, root, session};
use crate::launch::native::step::{NativeSetup, Step};

/// A running sandbox. Dropping it kills the processes that are left, waits for pid 1 and removes
/// the control groups.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    link: Link,
    /// Kept open for `enter`; see [`Namespaces::of_launcher`].
    namespaces: Namespaces,
    /// The listening socket of [`NativeSetup::listen`].
    pub listener: Option<TcpListener>,
    cgroups: Option<Cgroups>,
    /// Held, because it is the sandbox's root.
    skeleton: Option<Skeleton>,
    /// Pid 1 has reported that no other process is left.
    exited: bool,
    reaped: bool,
}

/// A change of the guest's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Its command runs; for [`Command::reports_start`](super::Command::reports_start) only.
    Started,
    /// A signal, such as the terminal's Ctrl-Z, has stopped it; SIGCONT resumes it.
    Stopped(i32),
    /// Its command could not be executed, with this error of exec; `Exited` follows.
    NotStarted(i32),
    /// No process of the sandbox is left.
    Exited(i32),
}

/// Starts to set the sandbox up and, once [`PendingSandbox::finish`] is called, runs `init` in it
/// as pid 1, behind all walls; its result is the exit code. When either returns an error, nothing
/// of the guest has run and nothing is left.
///
/// The calling process must be single-threaded, and the calling thread must live as long as the
/// sandbox: the kernel kills the sandbox with it.
///
/// `streams` are those of the sandbox.
pub fn spawn<'a>(
    setup: &'a NativeSetup,
    streams: SessionStreams<'_>,
    init: impl FnOnce(&Init) -> i32,
) -> Result<PendingSandbox<'a>, SetupError> {
    walls::check_streams()?;
    let mut blueprint = Blueprint::new(setup)?;
    let has_terminal = matches!(streams, SessionStreams::Terminal(_) | SessionStreams::OnlyTerminal(_));
    let mut skeleton = None;
    if blueprint.root.is_none() {
        (skeleton, blueprint.parts) = skeleton::take(&blueprint.operations, has_terminal);
    }
    let caller = Caller::current();
    let limits = cgroup::enforce(setup.limits, caller, setup.nested);
    let mut walls = Walls::for_first_process(NewNamespaces::new(setup.nested, limits.is_separate));
    walls.process_limit = limits.process_limit;
    let first = FirstProcess {
        setup,
        streams,
        blueprint,
        skeleton: skeleton.as_ref(),
        caller,
        maps: Maps::new(setup.uid, setup.gid),
        walls,
        cgroups: limits.cgroups.as_ref(),
    };
    let explain = |fault| diagnose::explain(fault, &setup.steps);
    let (ours, theirs) = Link::pair().map_err(Fault::at(Stage::Parent)).map_err(explain)?;

    // Until pid 1 waits for them, no signal may end or confuse the unfinished sandbox.
    let mask = sys::block_signals();
    let cgroup = first.cgroups.and_then(Cgroups::v2_directory);
    // SAFETY: sandpen has one thread when it launches, as this function's contract says.
    let forked = unsafe { sys::fork_with(first.clone_flags(), cgroup) };
    let forked = match forked {
        Ok(Forked::Child) => {
            drop(ours);
            first.run(theirs, &mask, init)
        }
        Ok(Forked::Parent { pid, pidfd }) => Ok((pid, pidfd)),
        Err(errno) => Err(explain(Fault::at(Stage::Namespaces)(errno))),
    };
    sys::restore_signals(&mask);
    drop(theirs);
    let (pid, pidfd) = forked?;
    let mut child = Child::new(ours, pid, pidfd);
    child.cgroups = limits.cgroups;
    child.skeleton = skeleton;
    Ok(PendingSandbox { child, setup, caller, unenforced: limits.unenforced })
}

/// A sandbox whose first process still sets up its mounts. Dropping it kills that process.
#[derive(Debug)]
pub struct PendingSandbox<'a> {
    child: Child,
    setup: &'a NativeSetup,
    caller: Caller,
    /// With `--strict` the session drops the sandbox if there are any.
    pub unenforced: Option<UnenforcedLimits>,
}

impl PendingSandbox<'_> {
    /// Lets the first process continue, and waits until it has applied all walls. Nothing of the
    /// guest runs before.
    pub fn finish(self) -> Result<Child, SetupError> {
        let PendingSandbox { mut child, setup, caller, .. } = self;
        let pid = child.pid;
        let open_namespaces = || {
            Namespaces::of_child(pid, setup.share_network)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                .map_err(Fault::at(Stage::Parent))
                .map_err(|fault| diagnose::explain(fault, &setup.steps))
        };
        // An ordinary user must open them before pid 1 hides, which it does after this message.
        // Root may open them at any time, and must after the user namespace was created.
        let early = (caller == Caller::User).then(open_namespaces);
        let _ = child.link.send(Message::Go, None);
        child.await_ready(&setup.steps)?;
        child.namespaces = early.unwrap_or_else(open_namespaces)?;
        Ok(child)
    }
}

/// Everything that pid 1 needs to set the sandbox up, made before the fork.
struct FirstProcess<'a> {
    setup: &'a NativeSetup,
    streams: SessionStreams<'a>,
    blueprint: Blueprint<'a>,
    skeleton: Option<&'a Skeleton>,
    caller: Caller,
    maps: Maps,
    walls: Walls,
    cgroups: Option<&'a Cgroups>,
}

impl FirstProcess<'_> {
    fn clone_flags(&self) -> u64 {
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        if self.caller == Caller::User {
            flags |= libc::CLONE_NEWUSER;
        }
        if !self.setup.share_network {
            flags |= libc::CLONE_NEWNET;
        }
        flags as u64
    }

    /// Sets up the sandbox in the child, runs `init` and exits.
    fn run(self, link: Link, mask: &libc::sigset_t, init: impl FnOnce(&Init) -> i32) -> ! {
        if let Err(fault) = self.build().and_then(|()| self.listen(&link)) {
            walls::give_up(&link, fault);
        }
        link.await_message();
        let link = self.walls.apply(link);
        Init::first(link, *mask).run(init)
    }

    fn build(&self) -> Result<(), Fault> {
        // Early as well as late: a launcher that dies meanwhile must not leave an unfinished
        // sandbox.
        privileges::die_with_parent().map_err(Fault::at(Stage::Parent))?;
        if let Some(cgroups) = self.cgroups {
            cgroups.join_v1().map_err(Fault::at(Stage::Cgroup))?;
        }
        let at_identity = Fault::at(Stage::Identity);
        let own_proc = identity::open_own_proc().map_err(&at_identity)?;
        if self.caller == Caller::User {
            self.maps.write(own_proc.as_fd()).map_err(&at_identity)?;
        }
        session::begin(self.streams).map_err(Fault::at(Stage::Terminal))?;
        // Not with the other namespaces: its root is the control group that the process is in now.
        identity::unshare(libc::CLONE_NEWCGROUP).map_err(&at_identity)?;
        rustix::system::sethostname(self.setup.hostname.as_bytes()).map_err(Fault::at(Stage::Hostname))?;
        if !self.setup.share_network {
            identity::loopback_up().map_err(Fault::at(Stage::Loopback))?;
        }
        self.build_file_system()?;
        if self.caller == Caller::Root {
            identity::enter_user_namespace(&self.maps, own_proc.as_fd()).map_err(&at_identity)?;
        }
        Ok(())
    }

    /// Binds the port before anything of the guest runs, so no other process can have taken it.
    fn listen(&self, link: &Link) -> Result<(), Fault> {
        let Some(port) = self.setup.listen else { return Ok(()) };
        let sent = crate::proxy::bind(port).map(|listener| link.send(Message::Listening, Some(listener.as_fd())));
        match sent {
            Ok(sent) => sent.map_err(Fault::at(Stage::Loopback)),
            Err(error) => Err(Fault::at(Stage::Loopback)(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
    }

    fn build_file_system(&self) -> Result<(), Fault> {
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        let built = root::build(&self.blueprint, self.skeleton, self.setup.nested);
        rustix::process::umask(umask);
        built?;
        rustix::process::chdir(self.blueprint.cwd.as_c_str()).map_err(Fault::at(Stage::WorkingDirectory))
    }
}

impl Child {
    pub(crate) fn new(link: Link, pid: Pid, pidfd: OwnedFd) -> Self {
        Self {
            pid,
            pidfd,
            link,
            namespaces: Namespaces::default(),
            listener: None,
            cgroups: None,
            skeleton: None,
            exited: false,
            reaped: false,
        }
    }

    /// Waits until the child reports that it has applied all walls, or why it has not.
    pub(crate) fn await_ready(&mut self, steps: &[Step]) -> Result<(), SetupError> {
        loop {
            match self.link.receive() {
                Err(Errno::INTR) => {}
                Ok(Some((Message::Listening, listener))) => self.listener = listener.map(Into::into),
                Ok(Some((Message::Ready, _))) => return Ok(()),
                Ok(Some((Message::Fault(fault), _))) => return Err(diagnose::explain(fault, steps)),
                _ => return Err(SetupError::new(Cause::Died)),
            }
        }
    }

    /// Returns the pid, in the host's pid namespace, of pid 1 of the sandbox or of the entered
    /// process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to pid 1, which passes it on to the guest.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.pidfd, signal)
    }

    /// Returns a descriptor that is readable when there is an event.
    pub fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.link, PollFlags::IN)
    }

    /// Waits for the next event. EINTR is returned, so that a caller with signal handlers sees it.
    pub fn event(&mut self) -> rustix::io::Result<Event> {
        match self.link.receive()? {
            Some((Message::Started, _)) => Ok(Event::Started),
            Some((Message::Stopped(signal), _)) => Ok(Event::Stopped(signal)),
            Some((Message::NotStarted(errno), _)) => Ok(Event::NotStarted(errno)),
            Some((Message::Exited(code), _)) => {
                // The last process that holds the namespaces destroys them, which is slow: leave it
                // to pid 1.
                self.namespaces = Namespaces::default();
                let _ = self.link.send(Message::End, None);
                self.exited = true;
                Ok(Event::Exited(code))
            }
            Some(_) => Err(Errno::PROTO),
            // Pid 1 was killed from outside and has reported nothing.
            None => self.wait().map(Event::Exited),
        }
    }

    /// Whether the kernel killed a process of the sandbox because memory ran out.
    pub fn ran_out_of_memory(&self) -> bool {
        self.cgroups.as_ref().is_some_and(Cgroups::ran_out_of_memory)
    }

    /// Does not wait for the end of pid 1, after `Event::Exited` has reported that no other process
    /// is left: the kernel destroys the namespaces by itself, and the host's init reaps. Saves some
    /// 0.2 ms for a launcher that exits now. With control groups to remove it waits all the same.
    pub fn detach(mut self) {
        self.reaped |= self.exited && self.cgroups.is_none();
    }

    /// Waits for pid 1 itself and returns its exit code, or 128 + n for signal n.
    pub fn wait(&mut self) -> rustix::io::Result<i32> {
        loop {
            match rustix::process::waitpid(Some(self.pid), WaitOptions::empty()) {
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
                Ok(None) => {}
                Ok(Some((_, status))) => {
                    self.reaped = true;
                    return Ok(crate::process::Outcome::from_wait(status).exit_code().into());
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
            let _ = self.wait();
        }
        // Only now are the control groups empty.
        drop(self.cgroups.take());
    }
}
