//! The errors of the self-test itself, apart from promises that do not hold.

use std::io;

use crate::error::{Diagnostic, Kind};

#[derive(Debug, thiserror::Error)]
pub enum SelftestError {
    #[error("the sandbox did not start, so no probe could run")]
    NotStarted,
    #[error("cannot find the guest helper, which runs the probes, next to sandpen")]
    NoHelper,
    #[error("the self-test does not yet run with the engine kubernetes")]
    Kubernetes,
    #[error("the self-test does not yet run with an engine on another machine")]
    Elsewhere,
    #[error("cannot write the probe's request as JSON")]
    Request { source: serde_json::Error },
    #[error("cannot listen on any local port")]
    Listen { source: io::Error },
}

impl Diagnostic for SelftestError {
    fn kind(&self) -> Kind {
        Kind::Failed
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoHelper => vec!["build it with `scripts/build-helper`, and copy it there".into()],
            _ => Vec::new(),
        }
    }
}
