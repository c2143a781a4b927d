//! Starts a sandbox: forks into new namespaces, sets everything up, and runs `init` as pid 1 only
//! if every single step has succeeded.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};

use crate::launch::native::step::{Group, Sandbox};
use crate::native::blueprint::Blueprint;
use crate::native::cgroup::{Cgroups, Downgrade};
use crate::native::confine::Landlock;
use crate::native::diagnose;
use crate::native::error::{Cause, Fault, SetupError, Stage};
use crate::native::identity::{self, Maps, Power};
use crate::native::init::Init;
use crate::native::link::{Link, Message};
use crate::native::namespaces::Namespaces;
use crate::native::procfs::Masks;
use crate::native::root;
use crate::native::sys::{self, Forked};
use crate::native::walls::{self, Walls};

/// A running sandbox. Dropping it kills what is left, waits for it and removes its control groups.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    link: Link,
    /// Held for `enter`; see [`Namespaces::of_launcher`].
    pub namespaces: Namespaces,
    pub landlock: Landlock,
    pub downgrades: Vec<Downgrade>,
    /// The port that was asked for, bound inside.
    pub listener: Option<std::net::TcpListener>,
    cgroups: Option<Cgroups>,
    over: bool,
    reaped: bool,
}

/// What happens to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// By a signal, such as the terminal's Ctrl-Z; a SIGCONT resumes it.
    Stopped(i32),
    /// The command could not be executed, for this error of exec; the end follows.
    NotStarted(i32),
    /// No process of the sandbox is left.
    Exited(i32),
}

/// Begins to set the sandbox up and, once [`PendingSandbox::finish`] is called, runs `init` in it as pid 1, behind all walls; its result is
/// the exit code. When either returns an error, nothing of the guest has run and nothing is left.
///
/// The calling process must be single-threaded, and the calling thread must live as long as the
/// sandbox is to live: the kernel ends the sandbox with it.
pub fn spawn(sandbox: &Sandbox, init: impl FnOnce(&Init) -> i32) -> Result<PendingSandbox<'_>, SetupError> {
    walls::check_streams()?;
    let blueprint = Blueprint::draw(sandbox)?;
    let power = Power::of_caller();
    let mut walls = Walls::of(sandbox);
    let limits = crate::native::cgroup::arrange(sandbox.limits, power);
    walls.process_limit = limits.process_limit;
    let setup = Setup {
        sandbox,
        blueprint,
        power,
        maps: Maps::new(sandbox.uid, sandbox.gid),
        walls,
        cgroups: limits.cgroups.as_ref(),
    };
    let explain = |fault| diagnose::explain(fault, sandbox);
    let (ours, theirs) = Link::pair().map_err(Fault::at(Stage::Parent)).map_err(explain)?;

    // Until pid 1 waits for them, no signal may end or confuse the half-made sandbox.
    let mask = sys::block_signals();
    let cgroup = setup.cgroups.and_then(Cgroups::unified);
    // SAFETY: sandpen has one thread when it launches, as this function's contract says.
    let forked = unsafe { sys::fork_with(setup.flags(), cgroup) };
    let forked = match forked {
        Ok(Forked::Child) => {
            drop(ours);
            setup.run(theirs, &mask, init)
        }
        Ok(Forked::Parent { pid, pidfd }) => Ok((pid, pidfd)),
        Err(errno) => Err(explain(Fault::at(Stage::Namespaces)(errno))),
    };
    sys::restore_signals(&mask);
    drop(theirs);
    let (pid, pidfd) = forked?;
    let mut child = Child::new(ours, pid, pidfd);
    child.downgrades = limits.downgrades;
    child.cgroups = limits.cgroups;
    Ok(PendingSandbox { child, sandbox, power })
}

/// A sandbox whose first process is still busy with its mounts. Dropping it ends it.
#[derive(Debug)]
pub struct PendingSandbox<'a> {
    child: Child,
    sandbox: &'a Sandbox,
    power: Power,
}

impl PendingSandbox<'_> {
    /// Lets it go on, and waits until all walls stand. Nothing of the guest's runs before.
    pub fn finish(self) -> Result<Child, SetupError> {
        let PendingSandbox { mut child, sandbox, power } = self;
        let explain = |fault| diagnose::explain(fault, sandbox);
        let pid = child.pid;
        let hold = || {
            Namespaces::of_child(pid, sandbox.share_network)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
                .map_err(Fault::at(Stage::Parent))
                .map_err(explain)
        };
        // An ordinary user must look before pid 1 hides, which it does after this message; root may look at any time, and must
        // after the user namespace was made.
        let early = (power == Power::User).then(hold);
        let _ = child.link.send(Message::Go, None);
        child.await_ready(&explain)?;
        child.namespaces = early.unwrap_or_else(hold)?;
        Ok(child)
    }
}

/// All that the child needs, made before the fork.
struct Setup<'a> {
    sandbox: &'a Sandbox,
    blueprint: Blueprint<'a>,
    power: Power,
    maps: Maps,
    walls: Walls,
    cgroups: Option<&'a Cgroups>,
}

