//! Decides which files are read-only inside because Git on the host obeys them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{GIT, owned};
use crate::config::value::{Access, EngineKind, GitMode};
use crate::facts::git::Scope;
use crate::facts::{GitDirs, GitFacts, Hooks};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::entry::{Mount, Topic, Why};
use crate::plan::mounts::startup_files;
use crate::plan::prepare::Prepare;
use crate::plan::{Draft, flat_name};
use crate::warning::{Warning, WarningTopic};

/// Git's files of the host that are read-only inside. Seatbelt needs them as rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FixedFiles {
    pub paths: Vec<HostPath>,
    pub empty_submodules: Vec<EmptySubmodule>,
    pub git_dirs: Vec<HostPath>,
}

/// A directory of a submodule that had no repository, and the one that covers it inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptySubmodule {
    #[serde(with = "crate::saved_path")]
    pub directory: PathBuf,
    #[serde(with = "crate::saved_path")]
    pub private: PathBuf,
}

impl Draft<'_> {
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
                GitMode::Private if self.copied.copy.is_some() => {}
                GitMode::Private => self.empty_submodules(dirs, &mut fixed),
                GitMode::Shared => self.shared_repository(dirs, &mut fixed),
            }
        }
        if let Some(at) = &self.workspace.unconfirmed {
            self.fix_file(&at.join(".git"), "names a Git directory that is not used: read-only inside", &mut fixed);
        }
        self.startup_files(&mut fixed);
        for file in configuration_files(self.host, &self.facts.git) {
            let real = self.facts.files.get(&file).map_or(file, |fact| fact.real.clone());
            if !self.facts.git_dirs.iter().flat_map(|dirs| &dirs.full).any(|dir| real.is_within(&dir.path)) {
                self.fix_file(&real, "part of the host's Git configuration: read-only inside", &mut fixed);
            }
        }
        fixed
    }

    /// Makes start-up files of HOME read-only that are kept in the workspace, as with dotfiles.
    fn startup_files(&mut self, fixed: &mut FixedFiles) {
        for file in startup_files(self.host) {
            let Some(fact) = self.facts.files.get(&file).filter(|fact| self.is_below_root(&fact.real)) else {
                continue;
            };
            let real = fact.real.clone();
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                format!("`{file}` is in the workspace: it is read-only inside, and chooses no mounts"),
            ));
            self.fix_file(&real, "programs on the host obey it: read-only inside", fixed);
        }
    }

    /// Covers the directories of submodules that have no repository yet: `git status` on the host
    /// would enter a repository that the guest makes there, and run its programs.
    fn empty_submodules(&mut self, dirs: &GitDirs, fixed: &mut FixedFiles) {
        for (number, directory) in dirs.empty_submodules.iter().enumerate() {
            let Some(common) = dirs.full.first() else { continue };
            let name = flat_name(common.path.as_path());
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
            if mode == GitMode::Private && !hooks.is_tracked && self.engine != EngineKind::SandboxExec {
                self.copy_hooks(real);
            } else {
                self.fix_directory(real, reason, fixed);
            }
        }
        for file in hooks.linked.iter().filter(|file| !is_private(file)) {
            self.fix_file(file, reason, fixed);
        }
    }

    /// Mounts a copy over hooks that a tool generates, for example husky. The tool can write them
    /// anew inside, where they run; the host's stay as they are.
    fn copy_hooks(&mut self, real: &HostPath) {
        let copy = self.session_dir.join(GIT).join(format!("hooks-{}", flat_name(real.as_path())));
        self.prepare.push(Prepare::Copy { path: copy.clone(), from: real.clone() });
        let why = Why::new("hooks run on the host: a private copy", self.config.git.origin.clone());
        self.mounts.add(Mount::directory(copy, real.to_guest(), Access::Rw, why.about(Topic::Repository)));
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
}

/// Lists the files that Git's settings come from, without those from the environment.
pub fn configuration_files(host: &Host, git: &GitFacts) -> BTreeSet<HostPath> {
    let files = git.settings.iter().filter(|setting| setting.scope != Scope::Command);
    let files = files.filter_map(|setting| setting.file.as_ref());
    let root = git.root.as_ref().unwrap_or(&host.cwd);
    files.filter_map(|file| HostPath::new(host.expand(&root.as_path().join(file))).ok()).collect()
}
