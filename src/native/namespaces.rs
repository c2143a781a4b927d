//! Opens and enters the namespaces of a running sandbox. The launcher keeps them open for `exec`,
//! because pid 1 hides itself and with it its namespaces in `/proc`.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use rustix::process::Pid;
use rustix::thread::LinkNameSpaceType;

use super::identity::{self, Caller};

/// In the order in which an ordinary user enters them: the user namespace permits the others. The
/// cgroup namespace is missing: an entering process creates a new one with the same root.
const KINDS: [(&str, LinkNameSpaceType); 6] = [
    ("user", LinkNameSpaceType::User),
    ("mnt", LinkNameSpaceType::Mount),
    ("pid", LinkNameSpaceType::ProcessID),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
    ("net", LinkNameSpaceType::Network),
];

/// How long a launcher may take to open the namespaces of its sandbox.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
const OPEN_POLL_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
pub struct Namespaces(Vec<(LinkNameSpaceType, OwnedFd)>);

impl Namespaces {
    /// Opens those of a child that does not hide yet, or of any child if the caller is root. A
    /// network shared with the host is left out.
    pub(crate) fn of_child(pid: Pid, share_network: bool) -> std::io::Result<Self> {
        let kinds = &KINDS[..KINDS.len() - usize::from(share_network)];
        // The user namespace comes last, see `await_launcher`.
        let open = |(name, kind): &(&str, LinkNameSpaceType)| {
            let path = format!("/proc/{}/ns/{name}", pid.as_raw_nonzero());
            Ok((*kind, std::fs::File::open(path)?.into()))
        };
        let mut spaces = kinds.iter().rev().map(open).collect::<std::io::Result<Vec<_>>>()?;
        spaces.reverse();
        Ok(Self(spaces))
    }

    /// Waits until the launcher `pid` has opened all namespaces: as long as its network is missing, a
    /// process would enter the sandbox with that of the host. The user namespace is opened last.
    pub fn await_launcher(pid: u32) -> std::io::Result<()> {
        let limit = Instant::now() + OPEN_TIMEOUT;
        loop {
            let mut files = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
            let is_user = |name: PathBuf| name.as_os_str().as_encoded_bytes().starts_with(b"user:[");
            if files.any(|file| std::fs::read_link(file.path()).is_ok_and(is_user)) {
                return Ok(());
            }
            if Instant::now() >= limit {
                return Err(std::io::Error::from(Errno::SRCH));
            }
            std::thread::sleep(OPEN_POLL_INTERVAL);
        }
    }

    /// Opens those that the launcher `pid` keeps open, found by their names among its descriptors.
    pub fn of_launcher(pid: u32) -> std::io::Result<Self> {
        Self::await_launcher(pid)?;
        let mut found: [Option<OwnedFd>; KINDS.len()] = Default::default();
        for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            let path = entry?.path();
            let Ok(name) = std::fs::read_link(&path) else {
                continue;
            };
            // As in `mnt:[4026532281]`.
            let name = name.to_string_lossy();
            let kind = name.split_once(":[").map(|(kind, _)| kind);
            if let Some(index) = KINDS.iter().position(|(name, _)| Some(*name) == kind) {
                found[index] = Some(std::fs::File::open(path)?.into());
            }
        }
        let mut spaces = vec![];
        for (fd, (name, kind)) in found.into_iter().zip(KINDS) {
            match fd {
                Some(fd) => spaces.push((kind, fd)),
                None if name == "net" => {}
                None => return Err(std::io::Error::from(Errno::SRCH)),
            }
        }
        Ok(Self(spaces))
    }

    /// Moves the calling process into them; into the pid namespace only its future children.
    pub(crate) fn enter(&self, caller: Caller) -> Result<()> {
        let enter = |(kind, fd): &(LinkNameSpaceType, OwnedFd)| {
            rustix::thread::move_into_link_name_space(fd.as_fd(), Some(*kind))
        };
        // The root of the new one is the control group that was joined.
        let new_cgroup_namespace = || identity::unshare(libc::CLONE_NEWCGROUP);
        match caller {
            Caller::User => self.0.iter().try_for_each(enter).and_then(|()| new_cgroup_namespace()),
            // The host's user namespace owns the others, so it must be left last.
            Caller::Root => {
                new_cgroup_namespace()?;
                let user_last = self.0.iter().skip(1).chain(self.0.first());
                user_last.into_iter().try_for_each(enter)
            }
        }
    }
}
