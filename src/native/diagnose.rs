//! Turns the failed system call of a child into a cause that a user can act on.

use super::error::{Cause, Fault, SetupError, Stage};
use crate::facts::engines::native::{NamespaceRestriction, namespace_restriction};
use crate::launch::native::step::Step;

/// Explains what the child, or `clone3` itself, reported. `steps` are those of the set-up.
pub(crate) fn explain(fault: Fault, steps: &[Step]) -> SetupError {
    let index = fault.step as usize;
    let step = steps.get(index);
    let cause = match (fault.stage, fault.errno) {
        // Docker's filter answers ENOSYS to clone3; AppArmor lets the namespace be created but
        // gives no capabilities in it, so that the first privileged call fails.
        (
            Stage::Namespaces | Stage::Identity,
            libc::EPERM | libc::ENOSPC | libc::ENOSYS | libc::EUSERS | libc::EACCES,
        )
        | (Stage::Hostname | Stage::Root, libc::EPERM | libc::EACCES) => {
            let is_refused = fault.stage == Stage::Namespaces && fault.errno == libc::EPERM;
            let unknown = is_refused.then_some(NamespaceRestriction::Unknown);
            namespace_restriction().or(unknown).map_or(Cause::Stage(fault.stage), Cause::Namespaces)
        }
        (Stage::Root | Stage::Source | Stage::Step, libc::ENOSYS) => Cause::KernelTooOld { missing: "mount_setattr" },
        (Stage::Proc, libc::EPERM) => Cause::NoProc,
        (Stage::Source, errno) => match step {
            Some(Step::Bind(bind)) => {
                let path = bind.source.clone();
                match errno {
                    libc::ELOOP => Cause::LinkInSource { index, path },
                    _ => Cause::Source { index, path },
                }
            }
            _ => Cause::Stage(fault.stage),
        },
        (Stage::Step, errno) => match step {
            Some(step) => {
                let path = step.target().to_owned();
                match errno {
                    libc::ELOOP => Cause::LinkInTarget { index, path },
                    _ => Cause::Step { index, path },
                }
            }
            None => Cause::Stage(fault.stage),
        },
        (stage, _) => Cause::Stage(stage),
    };
    SetupError::with(cause, fault.errno)
}