impl Setup<'_> {
    fn flags(&self) -> u64 {
        let mut flags = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        if self.power == Power::User {
            flags |= libc::CLONE_NEWUSER;
        }
        if !self.sandbox.share_network {
            flags |= libc::CLONE_NEWNET;
        }
        flags as u64
    }

    /// The child's whole life.
    fn run(self, link: Link, mask: &libc::sigset_t, init: impl FnOnce(&Init) -> i32) -> ! {
        if let Err(fault) = self.build().and_then(|()| self.listen(&link)) {
            walls::give_up(&link, fault);
        }
        link.await_message();
        let link = self.walls.raise(link);
        Init::first(link, *mask).run(init)
    }

    fn build(&self) -> Result<(), Fault> {
        // Early as well as late: a launcher that dies meanwhile must not leave a half-made one.
        crate::native::privileges::die_with_parent().map_err(Fault::at(Stage::Parent))?;
        if let Some(cgroups) = self.cgroups {
            cgroups.join().map_err(Fault::at(Stage::Cgroup))?;
        }
        let at_identity = Fault::at(Stage::Identity);
        let own = identity::own_proc().map_err(&at_identity)?;
        if self.power == Power::User {
            self.maps.write(own.as_fd()).map_err(&at_identity)?;
        }
        if self.sandbox.group == Group::Own {
            rustix::process::setpgid(None, None).map_err(&at_identity)?;
        }
        // Not with the other namespaces: its root is the control group the process is in now.
        identity::unshare(libc::CLONE_NEWCGROUP).map_err(&at_identity)?;
        rustix::system::sethostname(self.sandbox.hostname.as_bytes()).map_err(Fault::at(Stage::Hostname))?;
        if !self.sandbox.share_network {
            identity::loopback_up().map_err(Fault::at(Stage::Loopback))?;
        }
        self.file_system()?;
        if self.power == Power::Root {
            identity::become_guest_of_root(&self.maps, own.as_fd()).map_err(&at_identity)?;
        }
        Ok(())
    }

    /// Nothing of the guest runs yet, so nobody can have taken the port.
    fn listen(&self, link: &Link) -> Result<(), Fault> {
        let Some(port) = self.sandbox.listen else { return Ok(()) };
        let sent = crate::proxy::bind(port).map(|listener| link.send(Message::Listening, Some(listener.as_fd())));
        match sent {
            Ok(sent) => sent.map_err(Fault::at(Stage::Loopback)),
            Err(error) => Err(Fault::at(Stage::Loopback)(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
    }

    fn file_system(&self) -> Result<(), Fault> {
        let masks = match (self.sandbox.nested_userns, self.power) {
            (true, Power::User) => Masks::Open,
            _ => Masks::Covered,
        };
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        let built = root::build(&self.blueprint, masks);
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
            landlock: Landlock::Absent,
            downgrades: vec![],
            listener: None,
            cgroups: None,
            over: false,
            reaped: false,
        }
    }

    /// Waits until the child says that all walls stand, or why they do not.
    pub(crate) fn await_ready(&mut self, explain: &dyn Fn(Fault) -> SetupError) -> Result<(), SetupError> {
        loop {
            match self.link.receive() {
                Err(Errno::INTR) => {}
                Ok(Some((Message::Listening, listener))) => self.listener = listener.map(Into::into),
                Ok(Some((Message::Ready(landlock), _))) => {
                    self.landlock = landlock;
                    return Ok(());
                }
                Ok(Some((Message::Fault(fault), _))) => return Err(explain(fault)),
                _ => return Err(SetupError::new(Cause::Died)),
            }
        }
    }

    /// Pid 1 of the sandbox (or the entered process), as the host numbers it.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The guest's own process, which leads its process group: the oldest child of pid 1. `None`
    /// before it starts and after it ends.
    pub fn guest(&self) -> Option<Pid> {
        let pid = self.pid.as_raw_nonzero();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let first = children.split_whitespace().next()?.parse().ok()?;
        Pid::from_raw(first)
    }

    /// Pid 1 passes it on to the guest.
    pub fn signal(&self, signal: Signal) -> rustix::io::Result<()> {
        rustix::process::pidfd_send_signal(&self.pidfd, signal)
    }

    /// Ready when there is an event.
    pub fn poll(&self) -> PollFd<'_> {
        PollFd::new(&self.link, PollFlags::IN)
    }

    /// The next event. EINTR is returned, so that a caller with signal handlers sees it.
    pub fn event(&mut self) -> rustix::io::Result<Event> {
        match self.link.receive()? {
            Some((Message::Stopped(signal), _)) => Ok(Event::Stopped(signal)),
            Some((Message::NotStarted(errno), _)) => Ok(Event::NotStarted(errno)),
            Some((Message::Exited(code), _)) => {
                // The last holder of the namespaces takes them down, which is slow: not us.
                self.namespaces = Namespaces::default();
                let _ = self.link.send(Message::End, None);
                self.over = true;
                Ok(Event::Exited(code))
            }
            Some(_) => Err(Errno::PROTO),
            // Killed from outside: nothing was said.
            None => self.wait().map(Event::Exited),
        }
    }

    /// Whether the kernel killed a process of the sandbox for want of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        self.cgroups.as_ref().is_some_and(Cgroups::ran_out_of_memory)
    }

    /// Does not wait for the end of pid 1, after `Event::Exited` said that no other process is
    /// left: the kernel takes the namespaces down by itself, and the host's init reaps. Worth some
    /// 0.2 ms to a launcher that ends now. With control groups to be removed it waits all the same.
    pub fn detach(mut self) {
        self.reaped |= self.over && self.cgroups.is_none();
    }

    /// Waits for pid 1 itself: its exit code, or 128 + n.
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

impl AsFd for Child {
    /// Readable when there is an event: for a caller that polls.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
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
