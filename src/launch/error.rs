//! The errors of translating a plan for an engine.

use super::Downgrade;
use crate::config::Origin;
use crate::error::{Diagnostic, Kind};
use crate::path::HostPath;
use crate::plan::EngineKind;

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{} cannot be enforced here", downgrade.asked)]
    Strict { downgrade: Downgrade },
    #[cfg(not(target_os = "linux"))]
    #[error("the engine `{}` cannot run on this platform", engine.name())]
    WrongPlatform { engine: EngineKind },
    #[error("a container needs an image")]
    NoImage,
    #[error("{origin}: the value of {name} contains a line break, which an env file cannot express")]
    MultilineSecret { name: String, origin: Origin },
    #[error("{position}, `{shown}`, is not UTF-8")]
    ArgumentNotUtf8 { position: String, shown: String, engine: EngineKind },
    #[error("`{path}` is not UTF-8, and {} cannot mount such a path", engine.name())]
    PathNotUtf8 { path: String, engine: EngineKind },
    #[error("`{target}` cannot be a private temp directory: it contains a colon or a comma")]
    TmpfsTarget { target: String },
    #[error("`{target}` is a link or a generated file, which {} cannot create", engine.name())]
    UnsupportedSource { target: String, engine: EngineKind },
    #[error("Podman cannot mount `{source_path}`: its path contains both a colon and a comma")]
    ColonAndComma { source_path: String },
    #[error("internal error: the plan for Seatbelt has no facts about Seatbelt")]
    NoSeatbeltFacts,
    #[error("internal error: the plan for Kubernetes has no facts about the cluster")]
    NoKubernetesFacts,
    #[error("{origin}: the file `{path}` has no place in a pod at `{target}`")]
    NoVolume { origin: Origin, path: String, target: String },
    #[error("cannot find sandpen's program file, which starts the command")]
    NoProgramFile,
    #[error("`{session}` is not UTF-8")]
    SessionNotUtf8 { session: HostPath },
    #[error("cannot write the helper's configuration as JSON")]
    HelperConfig { source: serde_json::Error },
}

impl Diagnostic for LaunchError {
    fn kind(&self) -> Kind {
        match self {
            #[cfg(not(target_os = "linux"))]
            Self::WrongPlatform { .. } => Kind::Usage,
            Self::MultilineSecret { .. }
            | Self::ArgumentNotUtf8 { .. }
            | Self::PathNotUtf8 { .. }
            | Self::TmpfsTarget { .. }
            | Self::UnsupportedSource { .. }
            | Self::NoVolume { .. }
            | Self::ColonAndComma { .. } => Kind::Usage,
            Self::Strict { .. }
            | Self::NoImage
            | Self::NoSeatbeltFacts
            | Self::NoKubernetesFacts
            | Self::NoProgramFile
            | Self::SessionNotUtf8 { .. }
            | Self::HelperConfig { .. } => Kind::Launch,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Strict { downgrade } => vec![downgrade.reason.clone()],
            Self::ArgumentNotUtf8 { engine, .. } => {
                vec![format!("{} passes arguments as JSON and would change it", engine.name())]
            }
            Self::HelperConfig { source } => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Strict { downgrade } => vec![format!("without --strict it would run with: {}", downgrade.got)],
            Self::PathNotUtf8 { .. } => vec!["rename it, or use another engine".into()],
            Self::NoVolume { .. } => {
                vec!["mount its directory, or give it a target below your home or the workspace".into()]
            }
            Self::ColonAndComma { .. } => vec!["use Docker, or rename the directory".into()],
            _ => Vec::new(),
        }
    }
}
