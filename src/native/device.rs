//! Sets up the guest's `/dev`: the harmless device nodes of the host, and private terminals.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::MountAttrFlags;

use super::mountpoint::Tree;
use super::root::{copy_tree, new_file_system};
use super::skeleton::Part;
use super::sys::{MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

const NODES: [(&CStr, &CStr); 6] = [
    (c"/dev/null", c"dev/null"),
    (c"/dev/zero", c"dev/zero"),
    (c"/dev/full", c"dev/full"),
    (c"/dev/random", c"dev/random"),
    (c"/dev/urandom", c"dev/urandom"),
    (c"/dev/tty", c"dev/tty"),
];

/// The device numbers of those among them that a program may have as a standard stream.
const STREAM_NODES: [((u32, u32), &CStr); 5] = [
    ((1, 3), c"/dev/null"),
    ((1, 5), c"/dev/zero"),
    ((1, 7), c"/dev/full"),
    ((1, 8), c"/dev/random"),
    ((1, 9), c"/dev/urandom"),
];

pub(crate) const LINKS: [(&CStr, &CStr); 5] = [
    (c"dev/fd", c"/proc/self/fd"),
    (c"dev/stdin", c"/proc/self/fd/0"),
    (c"dev/stdout", c"/proc/self/fd/1"),
    (c"dev/stderr", c"/proc/self/fd/2"),
    (c"dev/ptmx", c"pts/ptmx"),
];

/// A read-only mount does not prevent writing to a device, but keeps a guest of root from changing
/// the mode or the owner of the host's node.
const ATTRIBUTES: u64 = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY;

const CONSOLE: &CStr = c"dev/console";
const TERMINALS: &CStr = c"dev/pts";
const SHARED_MEMORY: &CStr = c"dev/shm";

/// Lists where [`mount`] mounts something, and whether that is a directory.
pub(crate) fn places(has_terminal: bool) -> impl Iterator<Item = (&'static CStr, bool)> {
    let exists = |path: &CStr| rustix::fs::access(path, rustix::fs::Access::EXISTS).is_ok();
    let nodes = NODES.iter().filter(move |(path, _)| exists(path)).map(|(_, name)| *name);
    let nodes = nodes.chain(has_terminal.then_some(CONSOLE)).map(|name| (name, false));
    nodes.chain([TERMINALS, SHARED_MEMORY].map(|name| (name, true)))
}

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
        nodes.push((CONSOLE, tree));
    }
    Ok(Nodes(nodes))
}

fn terminal_name() -> Option<CString> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let stream = streams.into_iter().find(|stream| rustix::termios::isatty(stream))?;
    rustix::termios::ttyname(stream, Vec::new()).ok()
}

pub(crate) fn mount(guest: &mut Tree, nodes: Nodes, part: Part) -> Result<()> {
    for (path, tree) in &nodes.0 {
        guest.mount_part(tree.as_fd(), path, part)?;
    }
    if part == Part::Whole {
        for (path, to) in LINKS {
            guest.symlink(path, to)?;
        }
    }
    guest.mount_part(terminals()?.as_fd(), TERMINALS, part)?;
    guest.mount_memory(SHARED_MEMORY, 0o1777, part)
}

/// Creates a devpts: every mount of it is a separate instance. `nodev` would make its terminals
/// unusable.
fn terminals() -> Result<OwnedFd> {
    let options = [(c"ptmxmode", c"0666"), (c"mode", c"0620")];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new_file_system(c"devpts", &options, attributes)
}

/// Replaces standard streams that are device nodes of the host by the guest's own nodes, whose mode a
/// guest of root cannot change (attack 34). Called in the guest's file system. Makes system calls only.
pub(crate) fn use_own_nodes() -> Result<()> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    for (number, stream) in streams.into_iter().enumerate() {
        let Ok(stat) = rustix::fs::fstat(stream) else { continue };
        if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice {
            continue;
        }
        let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let Some((_, node)) = STREAM_NODES.iter().find(|(known, _)| *known == device) else { continue };
        let flags = rustix::fs::fcntl_getfl(stream)? & OFlags::ACCMODE;
        let own = rustix::fs::open(*node, flags | OFlags::CLOEXEC, Mode::empty())?;
        match number {
            0 => rustix::stdio::dup2_stdin(own)?,
            1 => rustix::stdio::dup2_stdout(own)?,
            _ => rustix::stdio::dup2_stderr(own)?,
        }
    }
    Ok(())
}
