//! Decides whether the guest changes the directories themselves or a copy of them, and how the copy
//! is made.

use std::path::PathBuf;

use serde::Serialize;

use super::detail::Detail;
use super::engine::EnginePlan;
use super::entry::{Mount, Source, Topic};
use super::{Draft, EngineKind, Inputs};
use crate::config::Origin;
use crate::config::value::{Access, GitMode, WorkspaceMode};
use crate::error::{Diagnostic, Kind, Result};
use crate::host::Platform;
use crate::kept_copy::{CopiedTree, CopyHow, FileTime, KeptCopy, OverlayMarks};
use crate::path::HostPath;
use crate::session_id::SessionId;
use crate::ui::suggest::nearest;

/// What the guest changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspacePlan {
    /// The copy that the guest changes; `None` if it changes the directories themselves.
    pub copy: Option<KeptCopy>,
    /// Contains the directories of all copies.
    pub copies: Option<HostPath>,
    /// Whether the copy does not exist yet.
    pub is_new: bool,
    /// What was asked for. A sandbox on another machine always has a copy.
    pub asked: WorkspaceMode,
    pub reason: String,
    pub from: Origin,
}

/// How the workspace comes into the sandbox, for `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceHow {
    Mount,
    Overlay,
    Files,
}

#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("{origin}: no copied workspace has the id `{id}`")]
    Unknown { origin: Origin, id: String, others: Vec<String> },
    #[error("{origin}: a sandbox is using the copied workspace `{id}`")]
    Used { origin: Origin, id: String },
    #[error("{origin}: `{id}` is a copy of `{}`", root.display())]
    OtherDirectory { origin: Origin, id: String, root: PathBuf },
    #[error("{origin}: sandbox-exec cannot put a copy in the place of the workspace")]
    Seatbelt { origin: Origin },
    #[error("{origin}: a copied workspace needs a private Git directory")]
    SharedGit { origin: Origin },
    #[error("{origin}: `{directory}` contains sandpen's own files, so it cannot be copied")]
    OwnFiles { origin: Origin, directory: HostPath },
    #[error(
        "{origin}: the copy `{id}` was made by Podman as root, whose marks of replaced directories others cannot read"
    )]
    OtherMarks { origin: Origin, id: String },
}

impl Diagnostic for CopyError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Unknown { id, others, .. } => {
                let near = nearest(id, others.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
                let list = match others.is_empty() {
                    true => "there is none; `--workspace copy` makes one".to_owned(),
                    false => format!("copied workspaces: {}", others.join(", ")),
                };
                near.into_iter().chain([list]).collect()
            }
            Self::Used { id, .. } => {
                vec![format!("run a command in it with `sandpen exec`, or stop it: sandpen stop {id}")]
            }
            Self::OtherDirectory { root, .. } => vec![format!("change to `{}`", root.display())],
            Self::Seatbelt { .. } => vec!["use a container: `--engine docker` or `--engine podman`".into()],
            Self::SharedGit { .. } => vec!["drop `--git shared`, or use `--workspace live`".into()],
            Self::OwnFiles { .. } => vec!["change to the directory of your project".into()],
            Self::OtherMarks { .. } => vec!["use `--engine podman` as root".into()],
        }
    }
}

impl WorkspacePlan {
    /// Decides the workspace; `id` names a new copy.
    pub fn decide(inputs: Inputs<'_>, engine: &EnginePlan, id: &SessionId) -> Result<Self> {
        let asked = &inputs.config.workspace;
        let origin = asked.origin.clone();
        let facts = &inputs.facts.copies;
        let is_remote = engine.abilities.copies_files;
        let engine = engine.kind;
        if asked.value == WorkspaceMode::Live && !is_remote {
            let reason = "the guest works in the directory itself".to_owned();
            let asked = WorkspaceMode::Live;
            return Ok(WorkspacePlan { copy: None, copies: None, is_new: false, asked, reason, from: origin });
        }
        if engine == EngineKind::SandboxExec {
            return Err(CopyError::Seatbelt { origin }.into());
        }
        if inputs.config.git.value == GitMode::Shared && !inputs.facts.git_dirs.is_empty() {
            return Err(CopyError::SharedGit { origin }.into());
        }
        if let Some(directory) = inputs.workspace.trees().find(|tree| inputs.host.keeps_files_in(tree)) {
            return Err(CopyError::OwnFiles { origin, directory: directory.clone() }.into());
        }
        let copies = facts.base.clone();
        let marks = match engine {
            EngineKind::Podman if inputs.host.uid == 0 => OverlayMarks::Trusted,
            _ => OverlayMarks::User,
        };
        if let WorkspaceMode::Kept(kept) = &asked.value {
            let id = kept.to_string();
            let Some(copy) = facts.kept.clone() else {
                return Err(CopyError::Unknown { origin, id, others: facts.others.clone() }.into());
            };
            if facts.is_used {
                return Err(CopyError::Used { origin, id }.into());
            }
            if copy.root() != inputs.workspace.root().as_path() {
                return Err(CopyError::OtherDirectory { origin, id, root: copy.root().to_owned() }.into());
            }
            if copy.how == CopyHow::Overlay && copy.marks == OverlayMarks::Trusted && marks != copy.marks {
                return Err(CopyError::OtherMarks { origin, id }.into());
            }
            let reason = "changes stay in the kept copy until they are applied".to_owned();
            let asked = asked.value.clone();
            return Ok(WorkspacePlan { copy: Some(copy), copies, is_new: false, asked, reason, from: origin });
        }
        let is_elsewhere = inputs.host.platform == Platform::Macos;
        let elsewhere =
            is_elsewhere.then(|| "the engine's virtual machine cannot lay it over the directory".to_owned());
        let unmapped = facts.unmapped.clone().filter(|_| engine == EngineKind::Native);
        let odd_name = facts.odd_name.clone().filter(|_| engine.is_container());
        let obstacle = elsewhere.or_else(|| facts.obstacle.clone()).or(unmapped).or(odd_name);
        let (how, reason) = match obstacle {
            _ if is_remote => {
                let reason = "changes come back into a layer over the directory until they are applied";
                (CopyHow::Overlay, reason.to_owned())
            }
            None => (CopyHow::Overlay, "changes stay in a layer over the directory until they are applied".to_owned()),
            Some(obstacle) => (CopyHow::Files, format!("all files are copied, because {obstacle}")),
        };
        let id = id.to_string();
        let directory = copies.clone().unwrap_or_else(|| inputs.facts.session_base.clone()).join(&id);
        let trees = inputs.workspace.trees().enumerate().map(|(number, tree)| CopiedTree {
            host: tree.as_path().to_owned(),
            place: directory.join(format!("tree-{number}")).as_path().to_owned(),
        });
        let copy = KeptCopy {
            how,
            marks,
            workdir: inputs.workspace.workdir.as_path().to_owned(),
            trees: trees.collect(),
            git_dirs: inputs.workspace.repositories().map(|known| known.common_dir.as_path().to_owned()).collect(),
            made: FileTime::default(),
            engine: engine.name().to_owned(),
            command: Vec::new(),
            id,
        };
        let asked = asked.value.clone();
        Ok(WorkspacePlan { copy: Some(copy), copies, is_new: true, asked, reason, from: origin })
    }

