//! Pulls images from registries: the manifest for this machine, and the layers that the store does not
//! have. Everything is checked against the digest that names it.

mod challenge;
mod credentials;
mod download;
mod registry;

use std::fs::File;
use std::io;

pub use credentials::Logins;

use super::config::{ImageConfig, LARGEST_CONFIG};
use super::content::Digest;
use super::error::ImageError;
use super::manifest::{Descriptor, ImageManifest, Manifest};
use super::reference::{FullReference, Version};
use super::store::{Addition, Store, StoredImage};
use super::unpack::{UnpackLimits, Unpacker};
use crate::config::value::ImageRef;
use crate::tls;
use registry::Registry;

/// Tells how far a pull is: the number of the layer, how many there are, and the bytes of it.
pub type Report<'a> = &'a dyn Fn(PullProgress);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullProgress {
    pub layer: usize,
    pub layers: usize,
    pub bytes: u64,
    pub total: u64,
}

/// What a pull needs of this machine.
pub struct PullContext<'a> {
    pub client: &'a tls::Client,
    pub logins: Logins<'a>,
    /// Spelled as in manifests: `amd64`, `arm64`.
    pub architecture: &'a str,
    pub report: Report<'a>,
}

/// Pulls an image into the store.
pub fn pull(store: &Store, image: &ImageRef, context: &PullContext<'_>) -> Result<StoredImage, ImageError> {
    let reference = FullReference::of(image);
    let registry = Registry::connect(context.client, &reference, &context.logins)?;
    let (manifest, digest) = image_manifest(&registry, &reference, context.architecture)?;
    let wrong = |reason: String| ImageError::Content { reference: reference.to_string(), reason };
    let content = registry.blob(&manifest.config.digest, LARGEST_CONFIG)?;
    let config = ImageConfig::parse(&content).map_err(|reason| wrong(format!("its configuration: {reason}")))?;
    let layers = &config.rootfs.diff_ids;
    if layers.len() != manifest.layers.len() {
        return Err(wrong("its manifest and its configuration name different numbers of layers".into()));
    }
    let addition = store.begin().map_err(ImageError::Store)?;
    let mut unpacker = Unpacker::new(UnpackLimits::default());
    for (number, (layer, blob)) in layers.iter().zip(&manifest.layers).enumerate() {
        let report = |bytes| {
            let progress = PullProgress { layer: number + 1, layers: layers.len(), bytes, total: blob.size };
            (context.report)(progress);
        };
        add_layer(&addition, &registry, layer, blob, &mut unpacker, &report)?;
    }
    let origin = format!("pulled from {}", reference.registry);
    addition.finish(&reference, &config, &digest, &origin).map_err(ImageError::Store)
}

/// Returns the manifest for this machine and its digest; that of the index, if one was named by it.
fn image_manifest(
    registry: &Registry<'_>,
    reference: &FullReference,
    architecture: &str,
) -> Result<(ImageManifest, Digest), ImageError> {
    let wrong = |reason: String| ImageError::Content { reference: reference.to_string(), reason };
    let version = match &reference.version {
        Version::Tag(tag) => tag.clone(),
        Version::Digest(digest) => digest.to_string(),
    };
    let content = registry.manifest(&version)?;
    let digest = Digest::of(&content);
    if let Version::Digest(asked) = &reference.version
        && *asked != digest
    {
        return Err(wrong(format!("the registry answered with {digest}")));
    }
    match Manifest::parse(&content).map_err(wrong)? {
        Manifest::Image(image) => Ok((image, digest)),
        Manifest::Index(index) => {
            let chosen = index.for_platform(architecture).ok_or_else(|| ImageError::NoPlatform {
                reference: reference.to_string(),
                wanted: format!("linux/{architecture}"),
                known: index.platforms(),
            })?;
            let content = registry.manifest(&chosen.digest.to_string())?;
            if Digest::of(&content) != chosen.digest {
                return Err(wrong(format!("the manifest {} has another digest", chosen.digest)));
            }
            match Manifest::parse(&content).map_err(wrong)? {
                Manifest::Image(image) => Ok((image, chosen.digest.clone())),
                Manifest::Index(_) => Err(wrong("its index contains an index".into())),
            }
        }
    }
}

/// Downloads and unpacks a layer, unless the store has it. The file of an interrupted download is
/// continued by the next pull.
fn add_layer(
    addition: &Addition<'_>,
    registry: &Registry<'_>,
    layer: &Digest,
    blob: &Descriptor,
    unpacker: &mut Unpacker,
    report: &dyn Fn(u64),
) -> Result<(), ImageError> {
    if addition.has_layer(layer) {
        return Ok(());
    }
    let path = addition.download_path(&blob.digest);
    // Another pull of the same layer may finish while this one waits for its lock.
    let mut download = download::open(&path).map_err(ImageError::Store)?;
    if addition.has_layer(layer) {
        return Ok(());
    }
    download.fetch(registry, blob, report)?;
    let file = File::open(&path).map_err(ImageError::Store)?;
    let added = addition.add_layer(file, layer, unpacker);
    // A layer that cannot be unpacked must not be tried again from the same file.
    download.remove();
    added.map_err(|source| layer_error(registry, source))
}

fn layer_error(registry: &Registry<'_>, source: io::Error) -> ImageError {
    ImageError::Layer { reference: registry.reference().to_string(), source }
}
