//! Reads manifests and indexes, of OCI and of Docker.

use std::collections::HashMap;

use serde::Deserialize;

use super::config::MOST_LAYERS;
use super::content::Digest;

/// What registries are asked for, and answer with.
pub const MANIFEST_TYPES: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Names a blob.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    pub digest: Digest,
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub platform: Option<Platform>,
    #[serde(default)]
    pub annotations: HashMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
}

/// Manifests of one image for several platforms.
#[derive(Debug, Deserialize)]
pub struct Index {
    #[serde(default)]
    pub manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub struct ImageManifest {
    pub config: Descriptor,
    #[serde(default)]
    pub layers: Vec<Descriptor>,
}

#[derive(Debug)]
pub enum Manifest {
    Index(Index),
    Image(ImageManifest),
}

impl Manifest {
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Kind {
            manifests: Option<serde::de::IgnoredAny>,
            config: Option<serde::de::IgnoredAny>,
        }
        let wrong = |error: serde_json::Error| format!("its manifest is malformed: {error}");
        let kind: Kind = serde_json::from_slice(json).map_err(wrong)?;
        match (kind.config, kind.manifests) {
            // Two readers could understand such a manifest differently.
            (Some(_), Some(_)) => Err("its manifest is both an index and an image".to_owned()),
            (None, Some(_)) => serde_json::from_slice(json).map(Manifest::Index).map_err(wrong),
            _ => {
                let image: ImageManifest = serde_json::from_slice(json).map_err(wrong)?;
                if image.layers.len() > MOST_LAYERS {
                    return Err(format!("it has more than {MOST_LAYERS} layers"));
                }
                Ok(Manifest::Image(image))
            }
        }
    }
}

impl Index {
    /// Returns the image for Linux on an architecture.
    pub fn for_platform(&self, architecture: &str) -> Option<&Descriptor> {
        let is_it = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture;
        self.manifests.iter().find(|entry| entry.platform.as_ref().is_some_and(is_it))
    }

    /// Lists the platforms, for messages.
    pub fn platforms(&self) -> String {
        let known = self.manifests.iter().filter_map(|entry| entry.platform.as_ref());
        let names: Vec<String> = known
            .filter(|platform| platform.os != "unknown")
            .map(|platform| format!("{}/{}", platform.os, platform.architecture))
            .collect();
        names.join(", ")
    }
}