    pub fn how(&self) -> WorkspaceHow {
        match self.copy.as_ref().map(|copy| copy.how) {
            None => WorkspaceHow::Mount,
            Some(CopyHow::Overlay) => WorkspaceHow::Overlay,
            Some(CopyHow::Files) => WorkspaceHow::Files,
        }
    }

    /// Returns `live` or `copy`.
    pub fn mode(&self) -> &'static str {
        if self.copy.is_some() { "copy" } else { "live" }
    }

    /// Returns the directory of the copy.
    pub fn directory(&self) -> Option<HostPath> {
        self.copy.as_ref().and_then(|copy| Some(self.copies.as_ref()?.join(&copy.id)))
    }

    /// Describes a copy for `explain`.
    pub(super) fn detail(&self) -> Option<Detail> {
        let copy = self.copy.as_ref()?;
        let value = match self.how() {
            WorkspaceHow::Overlay => format!("copy `{}` (overlay)", copy.id),
            _ => format!("copy `{}` (files)", copy.id),
        };
        Some(Detail { name: "workspace", value, reason: self.reason.clone(), from: self.from.clone() })
    }
}

impl Draft<'_> {
    /// Replaces the mounts of the workspace by mounts of its copy. No other part of the workspace may
    /// stay writable: a mount that keeps a directory in its place would lead to the host's.
    pub(super) fn copy_workspace(&mut self) {
        let Some(copy) = self.copied.copy.clone() else { return };
        self.mounts.retain(|mount| {
            let is_workspace = matches!(mount.why.topic, Topic::Workspace | Topic::Repository);
            let is_below = |source: &HostPath| copy.trees.iter().any(|tree| source.as_path().starts_with(&tree.host));
            let is_writable = mount.access == Access::Rw;
            !(is_workspace && is_writable && matches!(&mount.source, Source::Host(source) if is_below(source)))
        });
        for tree in &copy.trees {
            let (Ok(host), Ok(place)) = (HostPath::new(&tree.host), HostPath::new(&tree.place)) else { continue };
            let why =
                super::Why::new("a copy of the directory: its changes wait to be applied", self.copied.from.clone());
            let why = why.about(Topic::Workspace);
            let target = host.to_guest();
            let mount = Mount::directory(place.join("files"), target, Access::Rw, why);
            self.mounts.add(match copy.how {
                CopyHow::Files => mount,
                CopyHow::Overlay => Mount { source: Source::Overlay { host, layer: place }, ..mount },
            });
        }
    }

    /// Returns the directory of the host whose content a mount shows.
    pub(super) fn shown_directory(&self, mount: &Mount) -> Option<HostPath> {
        let (Source::Host(source) | Source::Overlay { host: source, .. }) = &mount.source else { return None };
        let mut trees = self.copied.copy.iter().flat_map(|copy| &copy.trees);
        let copied =
            trees.find(|tree| tree.files() == source.as_path()).and_then(|tree| HostPath::new(&tree.host).ok());
        Some(copied.unwrap_or_else(|| source.clone()))
    }

    /// Returns the directory for private Git directories that stay with a copy.
    pub(super) fn kept_git_dir(&self) -> Option<HostPath> {
        self.copied.directory().map(|directory| directory.join("git"))
    }
}
