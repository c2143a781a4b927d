//! Builds the guest's file system in a private mount namespace, as the blueprint says, and detaches
//! the host's. Nothing is ever written to the host: the root is a tmpfs without a name there, so
//! nothing is left behind even after SIGKILL. All directories in memory are parts of one more tmpfs,
//! whose size bounds them together.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, UnmountFlags};

use super::blueprint::{Blueprint, Operation};
use super::device::{self, Nodes};
use super::error::{Fault, Stage};
use super::image_root;
use super::mountpoint::{Tree, attach_at};
use super::procfs;
use super::skeleton::{Part, Skeleton};
use super::sys::{self, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};

/// Executes the blueprint. Afterwards no path leads to the host's file system any more.
///
/// 1. Nothing propagates to or from the host.
/// 2. All sources are opened, before anything is mounted that could cover them.
/// 3. The file system of all directories in memory is mounted over a directory that no step needs, and
///    the new root over `/`; other paths still lead to the host. The new root is a skeleton, which is
///    read-only from the beginning, an empty file system in memory, or has the files of an image.
/// 4. The steps run, relative to the new root's descriptor, without what the skeleton contains.
/// 5. A guest that may make sandboxes gets a `/proc` that it cannot reach, but may mount again.
/// 6. The new root becomes read-only, unless the guest has a layer of its own over an image. Then it
///    becomes `/`, and the old one is detached.
pub(crate) fn build(
    blueprint: &Blueprint<'_>,
    skeleton: Option<&Skeleton>,
    nested: bool,
) -> std::result::Result<(), Fault> {
    let at_root = Fault::at(Stage::Root);
    sys::mount_setattr(CWD, c"/", true, 0, libc::MS_PRIVATE).map_err(&at_root)?;
    let sources = open_sources(blueprint)?;
    let layers = blueprint.root.as_ref().map(image_root::open).transpose().map_err(&at_root)?;
    // A directory in memory can only be mounted elsewhere while its file system is mounted, too. It is
    // detached with the host's root, because each `umount` waits for all processors. Not over `/`, where
    // the last `umount` would detach it alone.
    let size = blueprint.memory_files.as_deref().map(|size| (c"size", size));
    let options: Vec<(&CStr, &CStr)> = std::iter::once((c"mode", c"0755")).chain(size).collect();
    let memory = new_file_system(c"tmpfs", &options, NO_DEVICES).map_err(&at_root)?;
    let place = blueprint.root.as_ref().map_or(c"/proc", |layers| &layers.place);
    attach_at(memory.as_fd(), CWD, place).map_err(&at_root)?;
    let new_root = match (layers, skeleton) {
        (Some(layers), _) => image_root::mount(layers, memory.as_fd()),
        (None, Some(skeleton)) => {
            open_place(skeleton.path()).and_then(|place| copy_opened(place.as_fd(), SKELETON, false))
        }
        (None, None) => new_file_system(c"tmpfs", &[(c"mode", c"0755")], NO_DEVICES),
    };
    let new_root = new_root.map_err(&at_root)?;
    attach_at(new_root.as_fd(), CWD, c"/").map_err(&at_root)?;
    let operations = match &blueprint.root {
        Some(_) => image_root::resolve(new_root.as_fd(), &blueprint.operations).map_err(&at_root)?.into(),
        None => Cow::Borrowed(&blueprint.operations[..]),
    };

    let mut guest = Tree::new(new_root, memory);
    let operations = operations.iter().zip(&blueprint.parts).zip(sources);
    for (index, ((operation, part), source)) in
        operations.enumerate().filter(|(_, ((_, part), _))| **part != Part::Nothing)
    {
        let stage = match operation {
            Operation::Proc => Stage::Proc,
            _ => Stage::Step,
        };
        execute(operation, *part, source, &mut guest).map_err(Fault::at_step(stage, index))?;
    }
    if nested {
        procfs::permit_mounting(&mut guest).map_err(Fault::at(Stage::Proc))?;
    }

    if blueprint.root.is_none() {
        sys::mount_setattr(guest.root(), c"", false, MOUNT_ATTR_RDONLY, 0).map_err(&at_root)?;
    }
    leave_host(guest.root()).map_err(Fault::at(Stage::Pivot))
}

/// The files of the host that a step mounts.
enum OpenSource {
    Nothing,
    Tree(OwnedFd),
    Devices(Nodes),
}

