//! Decides the private Git directories and where they are mounted, with the host's objects
//! read-only beside them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{GIT, owned};
use crate::config::value::{Access, EngineKind};
use crate::facts::{Format, FullGitDir, GitDirs};
use crate::path::{HostPath, constant};
use crate::plan::entry::{Mount, Topic, Why};
use crate::plan::prepare::Prepare;
use crate::plan::{CONTROL_DIR, Draft, flat_name};
use crate::warning::{Warning, WarningTopic};

/// The private Git directory, in the repository's subdirectory.
const INSIDE: &str = "inside";

/// A repository of the host and its private copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateRepository {
    /// The subdirectory of the session's directory.
    #[serde(with = "crate::saved_path")]
    pub place: PathBuf,
    /// The shared Git directory on the host.
    #[serde(with = "crate::saved_path")]
    pub common_dir: PathBuf,
    /// The Git directories with objects; the shared one is the first.
    pub full: Vec<PrivateGitDir>,
    /// The Git directories of linked worktrees.
    pub worktrees: Vec<PrivateWorktree>,
}

/// A Git directory with objects, and its private copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateGitDir {
    #[serde(with = "crate::saved_path")]
    pub host: PathBuf,
    /// The private copy on the host.
    #[serde(with = "crate::saved_path")]
    pub private: PathBuf,
    /// The directory that is mounted, which contains the private copy. The guest can replace
    /// everything below it by links.
    #[serde(with = "crate::saved_path")]
    pub private_root: PathBuf,
    /// The directory for the guest's objects.
    #[serde(with = "crate::saved_path")]
    pub private_objects: PathBuf,
    /// The index that the guest was given last.
    #[serde(with = "crate::saved_path")]
    pub given_index: PathBuf,
    /// The state that the guest was given last.
    #[serde(with = "crate::saved_path")]
    pub base: PathBuf,
    /// A repository for the guest's objects before they are verified.
    #[serde(with = "crate::saved_path")]
    pub import: PathBuf,
    /// The working tree, if it is mounted.
    #[serde(with = "crate::saved_path")]
    pub work_tree: Option<PathBuf>,
    pub is_sha256: bool,
    pub is_reftable: bool,
    /// The host's objects, as paths inside.
    #[serde(with = "crate::saved_path")]
    pub alternates: Vec<PathBuf>,
    /// The host's objects, as paths on the host.
    #[serde(with = "crate::saved_path")]
    pub objects: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateWorktree {
    #[serde(with = "crate::saved_path")]
    pub host: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub private: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub private_root: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub base: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub given_index: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub work_tree: Option<PathBuf>,
}

