//! Decides which Git settings are replaced because they name programs of the host that do not exist
//! inside.

use std::collections::BTreeMap;
use std::path::Path;

use super::GitOverrides;
use crate::config::value::EngineKind;
use crate::facts::git::{GitFacts, Scope, Setting};
use crate::path::HostPath;
use crate::plan::Draft;
use crate::plan::entry::{Mount, Source};

/// The filter that git-lfs installs.
pub(super) const LFS_PROCESS: &str = "filter.lfs.process";
/// Git's default pager, or none if it does not exist inside.
const PAGER: &str = "command -v less >/dev/null && exec less || exec cat";
/// Most images lack git-lfs; without these filters Git would refuse to check out or commit its
/// files.
const LFS_SMUDGE: &str = include_str!("lfs-smudge.sh");
const LFS_CLEAN: &str = include_str!("lfs-clean.sh");
/// Programs that most images contain, or whose absence Git reports clearly.
const COMMON: &[&str] = &["less", "more", "cat", "vi", "vim", "nano", "ssh", "true", "false", "ssh-keygen"];
/// Credential helpers that are part of Git.
const BUILT_IN: &[&str] = &["store", "cache"];

impl Draft<'_> {
    /// Replaces settings that cannot work inside, and records those that are kept although they may
    /// not work.
    pub(super) fn host_only(&self, overrides: &mut GitOverrides) {
        for setting in in_effect(&self.facts.git.settings) {
            let (section, name) = (setting.key.split('.').next(), setting.key.rsplit('.').next());
            match (section, name, setting.key.as_str()) {
                (Some("credential"), Some("helper"), key) => self.credential_helper(key, setting, overrides),
                (_, _, "core.fsmonitor") if self.facts.git.is_on("core.fsmonitor") => {
                    overrides.set("core.fsmonitor", "false", "the host's file system monitor does not exist inside");
                    overrides.replaced(setting, "off");
                }
                (_, _, key @ "core.pager") | (Some("pager"), _, key) if !is_boolean(&setting.value) => {
                    self.replace(key, setting, PAGER, "a pager that exists inside", overrides)
                }
                (_, _, key @ ("core.editor" | "sequence.editor")) => {
                    self.replace(key, setting, "vi", "an editor that exists inside", overrides)
                }
                (_, _, key @ "core.sshcommand") => self.replace(key, setting, "ssh", "the ssh inside", overrides),
                (_, _, key @ "interactive.difffilter") => {
                    self.replace(key, setting, "cat", "a filter that exists inside", overrides)
                }
                (_, _, LFS_PROCESS) if self.lacks_lfs() => {
                    let reason = "without git-lfs, its files stay pointers";
                    overrides.set("filter.lfs.smudge", filter_command(LFS_SMUDGE), reason);
                    let reason = "without git-lfs, changed files are stored as it would store them";
                    overrides.set("filter.lfs.clean", filter_command(LFS_CLEAN), reason);
                    overrides.replaced(
                        setting,
                        "without git-lfs inside: its files stay pointers, and changed files are stored as it would store them",
                    );
                }
                (_, _, "core.hookspath") if self.is_outside(&setting.value) => {
                    overrides.left(setting, "the hooks do not exist inside, so they do not run");
                }
                (_, _, "diff.external" | "core.askpass" | "gpg.program" | "gpg.x509.program")
                | (Some("difftool" | "mergetool" | "merge"), Some("path" | "cmd" | "driver"), _)
                    if !self.is_inside(&setting.value) =>
                {
                    overrides.left(setting, "works only if the program exists inside");
                }
                _ => {}
            }
        }
    }

    /// Tells whether the user has set up git-lfs, but it does not exist inside. Its long-running
    /// filter must then be removed, because Git uses no other filter while it is set.
    pub(super) fn lacks_lfs(&self) -> bool {
        let setting = self.facts.git.get(LFS_PROCESS).filter(|setting| setting.scope == Scope::Global);
        setting.is_some_and(|setting| !self.is_inside(&setting.value))
    }

    /// Disables a credential helper that does not exist inside; an empty value clears the list of
    /// helpers.
    fn credential_helper(&self, key: &str, setting: &Setting, overrides: &mut GitOverrides) {
        let name = setting.value.split(' ').next().unwrap_or_default();
        let program = credential_program(&setting.value);
        let is_command = name.starts_with('!') || name.starts_with('/');
        let is_inside = if is_command { self.is_inside(&setting.value) } else { self.is_inside(&program) };
        if name.is_empty() || BUILT_IN.contains(&name) || is_inside {
            return;
        }
        overrides.set(key, "", "the host's credential helper does not exist inside");
        overrides.replaced(setting, "off");
    }

    fn replace(&self, key: &str, setting: &Setting, value: &str, reason: &'static str, overrides: &mut GitOverrides) {
        if self.is_inside(&setting.value) {
            return;
        }
        overrides.set(key, value, reason);
        overrides.replaced(setting, reason);
    }

    /// Tells whether the program of a command line probably exists inside.
    fn is_inside(&self, command: &str) -> bool {
        let Some(program) = program_of(command) else { return false };
        let program = program.as_str();
        if COMMON.contains(&program) {
            return true;
        }
        match self.engine {
            EngineKind::SandboxExec => return true,
            EngineKind::Docker | EngineKind::Podman | EngineKind::Kubernetes => return false,
            EngineKind::Native => {}
        }
        let shows =
            |mount: &Mount, place: &HostPath| matches!(&mount.source, Source::Host(source) if place.is_within(source));
        let found = self.facts.programs.get(program);
        found.is_some_and(|found| self.mounts.iter().any(|mount| shows(mount, &found.real)))
    }

    fn is_outside(&self, path: &str) -> bool {
        let path = self.host.expand(Path::new(path));
        !self.workspace.writable().any(|root| path.starts_with(root.as_path()))
    }
}

