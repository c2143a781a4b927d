//! Decides the Git directories inside: private ones, or the host's with read-only hooks and
//! configuration. Also decides which files of the workspace Git on the host obeys, so that they are
//! read-only inside. Makes and reads nothing itself; `gate::repository` does.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::entry::{Mount, Source, Topic, Why};
use super::prepare::Prepare;
use super::{CONTROL_DIR, Draft};
use crate::config::value::{Access, EngineKind, GitMode};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::git::Scope;
use crate::facts::{Format, FullGitDir, GitDirs, GitFacts, Hooks};
use crate::host::Host;
use crate::path::{HostPath, constant};
use crate::warning::{Warning, WarningTopic};

/// The directory in the session's directory with a subdirectory for each repository.
pub const GIT: &str = "git";
/// The private Git directory, in the repository's subdirectory.
pub const INSIDE: &str = "inside";

/// What passes between the sandbox and the host's repositories. It is saved in the session's
/// directory for the case that the launcher is killed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepositoryGate {
    /// Identifies the sandbox in refs and messages.
    pub id: String,
    /// Whether the guest is another user than the host's.
    pub is_other_user: bool,
    /// A directory outside of the session's, which is removed with it.
    pub memory_dir: Option<PathBuf>,
    /// Private repositories; none if the host's are shared.
    pub repositories: Vec<PrivateRepository>,
    /// Directories of submodules that had no repository.
    pub empty_submodules: Vec<EmptySubmodule>,
    /// Files in the workspace that are read-only inside.
    pub fixed: Vec<PathBuf>,
    /// Writable directories, in which the guest may create repositories.
    pub roots: Vec<PathBuf>,
    /// The host's Git.
    pub git: Option<PathBuf>,
    /// The PATH and the home directory for Git.
    pub path: PathBuf,
    pub home: PathBuf,
    /// The directory for what cannot come out.
    pub aside: PathBuf,
    /// Files and directories that tools on the host execute or obey.
    pub watched: Vec<PathBuf>,
}

/// A repository of the host and its private copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateRepository {
    /// The subdirectory of the session's directory.
    pub place: PathBuf,
    /// The shared Git directory on the host.
    pub common_dir: PathBuf,
    /// The Git directories with objects; the shared one is the first.
    pub full: Vec<PrivateGitDir>,
    /// The Git directories of linked worktrees.
    pub worktrees: Vec<PrivateWorktree>,
}

/// A Git directory with objects, and its private copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateGitDir {
    pub host: PathBuf,
    /// The private copy on the host.
    pub private: PathBuf,
    /// The directory that is mounted, which contains the private copy. The guest can replace
    /// everything below it by links.
    pub private_root: PathBuf,
    /// The directory for the guest's objects.
    pub private_objects: PathBuf,
    /// The index that the guest was given last.
    pub given_index: PathBuf,
    /// The state that the guest was given last.
    pub base: PathBuf,
    /// A repository for the guest's objects before they are verified.
    pub import: PathBuf,
    /// The working tree, if it is mounted.
    pub work_tree: Option<PathBuf>,
    pub is_sha256: bool,
    pub is_reftable: bool,
    /// The host's objects, as paths inside.
    pub alternates: Vec<PathBuf>,
    /// The host's objects, as paths on the host.
    pub objects: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateWorktree {
    pub host: PathBuf,
    pub private: PathBuf,
    pub private_root: PathBuf,
    pub base: PathBuf,
    pub given_index: PathBuf,
    pub work_tree: Option<PathBuf>,
}

/// A directory of a submodule that had no repository, and the one that covers it inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptySubmodule {
    pub directory: PathBuf,
    pub private: PathBuf,
}

/// Git's files of the host that are read-only inside. Seatbelt needs them as rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FixedFiles {
    pub paths: Vec<HostPath>,
    pub empty_submodules: Vec<EmptySubmodule>,
    pub git_dirs: Vec<HostPath>,
}

#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error("{origin}: sandbox-exec cannot put a private Git directory in the place of the host's")]
    NotPrivate { origin: String },
}

impl Diagnostic for RepositoryError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        vec!["use `--git shared`, or a container: `--engine docker` or `--engine podman`".into()]
    }
}

