//! Decides which of Git's configuration files are mounted, and which files that they name. Follows
//! settings of the system and the user only: the repository's could name any file of the host
//! (attack 01).

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::host_only::LFS_PROCESS;
use crate::config::value::{Access, EngineKind};
use crate::facts::FileKind;
use crate::facts::git::{GitFacts, Scope, Setting};
use crate::host::Host;
use crate::path::{HostPath, constant};
use crate::plan::Draft;
use crate::plan::entry::{Topic, Why};
use crate::plan::mounts::{existing, git_configuration_files};

/// Settings that name a file which Git reads.
const NAMED: &[(&str, &str)] = &[
    ("core.excludesfile", "your ignore file (core.excludesFile)"),
    ("core.attributesfile", "your attributes file (core.attributesFile)"),
    ("commit.template", "your commit template (commit.template)"),
    ("gpg.ssh.allowedsignersfile", "the signers that you accept (gpg.ssh.allowedSignersFile)"),
    ("blame.ignorerevsfile", "commits that git blame skips (blame.ignoreRevsFile)"),
];
const SYSTEM: &str = "/etc/gitconfig";
/// A generated file in `/etc` with the user's settings, without conditional includes.
const SETTLED: &str = "sandpen-gitconfig";

pub struct GitFile {
    pub path: HostPath,
    reason: String,
}

/// Lists the files that apply, and those that may apply once a branch or a remote changes.
pub fn git_files(host: &Host, git: &GitFacts) -> Vec<GitFile> {
    let mut files: Vec<GitFile> = Vec::new();
    let mut add = |path: PathBuf, reason: &str| {
        if let Ok(path) = HostPath::new(path)
            && !files.iter().any(|known| known.path == path)
        {
            files.push(GitFile { path, reason: reason.to_owned() });
        }
    };
    for setting in git.settings.iter().filter(|setting| matches!(setting.scope, Scope::System | Scope::Global)) {
        let Some(file) = &setting.file else { continue };
        add(file.clone(), "part of your Git configuration");
        // A condition on the branch or on remotes may become true inside; one on the directory
        // cannot.
        let changing = ["includeif.onbranch:", "includeif.hasconfig:"];
        if changing.iter().any(|condition| setting.key.starts_with(condition))
            && let Some(target) = named(host, setting)
        {
            add(target, "included conditionally by your Git configuration");
        }
    }
    for (key, reason) in NAMED {
        if let Some(setting) = git.get(key).filter(|setting| setting.scope.is_users())
            && let Some(target) = named(host, setting)
        {
            add(target, reason);
        }
    }
    let own = host.env.path("XDG_CONFIG_HOME").map_or_else(|| host.home.as_path().join(".config"), Path::to_owned);
    add(own.join("git/ignore"), "your ignore file");
    add(own.join("git/attributes"), "your attributes file");
    files
}

/// Resolves the file that a setting names. Relative includes start at the directory of their file;
/// other relative names are ignored.
fn named(host: &Host, setting: &Setting) -> Option<PathBuf> {
    let value = Path::new(&setting.value);
    if value.as_os_str().is_empty() {
        return None;
    }
    if value.is_absolute() || value.starts_with("~") {
        return Some(host.expand(value));
    }
    let is_include = setting.key.starts_with("include");
    is_include.then(|| setting.file.as_ref()?.parent().map(|above| host.expand(&above.join(value)))).flatten()
}

impl Draft<'_> {
    /// Mounts Git's files, read-only, at the paths where Git inside looks for them.
    pub fn git_files(&mut self) {
        let system = self.facts.git.settings.iter().find(|setting| setting.scope == Scope::System);
        let system = system.and_then(|setting| setting.file.clone());
        let known = git_configuration_files(self.host);
        for file in git_files(self.host, &self.facts.git) {
            let fact = self.named_file(&file.path, &file.reason).filter(|fact| fact.kind == FileKind::File).cloned();
            let Some(fact) = &fact else { continue };
            // These are mounted already: the workspace, the files of R3, and on native the
            // system's.
            let is_native = self.engine == EngineKind::Native && self.has_host_tools();
            let is_shown = is_native && file.path.as_path() == Path::new(SYSTEM);
            if self.workspace.writable().any(|root| fact.real.is_within(root)) || known.contains(&file.path) || is_shown
            {
                continue;
            }
            let why = Why::default(&file.reason).about(Topic::Git);
            let is_system = system.as_deref() == Some(file.path.as_path());
            let target = if is_system { constant!(GuestPath, SYSTEM) } else { file.path.to_guest() };
            self.mounts.add(existing(fact, target, Access::Ro, why.clone()));
            // `~` means the guest's home to Git inside.
            if let Ok(below) = file.path.as_path().strip_prefix(self.host.home.as_path()) {
                self.mounts.add(existing(fact, self.user.home.join(below), Access::Ro, why));
            }
        }
        self.settled_configuration();
        self.git_variables();
    }

    /// Passes the variables by which Git finds its files.
    fn git_variables(&mut self) {
        for name in ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"] {
            if let Some(value) = self.host.env.text(name) {
                self.env.plain(name, value, Why::default("Git reads the same files inside").about(Topic::Git));
            }
        }
    }

    /// Replaces the user's files by one with the settings in effect on the host. Needed if the
    /// guest has another home, where `gitdir:~/work/` is another directory, or if a setting must be
    /// removed.
    fn settled_configuration(&mut self) {
        let settings = &self.facts.git.settings;
        let has_condition = settings.iter().any(|setting| setting.key.starts_with("includeif.gitdir"));
        let moves = has_condition && self.user.home != self.host.home.to_guest();
        let lacks_lfs = self.lacks_lfs();
        if !moves && !lacks_lfs {
            return;
        }
        let is_kept =
            |setting: &&Setting| !(setting.key.starts_with("include") || lacks_lfs && setting.key == LFS_PROCESS);
        let text = flat(settings.iter().filter(|setting| setting.scope == Scope::Global).filter(is_kept));
        self.generated(SETTLED, text, "your Git settings in effect here");
        let why = Why::default("the file with your Git settings in effect here").about(Topic::Git);
        self.env.plain("GIT_CONFIG_GLOBAL", format!("/etc/{SETTLED}"), why);
    }
}

/// Formats settings as a configuration file.
fn flat<'a>(settings: impl Iterator<Item = &'a Setting>) -> String {
    let mut text = String::new();
    for setting in settings {
        let (Some((section, _)), Some((_, name))) = (setting.key.split_once('.'), setting.key.rsplit_once('.')) else {
            continue;
        };
        let middle = setting.key.get(section.len() + 1..setting.key.len() - name.len() - 1);
        let header = match middle {
            Some(middle) if !middle.is_empty() => format!("{section} \"{}\"", escaped(middle)),
            _ => section.to_owned(),
        };
        let value = escaped(&setting.value).replace('\n', "\\n").replace('\t', "\\t");
        let _ = writeln!(text, "[{header}]\n\t{name} = \"{value}\"");
    }
    text
}

/// Escapes a text for use between double quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(key: &str, value: &str) -> Setting {
        Setting { scope: Scope::Global, file: None, key: key.into(), value: value.into() }
    }

    #[test]
    fn flat_settings_are_what_git_reads_back() {
        let settings = [setting("user.name", "A \"B\" \\C"), setting("url.git@x.y:.insteadof", "https://x.y/")];
        let text = flat(settings.iter());
        assert_eq!(
            text,
            "[user]\n\tname = \"A \\\"B\\\" \\\\C\"\n[url \"git@x.y:\"]\n\tinsteadof = \"https://x.y/\"\n"
        );
    }
}
