//! Keeps images for the native engine: each layer unpacked once, and a record for each reference.
//!
//! ```text
//! lock                      shared by what adds, exclusive for what removes
//! references/HEX.json       a record; HEX is the digest of the reference
//! layers/DIGEST/files       an unpacked layer, a lower directory of overlays
//! layers/DIGEST/size        the bytes of its files
//! new/                      what is not complete yet
//! ```
//!
//! Layers and records appear by a rename, so that what has a name is complete. A running sandbox
//! holds a shared lock on the directories of its layers.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::config::{ImageConfig, ImageUser};
use super::content::{Digest, Hashing, decompressed};
use super::reference::FullReference;
use super::unpack::Unpacker;
use crate::config::value::ImageRef;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::remove_tree::remove_tree;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

const LARGEST_RECORD: u64 = 8 << 20;
const LARGEST_PASSWD: u64 = 1 << 20;

/// An image of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// With registry and tag or digest.
    pub reference: String,
    /// The manifest's digest; that of the configuration, if the image came without a manifest.
    pub digest: Digest,
    /// Such as `linux/amd64`.
    pub platform: String,
    /// The bytes of the files of all layers.
    pub bytes: u64,
    /// Lowest first.
    pub layers: Vec<Digest>,
    pub env: Vec<(String, String)>,
    /// The user that the image names; `None` if it does not have that user.
    pub user: Option<ImageUser>,
    /// Whether its own command is an init system.
    pub runs_init: bool,
    /// Tells the user where the image came from.
    pub origin: String,
}

#[derive(Debug, Clone)]
pub struct Store {
    base: HostPath,
}

/// What was removed from a store.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    pub layers: usize,
    pub bytes: u64,
    /// Unused layers that running sandboxes hold.
    pub in_use: usize,
}

impl Store {
    pub fn of(host: &Host) -> Self {
        Store { base: host.state_dir().join("images") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.as_path().join(name)
    }

    fn record_path(&self, reference: &FullReference) -> PathBuf {
        let name = Digest::of(reference.to_string().as_bytes());
        self.path("references").join(format!("{}.json", name.hex()))
    }

    fn layer_path(&self, layer: &Digest) -> PathBuf {
        self.path("layers").join(layer.hex())
    }

    /// Returns the directory of a layer's files.
    pub fn layer_files(&self, layer: &Digest) -> HostPath {
        self.base.join("layers").join(layer.hex()).join("files")
    }

    /// Returns the image of that name, if it is complete.
    pub fn find(&self, image: &ImageRef) -> io::Result<Option<StoredImage>> {
        let record = match read_record(&self.record_path(&FullReference::of(image))) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            record => record?,
        };
        let is_complete = record.layers.iter().all(|layer| self.layer_path(layer).is_dir());
        Ok(is_complete.then_some(record))
    }

    /// Lists the images by name.
    pub fn list(&self) -> io::Result<Vec<StoredImage>> {
        let entries = match fs::read_dir(self.path("references")) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut images = Vec::new();
        for entry in entries {
            match read_record(&entry?.path()) {
                Ok(record) => images.push(record),
                // Another process has removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        images.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(images)
    }

    /// Begins to add images. Nothing is removed meanwhile.
    pub fn begin(&self) -> io::Result<Addition<'_>> {
        for name in ["", "references", "layers", "new", "downloads"] {
            DirBuilder::new().recursive(true).mode(0o700).create(self.path(name))?;
        }
        if fs::metadata(self.base.as_path())?.uid() != rustix::process::getuid().as_raw() {
            return Err(io::Error::other(format!("`{}` belongs to another user", self.base)));
        }
        let lock = self.lock(FlockOperation::LockShared)?;
        Ok(Addition { store: self, _lock: lock })
    }

    fn lock(&self, operation: FlockOperation) -> io::Result<File> {
        let file = File::options().create(true).append(true).mode(0o600).open(self.path("lock"))?;
        flock(&file, operation)?;
        Ok(file)
    }

    /// Removes a reference. Returns whether it existed. Its layers stay until [`Store::collect`].
    pub fn remove(&self, image: &ImageRef) -> io::Result<bool> {
        match fs::remove_file(self.record_path(&FullReference::of(image))) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what no reference needs, what is incomplete, and downloads that were not continued.
    /// Waits for commands that add images.
    pub fn collect(&self) -> io::Result<Removed> {
        if !self.base.as_path().is_dir() {
            return Ok(Removed::default());
        }
        let _lock = self.lock(FlockOperation::LockExclusive)?;
        let needed: std::collections::HashSet<Digest> =
            self.list()?.into_iter().flat_map(|image| image.layers).collect();
        for name in ["new", "downloads"] {
            for entry in fs::read_dir(self.path(name)).into_iter().flatten().flatten() {
                let _ = remove_tree(&entry.path());
            }
        }
        let mut removed = Removed::default();
        for entry in fs::read_dir(self.path("layers")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let digest = name.to_str().and_then(|name| Digest::parse(&format!("sha256:{name}")));
            if digest.is_some_and(|digest| needed.contains(&digest)) {
                continue;
            }
            let directory = File::open(entry.path())?;
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
                removed.in_use += 1;
                continue;
            }
            let size = read_size(&entry.path());
            // Renamed first, so that a removal that is interrupted leaves no incomplete layer.
            let aside = self.path("new").join(entry.file_name());
            fs::rename(entry.path(), &aside)?;
            let _ = remove_tree(&aside);
            removed.layers += 1;
            removed.bytes += size;
        }
        Ok(removed)
    }
}

/// Takes a shared lock on the directory of a layer's files, which keeps the layer.
pub fn hold_layer(files: &Path) -> io::Result<File> {
    let directory = File::open(files.parent().unwrap_or(files))?;
    flock(&directory, FlockOperation::NonBlockingLockShared)?;
    Ok(directory)
}

fn read_record(path: &Path) -> io::Result<StoredImage> {
    let json = untrusted::read_bytes(path, LARGEST_RECORD)?;
    serde_json::from_slice(&json)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("`{}`: {error}", path.display())))
}