fn open_sources(blueprint: &Blueprint<'_>) -> std::result::Result<Vec<OpenSource>, Fault> {
    let open = |(index, (operation, part)): (usize, (&Operation<'_>, &Part))| {
        let opened = match operation {
            _ if *part == Part::Nothing => Ok(OpenSource::Nothing),
            Operation::Bind { source, attributes, .. } => copy_tree(source, *attributes).map(OpenSource::Tree),
            Operation::Cache { host, upper, work, is_needed, .. } => {
                overlay(host, upper, work, *is_needed).map(OpenSource::Tree)
            }
            Operation::Dev => device::open().map(OpenSource::Devices),
            _ => Ok(OpenSource::Nothing),
        };
        opened.map_err(Fault::at_step(Stage::Source, index))
    };
    blueprint.operations.iter().zip(&blueprint.parts).enumerate().map(open).collect()
}

/// Copies the mounts at `source`, a path without symbolic links, into a detached tree and adds
/// `attributes` to each of them. Recursive, because the kernel refuses to uncover in a user
/// namespace what a sub-mount covers.
pub(crate) fn copy_tree(source: &CStr, attributes: u64) -> Result<OwnedFd> {
    copy_opened(open_place(source)?.as_fd(), attributes, true)
}

fn copy_opened(place: BorrowedFd<'_>, attributes: u64, recursive: bool) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let flags = if recursive { flags | OpenTreeFlags::AT_RECURSIVE } else { flags };
    let tree = rustix::mount::open_tree(place, c"", flags)?;
    sys::mount_setattr(tree.as_fd(), c"", recursive, attributes, 0)?;
    Ok(tree)
}

/// Opens a path without symbolic links.
pub(crate) fn open_place(path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let real = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), real)
}

/// Mounts the directory `upper` over `host`, which is only read; or `upper` alone, if the file
/// systems cannot be combined and the overlay is not needed.
fn overlay(host: &CStr, upper: &CStr, work: &CStr, is_needed: bool) -> Result<OwnedFd> {
    let places = [open_place(host)?, open_place(upper)?, open_place(work)?];
    // The kernel limits a value to 255 bytes, and a colon divides directories.
    let name = |place: &OwnedFd| {
        std::ffi::CString::new(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(|_| Errno::INVAL)
    };
    let [host, over, work] = [name(&places[0])?, name(&places[1])?, name(&places[2])?];
    let options: [(&CStr, &CStr); 3] = [(c"lowerdir", &host), (c"upperdir", &over), (c"workdir", &work)];
    let mounted = || {
        let context = rustix::mount::fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        // Without it only the host's root could keep what the layer needs to know.
        rustix::mount::fsconfig_set_flag(context.as_fd(), c"userxattr")?;
        if is_needed {
            // Otherwise the end of the sandbox waits until everything that anybody wrote to the file
            // system is on disk. The launcher does that if the copy stays.
            rustix::mount::fsconfig_set_flag(context.as_fd(), c"volatile")?;
        }
        create(&context, &options, NO_DEVICES)
    };
    match mounted() {
        Err(_) if !is_needed => copy_tree(upper, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV),
        mounted => mounted,
    }
}

fn execute(operation: &Operation<'_>, part: Part, source: OpenSource, guest: &mut Tree) -> Result<()> {
    match (operation, source) {
        (Operation::Bind { at, .. } | Operation::Cache { at, .. }, OpenSource::Tree(tree)) => {
            guest.mount_part(tree.as_fd(), at, part)
        }
        (Operation::Dev, OpenSource::Devices(nodes)) => device::mount(guest, nodes, part),
        // `open_sources` has opened one for each of these.
        (Operation::Bind { .. } | Operation::Cache { .. } | Operation::Dev, _) => Err(Errno::INVAL),
        (Operation::Dir { at, mode }, _) => guest.directory(at, *mode).map(drop),
        (Operation::Tmpfs { at, mode }, _) => guest.mount_memory(at, *mode, part),
        (Operation::Symlink { at, to }, _) => guest.symlink(at, to),
        (Operation::File { at, content, mode }, _) => guest.file(at, content, *mode),
        (Operation::Proc, _) => procfs::mount(guest),
    }
}

/// Of the host's directory that is mounted as the root: it must not change, in no step.
const SKELETON: u64 = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

pub(crate) const NO_DEVICES: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

pub(crate) fn tmpfs(mode: u32) -> Result<OwnedFd> {
    let mode = std::ffi::CString::new(format!("{mode:o}")).map_err(|_| Errno::INVAL)?;
    new_file_system(c"tmpfs", &[(c"mode", &mode)], NO_DEVICES)
}

/// Creates a file system of kind `name`, mounted nowhere yet.
pub(crate) fn new_file_system(name: &CStr, options: &[(&CStr, &CStr)], attributes: MountAttrFlags) -> Result<OwnedFd> {
    let context = rustix::mount::fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    create(&context, options, attributes)
}

fn create(context: &OwnedFd, options: &[(&CStr, &CStr)], attributes: MountAttrFlags) -> Result<OwnedFd> {
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Changes the root. `pivot_root(".", ".")` puts the old root on top of the new one, where it is
/// detached with all that is mounted in it.
fn leave_host(new_root: BorrowedFd<'_>) -> Result<()> {
    rustix::process::fchdir(new_root)?;
    rustix::process::pivot_root(c".", c".")?;
    rustix::mount::unmount(c".", UnmountFlags::DETACH)
}