/// Lists the programs that settings name, for the facts to look at.
pub fn programs(git: &GitFacts) -> Vec<String> {
    let settings = in_effect(&git.settings).filter(|setting| names_program(&setting.key));
    let mut programs: Vec<String> = settings
        .flat_map(|setting| {
            let is_helper = setting.key.starts_with("credential.");
            [program_of(&setting.value), is_helper.then(|| credential_program(&setting.value))]
        })
        .flatten()
        .collect();
    programs.sort();
    programs.dedup();
    programs
}

fn names_program(key: &str) -> bool {
    const KEYS: &[&str] = &[
        "core.askpass",
        "core.editor",
        "core.pager",
        "core.sshcommand",
        "diff.external",
        "gpg.program",
        "gpg.ssh.program",
        "gpg.x509.program",
        "interactive.difffilter",
        "sequence.editor",
        LFS_PROCESS,
    ];
    const SECTIONS: &[&str] = &["credential.", "difftool.", "merge.", "mergetool.", "pager."];
    KEYS.contains(&key) || SECTIONS.iter().any(|section| key.starts_with(section))
}

/// Returns the program that Git runs for a credential helper that is given by its short name.
fn credential_program(helper: &str) -> String {
    format!("git-credential-{}", helper.split(' ').next().unwrap_or_default())
}

/// Returns the program that a command line of a setting begins with, after assignments of
/// variables.
fn program_of(command: &str) -> Option<String> {
    let words = shlex::split(command.trim_start_matches('!')).unwrap_or_default();
    words.into_iter().find(|word| !word.contains('='))
}

