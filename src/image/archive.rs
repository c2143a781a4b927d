//! Imports the images of an archive: what `docker save` and `podman save` write, and OCI layouts. The
//! archive may be compressed. It is read once, from start to end, so it may be a pipe.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::{ImageConfig, LARGEST_CONFIG};
use super::content::{Digest, decompressed};
use super::error::ImageError;
use super::manifest::{Index, Manifest};
use super::reference::FullReference;
use super::store::{Addition, Store, StoredImage, TemporaryDirectory};
use super::tar_stream::{TarKind, TarStream, parts};
use super::unpack::{UnpackLimits, Unpacker};
use crate::config::value::{ImageRef, Value};

const MOST_FILES: usize = 20_000;
/// Links from file to file in old archives of Docker.
const MOST_LINKS: usize = 8;
/// The annotations by which containerd, Docker and Podman name an image in an OCI layout.
const NAME: &str = "io.containerd.image.name";
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An entry of `manifest.json`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What an archive is called in messages, and what its images are named if it does not name them.
pub struct ArchiveSource<'a> {
    pub name: &'a str,
    pub tag: Option<&'a ImageRef>,
    /// Written to the records.
    pub origin: &'a str,
}

/// The files of an archive, in a temporary directory.
struct Spool {
    directory: TemporaryDirectory,
    files: HashMap<PathBuf, Spooled>,
}

enum Spooled {
    File(PathBuf),
    Link(PathBuf),
}

/// One image of the archive, in its files.
struct Found {
    names: Vec<String>,
    config: PathBuf,
    layers: Vec<PathBuf>,
    /// `None` if the archive has no manifest of it.
    manifest: Option<Digest>,
}

/// Imports all images of an archive; returns one per reference.
pub fn import(store: &Store, stream: impl Read, source: &ArchiveSource<'_>) -> Result<Vec<StoredImage>, ImageError> {
    let limits = UnpackLimits::default();
    let addition = store.begin().map_err(ImageError::Store)?;
    let wrong = |error| ImageError::Archive { name: source.name.to_owned(), source: error };
    let spool = Spool::read(&addition, stream, limits).map_err(wrong)?;
    let found = spool.images().map_err(wrong)?;
    let mut images = Vec::new();
    let count = found.len();
    for image in found {
        let mut names: Vec<ImageRef> = Vec::new();
        for name in &image.names {
            names.extend(ImageRef::parse(name).ok().filter(|name| !names.contains(name)));
        }
        if let (Some(tag), 1) = (source.tag, count) {
            names = vec![tag.clone()];
        }
        if names.is_empty() {
            return Err(ImageError::Unnamed { name: source.name.to_owned() });
        }
        let (config, digest) = spool.config(&image.config).map_err(wrong)?;
        let mut unpacker = Unpacker::new(limits);
        for (layer, path) in config.rootfs.diff_ids.iter().zip(&image.layers) {
            if !addition.has_layer(layer) {
                addition.add_layer(spool.open(path).map_err(wrong)?, layer, &mut unpacker).map_err(wrong)?;
            }
        }
        if config.rootfs.diff_ids.len() != image.layers.len() {
            return Err(wrong(invalid("its manifest and its configuration name different numbers of layers")));
        }
        let digest = image.manifest.unwrap_or(digest);
        for name in names {
            let reference = FullReference::of(&name);
            images.push(addition.finish(&reference, &config, &digest, source.origin).map_err(ImageError::Store)?);
        }
    }
    Ok(images)
}

fn invalid(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.into())
}

impl Spool {
    /// Writes the files of an archive to numbered files. Its names are only keys of a table.
    fn read(addition: &Addition<'_>, stream: impl Read, limits: UnpackLimits) -> io::Result<Self> {
        let directory = addition.temporary()?;
        let mut files = HashMap::new();
        let mut tar = TarStream::new(decompressed(stream)?);
        let mut bytes = limits.bytes;
        while let Some(entry) = tar.next()? {
            let name = parts(&entry.path)
                .ok_or_else(|| invalid(format!("`{}` leads out of the archive", entry.path.display())))?;
            if files.len() >= MOST_FILES {
                return Err(invalid(format!("it contains more than {MOST_FILES} files")));
            }
            bytes = bytes.checked_sub(entry.size).ok_or_else(|| invalid("it is too large"))?;
            let spooled = match entry.kind {
                TarKind::File => {
                    let path = directory.path.join(files.len().to_string());
                    io::copy(&mut tar, &mut File::create_new(&path)?)?;
                    Spooled::File(path)
                }
                TarKind::Symlink(to) => match resolve(name.parent().unwrap_or(Path::new("")), &to) {
                    Some(to) => Spooled::Link(to),
                    None => return Err(invalid(format!("`{}` is a link out of the archive", entry.path.display()))),
                },
                TarKind::HardLink(to) => Spooled::Link(
                    parts(&to)
                        .ok_or_else(|| invalid(format!("`{}` is a link out of the archive", entry.path.display())))?,
                ),
                TarKind::Directory => continue,
                TarKind::Fifo | TarKind::Device => {
                    return Err(invalid(format!("`{}` is neither a file nor a directory", entry.path.display())));
                }
            };
            files.insert(name, spooled);
        }
        if files.is_empty() {
            return Err(invalid("it is no tar archive, or an empty one"));
        }
        Ok(Spool { directory, files })
    }

