//! Why a sandbox on another machine cannot be spoken to, or cannot be given its files.

use std::io;

use crate::error::{Diagnostic, Kind};

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error(
        "the guest helper for the architecture `{arch}` is missing: there is no `sandpen-linux-{arch}` beside sandpen"
    )]
    NoHelper { arch: String },
    #[error("the helper cannot be brought into the sandbox")]
    SendHelper { message: String },
    #[error("the files of the workspace cannot be copied into the sandbox")]
    Copy { message: String },
    #[error("`{path}` cannot be copied")]
    ReadFile {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot write `{path}` for the session")]
    Write {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("what the sandbox sends is not understood")]
    Protocol { message: String },
}

impl Diagnostic for RemoteError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::SendHelper { message } | Self::Copy { message } | Self::Protocol { message } => vec![message.clone()],
            Self::ReadFile { source, .. } | Self::Write { source, .. } => vec![source.to_string()],
            Self::NoHelper { .. } => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NoHelper { .. } => vec!["build it with `scripts/build-helper`, and put it there".into()],
            Self::SendHelper { .. } => vec!["the image needs `sh`, `head`, `chmod`, `mv` and `uname`".into()],
            _ => Vec::new(),
        }
    }
}