impl Draft<'_> {
    /// Mounts the private Git directories. Called before the workspace is mounted, whose Git
    /// directories they replace.
    pub fn private_repositories(&mut self) -> Vec<PrivateRepository> {
        let mut repositories: Vec<PrivateRepository> = Vec::new();
        let mut objects_count = 0;
        let memory = self.repository_memory();
        if let Some(path) = memory.clone().filter(|_| !self.facts.git_dirs.is_empty()) {
            self.prepare.push(Prepare::Private { path, session: self.session_dir.clone() });
        }
        for (number, dirs) in self.facts.git_dirs.iter().enumerate() {
            let Some(common) = dirs.full.first().map(|dir| &dir.path) else { continue };
            let place = match self.kept_git_dir() {
                // Numbers could change until the next sandbox over the copy.
                Some(kept) => kept.join(flat_name(common.as_path())),
                None => memory.clone().unwrap_or_else(|| self.session_dir.join(GIT)).join(number.to_string()),
            };
            if repositories.iter().any(|known| known.common_dir == common.as_path()) {
                continue;
            }
            if let Some(problem) = &dirs.problem {
                self.warnings.push(Warning::new(
                    WarningTopic::Git,
                    format!("the repository is broken, so Git does not work inside: {problem}"),
                ));
            }
            if dirs.problem.is_some() {
                self.private_directory(&place.join(INSIDE), common, "covers a broken repository");
                continue;
            }
            repositories.push(self.private_repository(dirs, &place, &mut objects_count));
        }
        repositories
    }

    /// Returns the directory for private Git directories of a native sandbox. In memory they are made
    /// and removed within a millisecond, which takes much longer on some file systems. The user may
    /// have several directories of sessions, with sandboxes of the same name.
    pub(super) fn repository_memory(&self) -> Option<HostPath> {
        let is_in_memory = self.engine == EngineKind::Native && self.copied.copy.is_none();
        let memory = self.facts.memory_dir.as_ref().filter(|_| is_in_memory)?;
        Some(memory.join(format!("sandpen-{}-{}", self.host.uid, crate::plan::flat_name(self.session_dir.as_path()))))
    }

    /// Returns the directory for what belongs to a private Git directory and is not mounted with it.
    fn repository_files(&self, place: &HostPath) -> HostPath {
        if self.copied.copy.is_some() { place.clone() } else { self.session_dir.clone() }
    }

    /// Names the files of a Git directory: by its number, which may change until the next sandbox over a
    /// copy, or by its path.
    fn numbered(&self, number: usize, git_dir: &HostPath) -> String {
        if self.copied.copy.is_some() { flat_name(git_dir.as_path()) } else { number.to_string() }
    }

    fn private_repository(&mut self, dirs: &GitDirs, place: &HostPath, count: &mut usize) -> PrivateRepository {
        let common = &dirs.full[0].path;
        let inside = place.join(INSIDE);
        self.private_directory(&inside, common, "a private Git directory: commits, refs and the index come out");
        let mut full = Vec::new();
        for (number, dir) in dirs.full.iter().enumerate() {
            let private = match dir.path.as_path().strip_prefix(common.as_path()) {
                Ok(below) => inside.join(below),
                Err(_) => {
                    let private = place.join(format!("{INSIDE}-{}", self.numbered(number, &dir.path)));
                    self.pin_above(&dir.path);
                    self.private_directory(&private, &dir.path, "a private Git directory of a submodule");
                    private
                }
            };
            full.push(self.private_git_dir(dir, private, place, count));
        }
        let worktrees = dirs.worktrees.iter().enumerate().map(|(number, dir)| PrivateWorktree {
            host: owned(&dir.path),
            base: owned(&place.join(format!("base-worktree-{}", self.numbered(number, &dir.path)))),
            given_index: owned(
                &self.repository_files(place).join(format!("index-{}-{number}", flat_name(dir.path.as_path()))),
            ),
            private_root: owned(&inside),
            private: owned(
                &inside.join(dir.path.as_path().strip_prefix(common.as_path()).unwrap_or(dir.path.as_path())),
            ),
            work_tree: dir.work_tree.as_ref().map(owned),
        });
        PrivateRepository { worktrees: worktrees.collect(), place: owned(place), common_dir: owned(common), full }
    }

    pub(super) fn private_directory(&mut self, private: &HostPath, at: &HostPath, reason: &str) {
        let mode = if self.user.is_host_user() { 0o755 } else { 0o777 };
        self.prepare.push(Prepare::Directory { path: private.clone(), mode });
        let why = Why::new(reason, self.config.git.origin.clone()).about(Topic::Repository);
        self.mounts.add(Mount::directory(private.clone(), at.to_guest(), Access::Rw, why));
    }

    /// Mounts the objects of a Git directory, read-only, and those that they are based on.
    fn private_git_dir(
        &mut self,
        dir: &FullGitDir,
        private: HostPath,
        place: &HostPath,
        count: &mut usize,
    ) -> PrivateGitDir {
        let number = *count;
        let own = dir.path.join("objects");
        let files = self.repository_files(place);
        let name = self.numbered(number, &dir.path);
        let private_objects = files.join(format!("objects-{name}"));
        self.prepare.push(match self.copied.copy {
            Some(_) => Prepare::Keep { path: private_objects.clone() },
            None => Prepare::Objects { path: private_objects.clone() },
        });
        let why = Why::default("the sandbox's own objects").about(Topic::Repository);
        self.mounts.add(Mount::directory(private_objects.clone(), own.to_guest(), Access::Rw, why));
        let (mut alternates, mut objects) = (Vec::new(), Vec::new());
        for (number, source) in std::iter::once(&own).chain(&dir.alternates).enumerate() {
            let at = constant!(GuestPath, CONTROL_DIR).join(GIT).join(count.to_string());
            *count += 1;
            let why = |reason: &str| Why::default(reason).about(Topic::Repository);
            let target = at.join("objects");
            self.mounts.add(Mount::directory(
                source.clone(),
                target.clone(),
                Access::Ro,
                why("the objects of the host's repository"),
            ));
            // Git would follow the file to paths that do not exist inside.
            if number > 0 || dir.has_alternates_file {
                let name = format!("alternates-{count}");
                self.generated_at(
                    &name,
                    String::new(),
                    target.join("info/alternates"),
                    "replaces the list of the host",
                );
            }
            if number == 0 && dir.has_lfs {
                let lfs = dir.path.join("lfs");
                self.mounts.add(Mount::directory(lfs, at.join("lfs"), Access::Ro, why("the host's files of Git LFS")));
            }
            alternates.push(target.as_path().to_owned());
            objects.push(owned(source));
        }
        let Format { is_sha256, is_reftable } = dir.format;
        let inside = place.join(INSIDE);
        PrivateGitDir {
            host: owned(&dir.path),
            private_root: owned(if private.is_within(&inside) { &inside } else { &private }),
            private: owned(&private),
            base: owned(&place.join(format!("base-{name}"))),
            import: owned(&files.join(format!("import-{name}"))),
            private_objects: owned(&private_objects),
            given_index: owned(&files.join(format!("index-{name}"))),
            work_tree: dir.work_tree.as_ref().map(owned),
            is_sha256,
            is_reftable,
            alternates,
            objects,
        }
    }
}

/// Lists the Git directories and objects inside.
pub fn inside(repositories: &[PrivateRepository]) -> Vec<String> {
    let full = repositories.iter().flat_map(|repository| &repository.full);
    let places = full.flat_map(|dir| [dir.host.clone(), dir.host.join("objects")]);
    places.map(|path| path.to_string_lossy().into_owned()).collect()
}
