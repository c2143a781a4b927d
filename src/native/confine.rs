//! Landlock, the second wall: keeps signals and abstract sockets inside, and files that are not
//! part of the sandbox's file system shut even if a descriptor points there.
//!
//! The mounts say what is readable and writable, and one rule for `/` grants all that they grant.
//! What it adds: a file passed as standard input cannot be opened again for writing through
//! `/proc/self/fd/0`, nor can anything else outside the tree be, and the tree of mounts cannot be
//! changed. A rule per mount would only repeat the mounts.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

/// How much of the second wall stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// Files, signals and abstract sockets.
    Full,
    /// The kernel is older than 6.12: with the network shared, abstract sockets of the host can
    /// be reached.
    FilesOnly,
    /// Not in this kernel, or switched off at boot.
    Absent,
}

/// The newest version this code was written for.
const VERSION: ABI = ABI::V6;

/// Whether the kernel can keep signals inside the sandbox.
pub(crate) fn scopes_signals() -> bool {
    // SAFETY: with this flag the call takes no pointer and only returns the version.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1) };
    version >= 6
}

/// Confines the calling process.
pub(crate) fn confine(scope_signals: bool) -> Result<Landlock> {
    // The crate's errors are for people; what matters here is that there is no sandbox.
    apply(scope_signals).map_err(|_| Errno::INVAL)
}

fn apply(scope_signals: bool) -> std::result::Result<Landlock, RulesetError> {
    let mut scopes = BitFlags::from(Scope::AbstractUnixSocket);
    if scope_signals {
        scopes |= Scope::Signal;
    }
    let all = AccessFs::from_all(VERSION);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let mut ruleset = ruleset.handle_access(all)?.scope(scopes)?.create()?;
    // Without a root nothing can be opened at all, which the guest will see at once.
    if let Ok(root) = PathFd::new("/") {
        ruleset = ruleset.add_rule(PathBeneath::new(root, all))?;
    }
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if let Some(access) = granted(stream) {
            ruleset = with_stream(ruleset, stream, access);
        }
    }
    Ok(match ruleset.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Landlock::Full,
        RulesetStatus::PartiallyEnforced => Landlock::FilesOnly,
        RulesetStatus::NotEnforced => Landlock::Absent,
    })
}

/// The kernel refuses a rule for what has no place in any file system (a memfd), and needs none.
fn with_stream(ruleset: RulesetCreated, stream: BorrowedFd<'_>, access: BitFlags<AccessFs>) -> RulesetCreated {
    match ruleset.try_clone() {
        Ok(spare) => ruleset.add_rule(PathBeneath::new(stream, access)).unwrap_or(spare),
        Err(_) => ruleset,
    }
}

/// `/dev/stdout` and friends open the stream's file again: with the access it was opened with.
fn granted(stream: BorrowedFd<'_>) -> Option<BitFlags<AccessFs>> {
    let kind = rustix::fs::fstat(stream).ok()?.st_mode;
    let kind = rustix::fs::FileType::from_raw_mode(kind);
    let device = match kind {
        rustix::fs::FileType::RegularFile => BitFlags::EMPTY,
        rustix::fs::FileType::CharacterDevice => AccessFs::IoctlDev.into(),
        _ => return None,
    };
    let read = BitFlags::from(AccessFs::ReadFile);
    let write = AccessFs::WriteFile | AccessFs::Truncate;
    let flags = rustix::fs::fcntl_getfl(stream).ok()?;
    Some(
        device
            | match flags & OFlags::RWMODE {
                OFlags::WRONLY => write,
                OFlags::RDWR => read | write,
                _ => read,
            },
    )
}
