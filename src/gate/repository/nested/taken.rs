//! Takes the guest's Git directories to the session's directory, with a record of their places. If
//! sandpen is killed before the host's Git has made new ones, the next command continues.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Nested;
use super::remake::Remake;
use crate::gate::repository::move_tree::move_out;
use crate::gate::repository::report::Report;
use crate::gate::repository::root::open_parent;
use crate::process::untrusted_dir::UntrustedDir;

/// The record of one place: the paths of the Git directory and of its working tree, each followed by
/// a zero byte.
const RECORD: &str = "place";
const PREFIX: &str = "nested-";
/// Git obeys these files of a Git directory.
const OBEYED: [&str; 4] = ["config", "config.worktree", "commondir", "hooks"];

impl Nested<'_> {
    /// Returns a new directory of the session.
    pub(super) fn next_place(&mut self) -> PathBuf {
        self.next_free(self.scratch, PREFIX)
    }

    /// Returns a new path in the directory for what does not come out.
    pub(super) fn next_aside(&mut self, prefix: &str) -> PathBuf {
        self.next_free(&self.gate.aside.join(&self.gate.id), prefix)
    }

    /// An earlier command may have used some of the numbers.
    fn next_free(&mut self, directory: &Path, prefix: &str) -> PathBuf {
        loop {
            self.count += 1;
            let path = directory.join(format!("{prefix}{}", self.count));
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    /// Moves the guest's Git directory, which is an entry of `parent`, to the session's directory.
    pub(super) fn take(&mut self, remake: &Remake, parent: &UntrustedDir, name: &Path) -> io::Result<()> {
        fs::create_dir_all(&remake.place)?;
        let work_tree = remake.work_tree.unwrap_or(Path::new(""));
        let record: Vec<u8> = [remake.git_dir.as_path(), work_tree]
            .iter()
            .flat_map(|path| path.as_os_str().as_bytes().iter().copied().chain([0]))
            .collect();
        let new = remake.place.join("place.new");
        fs::write(&new, record)?;
        fs::rename(new, remake.place.join(RECORD))?;
        let moved = move_out(parent, name, &remake.private());
        if moved.is_err() {
            if remake.private().symlink_metadata().is_ok() {
                self.has_failed = true;
            } else {
                let _ = fs::remove_dir_all(&remake.place);
            }
        }
        moved
    }

    /// Continues with the Git directories that an earlier command took away.
    pub(super) fn resume(&mut self, report: &mut Report) {
        for place in places(self.scratch) {
            let Some((git_dir, work_tree)) = read_record(&place) else { continue };
            let remake = Remake { place, work_tree: work_tree.as_deref(), git_dir };
            if remake.private().symlink_metadata().is_err() {
                let _ = fs::remove_dir_all(&remake.place);
                continue;
            }
            for begun in ["tree", "base", "import"] {
                let _ = fs::remove_dir_all(remake.place.join(begun));
            }
            match self.empty_place(&remake.git_dir) {
                Ok((parent, name)) => {
                    let made = self.remake(&remake, report);
                    self.install(made, &remake, &parent, &name, report);
                }
                Err(error) => {
                    report.problems.push(format!("`{}` cannot be brought out: {error}", remake.git_dir.display()));
                    self.keep_guest(&remake, report);
                }
            }
        }
    }

    /// Opens the directory above a Git directory, in which there must be none.
    fn empty_place(&self, git_dir: &Path) -> io::Result<(UntrustedDir, PathBuf)> {
        let above = git_dir.parent().unwrap_or(git_dir);
        if self.gate.repositories.iter().any(|repository| above.starts_with(&repository.common_dir)) {
            fs::create_dir_all(above)?;
        }
        let root = self.gate.roots.iter().find(|root| git_dir.starts_with(root));
        let (parent, name) = open_parent(root.map_or(above, PathBuf::as_path), git_dir)?;
        if parent.stat(&name).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok((parent, name))
    }

    /// Keeps a Git directory of the guest for the user. Git on the host does not obey its files.
    pub(super) fn keep_guest(&mut self, remake: &Remake, report: &mut Report) {
        let kept = self.next_aside("repository-");
        let guest = remake.private();
        let moved = UntrustedDir::open(&remake.place).and_then(|place| move_out(&place, Path::new("guest"), &kept));
        if let Err(error) = moved {
            self.has_failed = true;
            report.problems.push(format!(
                "what did not come out of the repository `{}` cannot be moved from `{}`: {error}",
                remake.git_dir.display(),
                guest.display()
            ));
            return;
        }
        for name in OBEYED {
            let _ = fs::rename(kept.join(name), kept.join(format!("{name}.inside")));
        }
        let _ = fs::remove_dir_all(&remake.place);
        report.keep_with(
            format!(
                "what did not come out of the repository `{}` is kept in `{}`",
                remake.git_dir.display(),
                kept.display()
            ),
            &["git", "--git-dir", &kept.to_string_lossy(), "log", "--oneline", "--all"],
        );
    }
}

/// Lists the directories of the session with Git directories of the guest.
fn places(scratch: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()));
    let mut places: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    places.sort();
    places
}

fn read_record(place: &Path) -> Option<(PathBuf, Option<PathBuf>)> {
    let record = fs::read(place.join(RECORD)).ok()?;
    let mut paths = record.split(|byte| *byte == 0).map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let git_dir = paths.next()?;
    let work_tree = paths.next()?;
    Some((git_dir, (!work_tree.as_os_str().is_empty()).then_some(work_tree)))
}
