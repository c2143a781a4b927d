//! TLS of sandpen's own connections: the roots of this machine, connections to servers through the
//! network's own proxy, and a certificate authority for names of which sandpen ends TLS itself.

mod authority;
mod client;
mod roots;
mod route;
mod server;

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

pub use authority::Authority;
pub use client::{Client, ServerStream};
pub use roots::{Roots, SYSTEM_BUNDLES};
pub use route::Route;
pub use server::{accept, server_config};

use crate::error::{Diagnostic, Kind};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("this machine has no bundle of trusted certificates")]
    NoBundle,
    #[error("cannot read certificates from `{}`", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("there is no certificate in {}", files.iter().map(|file| format!("`{}`", file.display())).collect::<Vec<_>>().join(", "))]
    NoCertificates { files: Vec<PathBuf> },
    #[error("env {name}: {reason}")]
    NotAProxy { name: &'static str, reason: &'static str },
    #[error("could not resolve host `{host}`")]
    Unresolved { host: String, source: std::io::Error },
    #[error("failed to connect to {target}")]
    Unreachable { target: String, source: std::io::Error },
    #[error("the host's proxy {proxy} refused the connection to {target}: {status}")]
    ProxyRefused { proxy: String, target: String, status: String },
    #[error("no secure connection to {target}")]
    Handshake { target: String, source: std::io::Error },
    #[error("cannot write the session's certificates to `{}`", path.display())]
    Unwritable { path: PathBuf, source: std::io::Error },
    #[error("cannot make a certificate")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Diagnostic for TlsError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::NoBundle => "install `ca-certificates`, or name a bundle with SSL_CERT_FILE",
            Self::NotAProxy { .. } => "expected `[http://][USER:PASSWORD@]HOST[:PORT]`",
            _ => return Vec::new(),
        };
        vec![hint.to_owned()]
    }
}

/// The algorithms: written in Rust and assembler, so that no C compiler is needed.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls_graviola::default_provider())
}
