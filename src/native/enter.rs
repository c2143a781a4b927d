//! Runs a second command in a running sandbox, behind the same walls as the first.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use crate::launch::native::step::{Group, Sandbox};
use crate::native::blueprint::Blueprint;
use crate::native::diagnose;
use crate::native::error::{Cause, Fault, SetupError, Stage};
use crate::native::identity::Power;
use crate::native::init::Init;
use crate::native::link::{Link, Message};
use crate::native::namespaces::Namespaces;
use crate::native::spawn::Child;
use crate::native::sys::{self, Forked};
use crate::native::walls::{self, Walls};
use crate::native::{cgroup, privileges};

/// Like [`spawn`](crate::native::spawn), into namespaces that exist. Of `sandbox` only what the walls need
/// is used: `group`, `cwd` and `limits.pids`. `launcher` is the process that
/// holds the sandbox, since its `spawn` returned; its control groups are joined.
///
/// Two forks: a process can move its children only into another pid namespace. The first one, which
/// still is of the host, hides itself before it steps inside and ends there; the second one is
/// made as the launcher's own child, so that it can be waited for and dies with it.
pub fn enter(launcher: u32, sandbox: &Sandbox, init: impl FnOnce(&Init) -> i32) -> Result<Child, SetupError> {
    walls::check_streams()?;
    let explain = |fault| diagnose::explain(fault, sandbox);
    let failed = |errno: Errno| explain(Fault::at(Stage::Enter)(errno));
    let blueprint = Blueprint::draw(sandbox)?;
    let power = Power::of_caller();
    let namespaces = Namespaces::of_launcher(launcher)
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::SRCH)))?;
    let joins = cgroup::of_launcher(launcher).map_err(|_| failed(Errno::ACCESS))?;
    let mut walls = Walls::of_entering(sandbox);
    if power == Power::User {
        walls.process_limit = sandbox.limits.pids;
    }
    let passage =
        SandboxEntry { namespaces, joins, power, own_group: sandbox.group == Group::Own, cwd: &blueprint.cwd, walls };
    let (ours, theirs) = Link::pair().map_err(failed)?;
    let mask = sys::block_signals();
    // SAFETY: sandpen has one thread when it enters, as with `spawn`.
    let forked = match unsafe { sys::fork_with(0, None) } {
        Ok(Forked::Child) => {
            drop(ours);
            passage.run(theirs, &mask, init)
        }
        Ok(Forked::Parent { pid, .. }) => Ok(pid),
        Err(errno) => Err(failed(errno)),
    };
    sys::restore_signals(&mask);
    drop(theirs);
    let first = forked?;
    let second = await_entering(&ours, &explain);
    // Short-lived by construction: it makes the other and ends.
    let _ = rustix::process::waitpid(Some(first), WaitOptions::empty());
    let (pid, pidfd) = second?;
    // Only now may it say anything: what it says must not come before what announces it.
    let _ = ours.send(Message::Go, None);
    let mut child = Child::new(ours, pid, pidfd);
    child.await_ready(&explain).map(|()| child)
}

fn await_entering(link: &Link, explain: &dyn Fn(Fault) -> SetupError) -> Result<(Pid, OwnedFd), SetupError> {
    loop {
        match link.receive() {
            Err(Errno::INTR) => {}
            Ok(Some((Message::Entering(pid), pidfd))) => {
                return Pid::from_raw(pid).zip(pidfd).ok_or_else(|| SetupError::new(Cause::Died));
            }
            Ok(Some((Message::Fault(fault), _))) => return Err(explain(fault)),
            _ => return Err(SetupError::new(Cause::Died)),
        }
    }
}

struct SandboxEntry<'a> {
    namespaces: Namespaces,
    joins: Vec<OwnedFd>,
    power: Power,
    own_group: bool,
    cwd: &'a std::ffi::CStr,
    walls: Walls,
}

impl SandboxEntry<'_> {
    fn run(self, link: Link, mask: &libc::sigset_t, init: impl FnOnce(&Init) -> i32) -> ! {
        if let Err(errno) = self.step_inside() {
            walls::give_up(&link, Fault::at(Stage::Enter)(errno));
        }
        // SAFETY: a copy of a process that had one thread has one thread.
        match unsafe { sys::fork_with(libc::CLONE_PARENT as u64, None) } {
            Err(errno) => walls::give_up(&link, Fault::at(Stage::Enter)(errno)),
            Ok(Forked::Parent { pid, pidfd }) => {
                let pid = pid.as_raw_nonzero().get();
                let sent = link.send(Message::Entering(pid), Some(pidfd.as_fd()));
                walls::exit(i32::from(sent.is_err()))
            }
            Ok(Forked::Child) => {
                link.await_message();
                if let Err(errno) = rustix::process::chdir(self.cwd) {
                    walls::give_up(&link, Fault::at(Stage::WorkingDirectory)(errno));
                }
                let link = self.walls.raise(link);
                Init::entered(link, *mask).run(init)
            }
        }
    }

    fn step_inside(&self) -> rustix::io::Result<()> {
        privileges::hide()?;
        for procs in &self.joins {
            rustix::io::write(procs, b"0")?;
        }
        if self.own_group {
            rustix::process::setpgid(None, None)?;
        }
        self.namespaces.enter(self.power)
    }
}
