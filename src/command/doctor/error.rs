//! The problems of an engine that only `doctor` finds.

use crate::error::{Diagnostic, Kind};

#[derive(Debug, thiserror::Error)]
pub enum EngineProblem {
    #[error("cannot be used: {answer}")]
    Unusable { answer: String },
    #[error("rootless Podman {version} cannot run the guest under your user id")]
    OldPodman { version: String },
}

impl Diagnostic for EngineProblem {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Unusable { .. } => Vec::new(),
            Self::OldPodman { .. } => vec!["upgrade Podman to 4.3 or newer".into()],
        }
    }
}
