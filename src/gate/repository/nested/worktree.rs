//! Brings out worktrees that `git worktree add` made inside.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::pointer::{MAX_POINTER, is_plain_name, pointed};
use crate::gate::repository::exchange::WorkingTree;
use crate::gate::repository::host_git::{GitResult, HostGit};
use crate::plan::repository::PrivateRepository;
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

const MAX_NAME: usize = 64;

/// A worktree that `git worktree add` made inside.
pub struct NewWorktree {
    pub directory: PathBuf,
    /// The number of its repository.
    pub repository: usize,
    /// The name of its private Git directory.
    pub name: OsString,
}

/// Brings out a worktree that was made inside: the host's Git registers it, and its HEAD and index
/// come out as those of other worktrees.
pub fn add_worktree(
    git: &HostGit,
    roots: &[PathBuf],
    repository: &PrivateRepository,
    worktree: &NewWorktree,
    place: &Path,
) -> GitResult<WorkingTree> {
    let directory = &worktree.directory;
    let common = &repository.common_dir;
    let private_root = repository.full.first().map(|dir| dir.private.clone()).unwrap_or_default();
    let private = private_root.join("worktrees").join(&worktree.name);
    let root = roots
        .iter()
        .find(|root| directory.starts_with(root))
        .ok_or(io::ErrorKind::NotFound)
        .map_err(io::Error::from)?;
    let tree = UntrustedDir::open_below(root, directory)?;
    let temporary = place.join(plain_name(&worktree.name));
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
        delayed_index: None,
        base,
        directory: Some(directory.clone()),
    })
}

/// Returns the name of a worktree that was made inside, with this `.git` file.
pub fn new_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> Option<OsString> {
    let below = git_dir.strip_prefix(repository.common_dir.join("worktrees")).ok()?;
    let name = below.file_name().filter(|name| below == Path::new(name))?;
    let inside = &repository.full.first()?.private;
    let private = UntrustedDir::open_below(inside, &inside.join("worktrees").join(name)).ok()?;
    let is_new = git_dir.symlink_metadata().is_err() || is_other_worktree(repository, git_dir, pointer);
    (is_new && is_named(&private, git_dir, pointer)).then(|| name.to_owned())
}

/// Tells whether the private Git directory names this `.git` file, or one that does not exist: Git
/// does not notice that a worktree was moved by other means. Another sandbox may have made a
/// worktree with the same name.
fn is_named(private: &UntrustedDir, git_dir: &Path, pointer: &Path) -> bool {
    let text = private.read("gitdir", MAX_POINTER).ok().flatten().unwrap_or_default();
    let named = pointed(git_dir, &[b"gitdir: ", text.as_slice()].concat());
    named.is_none_or(|named| named == pointer || named.symlink_metadata().is_err())
}

/// Returns a name for the Git directory on the host, without characters that have a meaning to Git
/// or to a file system.
pub fn plain_name(name: &OsStr) -> String {
    let text = name.to_string_lossy();
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let plain = plain.trim_matches('-');
    let plain: String = plain.chars().take(MAX_NAME).collect();
    if is_plain_name(&text) {
        text.into_owned()
    } else if plain.is_empty() {
        "worktree".into()
    } else {
        plain
    }
}

/// Tells whether the Git directory on the host belongs to a worktree that the user added elsewhere
/// while the guest made one with the same name.
fn is_other_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> bool {
    let is_new = repository.worktrees.iter().all(|known| known.host != git_dir);
    let named = untrusted::read(&git_dir.join("gitdir"), MAX_POINTER).ok();
    let named = named.and_then(|text| pointed(git_dir, format!("gitdir: {text}").as_bytes()));
    is_new && named.is_some_and(|named| named != pointer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_become_plain() {
        for (name, plain) in
            [("fix", "fix"), ("v1.2", "v1.2"), ("fix#12", "fix-12"), ("-x.lock", "x-lock"), ("#", "worktree")]
        {
            assert_eq!(plain_name(OsStr::new(name)), plain);
        }
    }
}
