//! Undoes what the guest did in a repository of the user that is in the workspace.

use std::io;
use std::path::{Path, PathBuf};

use super::Nested;
use crate::gate::repository::git_dir_content::{Content, GitDirContent};
use crate::gate::repository::move_tree::move_out;
use crate::gate::repository::report::Report;
use crate::process::untrusted_dir::UntrustedDir;

/// The report names at most this many files of a repository.
const MAX_NAMED: usize = 8;

/// What was done to a repository of the user.
#[derive(Default)]
struct Undone {
    /// Files of the guest that were moved aside.
    moved: Vec<PathBuf>,
    /// Files that the user changed after a kill.
    later: Vec<PathBuf>,
}

impl Nested<'_> {
    /// Undoes what the guest did in a repository of the user, apart from ordinary work: files that it
    /// made are set aside, others are as they were. What the user changed after a kill stays. Returns
    /// `false` if that is not possible.
    pub(super) fn restore(
        &mut self,
        git_dir: &UntrustedDir,
        path: &Path,
        before: &GitDirContent,
        report: &mut Report,
    ) -> io::Result<bool> {
        let now = GitDirContent::again(git_dir, before)?;
        if now == *before {
            return Ok(true);
        }
        let kept = self.next_aside("files-");
        let mut undone = Undone::default();
        let result = self.undo(git_dir, before, &now, &kept, &mut undone, report);
        if !undone.moved.is_empty() {
            report.keep(format!(
                "changed in `{}` and kept in `{}`: {}",
                path.display(),
                kept.display(),
                names(&undone.moved)
            ));
        }
        if !undone.later.is_empty() {
            report.keep(format!(
                "changed in `{}` after the sandbox was killed, so the sandbox's changes stay as well: {}",
                path.display(),
                names(&undone.later)
            ));
        }
        result?;
        let earlier = |content: &GitDirContent| -> Vec<(PathBuf, Content)> {
            content.0.iter().filter(|(file, _)| !undone.later.contains(file)).cloned().collect()
        };
        Ok(earlier(&GitDirContent::again(git_dir, before)?) == earlier(before))
    }

    fn undo(
        &mut self,
        git_dir: &UntrustedDir,
        before: &GitDirContent,
        now: &GitDirContent,
        kept: &Path,
        undone: &mut Undone,
        report: &mut Report,
    ) -> io::Result<()> {
        let is_later =
            |file: &Path| self.killed.is_some_and(|killed| git_dir.stat(file).is_ok_and(|stat| stat.st_ctime > killed));
        for (file, _) in now.0.iter().filter(|entry| !before.0.contains(entry)) {
            if is_later(file) {
                undone.later.push(file.clone());
                continue;
            }
            let parent = git_dir.directory(file.parent().unwrap_or(Path::new("")))?;
            move_out(&parent, Path::new(file.file_name().unwrap_or_default()), &kept.join(file))?;
            undone.moved.push(file.clone());
        }
        let missing = |entry: &&(PathBuf, Content)| !now.0.contains(entry) && !undone.later.contains(&entry.0);
        for (file, content) in before.0.iter().filter(missing) {
            let parent = git_dir.create_directory(file.parent().unwrap_or(Path::new("")))?;
            let name = Path::new(file.file_name().unwrap_or_default());
            if parent.stat(name).is_ok() {
                let other = self.next_aside("files-");
                move_out(&parent, name, &other)?;
                report.keep(format!("`{}`, which was a file, is kept in `{}`", file.display(), other.display()));
            }
            match content {
                Content::File { bytes, mode } => {
                    parent.replace(name, bytes, || true)?;
                    parent.set_mode(name, *mode)?;
                }
                Content::Link(to) => rustix::fs::symlinkat(to, &parent, name)?,
                // Its content was not recorded, so the comparison finds that it is missing.
                Content::Odd(_) => {}
            }
        }
        Ok(())
    }
}

/// Names the first files of a list.
fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().take(MAX_NAMED).map(|file| format!("`{}`", file.display())).collect();
    let more = files.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", names.join(", "))
}
