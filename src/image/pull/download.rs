//! Downloads a blob to a file, and continues where an earlier download ended.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::registry::Registry;
use crate::image::content::{Digest, Hashing};
use crate::image::error::ImageError;
use crate::image::manifest::Descriptor;

/// How often a connection that breaks is continued.
const MOST_ATTEMPTS: usize = 5;

/// A file that this process has locked.
pub struct Download {
    path: PathBuf,
    file: File,
}

/// Opens the file of a blob, and waits for its lock.
pub fn open(path: &Path) -> io::Result<Download> {
    loop {
        let file = File::options().create(true).read(true).append(true).mode(0o600).open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        // The process that held the lock may have removed the file.
        let is_same = fs::metadata(path).is_ok_and(|meta| file.metadata().is_ok_and(|own| own.ino() == meta.ino()));
        if is_same {
            return Ok(Download { path: path.to_owned(), file });
        }
    }
}

impl Download {
    /// Completes the file and checks its digest.
    pub fn fetch(
        &mut self,
        registry: &Registry<'_>,
        blob: &Descriptor,
        report: &dyn Fn(u64),
    ) -> Result<(), ImageError> {
        let mut attempts = 1;
        loop {
            match self.attempt(registry, blob, report) {
                Ok(()) => break,
                Err(Attempt::Failed(error)) => return Err(error),
                Err(Attempt::Broken(source)) if attempts >= MOST_ATTEMPTS => {
                    return Err(ImageError::Layer { reference: registry.reference().to_string(), source });
                }
                Err(Attempt::Broken(_)) => attempts += 1,
            }
        }
        let found = self.digest().map_err(ImageError::Store)?;
        if found != blob.digest {
            self.remove();
            let reason = format!("the registry sent {found} in place of the layer {}", blob.digest);
            return Err(ImageError::Content { reference: registry.reference().to_string(), reason });
        }
        Ok(())
    }

    fn attempt(&mut self, registry: &Registry<'_>, blob: &Descriptor, report: &dyn Fn(u64)) -> Result<(), Attempt> {
        let mut length = self.file.metadata().map_err(ImageError::Store)?.len();
        if length > blob.size {
            self.file.set_len(0).map_err(ImageError::Store)?;
            length = 0;
        }
        report(length);
        if length == blob.size {
            return Ok(());
        }
        let (mut body, start) = registry.open_blob(&blob.digest, length)?;
        if start != length {
            self.file.set_len(0).map_err(ImageError::Store)?;
            length = 0;
        }
        let mut buffer = vec![0; 128 * 1024];
        while length < blob.size {
            let count = match body.read(&mut buffer) {
                Ok(0) => return Err(Attempt::Broken(ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Attempt::Broken(error)),
            };
            // Nothing beyond the size that the manifest names is kept.
            let count = usize::try_from(blob.size - length).unwrap_or(count).min(count);
            self.file.write_all(&buffer[..count]).map_err(ImageError::Store)?;
            length += count as u64;
            report(length);
        }
        Ok(())
    }

    fn digest(&mut self) -> io::Result<Digest> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut hashing = Hashing::new(&self.file);
        io::copy(&mut hashing, &mut io::sink())?;
        Ok(hashing.digest())
    }

    pub fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

enum Attempt {
    /// The connection broke; what arrived is kept.
    Broken(io::Error),
    Failed(ImageError),
}

impl From<ImageError> for Attempt {
    fn from(error: ImageError) -> Self {
        Attempt::Failed(error)
    }
}