fn read_size(layer: &Path) -> u64 {
    fs::read_to_string(layer.join("size")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Adds images while it lives.
#[derive(Debug)]
pub struct Addition<'a> {
    store: &'a Store,
    _lock: File,
}

impl Addition<'_> {
    pub fn has_layer(&self, layer: &Digest) -> bool {
        self.store.layer_path(layer).is_dir()
    }

    /// Returns a directory that is removed when it is dropped.
    pub fn temporary(&self) -> io::Result<TemporaryDirectory> {
        let path = self.store.path("new").join(crate::session_id::random_name());
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(TemporaryDirectory { path })
    }

    /// Returns the path of a download that may be continued later.
    pub fn download_path(&self, blob: &Digest) -> PathBuf {
        self.store.path("downloads").join(blob.hex())
    }

    /// Unpacks a layer from a stream, which may be compressed, and checks its digest. Two processes
    /// that add the same layer unpack it twice, and one of them wins.
    pub fn add_layer(&self, stream: impl Read, layer: &Digest, unpacker: &mut Unpacker) -> io::Result<()> {
        let place = self.temporary()?;
        let files = place.path.join("files");
        DirBuilder::new().mode(0o755).create(&files)?;
        let before = unpacker.bytes();
        let mut hashing = Hashing::new(decompressed(stream)?);
        unpacker.unpack(&mut hashing, &files)?;
        let found = hashing.digest();
        if found != *layer {
            let message = format!("a layer has the digest {found}, and the image names {layer}");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        fs::write(place.path.join("size"), (unpacker.bytes() - before).to_string())?;
        match fs::rename(&place.path, self.store.layer_path(layer)) {
            Err(_) if self.has_layer(layer) => Ok(()),
            renamed => renamed,
        }
    }

    /// Writes the record of an image whose layers have all been added.
    pub fn finish(
        &self,
        reference: &FullReference,
        config: &ImageConfig,
        digest: &Digest,
        origin: &str,
    ) -> io::Result<StoredImage> {
        let layers = config.rootfs.diff_ids.clone();
        if let Some(missing) = layers.iter().find(|layer| !self.has_layer(layer)) {
            return Err(io::Error::new(ErrorKind::NotFound, format!("the layer {missing} is missing")));
        }
        let image = StoredImage {
            reference: reference.to_string(),
            digest: digest.clone(),
            platform: config.platform(),
            bytes: layers.iter().map(|layer| read_size(&self.store.layer_path(layer))).sum(),
            env: config.env(),
            user: config.user(&self.passwd(&layers)),
            runs_init: config.runs_init(),
            origin: origin.to_owned(),
            layers,
        };
        let place = self.temporary()?;
        let path = place.path.join("record");
        let json = serde_json::to_vec(&image).map_err(io::Error::other)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&json)?;
        fs::rename(&path, self.store.record_path(reference))?;
        Ok(image)
    }

    /// Reads the image's passwd from the uppermost layer that has one. No link is followed, because
    /// the image could lead out of its files.
    fn passwd(&self, layers: &[Digest]) -> String {
        let read = |layer: &Digest| {
            let files = UntrustedDir::open(self.store.layer_files(layer).as_path()).ok()?;
            files.read("etc/passwd", LARGEST_PASSWD).ok().flatten()
        };
        let content = layers.iter().rev().find_map(read).unwrap_or_default();
        String::from_utf8_lossy(&content).into_owned()
    }
}

/// A directory for what is not complete.
#[derive(Debug)]
pub struct TemporaryDirectory {
    pub path: PathBuf,
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        if self.path.exists() {
            let _ = remove_tree(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
