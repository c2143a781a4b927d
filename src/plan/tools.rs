//! Decides which programs below HOME the native engine shows, and the variables that name programs:
//! PATH, SHELL, EDITOR. Looks at no files; `facts::tools` does.

use std::path::{Path, PathBuf};

use super::Draft;
use super::entry::{Mount, Source, Topic, Why};
use crate::config::Origin;
use crate::config::value::Access;
use crate::facts::{FileKind, Traced};
use crate::path::{GuestPath, HostPath};
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// Variables whose value is a command line.
const COMMANDS: &[&str] = &["EDITOR", "VISUAL", "PAGER", "GIT_EDITOR", "GIT_PAGER", "MANPAGER"];

/// The shell of a user whose own shell is not inside.
const FALLBACK_SHELL: &str = "/bin/sh";

impl Draft<'_> {
    /// Adds the installation of the command, and those of the programs on PATH, read-only.
    pub fn tools(&mut self) {
        let tools = &self.facts.tools;
        let name = tools.program.as_ref().map_or("the command".into(), |program| format!("`{program}`"));
        self.installations(&tools.command, &format!("{name} is installed there"));
        self.installations(&tools.path, "programs of your PATH");
        self.join_installations();
        self.tool_links(&tools.command, &format!("{name} is a link"));
        self.tool_links(&tools.path, "a link to programs of your PATH");
        if tools.is_cut {
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                "PATH leads to more programs below your home directory than sandpen follows; `--mount DIR` shows others",
            ));
        }
    }

    fn installations(&mut self, traced: &Traced, reason: &str) {
        for (path, kind) in &traced.shown {
            let target = path.to_guest();
            if self.is_asked_for(&target) || self.host.keeps_files_in(path) {
                continue;
            }
            let why = Why::default(reason).about(Topic::System);
            self.mounts.add(match kind {
                FileKind::Directory => Mount::directory(path.clone(), target, Access::Ro, why),
                _ => Mount::file(path.clone(), target, Access::Ro, why),
            });
        }
    }

    /// Removes mounts within the directory of another program.
    fn join_installations(&mut self) {
        let is_tool = |mount: &Mount| mount.why.topic == Topic::System && mount.is_directory;
        let directories: Vec<GuestPath> =
            self.mounts.iter().filter(|mount| is_tool(mount)).map(|mount| mount.target.clone()).collect();
        self.mounts.retain(|mount| {
            let is_within = |other: &GuestPath| mount.target != *other && mount.target.is_within(other);
            mount.why.topic != Topic::System || !directories.iter().any(is_within)
        });
    }

    fn tool_links(&mut self, traced: &Traced, reason: &str) {
        for (link, to) in &traced.links {
            let target = link.to_guest();
            if !self.is_host_directory(&target) {
                self.mounts.add(Mount::link(to.clone(), target, Why::default(reason).about(Topic::System)));
            }
        }
    }

    /// Tells whether the user has decided about a path by a mount or as part of the workspace.
    fn is_asked_for(&self, target: &GuestPath) -> bool {
        let covering = self.covering(target);
        covering.is_some_and(|mount| matches!(mount.why.topic, Topic::Asked | Topic::Workspace | Topic::Repository))
    }

    /// Tells whether a directory of the user is mounted there, in which nothing can be created.
    pub(super) fn is_host_directory(&self, target: &GuestPath) -> bool {
        let covering = self.covering(target).map(|mount| &mount.source);
        matches!(covering, Some(Source::Host(source)) if !source.is_within(self.session_dir))
    }

    /// Returns the mount that decides what is at a path.
    fn covering(&self, target: &GuestPath) -> Option<&Mount> {
        let above = self.mounts.iter().filter(|mount| target.is_within(&mount.target));
        above.max_by_key(|mount| mount.target.as_os_str().len())
    }

    /// Sets PATH to the host's directories that exist inside, in their order, and passes the
    /// variables that name programs which exist inside.
    pub fn host_tools_environment(&mut self) {
        let visible = self.facts.path.all.iter().filter(|entry| self.is_visible(entry));
        let mut entries: Vec<PathBuf> = visible.map(|entry| entry.as_path().to_owned()).collect();
        if entries.is_empty() {
            entries = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).into();
        }
        let path = std::env::join_paths(entries).unwrap_or_default();
        let why = Why::default("the directories of the host's PATH that exist inside").about(Topic::System);
        self.env.plain(vars::PATH, path.to_string_lossy(), why);
        let shell = self.shell();
        if shell != FALLBACK_SHELL {
            self.env.plain(vars::SHELL, &shell, Why::default("your shell, which is inside").about(Topic::System));
        }
        for name in COMMANDS {
            if let Some(value) = self.host.env.text(name).filter(|value| self.runs_inside(value)) {
                let why = Why::default("the program that you chose, which is inside").about(Topic::System);
                self.env.plain(name, value, why);
            }
        }
        self.language();
    }

    /// Returns the user's shell if it is inside. Containers have the image's programs.
    pub fn shell(&self) -> String {
        let shell = self.host.env.text(vars::SHELL).filter(|shell| {
            let is_plain = !shell.contains([':', '\n']);
            is_plain && HostPath::new(shell).is_ok_and(|path| self.is_visible(&path))
        });
        match self.engine {
            crate::config::value::EngineKind::Native if self.has_host_tools() => {
                shell.unwrap_or(FALLBACK_SHELL).to_owned()
            }
            _ => FALLBACK_SHELL.to_owned(),
        }
    }

    /// Tells whether the program of a command line is inside.
    fn runs_inside(&self, command: &str) -> bool {
        let Some(program) = shlex::split(command).and_then(|words| words.into_iter().next()) else { return false };
        if program.contains('/') {
            return HostPath::new(&program).is_ok_and(|path| self.is_visible(&path));
        }
        self.facts.programs.get(&program).is_some_and(|found| self.is_visible(&found.path))
    }

    /// Tells whether a program or a directory of the host is at the same path inside.
    pub(super) fn is_visible(&self, path: &HostPath) -> bool {
        let system = ["/usr", "/bin", "/sbin"].map(Path::new);
        let is_system = || system.iter().any(|root| path.as_path().starts_with(root));
        if self.has_host_tools() && (is_system() || self.facts.tools.shows(path)) {
            return true;
        }
        let target = path.to_guest();
        match self.covering(&target).map(|mount| (&mount.source, &mount.target)) {
            Some((Source::Host(source), at)) => source.as_path() == at.as_path(),
            // A directory that contains single programs.
            _ => self.mounts.iter().any(|mount| {
                mount.why.topic == Topic::System && mount.target.as_path().parent() == Some(target.as_path())
            }),
        }
    }

    /// Uses the active Python environment as it is: the guest has the host's Python.
    pub fn keep_virtual_env(&mut self) {
        let path = self.host.env.path(vars::VIRTUAL_ENV).and_then(|path| HostPath::new(path).ok());
        let Some(path) = path.filter(|path| self.is_visible(path)) else { return };
        let is_link_out = self.workspace.contains(&path)
            && self.facts.files.get(&path).is_some_and(|fact| !self.workspace.contains(&fact.real));
        if is_link_out {
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                format!("the Python environment `{path}` is a link out of the workspace, where it is not visible"),
            ));
        } else {
            let why = Why::new("the active Python environment", Origin::Env(vars::VIRTUAL_ENV)).about(Topic::Workspace);
            self.env.plain(vars::VIRTUAL_ENV, path.to_string(), why);
        }
    }
}

/// Lists the programs that variables of the host name, for the facts to find on PATH.
pub fn programs(host: &crate::host::Host) -> impl Iterator<Item = String> + '_ {
    let commands = COMMANDS.iter().filter_map(|name| host.env.text(name));
    commands.filter_map(|command| shlex::split(command)?.into_iter().next()).filter(|program| !program.contains('/'))
}
