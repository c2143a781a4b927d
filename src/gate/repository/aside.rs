//! Sets a private Git directory aside whose objects could not come out, for the user to look at.
//! Copies regular files and directories only: links and other files of a guest have no use there.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::exchange::open_private;
use super::objects::{is_sparse, unless_guest_failure};
use super::report::Report;
use crate::plan::RepositoryGate;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted_dir::UntrustedDir;

/// Directories deeper than this are not copied; names of branches may have many parts.
const MAX_DEPTH: usize = 64;
const OBJECTS: &str = "objects";

/// Copies a private Git directory and names the copy. Returns `false` if that failed.
pub fn keep(gate: &RepositoryGate, dir: &PrivateGitDir, report: &mut Report) -> bool {
    match copy(&gate.aside.join(&gate.id), dir) {
        Ok(None) => true,
        Ok(Some(kept)) => {
            report.keep(format!("the sandbox's Git directory is kept in `{}`", kept.display()));
            true
        }
        Err(error) => {
            let host = dir.host.display();
            report.problems.push(format!("the sandbox's Git directory of `{host}` cannot be kept: {error}"));
            false
        }
    }
}

/// Returns `None` if the guest made no objects.
fn copy(aside: &Path, dir: &PrivateGitDir) -> io::Result<Option<PathBuf>> {
    let Some(objects) = unless_guest_failure(UntrustedDir::open(&dir.private_objects))? else { return Ok(None) };
    if !has_objects(&objects) {
        return Ok(None);
    }
    let name = crate::plan::flat_name(&dir.host);
    let names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
    let mut paths = names.map(|name| aside.join(name));
    let kept = paths.find(|path| path.symlink_metadata().is_err()).ok_or(io::ErrorKind::AlreadyExists)?;
    let copied = copy_private(dir, &kept).and_then(|()| copy_directory(&objects, &kept.join(OBJECTS), MAX_DEPTH, None));
    copied.inspect_err(|_| drop(fs::remove_dir_all(&kept)))?;
    Ok(Some(kept))
}

fn has_objects(objects: &UntrustedDir) -> bool {
    let has_loose = objects.entries(usize::MAX).is_ok_and(|all| all.iter().any(|(name, _)| name.len() == 2));
    let packs = objects.directory(Path::new("pack")).and_then(|packs| packs.entries(usize::MAX));
    has_loose || packs.is_ok_and(|packs| !packs.is_empty())
}

/// Copies everything but the objects. A guest that removed its Git directory may have left those.
fn copy_private(dir: &PrivateGitDir, kept: &Path) -> io::Result<()> {
    match open_private(dir) {
        Ok(private) => copy_directory(&private, kept, MAX_DEPTH, Some(OBJECTS)),
        Err(_) => fs::create_dir_all(kept),
    }
}

/// Leaves out what the guest has made unreadable.
fn copy_directory(from: &UntrustedDir, to: &Path, depth: usize, without: Option<&str>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for (name, kind) in from.entries(usize::MAX)? {
        let (path, target) = (Path::new(&name), to.join(&name));
        if without.is_some_and(|without| name == without) {
            continue;
        }
        match kind {
            FileType::Directory if depth > 0 => {
                if let Some(below) = unless_guest_failure(from.directory(path))? {
                    copy_directory(&below, &target, depth - 1, None)?;
                }
            }
            FileType::RegularFile => {
                let Some(Some(mut file)) = unless_guest_failure(from.file(path))? else { continue };
                // The holes of a file would fill the disk.
                if !is_sparse(&rustix::fs::fstat(&file)?) {
                    io::copy(&mut file, &mut File::create_new(&target)?)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}
