//! Undoes what the guest did in a repository of the user that is in the workspace.

use std::io;
use std::path::{Path, PathBuf};

use super::Nested;
use crate::gate::repository::git_dir_content::{Content, GitDirContent};
use crate::gate::repository::move_tree::{move_out, remove};
use crate::gate::repository::report::Report;
use crate::process::untrusted_dir::UntrustedDir;

/// The report names at most this many files of a repository.
const MAX_NAMED: usize = 8;

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
        self.count += 1;
        let kept = self.gate.aside.join(&self.gate.id).join(format!("files-{}", self.count));
        let is_later =
            |file: &Path| self.killed.is_some_and(|killed| git_dir.stat(file).is_ok_and(|stat| stat.st_ctime > killed));
        let (mut changed, mut later) = (Vec::new(), Vec::new());
        for (file, content) in now.0.iter().filter(|entry| !before.0.contains(entry)) {
            if is_later(file) {
                later.push(file);
                continue;
            }
            let parent = git_dir.directory(file.parent().unwrap_or(Path::new("")))?;
            let name = Path::new(file.file_name().unwrap_or_default());
            match content {
                Content::File { .. } => move_out(&parent, name, &kept.join(file))?,
                Content::Link(_) | Content::Odd(_) => remove(&parent, name)?,
            }
            changed.push(format!("`{}`", file.display()));
        }
        for (file, content) in before.0.iter().filter(|entry| !now.0.contains(entry) && !later.contains(&&entry.0)) {
            let parent = git_dir.create_directory(file.parent().unwrap_or(Path::new("")))?;
            let name = Path::new(file.file_name().unwrap_or_default());
            if parent.stat(name).is_ok() {
                self.count += 1;
                move_out(&parent, name, &kept.with_extension(self.count.to_string()))?;
            }
            match content {
                Content::File { bytes, mode } => {
                    parent.replace(name, bytes, || true)?;
                    parent.set_mode(name, *mode)?;
                }
                Content::Link(to) => rustix::fs::symlinkat(to, &parent, name)?,
                Content::Odd(_) => return Ok(false),
            }
        }
        if !later.is_empty() {
            let names: Vec<String> = later.iter().take(MAX_NAMED).map(|file| format!("`{}`", file.display())).collect();
            report.keep(format!(
                "changed in `{}` after the sandbox was killed, so the sandbox's changes stay as well: {}",
                path.display(),
                names.join(", ")
            ));
        }
        let earlier = |content: &GitDirContent| -> Vec<(PathBuf, Content)> {
            content.0.iter().filter(|(file, _)| !later.contains(&file)).cloned().collect()
        };
        let is_restored = earlier(&GitDirContent::again(git_dir, before)?) == earlier(before);
        if is_restored && !changed.is_empty() {
            let more = changed.len().saturating_sub(MAX_NAMED);
            changed.truncate(MAX_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            report.keep(format!(
                "changed in `{}` and kept in `{}`: {}{more}",
                path.display(),
                kept.display(),
                changed.join(", ")
            ));
        }
        Ok(is_restored)
    }
}
