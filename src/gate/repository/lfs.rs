//! Brings out files of Git LFS, whose names are the SHA-256 digests of their contents.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::exchange::open_private;
use crate::plan::repository::PrivateGitDir;
use crate::process::bounded_work;
use crate::process::untrusted_dir::UntrustedDir;

/// The directory of the files in a Git directory; each is in two levels of subdirectories.
const OBJECTS: &str = "lfs/objects";
const MAX_ENTRIES: usize = 100_000;

/// Copies the files that the host lacks and whose contents match their names.
pub fn bring_out(dir: &PrivateGitDir, scratch: &Path) -> io::Result<()> {
    let private = open_private(dir)?;
    let Ok(objects) = private.directory(Path::new(OBJECTS)) else { return Ok(()) };
    for (first, _) in objects.entries(MAX_ENTRIES)? {
        let Ok(below) = objects.directory(Path::new(&first)) else { continue };
        for (second, _) in below.entries(MAX_ENTRIES)? {
            let Ok(directory) = below.directory(Path::new(&second)) else { continue };
            bounded_work::check()?;
            for (name, kind) in directory.entries(MAX_ENTRIES)? {
                let Some(name) = name.to_str().filter(|name| kind.is_file() && is_digest(name)) else { continue };
                let target = dir.host.join(OBJECTS).join(&name[..2]).join(&name[2..4]).join(name);
                if target.symlink_metadata().is_err() {
                    take(&directory, name, &target, scratch)?;
                }
            }
        }
    }
    Ok(())
}

fn is_digest(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Copies a file to the session's directory, and from there to its place if it is what it claims.
fn take(directory: &UntrustedDir, name: &str, target: &Path, scratch: &Path) -> io::Result<()> {
    let Some(mut file) = directory.file(Path::new(name))? else { return Ok(()) };
    // Git LFS writes no files with holes, and a copy of one would fill the disk.
    if super::objects::is_sparse(&rustix::fs::fstat(&file)?) {
        return Ok(());
    }
    let copy = scratch.join("lfs-object");
    let mut digest = Sha256::new();
    let mut to = OpenOptions::new().write(true).create(true).truncate(true).open(&copy)?;
    let mut part = vec![0; 64 << 10];
    loop {
        bounded_work::check()?;
        let read = file.read(&mut part)?;
        if read == 0 {
            break;
        }
        digest.update(&part[..read]);
        to.write_all(&part[..read])?;
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if digest == name {
        if let Some(above) = target.parent() {
            fs::create_dir_all(above)?;
        }
        // Written under another name first, because a rename may not be possible.
        let new = target.with_extension("new");
        fs::copy(&copy, &new)?;
        fs::rename(new, target)?;
    }
    fs::remove_file(copy)
}
