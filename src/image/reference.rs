//! Completes the names of images as Docker does: `debian` is `docker.io/library/debian:latest`.

use std::fmt;

use super::content::Digest;
use crate::config::value::ImageRef;

const DEFAULT_REGISTRY: &str = "docker.io";

/// A reference whose parts are all known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullReference {
    /// A host name, with a port if it is not the usual one.
    pub registry: String,
    pub repository: String,
    pub version: Version,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    Tag(String),
    Digest(Digest),
}

impl FullReference {
    pub fn of(image: &ImageRef) -> Self {
        let (name, digest) = match image.as_str().split_once('@') {
            Some((name, digest)) => (name, Digest::parse(&digest.to_ascii_lowercase())),
            None => (image.as_str(), None),
        };
        let last_part = name.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match name[last_part..].find(':') {
            Some(at) => (&name[..last_part + at], Some(&name[last_part + at + 1..])),
            None => (name, None),
        };
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest.to_owned()),
            Some(_) => (DEFAULT_REGISTRY, name.to_owned()),
            None => (DEFAULT_REGISTRY, format!("library/{name}")),
        };
        let registry = if registry == "index.docker.io" { DEFAULT_REGISTRY } else { registry };
        let version = digest.map_or_else(|| Version::Tag(tag.unwrap_or("latest").to_owned()), Version::Digest);
        FullReference { registry: registry.to_owned(), repository, version }
    }
}

impl fmt::Display for FullReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        match &self.version {
            Version::Tag(tag) => write!(f, ":{tag}"),
            Version::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Value;

    #[test]
    fn names_are_completed_as_docker_does() {
        let digest = Digest::of(b"");
        for (short, full) in [
            ("debian", "docker.io/library/debian:latest".to_owned()),
            ("me/tool:1", "docker.io/me/tool:1".into()),
            ("ghcr.io/a/b", "ghcr.io/a/b:latest".into()),
            ("localhost/x", "localhost/x:latest".into()),
            ("localhost:5000/x:y", "localhost:5000/x:y".into()),
            ("index.docker.io/library/debian:12", "docker.io/library/debian:12".into()),
            (&format!("debian:12@{digest}"), format!("docker.io/library/debian@{digest}")),
        ] {
            let image = ImageRef::parse(short).expect("a reference");
            assert_eq!(FullReference::of(&image).to_string(), full, "{short}");
        }
    }
}
