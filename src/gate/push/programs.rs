//! Lists the programs that connections run on the host, so that none outlives the session: a server
//! that never answers holds up the thread that would end its program.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The process groups of running programs.
#[derive(Debug, Clone, Default)]
pub struct RunningPrograms(Arc<Mutex<Groups>>);

#[derive(Debug, Default)]
struct Groups {
    is_closed: bool,
    running: BTreeSet<u32>,
}

/// The entry of a child that was not waited for yet. Dropping it removes the entry.
#[derive(Debug)]
pub struct Registration {
    programs: RunningPrograms,
    id: u32,
}

impl RunningPrograms {
    /// Adds a child, which leads a process group. If the session has ended, so does the child.
    pub fn register(&self, id: u32) -> Registration {
        let registration = Registration { programs: self.clone(), id };
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.running.insert(id);
        if groups.is_closed {
            registration.kill();
        }
        registration
    }

    /// Ends all programs, and those that are started later.
    pub fn close(&self) {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        groups.is_closed = true;
        groups.running.iter().for_each(|id| kill(*id));
    }
}

impl Registration {
    pub fn kill(&self) {
        kill(self.id);
    }

    /// Tells whether the child has ended. It keeps its number until it is waited for.
    pub fn has_ended(&self) -> io::Result<bool> {
        self.look(WaitIdOptions::NOHANG)
    }

    /// Waits until the child has ended.
    pub fn wait_for_end(&self) -> io::Result<()> {
        while !self.look(WaitIdOptions::empty())? {}
        Ok(())
    }

    fn look(&self, options: WaitIdOptions) -> io::Result<bool> {
        let pid = pid(self.id).ok_or(io::ErrorKind::InvalidInput)?;
        match waitid(WaitId::Pid(pid), options | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.programs.0.lock().unwrap_or_else(PoisonError::into_inner).running.remove(&self.id);
    }
}

fn pid(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

fn kill(id: u32) {
    // A group that is gone needs no signal.
    let _ = pid(id).map(|pid| kill_process_group(pid, Signal::KILL));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "starts children")]

    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    use super::super::process::GroupLeader;
    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("1000").process_group(0).spawn().expect("a child")
    }

    #[test]
    fn the_end_of_the_session_ends_every_program() {
        let programs = RunningPrograms::default();
        let mut early = GroupLeader::new(sleeper(), &programs);
        assert_eq!(early.try_wait().expect("a child"), None);
        programs.close();
        let mut late = GroupLeader::new(sleeper(), &programs);
        for leader in [&mut early, &mut late] {
            assert_eq!(leader.wait().expect("a child").signal(), Some(libc::SIGKILL));
            assert!(leader.try_wait().expect("a status").is_some(), "it can be asked again");
        }
        assert!(programs.0.lock().expect("the list").running.is_empty());
    }

    #[test]
    fn a_program_that_has_ended_is_not_listed() {
        let programs = RunningPrograms::default();
        let child = Command::new("true").process_group(0).spawn().expect("a child");
        let mut leader = GroupLeader::new(child, &programs);
        assert!(leader.wait().expect("a child").success());
        assert!(programs.0.lock().expect("the list").running.is_empty());
        drop(GroupLeader::new(sleeper(), &programs));
        assert!(programs.0.lock().expect("the list").running.is_empty());
    }
}
