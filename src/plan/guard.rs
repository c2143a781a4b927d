//! What the repository must not do to the host: the places from which Git on the host runs code are not writable inside, and
//! what is left writable is reviewed when the sandbox ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Draft;
use super::entry::{Mount, Source, Topic, Why};
use crate::config::value::EngineKind;
use crate::config::value::{Access, Guard};
use crate::error::{Error, Result};
use crate::facts::Hooks;
use crate::path::HostPath;

/// What is reviewed when the sandbox ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPlan {
    /// Git directories that were there before.
    pub git_dirs: Vec<PathBuf>,
    /// Directories that Git takes hooks from.
    pub hooks: Vec<PathBuf>,
    /// What is not writable inside.
    pub fixed: Vec<PathBuf>,
    /// Workspaces, in which new repositories may appear.
    pub roots: Vec<PathBuf>,
    /// Files and directories that tools on the host run or obey unasked.
    pub watched: Vec<PathBuf>,
    /// The host's Git.
    pub git: Option<PathBuf>,
    /// PATH for it.
    pub path: PathBuf,
    /// Where what was set aside is kept.
    pub aside: PathBuf,
}

/// In a workspace: what tools on the host run or obey unasked.
const WATCHED: &[&str] = &[
    ".aider.conf.yml",
    ".claude",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".devcontainer.json",
    ".envrc",
    ".gemini",
    ".github/workflows",
    ".gitlab-ci.yml",
    ".hg/hgrc",
    ".husky",
    ".idea",
    ".jj/repo/config.toml",
    ".llxprt",
    ".mcp.json",
    ".mise.toml",
    ".pre-commit-config.yaml",
    ".sandpen",
    ".tool-versions",
    ".vscode",
    ".zed",
    "lefthook.yml",
    "mise.toml",
];

impl Draft<'_> {
    /// The guard's mounts, and what it will review.
    pub fn guard(&mut self) -> Result<Option<GuardPlan>> {
        let mode = self.config.guard.value;
        if mode == Guard::Off {
            return Ok(None);
        }
        let mut plan = GuardPlan {
            roots: self.workspace.writable().map(owned).chain(self.writable_mounts()).collect(),
            git: self.facts.git.program.as_ref().map(owned),
            path: self.facts.path.for_host(),
            aside: owned(&self.host.state_dir().join("set-aside")),
            watched: self.watched(),
            ..GuardPlan::default()
        };
        for dirs in &self.facts.git_dirs {
            for git_dir in &dirs.all {
                self.pin(git_dir);
                plan.git_dirs.push(owned(git_dir));
            }
            for hooks in &dirs.hooks {
                self.hooks(hooks, &mut plan)?;
            }
            for file in dirs.decisive.iter().filter(|_| mode == Guard::Strict) {
                let why = Why::new("decides what Git runs: not writable inside", self.config.guard.origin.clone())
                    .about(Topic::Guard);
                self.fix(Mount::file(file.clone(), file.to_guest(), Access::Ro, why), &mut plan);
            }
            for sibling in &dirs.siblings {
                self.pin_above(sibling);
                let why = Why::default("belongs to a worktree that is not here: nothing inside may prune it")
                    .about(Topic::Guard);
                self.fix(Mount::directory(sibling.clone(), sibling.to_guest(), Access::Ro, why), &mut plan);
            }
        }
        Ok(Some(plan))
    }

    /// Directories that the user has made writable: repositories may be made, or changed, there as well.
    fn writable_mounts(&self) -> Vec<PathBuf> {
        let writable = self.mounts.iter().filter(|mount| mount.access == Access::Rw && mount.is_directory);
        let sources = writable.filter_map(|mount| match &mount.source {
            Source::Host(source) => Some(source),
            _ => None,
        });
        sources.filter(|source| !self.workspace.writable().any(|root| source.is_within(root))).map(owned).collect()
    }

    /// Read-only where it can be: a directory, or nothing yet, in which case an empty one is made. A link cannot be mounted upon:
    /// what it leads to is fixed if it lies in the workspace, and the link itself is reviewed at the end (`attacks.md` 02).
    fn hooks(&mut self, hooks: &Hooks, plan: &mut GuardPlan) -> Result<()> {
        let Hooks { path, real } = hooks;
        if !self.is_below_root(path) {
            return Ok(());
        }
        plan.hooks.push(owned(path));
        if real.as_ref() != Some(path) && self.config.guard.value == Guard::Strict {
            return Err(Error::launch(format!("`{path}` is no directory of its own, and cannot be made read-only"))
                .hint("replace it by a directory, or use --guard review"));
        }
        if let Some(real) = real.as_ref().filter(|real| self.is_below_root(real)) {
            self.pin_above(real);
            let why = Why::new("hooks run on the host: not writable inside", self.config.guard.origin.clone())
                .about(Topic::Guard);
            self.fix(Mount::directory(real.clone(), real.to_guest(), Access::Ro, why), plan);
        }
        Ok(())
    }

    /// Not writable inside: by a mount, or by the profile where there are no mounts.
    fn fix(&mut self, mount: Mount, plan: &mut GuardPlan) {
        plan.fixed.push(mount.target.as_path().to_owned());
        if self.engine != EngineKind::SandboxExec {
            self.mounts.add(mount);
        }
    }

    /// A mount of its own cannot be renamed away and replaced; the same goes for every directory above it (`attacks.md` 03).
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
        let why = Why::new("a mount of its own, so that it cannot be swapped", self.config.guard.origin.clone())
            .about(Topic::Guard);
        self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Rw, why));
    }

    /// What is reported when it has changed: in the workspaces, and in the preset's own directories.
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

fn owned(path: &HostPath) -> PathBuf {
    path.as_path().to_owned()
}