/// Paths in a workspace that tools on the host execute or obey without being asked.
const WATCHED: &[&str] = &[
    ".aider.conf.yml",
    ".bazelrc",
    ".cargo/config.toml",
    ".claude",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".devcontainer.json",
    ".dir-locals.el",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".gemini",
    ".gitattributes",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".hg/hgrc",
    ".husky",
    ".idea",
    ".jj/repo/config.toml",
    ".llxprt",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".pre-commit-config.yaml",
    ".sandpen",
    ".tool-versions",
    ".vscode",
    ".yarnrc.yml",
    ".zed",
    "AGENTS.md",
    "CLAUDE.md",
    "lefthook.yml",
    "mise.toml",
];

impl Draft<'_> {
    /// Returns the mode in effect: Seatbelt has no mounts, so it always shares the host's Git
    /// directory.
    pub fn git_mode(&self) -> Result<GitMode> {
        let asked = &self.config.git;
        if self.engine != EngineKind::SandboxExec {
            return Ok(asked.value);
        }
        if asked.value == GitMode::Private && asked.is_asked_for() && !self.facts.git_dirs.is_empty() {
            return Err(RepositoryError::NotPrivate { origin: asked.origin.to_string() }.into());
        }
        Ok(GitMode::Shared)
    }

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
            let place = memory.clone().unwrap_or_else(|| self.session_dir.join(GIT)).join(number.to_string());
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
    fn repository_memory(&self) -> Option<HostPath> {
        let memory = self.facts.memory_dir.as_ref().filter(|_| self.engine == EngineKind::Native)?;
        Some(memory.join(format!("sandpen-{}-{}", self.host.uid, super::flat_name(self.session_dir.as_path()))))
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
                    let private = place.join(format!("{INSIDE}-{number}"));
                    self.pin_above(&dir.path);
                    self.private_directory(&private, &dir.path, "a private Git directory of a submodule");
                    private
                }
            };
            full.push(self.private_git_dir(dir, private, place, count));
        }
        let worktrees = dirs.worktrees.iter().enumerate().map(|(number, dir)| PrivateWorktree {
            host: owned(&dir.path),
            base: owned(&place.join(format!("base-worktree-{number}"))),
            given_index: owned(
                &self.session_dir.join(format!("index-{}-{number}", super::flat_name(dir.path.as_path()))),
            ),
            private_root: owned(&inside),
            private: owned(
                &inside.join(dir.path.as_path().strip_prefix(common.as_path()).unwrap_or(dir.path.as_path())),
            ),
            work_tree: dir.work_tree.as_ref().map(owned),
        });
        PrivateRepository { worktrees: worktrees.collect(), place: owned(place), common_dir: owned(common), full }
    }

    fn private_directory(&mut self, private: &HostPath, at: &HostPath, reason: &str) {
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
        let private_objects = self.session_dir.join(format!("objects-{number}"));
        self.prepare.push(Prepare::Objects { path: private_objects.clone() });
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
            base: owned(&place.join(format!("base-{number}"))),
            import: owned(&self.session_dir.join(format!("import-{number}"))),
            private_objects: owned(&private_objects),
            given_index: owned(&self.session_dir.join(format!("index-{number}"))),
            work_tree: dir.work_tree.as_ref().map(owned),
            is_sha256,
            is_reftable,
            alternates,
            objects,
        }
    }

    /// Makes read-only what Git on the host obeys: `.git` files, hooks and configuration in the
    /// workspace; with the host's Git directory also those in it. Called after the workspace is
    /// mounted.
    pub fn fixed_files(&mut self, mode: GitMode) -> FixedFiles {
        let mut fixed = FixedFiles::default();
        for dirs in &self.facts.git_dirs {
            for pointer in &dirs.pointers {
                self.fix_file(pointer, "names the Git directory: read-only inside", &mut fixed);
            }
            for hooks in &dirs.hooks {
                self.fix_hooks(hooks, dirs, mode, &mut fixed);
            }
            match mode {
                GitMode::Private => self.empty_submodules(dirs, &mut fixed),
                GitMode::Shared => self.shared_repository(dirs, &mut fixed),
            }
        }
        if let Some(at) = &self.workspace.unconfirmed {
            self.fix_file(&at.join(".git"), "names a Git directory that is not used: read-only inside", &mut fixed);
        }
        for file in configuration_files(self.host, &self.facts.git) {
            let real = self.facts.files.get(&file).map_or(file, |fact| fact.real.clone());
            if !self.facts.git_dirs.iter().flat_map(|dirs| &dirs.full).any(|dir| real.is_within(&dir.path)) {
                self.fix_file(&real, "part of the host's Git configuration: read-only inside", &mut fixed);
            }
        }
        fixed
    }

    /// Covers the directories of submodules that have no repository yet: `git status` on the host
    /// would enter a repository that the guest makes there, and run its programs.
    fn empty_submodules(&mut self, dirs: &GitDirs, fixed: &mut FixedFiles) {
        for (number, directory) in dirs.empty_submodules.iter().enumerate() {
            let Some(common) = dirs.full.first() else { continue };
            let name = super::flat_name(common.path.as_path());
            let private = self.session_dir.join(GIT).join(format!("submodule-{name}-{number}"));
            self.pin_above(directory);
            self.private_directory(&private, directory, "a submodule without a repository: comes out at the end");
            fixed.empty_submodules.push(EmptySubmodule { directory: owned(directory), private: owned(&private) });
        }
    }

    /// Makes hooks and configuration read-only, and keeps Git directories in their places.
    fn shared_repository(&mut self, dirs: &GitDirs, fixed: &mut FixedFiles) {
        for git_dir in dirs.full.iter().map(|dir| &dir.path) {
            self.pin(git_dir);
            fixed.git_dirs.push(git_dir.clone());
        }
        // Before their files, whose directories would be mounted read-write.
        for worktree in dirs.worktrees.iter().filter(|worktree| worktree.work_tree.is_none()) {
            self.pin_above(&worktree.path);
            let reason = "belongs to a worktree outside the sandbox: read-only, so that it is not pruned";
            self.fix_directory(&worktree.path, reason, fixed);
        }
        for file in &dirs.decisive {
            self.fix_file(file, "controls which code Git runs: read-only inside", fixed);
        }
    }

    /// Makes a directory of hooks read-only, and files in the workspace to which hooks are links. A
    /// link cannot be a mount point, so its target is made read-only (attack 02).
    fn fix_hooks(&mut self, hooks: &Hooks, dirs: &GitDirs, mode: GitMode, fixed: &mut FixedFiles) {
        let reason = "hooks run on the host: read-only inside";
        let is_private =
            |path: &HostPath| mode == GitMode::Private && dirs.full.iter().any(|dir| path.is_within(&dir.path));
        if let Some(real) = hooks.real.as_ref().filter(|real| self.is_below_root(real) && !is_private(real)) {
            self.pin_above(real);
            self.fix_directory(real, reason, fixed);
        }
        for file in hooks.linked.iter().filter(|file| !is_private(file)) {
            self.fix_file(file, reason, fixed);
        }
    }

    /// Makes a file of the workspace read-only.
    fn fix_file(&mut self, file: &HostPath, reason: &str, fixed: &mut FixedFiles) {
        if !self.is_below_root(file) {
            return;
        }
        self.pin_above(file);
        fixed.paths.push(file.clone());
        if self.engine != EngineKind::SandboxExec {
            let why = Why::new(reason, self.config.git.origin.clone()).about(Topic::Repository);
            self.mounts.add(Mount::file(file.clone(), file.to_guest(), Access::Ro, why));
        }
    }

    fn fix_directory(&mut self, directory: &HostPath, reason: &str, fixed: &mut FixedFiles) {
        fixed.paths.push(directory.clone());
        if self.engine != EngineKind::SandboxExec {
            let why = Why::new(reason, self.config.git.origin.clone()).about(Topic::Repository);
            self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Ro, why));
        }
    }

    /// Makes a directory and those above it separate mounts, because a mount cannot be renamed or
    /// replaced (attack 03).
    fn pin(&mut self, directory: &HostPath) {
        self.pin_above(directory);
        if self.is_below_root(directory) {
            self.pin_one(directory);
        }
    }

    fn pin_above(&mut self, directory: &HostPath) {
        let above = directory.as_path().ancestors().skip(1).filter_map(|above| HostPath::new(above).ok());
        for above in above.take_while(|above| self.is_below_root(above)).collect::<Vec<_>>() {
            self.pin_one(&above);
        }
    }

    fn is_below_root(&self, path: &HostPath) -> bool {
        self.workspace.writable().any(|root| path.is_within(root) && path != root)
    }

    fn pin_one(&mut self, directory: &HostPath) {
        if self.engine == EngineKind::SandboxExec {
            return;
        }
        let reason = "a separate mount, so that it cannot be renamed or replaced";
        let why = Why::new(reason, self.config.git.origin.clone()).about(Topic::Repository);
        self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Rw, why));
    }

    /// Collects what passes between the sandbox and the host's repositories.
    pub fn repository_gate(&self, repositories: Vec<PrivateRepository>, fixed: &FixedFiles) -> RepositoryGate {
        RepositoryGate {
            id: self.id.to_string(),
            is_other_user: !self.user.is_host_user(),
            memory_dir: self.repository_memory().filter(|_| !repositories.is_empty()).as_ref().map(owned),
            roots: self.searched_roots(&repositories, fixed),
            repositories,
            empty_submodules: fixed.empty_submodules.clone(),
            fixed: fixed.paths.iter().chain(&fixed.git_dirs).map(owned).collect(),
            git: self.facts.git.program.as_ref().map(owned),
            path: self.facts.path.for_host(),
            home: owned(&self.host.home),
            aside: owned(&self.host.state_dir().join("set-aside")),
            watched: self.watched(),
        }
    }

    /// Lists the directories in which the guest may create repositories.
    fn searched_roots(&self, private: &[PrivateRepository], fixed: &FixedFiles) -> Vec<PathBuf> {
        let is_bare = |root: &PathBuf| {
            private.iter().any(|repository| repository.common_dir == *root)
                || fixed.git_dirs.iter().any(|shared| shared.as_path() == root)
        };
        let trees = self.workspace.trees().map(owned).chain(self.writable_mounts());
        trees.filter(|root| !is_bare(root)).collect()
    }

    /// Lists the writable directories outside of the workspace.
    fn writable_mounts(&self) -> Vec<PathBuf> {
        let writable = self.mounts.iter().filter(|mount| mount.access == Access::Rw && mount.is_directory);
        let sources = writable.filter_map(|mount| match &mount.source {
            Source::Host(source) => Some(source),
            _ => None,
        });
        let memory = self.repository_memory();
        let is_session = |source: &HostPath| {
            source.is_within(self.session_dir) || memory.as_ref().is_some_and(|memory| source.is_within(memory))
        };
        sources
            .filter(|source| !is_session(source) && !self.workspace.writable().any(|root| source.is_within(root)))
            .map(owned)
            .collect()
    }

    /// Lists the paths whose changes are reported, in the workspaces and in the preset's
    /// directories.
    fn watched(&self) -> Vec<PathBuf> {
        let roots = self.workspace.writable().chain([&self.workspace.workdir]);
        let mut watched: Vec<PathBuf> =
            roots.flat_map(|root| WATCHED.iter().map(|name| owned(&root.join(name)))).collect();
        for directory in self.preset.iter().flat_map(|preset| &preset.directories) {
            let path = self.host.home.join(directory.path.below());
            watched.extend(directory.obeyed.iter().map(|name| owned(&path.join(name))));
        }
        watched.sort();
        watched.dedup();
        watched
    }
}

/// Lists the Git directories and objects inside.
pub fn inside(repositories: &[PrivateRepository]) -> Vec<String> {
    let full = repositories.iter().flat_map(|repository| &repository.full);
    let places = full.flat_map(|dir| [dir.host.clone(), dir.host.join("objects")]);
    places.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Lists the files that Git's settings come from, without those from the environment.
pub fn configuration_files(host: &Host, git: &GitFacts) -> BTreeSet<HostPath> {
    let files = git.settings.iter().filter(|setting| setting.scope != Scope::Command);
    let files = files.filter_map(|setting| setting.file.as_ref());
    let root = git.root.as_ref().unwrap_or(&host.cwd);
    files.filter_map(|file| HostPath::new(host.expand(&root.as_path().join(file))).ok()).collect()
}

fn owned(path: &HostPath) -> PathBuf {
    path.as_path().to_owned()
}