/// Makes a filter for Git of a script. Git substitutes `%f` by the quoted path; comments are left
/// out because the value becomes a variable of the guest.
fn filter_command(script: &str) -> String {
    let lines = script.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    ["set -- %f"].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Returns the setting in effect of every key, sorted by key.
fn in_effect(settings: &[Setting]) -> impl Iterator<Item = &Setting> {
    let by_key: BTreeMap<&str, &Setting> = settings.iter().map(|setting| (setting.key.as_str(), setting)).collect();
    by_key.into_values()
}

fn is_boolean(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "true" | "false" | "yes" | "no" | "on" | "off" | "0" | "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_substitutes_nothing_but_the_path() {
        for script in [LFS_SMUDGE, LFS_CLEAN] {
            assert!(!script.contains("%f") && !script.contains("%%"));
            let command = filter_command(script);
            assert!(command.starts_with("set -- %f\nif command -v git-lfs"), "{command}");
            assert!(!command.lines().any(|line| line.starts_with('#')), "{command}");
        }
    }

    /// Runs the filters with `sh` where git-lfs is not installed.
    #[cfg(target_os = "linux")]
    mod filters {
        use std::io::Write;
        use std::os::unix::fs::symlink;
        use std::path::PathBuf;
        use std::process::{Command, Stdio};

        const POINTER: &str = "version https://git-lfs.github.com/spec/v1
oid sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
size 5
";
        const OBJECT: &str = ".git/lfs/objects/2c/f2/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        const TOOLS: &[&str] = &[
            "cat",
            "cut",
            "git",
            "grep",
            "head",
            "mkdir",
            "mktemp",
            "mv",
            "printf",
            "rm",
            "sed",
            "sh",
            "sha256sum",
            "wc",
        ];

        struct Repository(tempfile::TempDir);

        impl Repository {
            /// Creates a repository, and a directory with links to the tools, which serves as PATH.
            fn new() -> std::io::Result<Self> {
                let repository = Repository(tempfile::tempdir()?);
                std::fs::create_dir(repository.0.path().join("bin"))?;
                for tool in TOOLS {
                    let found =
                        ["/usr/local/bin", "/usr/bin", "/bin"].map(|directory| PathBuf::from(directory).join(tool));
                    if let Some(found) = found.iter().find(|path| path.exists()) {
                        symlink(found, repository.0.path().join("bin").join(tool))?;
                    }
                }
                repository.run(&["git", "init", "--quiet"], "")?;
                Ok(repository)
            }

            fn run(&self, argv: &[&str], input: &str) -> std::io::Result<String> {
                #[allow(clippy::disallowed_methods, reason = "runs the scripts")]
                let mut child = Command::new(self.0.path().join("bin").join(argv[0]))
                    .args(&argv[1..])
                    .env("PATH", self.0.path().join("bin"))
                    .current_dir(self.0.path())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()?;
                child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?.write_all(input.as_bytes())?;
                let output = child.wait_with_output()?;
                assert!(output.status.success(), "{argv:?}");
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }

            fn filter(&self, script: &str, input: &str) -> std::io::Result<String> {
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/plan/git/").to_owned() + script;
                self.run(&["sh", &script, "a file"], input)
            }
        }

        #[test]
        fn content_is_stored_once_and_found_again() -> std::io::Result<()> {
            let repository = Repository::new()?;
            assert_eq!(repository.filter("lfs-clean.sh", "hello")?, POINTER);
            assert_eq!(std::fs::read_to_string(repository.0.path().join(OBJECT))?, "hello");
            assert_eq!(repository.filter("lfs-smudge.sh", POINTER)?, "hello");
            assert_eq!(std::fs::read_dir(repository.0.path().join(".git/lfs/tmp"))?.count(), 0);
            Ok(())
        }

        #[test]
        fn pointers_without_an_object_stay_pointers() -> std::io::Result<()> {
            let repository = Repository::new()?;
            assert_eq!(repository.filter("lfs-smudge.sh", POINTER)?, POINTER);
            assert_eq!(repository.filter("lfs-clean.sh", POINTER)?, POINTER);
            assert!(!repository.0.path().join(OBJECT).exists());
            Ok(())
        }
    }
}
