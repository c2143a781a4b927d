//! Lists the files whose changes are reported because tools on the host execute or obey them.

use std::path::PathBuf;

use super::owned;
use crate::plan::Draft;

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
    /// Lists the paths whose changes are reported, in the workspaces and in the preset's
    /// directories.
    pub(super) fn watched(&self) -> Vec<PathBuf> {
        let roots = self.workspace.writable().chain([&self.workspace.workdir]);
        let mut watched: Vec<PathBuf> =
            roots.flat_map(|root| WATCHED.iter().map(|name| owned(&root.join(name)))).collect();
        let directories = self.preset.iter().flat_map(|preset| &preset.directories);
        // `gate::agent_state` reports on those of which the sandbox has its own.
        for directory in directories.filter(|directory| !directory.own && directory.shared_keys.is_empty()) {
            let path = self.host.home.join(directory.path.below());
            watched.extend(directory.obeyed.iter().map(|name| owned(&path.join(name))));
        }
        watched.sort_unstable_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
        watched.dedup_by(|one, other| one.as_os_str() == other.as_os_str());
        watched
    }
}
