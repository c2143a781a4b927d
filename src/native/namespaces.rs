//! Opens and enters the namespaces of a running sandbox. The launcher keeps them open for `exec`,
//! because pid 1 hides itself and with it its namespaces in `/proc`.

use std::os::fd::{AsFd, OwnedFd};

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

#[derive(Debug, Default)]
pub struct Namespaces(Vec<(LinkNameSpaceType, OwnedFd)>);

impl Namespaces {
    /// Opens those of a child that does not hide yet, or of any child if the caller is root. A
    /// network shared with the host is left out.
    pub(crate) fn of_child(pid: Pid, share_network: bool) -> std::io::Result<Self> {
        let kinds = &KINDS[..KINDS.len() - usize::from(share_network)];
        let open = |(name, kind): &(&str, LinkNameSpaceType)| {
            let path = format!("/proc/{}/ns/{name}", pid.as_raw_nonzero());
            Ok((*kind, std::fs::File::open(path)?.into()))
        };
        kinds.iter().map(open).collect::<std::io::Result<_>>().map(Self)
    }

    /// Opens those that the launcher `pid` keeps open, found by their names among its descriptors.
    pub fn of_launcher(pid: u32) -> std::io::Result<Self> {
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
