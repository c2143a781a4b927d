//! Sets up the guest's `/dev`: the harmless device nodes of the host, and private terminals.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::mount::MountAttrFlags;

use super::mountpoint::Tree;
use super::root::{copy_tree, new_file_system, tmpfs};
use super::sys::{MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

const NODES: [(&CStr, &CStr); 6] = [
    (c"/dev/null", c"dev/null"),
    (c"/dev/zero", c"dev/zero"),
    (c"/dev/full", c"dev/full"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/tty", c"dev/tty"),
];

const LINKS: [(&CStr, &CStr); 5] = [
    (c"dev/fd", c"/proc/self/fd"),
    (c"dev/stdin", c"/proc/self/fd/0"),
    (c"dev/stdout", c"/proc/self/fd/1"),
    (c"dev/stderr", c"/proc/self/fd/2"),
    (c"dev/ptmx", c"pts/ptmx"),
];

/// A read-only mount does not prevent writing to a device, but keeps a guest of root from changing
/// the mode or the owner of the host's node.
const ATTRIBUTES: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY;

pub(crate) struct Nodes(Vec<(&'static CStr, OwnedFd)>);

pub(crate) fn open() -> Result<Nodes> {
    let mut nodes = Vec::with_capacity(NODES.len() + 1);
    for (path, name) in NODES {
        match copy_tree(path, ATTRIBUTES) {
            Ok(tree) => nodes.push((name, tree)),
            // Some containers have no `/dev/tty`.
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    // Without a node for the terminal `ttyname` fails, and with it tmux, gpg and `tty`.
    if let Some(terminal) = terminal_name()
        && let Ok(tree) = copy_tree(&terminal, ATTRIBUTES)
    {
        nodes.push((c"dev/console", tree));
    }
    Ok(Nodes(nodes))
}

fn terminal_name() -> Option<CString> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let stream = streams.into_iter().find(|stream| rustix::termios::isatty(stream))?;
    rustix::termios::ttyname(stream, Vec::new()).ok()
}

pub(crate) fn mount(guest: &mut Tree, nodes: Nodes) -> Result<()> {
    for (path, tree) in &nodes.0 {
        guest.mount(tree.as_fd(), path)?;
    }
    for (path, to) in LINKS {
        guest.symlink(path, to)?;
    }
    guest.mount(terminals()?.as_fd(), c"dev/pts")?;
    guest.mount(tmpfs(0o1777)?.as_fd(), c"dev/shm")
}

/// Creates a devpts: every mount of it is a separate instance. `nodev` would make its terminals
/// unusable.
fn terminals() -> Result<OwnedFd> {
    let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new_file_system(c"devpts", &options, attributes)
}