    fn open(&self, name: &Path) -> io::Result<File> {
        let mut name = name;
        for _ in 0..MOST_LINKS {
            match self.files.get(name) {
                Some(Spooled::File(path)) => {
                    debug_assert!(path.starts_with(&self.directory.path));
                    return File::open(path);
                }
                Some(Spooled::Link(to)) => name = to,
                None => break,
            }
        }
        Err(invalid(format!("the file `{}` is missing", name.display())))
    }

    fn content(&self, name: &Path) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.open(name)?.take(LARGEST_CONFIG + 1).read_to_end(&mut content)?;
        if content.len() as u64 > LARGEST_CONFIG {
            return Err(invalid(format!("`{}` is too large", name.display())));
        }
        Ok(content)
    }

    fn json<T: DeserializeOwned>(&self, name: &Path) -> io::Result<T> {
        let content = self.content(name)?;
        serde_json::from_slice(&content).map_err(|error| invalid(format!("`{}`: {error}", name.display())))
    }

    /// Reads a file of an OCI layout, and checks its digest.
    fn blob(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        let content = self.content(&blob_path(digest))?;
        if Digest::of(&content) != *digest {
            return Err(invalid(format!("the content of `{}` has another digest", blob_path(digest).display())));
        }
        Ok(content)
    }

    fn config(&self, name: &Path) -> io::Result<(ImageConfig, Digest)> {
        let content = self.content(name)?;
        let config =
            ImageConfig::parse(&content).map_err(|reason| invalid(format!("`{}`: {reason}", name.display())))?;
        Ok((config, Digest::of(&content)))
    }

    fn images(&self) -> io::Result<Vec<Found>> {
        let docker = Path::new("manifest.json");
        if self.files.contains_key(docker) {
            let saved: Vec<SavedImage> = self.json(docker)?;
            let name = |name: String| {
                parts(Path::new(&name)).ok_or_else(|| invalid(format!("`{name}` leads out of the archive")))
            };
            let found = saved.into_iter().map(|image| {
                Ok(Found {
                    names: image.repo_tags.unwrap_or_default(),
                    config: name(image.config)?,
                    layers: image.layers.into_iter().map(name).collect::<io::Result<_>>()?,
                    manifest: None,
                })
            });
            return found.collect();
        }
        let index = Path::new("index.json");
        if !self.files.contains_key(index) {
            return Err(invalid("it contains neither `manifest.json` (docker save) nor `index.json` (an OCI layout)"));
        }
        let index: Index = self.json(index)?;
        let mut found = Vec::new();
        for entry in index.manifests {
            let names: Vec<String> = [NAME, REF_NAME]
                .iter()
                .filter_map(|key| entry.annotations.get(*key).cloned())
                // A bare tag is no name.
                .filter(|name| name.contains(['/', ':']))
                .take(1)
                .collect();
            let mut digest = entry.digest.clone();
            let mut manifest = Manifest::parse(&self.blob(&digest)?).map_err(invalid)?;
            if let Manifest::Index(index) = &manifest {
                let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
                let chosen = index.for_platform(arch).or(index.manifests.first());
                digest = chosen.ok_or_else(|| invalid("an index of it is empty"))?.digest.clone();
                manifest = Manifest::parse(&self.blob(&digest)?).map_err(invalid)?;
            }
            let Manifest::Image(image) = manifest else { return Err(invalid("an index of it contains an index")) };
            self.blob(&image.config.digest)?;
            found.push(Found {
                names,
                config: blob_path(&image.config.digest),
                layers: image.layers.iter().map(|layer| blob_path(&layer.digest)).collect(),
                manifest: Some(digest),
            });
        }
        Ok(found)
    }
}

fn blob_path(digest: &Digest) -> PathBuf {
    Path::new("blobs/sha256").join(digest.hex())
}

/// Resolves a link of the archive by its text; `None` if it leads out.
fn resolve(directory: &Path, to: &Path) -> Option<PathBuf> {
    use std::path::Component;
    let mut path = directory.to_owned();
    for part in to.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}
