//! The errors of images without an engine.

use std::io;

use crate::error::{Diagnostic, Kind};
use crate::http::HttpError;
use crate::tls::TlsError;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("cannot use the store of images")]
    Store(#[source] io::Error),
    #[error("cannot import the archive `{name}`")]
    Archive { name: String, source: io::Error },
    #[error("the archive `{name}` contains an image without a name")]
    Unnamed { name: String },
    #[error("cannot read the archive `{name}`")]
    Unreadable { name: String, source: io::Error },
    #[error("`{name}` is a directory, and an archive is expected")]
    IsDirectory { name: String },
    #[error("cannot take the image `{reference}` from {engine}")]
    Engine { reference: String, engine: &'static str, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot pull the image `{reference}`")]
    Registry { reference: String, source: HttpError },
    #[error("the image `{reference}` cannot be used: {reason}")]
    Content { reference: String, reason: String },
    #[error("cannot add a layer of the image `{reference}`")]
    Layer { reference: String, source: io::Error },
    #[error("the image `{reference}` is not published for {wanted}")]
    NoPlatform { reference: String, wanted: String, known: String },
    #[error("the registry has no image `{reference}`")]
    NotInRegistry { reference: String },
    #[error("the registry `{registry}` denies access to the image `{reference}`")]
    Denied { reference: String, registry: String, has_login: bool },
    #[error("the registry `{registry}` permits no more pulls for now")]
    TooMany { registry: String },
    #[error("the registry `{registry}` answered with the status {status}")]
    Status { registry: String, status: u16 },
    #[error("the image `{reference}` exists on the machine that built it only, and no engine here has it")]
    Local { reference: String },
    #[error("there is no image `{reference}` in the store")]
    Missing { reference: String },
}

impl Diagnostic for ImageError {
    fn kind(&self) -> Kind {
        match self {
            Self::Unnamed { .. } | Self::IsDirectory { .. } => Kind::Usage,
            Self::Engine { .. }
            | Self::Tls(_)
            | Self::Registry { .. }
            | Self::Content { .. }
            | Self::Layer { .. }
            | Self::NoPlatform { .. }
            | Self::NotInRegistry { .. }
            | Self::Denied { .. }
            | Self::TooMany { .. }
            | Self::Status { .. }
            | Self::Local { .. } => Kind::Launch,
            _ => Kind::Failed,
        }
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Unnamed { .. } => "name it: sandpen image import --tag NAME ARCHIVE",
            Self::IsDirectory { name } => {
                return vec![format!(
                    "import an OCI layout as an archive: tar -C {name} -c . | sandpen image import -"
                )];
            }
            Self::Tls(error) => return error.hints(),
            Self::Registry { source, .. } => return source.hints(),
            Self::NoPlatform { known, .. } => return vec![format!("it is published for {known}")],
            Self::NotInRegistry { .. } => {
                "check its name and tag, or log in with `docker login` or `podman login` if it is private"
            }
            Self::Denied { has_login: false, registry, .. } => {
                return vec![format!("log in: docker login {registry}, or podman login {registry}")];
            }
            Self::Denied { has_login: true, .. } => {
                "check its name; the login that Docker or Podman keeps for the registry was not enough"
            }
            Self::TooMany { .. } => "log in with `docker login`, or wait",
            Self::Local { .. } => "build it with an engine, or import it: sandpen image import ARCHIVE",
            Self::Missing { .. } => "list them: sandpen image list",
            _ => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}
