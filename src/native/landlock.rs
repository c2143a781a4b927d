//! Confines a process with Landlock, in addition to the mounts: signals and abstract sockets stay
//! inside the sandbox, and files outside its file system stay closed even if a descriptor refers to
//! one.
//!
//! The mounts decide what is readable and writable, and one rule for `/` grants all that they
//! grant. What Landlock adds: a file passed as standard input cannot be opened again for writing
//! through `/proc/self/fd/0`, nor can anything else outside the tree be, and the tree of mounts
//! cannot be changed. A rule per mount would only repeat the mounts.
//!
//! A domain that restricts files may change no mount at all, not even in a namespace of its own. A
//! guest that may make sandboxes is therefore not restricted in files: `gate/streams` keeps the
//! files of the standard streams outside, and the kernel locks the mounts.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::OFlags;
use rustix::io::{Errno, Result};

use crate::facts::engines::native::LANDLOCK_SCOPES_ABI;

/// The newest version this code was written for.
const VERSION: ABI = ABI::V6;

/// Confines the calling process as far as the kernel, whose Landlock has version `abi`, can. Fails
/// if the kernel enforces less than that version promises: the plan has reported no such downgrade.
pub(crate) fn confine(abi: u32, scope_signals: bool, files: bool) -> Result<()> {
    if !files && abi < LANDLOCK_SCOPES_ABI {
        return Ok(());
    }
    // The crate's error is a text for people; the launcher only needs to know that it failed.
    match apply(scope_signals, files).map_err(|_| Errno::INVAL)? {
        RulesetStatus::FullyEnforced => Ok(()),
        RulesetStatus::PartiallyEnforced if abi < LANDLOCK_SCOPES_ABI => Ok(()),
        RulesetStatus::NotEnforced if abi == 0 => Ok(()),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => Err(Errno::OPNOTSUPP),
    }
}

fn apply(scope_signals: bool, files: bool) -> std::result::Result<RulesetStatus, RulesetError> {
    let mut scopes = BitFlags::from(Scope::AbstractUnixSocket);
    if scope_signals {
        scopes |= Scope::Signal;
    }
    let all = AccessFs::from_all(VERSION);
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    if !files {
        return Ok(ruleset.scope(scopes)?.create()?.restrict_self()?.ruleset);
    }
    let mut ruleset = ruleset.handle_access(all)?.scope(scopes)?.create()?;
    // Without this rule nothing can be opened at all, which fails closed.
    if let Ok(root) = PathFd::new("/") {
        ruleset = ruleset.add_rule(PathBeneath::new(root, all))?;
    }
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        if let Some(access) = reopening_access(stream) {
            ruleset = with_stream(ruleset, stream, access);
        }
    }
    Ok(ruleset.restrict_self()?.ruleset)
}

/// The kernel refuses a rule for a file that is in no file system (a memfd), which needs none.
fn with_stream(ruleset: RulesetCreated, stream: BorrowedFd<'_>, access: BitFlags<AccessFs>) -> RulesetCreated {
    match ruleset.try_clone() {
        Ok(spare) => ruleset.add_rule(PathBeneath::new(stream, access)).unwrap_or(spare),
        Err(_) => ruleset,
    }
}

/// `/dev/stdout` and the like open the stream's file again: with the access it was opened with.
fn reopening_access(stream: BorrowedFd<'_>) -> Option<BitFlags<AccessFs>> {
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
