//! Judges `.git` files, which name a Git directory: a worktree or a submodule that was made inside
//! comes out, any other is set aside.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::Nested;
use super::worktree::{NewWorktree, new_worktree};
pub use crate::gate::repository::nested_baseline::MAX_POINTER;
use crate::gate::repository::report::Report;
use crate::gate::repository::root::open_parent;
use crate::plan::repository::PrivateRepository;

impl Nested<'_> {
    /// Judges a `.git` file: it may name a worktree or a submodule that was made inside.
    pub(super) fn pointer(&mut self, root: &Path, path: &Path, report: &mut Report) -> io::Result<()> {
        let (parent, name) = open_parent(root, path)?;
        let text = parent.read(&name, MAX_POINTER).unwrap_or_default();
        let is_remade = path.parent().is_some_and(|directory| self.remade.contains(directory));
        if is_remade || text.as_ref().is_some_and(|text| self.baseline.has_pointer(path, text)) {
            return Ok(());
        }
        let directory = path.parent().unwrap_or(root);
        let named = text.and_then(|text| pointed(directory, &text));
        if let Some(git_dir) = &named {
            for (number, repository) in self.gate.repositories.iter().enumerate() {
                if let Some(name) = new_worktree(repository, git_dir, path)
                    && !self.worktrees.iter().any(|known| known.repository == number && known.name == name)
                {
                    self.worktrees.push(NewWorktree { directory: directory.to_owned(), repository: number, name });
                    return Ok(());
                }
                // Another sandbox that is still running may have made it; no guest can write there.
                if !self.is_alone && git_dir.starts_with(repository.common_dir.join("worktrees")) {
                    return Ok(());
                }
            }
            // The guest cannot write the host's Git directories, so what is there is the user's.
            let is_hosts = |repository: &PrivateRepository| git_dir.starts_with(&repository.common_dir);
            if git_dir.symlink_metadata().is_ok() && self.gate.repositories.iter().any(is_hosts) {
                return Ok(());
            }
            if let Some(module) = self.module(git_dir) {
                return self.submodule(module, directory, &parent, report);
            }
        }
        self.set_aside(root, path, "names a Git directory that cannot come out", report)
    }
}

/// Returns the directory that a `.git` file names, in a form that Git writes: an absolute path, or
/// one that first leads upwards and then down. Anywhere else `..` would lead upwards from the target
/// of a link.
pub fn pointed(directory: &Path, text: &[u8]) -> Option<PathBuf> {
    let named = std::str::from_utf8(text).ok()?.strip_prefix("gitdir: ")?.strip_suffix('\n')?;
    let is_plain = |names: &str| names.split('/').all(|name| !matches!(name, "" | "." | ".."));
    if let Some(below) = named.strip_prefix('/') {
        return is_plain(below).then(|| named.into());
    }
    let (mut above, mut below) = (directory, named);
    while let Some(rest) = below.strip_prefix("../") {
        (above, below) = (above.parent()?, rest);
    }
    is_plain(below).then(|| above.join(below))
}

/// Returns the path from a directory to another one.
pub fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

/// Tells whether a name has no special meaning to Git or to a file system.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.chars().all(is_plain) && !name.starts_with(['-', '.']) && !name.ends_with(".lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_file_is_read_only_in_the_form_that_git_writes() {
        let at = |text: &str| pointed(Path::new("/w/sub"), text.as_bytes());
        assert_eq!(at("gitdir: ../.git/modules/sub\n"), Some("/w/.git/modules/sub".into()));
        assert_eq!(at("gitdir: /x/y\n"), Some("/x/y".into()));
        assert_eq!(at("gitdir: ../../x/.git\n"), Some("/x/.git".into()));
        for text in [
            "gitdir:../x\n",
            "gitdir: x",
            "x\n",
            "",
            "gitdir: \n",
            "gitdir: l/../../.git\n",
            "gitdir: ../l/../.git\n",
            "gitdir: /w/l/../.git\n",
            "gitdir: ../../..\n",
            "gitdir: ..\n",
            "gitdir: ./x\n",
            "gitdir: /w//x\n",
            "gitdir: ../../../x\n",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        assert_eq!(relative(Path::new("/w/.git/modules/a/b"), Path::new("/w/a/b")), Path::new("../../../../a/b"));
    }
}
