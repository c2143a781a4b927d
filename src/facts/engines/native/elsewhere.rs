//! Answers for platforms other than Linux, where the native engine never runs.

use super::NativeUnavailable;
use crate::error::Error;
use crate::facts::engines::Controller;

pub fn problem() -> Option<Error> {
    Some(NativeUnavailable::NotLinux.into())
}

pub fn cannot_limit() -> Vec<Controller> {
    Vec::new()
}

pub fn limits_processes_by_default() -> bool {
    true
}

pub fn landlock_abi() -> u32 {
    0
}

pub fn scopes_abstract_sockets() -> bool {
    true
}
