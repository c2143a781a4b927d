//! Checks the kernel features that the native engine uses.

use super::DoctorInput;
use super::check::{Check, Group};
use crate::command::report::State;
use crate::facts::engines::native::LANDLOCK_SCOPES_ABI;
use crate::host::Platform;

impl DoctorInput<'_> {
    /// Returns no checks on macOS.
    pub(super) fn kernel(&self) -> Vec<Check> {
        if self.host.platform == Platform::Macos {
            return Vec::new();
        }
        let kernel = &self.checkup.kernel;
        let namespaces = match &kernel.problem {
            None => line(State::Ok, "namespaces", "can be created"),
            Some(_) => line(State::Warning, "namespaces", "cannot be created by this user"),
        };
        let seccomp = if kernel.seccomp {
            line(State::Ok, "seccomp", "system calls can be filtered")
        } else {
            line(State::Warning, "seccomp", "this kernel cannot filter system calls: native does not start")
        };
        let limits = match kernel.cannot_limit.as_slice() {
            [] => line(State::Ok, "limits", "cpu, memory and pids can be limited"),
            missing => {
                let text = format!(
                    "this user cannot create a control group for {}",
                    missing.iter().map(|controller| controller.name()).collect::<Vec<_>>().join(", ")
                );
                line(State::Note, "limits", text)
            }
        };
        vec![namespaces, landlock(kernel.landlock), seccomp, limits]
    }
}

fn landlock(version: u32) -> Check {
    let consequence = "with the network on, the guest can reach the host's abstract sockets";
    match version {
        0 => line(State::Note, "landlock", format!("not available: {consequence}")),
        1..LANDLOCK_SCOPES_ABI => line(
            State::Note,
            "landlock",
            format!("version {version}: {consequence} (needs version {LANDLOCK_SCOPES_ABI}, Linux 6.12)"),
        ),
        _ => line(State::Ok, "landlock", format!("version {version}: blocks signals and abstract sockets")),
    }
}

fn line(state: State, name: &str, text: impl Into<String>) -> Check {
    Check::new(Group::Kernel, state, name, text)
}
