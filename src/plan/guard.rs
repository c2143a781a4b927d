//! Decides which paths the guest must not write because Git on the host runs code from them, and
//! which paths are reviewed when the sandbox ends. Reviews nothing itself; `guard` does.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Draft;
use super::entry::{Mount, Source, Topic, Why};
use crate::config::value::{Access, EngineKind, Guard};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::Hooks;
use crate::path::HostPath;

/// The paths that are reviewed when the sandbox ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardPlan {
    /// Git directories that exist before the launch.
    pub git_dirs: Vec<PathBuf>,
    /// Directories from which Git runs hooks.
    pub hooks: Vec<PathBuf>,
    /// Paths that are read-only inside, so that they need no review.
    pub fixed: Vec<PathBuf>,
    /// Writable directories, in which the guest may create repositories.
    pub roots: Vec<PathBuf>,
    /// Files and directories that tools on the host execute or obey.
    pub watched: Vec<PathBuf>,
    /// The host's Git.
    pub git: Option<PathBuf>,
    /// The PATH for Git.
    pub path: PathBuf,
    /// The directory into which removed files and settings are moved.
    pub aside: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    #[error("`{path}` is not a directory, so it cannot be made read-only")]
    NotADirectory { path: HostPath },
}

impl Diagnostic for GuardError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        vec!["replace it by a directory, or use --guard review".into()]
    }
}

/// Paths in a workspace that tools on the host execute or obey without being asked.
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
    /// Adds the read-only mounts and lists what is reviewed.
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
                let why = Why::new("controls which code Git runs: read-only inside", self.config.guard.origin.clone())
                    .about(Topic::Guard);
                self.fix(Mount::file(file.clone(), file.to_guest(), Access::Ro, why), &mut plan);
            }
            for sibling in &dirs.siblings {
                self.pin_above(sibling);
                let why =
                    Why::default("belongs to a worktree outside the sandbox: read-only, so that it is not pruned")
                        .about(Topic::Guard);
                self.fix(Mount::directory(sibling.clone(), sibling.to_guest(), Access::Ro, why), &mut plan);
            }
        }
        Ok(Some(plan))
    }

    /// Lists the writable directories outside of the workspace.
    fn writable_mounts(&self) -> Vec<PathBuf> {
        let writable = self.mounts.iter().filter(|mount| mount.access == Access::Rw && mount.is_directory);
        let sources = writable.filter_map(|mount| match &mount.source {
            Source::Host(source) => Some(source),
            _ => None,
        });
        sources.filter(|source| !self.workspace.writable().any(|root| source.is_within(root))).map(owned).collect()
    }

    /// Makes a directory of hooks read-only; one that does not exist yet is created. A link cannot
    /// be a mount point: its target is made read-only if it is in the workspace, and the link is
    /// reviewed (attack 02).
    fn hooks(&mut self, hooks: &Hooks, plan: &mut GuardPlan) -> Result<()> {
        let Hooks { path, real } = hooks;
        if !self.is_below_root(path) {
            return Ok(());
        }
        plan.hooks.push(owned(path));
        if real.as_ref() != Some(path) && self.config.guard.value == Guard::Strict {
            return Err(GuardError::NotADirectory { path: path.clone() }.into());
        }
        if let Some(real) = real.as_ref().filter(|real| self.is_below_root(real)) {
            self.pin_above(real);
            let why = Why::new("hooks run on the host: read-only inside", self.config.guard.origin.clone())
                .about(Topic::Guard);
            self.fix(Mount::directory(real.clone(), real.to_guest(), Access::Ro, why), plan);
        }
        Ok(())
    }

    /// Makes a path read-only inside. Under Seatbelt the profile does it instead of the mount.
    fn fix(&mut self, mount: Mount, plan: &mut GuardPlan) {
        plan.fixed.push(mount.target.as_path().to_owned());
        if self.engine != EngineKind::SandboxExec {
            self.mounts.add(mount);
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
        let why =
            Why::new("a separate mount, so that it cannot be renamed or replaced", self.config.guard.origin.clone())
                .about(Topic::Guard);
        self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Rw, why));
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

fn owned(path: &HostPath) -> PathBuf {
    path.as_path().to_owned()
}
