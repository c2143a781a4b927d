//! Brings out worktrees that `git worktree add` made inside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pointer::{MAX_POINTER, is_plain_name, pointed};
use crate::gate::repository::exchange::WorkingTree;
use crate::gate::repository::host_git::{GitResult, HostGit};
use crate::plan::repository::PrivateRepository;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

/// Brings out a worktree that was made inside: the host's Git registers it, and its HEAD and index
/// come out as those of other worktrees.
pub fn add_worktree(
    git: &HostGit,
    roots: &[PathBuf],
    repository: &PrivateRepository,
    directory: &Path,
    name: &str,
    place: &Path,
) -> GitResult<WorkingTree> {
    let common = &repository.common_dir;
    let private_root = repository.full.first().map(|dir| dir.private.clone()).unwrap_or_default();
    let private = private_root.join("worktrees").join(name);
    let root = roots
        .iter()
        .find(|root| directory.starts_with(root))
        .ok_or(io::ErrorKind::NotFound)
        .map_err(io::Error::from)?;
    let tree = UntrustedDir::open_below(root, directory)?;
    let temporary = place.join(name);
    fs::create_dir_all(place)?;
    let path = temporary.to_string_lossy().into_owned();
    git.call(common, &["worktree", "add", "--quiet", "--no-checkout", "--force", "--detach", &path]).run()?;
    // Git chooses another name if the user has a worktree with this one.
    let host = pointed(&temporary, &fs::read(temporary.join(".git"))?).ok_or(io::ErrorKind::InvalidData);
    let host = host.map_err(io::Error::from)?;
    fs::write(host.join("gitdir"), format!("{}\n", directory.join(".git").display()))?;
    tree.remove_file(".git")?;
    tree.replace(".git", format!("gitdir: {}\n", host.display()).as_bytes(), || true)?;
    fs::remove_dir_all(&temporary)?;
    let base = place.join("base");
    fs::create_dir_all(base.join("refs"))?;
    fs::copy(host.join("HEAD"), base.join("HEAD"))?;
    Ok(WorkingTree {
        host,
        private,
        private_root,
        given_index: base.join("index"),
        base,
        directory: Some(directory.to_owned()),
    })
}

/// Returns the name of a worktree that was made inside, with this `.git` file.
pub fn new_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> Option<String> {
    let name = git_dir.strip_prefix(repository.common_dir.join("worktrees")).ok()?.to_str()?;
    let inside = &repository.full.first()?.private;
    let is_there = UntrustedDir::open_below(inside, &inside.join("worktrees").join(name)).is_ok();
    let is_new = git_dir.symlink_metadata().is_err() || is_other_worktree(repository, git_dir, pointer);
    (is_plain_name(name) && is_new && is_there).then(|| name.to_owned())
}

/// Tells whether the Git directory on the host belongs to a worktree that the user added elsewhere
/// while the guest made one with the same name.
fn is_other_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> bool {
    let is_new = repository.worktrees.iter().all(|known| known.host != git_dir);
    let named = untrusted::read(&git_dir.join("gitdir"), MAX_POINTER).ok();
    let named = named.and_then(|text| pointed(git_dir, format!("gitdir: {text}").as_bytes()));
    is_new && named.is_some_and(|named| named != pointer)
}
