//! Brings out the repositories of submodules that had none before the launch.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::Nested;
use super::pointer::{MAX_POINTER, is_plain_name, pointed, relative};
use super::remake::Remake;
use crate::gate::repository::move_tree::{move_in, move_out};
use crate::gate::repository::report::Report;
use crate::gate::repository::root::create_directory;
use crate::process::untrusted_dir::UntrustedDir;

impl Nested<'_> {
    /// Moves the files of submodules that were covered out, and makes their repositories.
    pub(super) fn fill_submodules(&mut self, report: &mut Report) {
        for submodule in &self.gate.empty_submodules {
            if let Err(error) = self.fill_submodule(&submodule.private, &submodule.directory, report) {
                report
                    .problems
                    .push(format!("the submodule `{}` cannot be brought out: {error}", submodule.directory.display()));
            }
        }
    }

    fn fill_submodule(&mut self, private: &Path, directory: &Path, report: &mut Report) -> io::Result<()> {
        let from = UntrustedDir::open(private)?;
        let entries = from.entries(usize::MAX)?;
        if entries.is_empty() {
            return Ok(());
        }
        let Ok(target) = create_directory(&self.gate.roots, directory) else {
            return self.keep_submodule(private, directory, "cannot be opened without following links", report);
        };
        if !target.entries(usize::MAX)?.is_empty() {
            return self.keep_submodule(private, directory, "is no longer empty", report);
        }
        for (name, _) in entries.iter().filter(|(name, _)| name != ".git") {
            let name = Path::new(name);
            let between = self.next_place();
            move_out(&from, name, &between)?;
            move_in(&between, &target, name)?;
        }
        match entries.iter().find(|(name, _)| name == ".git").map(|(_, kind)| *kind) {
            Some(FileType::Directory) => {
                let git_dir = directory.join(".git");
                let remake = Remake { place: self.next_place(), work_tree: Some(directory), git_dir };
                self.take(&remake, &from, Path::new(".git"))?;
                let made = self.remake(&remake, report);
                self.install(made, &remake, &target, Path::new(".git"), report);
                Ok(())
            }
            Some(FileType::RegularFile) => {
                let text = from.read(".git", MAX_POINTER)?.unwrap_or_default();
                let git_dir = pointed(directory, &text);
                match git_dir.and_then(|git_dir| self.module(&git_dir)) {
                    Some(module) => self.submodule(module, directory, &target, report),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Keeps the files of a submodule that cannot be moved to its directory.
    fn keep_submodule(
        &mut self,
        private: &Path,
        directory: &Path,
        reason: &str,
        report: &mut Report,
    ) -> io::Result<()> {
        let mut kept = self.gate.aside.join(&self.gate.id).join(directory.file_name().unwrap_or_default());
        if kept.symlink_metadata().is_ok() {
            self.count += 1;
            kept = kept.with_file_name(format!("submodule-{}", self.count));
        }
        let (above, name) = (private.parent().unwrap_or(private), private.file_name().unwrap_or_default());
        move_out(&UntrustedDir::open(above)?, Path::new(name), &kept)?;
        report.keep(format!(
            "`{}` {reason}, so what was made inside is kept in `{}`",
            directory.display(),
            kept.display()
        ));
        Ok(())
    }

    /// Returns the host's path of a new submodule's Git directory, the private directory that contains
    /// the guest's, and its name there.
    pub(super) fn module(&self, git_dir: &Path) -> Option<(PathBuf, UntrustedDir, PathBuf)> {
        self.gate.repositories.iter().find_map(|repository| {
            let below =
                git_dir.strip_prefix(&repository.common_dir).ok().filter(|below| below.starts_with("modules"))?;
            let is_name = |part: &std::ffi::OsStr| part.to_str().is_some_and(is_plain_name);
            // A submodule in the Git directory of another one would change that.
            let mut above = git_dir.ancestors().skip(1).take_while(|above| *above != repository.common_dir);
            if !below.iter().all(is_name) || above.any(|above| above.join("HEAD").symlink_metadata().is_ok()) {
                return None;
            }
            let inside = &repository.full.first()?.private;
            let parent = UntrustedDir::open_below(inside, inside.join(below).parent()?).ok()?;
            let name = PathBuf::from(below.file_name()?);
            let is_there = parent.directory(&name).is_ok_and(|dir| dir.stat("HEAD").is_ok());
            (git_dir.symlink_metadata().is_err() && is_there).then(|| (git_dir.to_owned(), parent, name))
        })
    }

    /// Makes the Git directory of a new submodule, and the `.git` file that names it.
    pub(super) fn submodule(
        &mut self,
        module: (PathBuf, UntrustedDir, PathBuf),
        directory: &Path,
        target: &UntrustedDir,
        report: &mut Report,
    ) -> io::Result<()> {
        let (host, from, name) = module;
        let remake = Remake { place: self.next_place(), work_tree: Some(directory), git_dir: host.clone() };
        self.take(&remake, &from, &name)?;
        let made = self.remake(&remake, report);
        let common = self.gate.repositories.iter().map(|repository| &repository.common_dir);
        let common: Vec<PathBuf> = common.cloned().collect();
        let parent = create_directory(&common, host.parent().unwrap_or(&host))?;
        self.install(made, &remake, &parent, Path::new(host.file_name().unwrap_or_default()), report);
        let pointer = format!("gitdir: {}\n", relative(directory, &host).display());
        let _ = target.remove_file(".git");
        target.replace(".git", pointer.as_bytes(), || true)?;
        Ok(())
    }
}
