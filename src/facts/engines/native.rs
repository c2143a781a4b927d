//! What this machine lets the native engine do; the one place where planning's facts depend on the platform it was built for.

#[cfg(target_os = "linux")]
pub use crate::native::{
    cannot_limit, landlock_version, limits_processes_by_default, problem, scopes_abstract_sockets,
};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use crate::error::Error;

    /// There are no Linux namespaces here.
    pub fn problem() -> Option<Error> {
        Some(
            Error::launch("the native engine is Linux's own").hint("use `--engine sandbox-exec`, `docker` or `podman`"),
        )
    }

    /// Nothing runs, so nothing is left unlimited.
    pub fn cannot_limit() -> Vec<&'static str> {
        Vec::new()
    }

    /// As above.
    pub fn limits_processes_by_default() -> bool {
        true
    }

    /// As above.
    pub fn landlock_version() -> u32 {
        0
    }

    /// As above.
    pub fn scopes_abstract_sockets() -> bool {
        true
    }
}
#[cfg(not(target_os = "linux"))]
pub use elsewhere::*;
