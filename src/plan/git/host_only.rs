//! Settings that name programs of the host's. Where those are not inside, Git is told something that works.

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
/// A pager that is there: what Git's own default would be, or none.
const PAGER: &str = "command -v less >/dev/null && exec less || exec cat";
/// Where git-lfs is missing, what it would have checked out stays a pointer, or comes from the objects that are there already.
const LFS_SMUDGE: &str = r#"command -v git-lfs >/dev/null && exec git-lfs smudge -- %f
t=$(mktemp) && cat >"$t" || exit 1; o=$(sed -n 's/^oid sha256:\([0-9a-f]\{64\}\)$/\1/p' "$t" | head -n 1)
f=$(git rev-parse --git-common-dir)/lfs/objects/$(printf %.2s "$o")/$(printf %.2s "${o#??}")/$o
if [ -n "$o" ] && [ -f "$f" ]; then cat "$f"; else cat "$t"; fi; rm -f "$t""#;
/// And what changes is stored as git-lfs stores it, so that nothing large is committed and the host can push it.
const LFS_CLEAN: &str = r#"command -v git-lfs >/dev/null && exec git-lfs clean -- %f
d=$(git rev-parse --git-common-dir)/lfs && mkdir -p "$d/tmp" && t=$(mktemp "$d/tmp/XXXXXX") && cat >"$t" || exit 1
if head -c 42 "$t" | grep -q '^version https://git-lfs.github.com/spec/v1$'; then cat "$t"; rm -f "$t"; exit 0; fi
o=$(sha256sum <"$t" | cut -c 1-64) && s=$(wc -c <"$t") && p="$d/objects/$(printf %.2s "$o")/$(printf %.2s "${o#??}")" || exit 1
mkdir -p "$p" && mv "$t" "$p/$o" && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n' "$o" "$s""#;
/// Programs that images have, or that fail with a word of their own.
const COMMON: &[&str] = &["less", "more", "cat", "vi", "vim", "nano", "ssh", "true", "false", "ssh-keygen"];
/// Credential helpers that are part of Git and find nothing inside.
const BUILT_IN: &[&str] = &["store", "cache"];

impl Draft<'_> {
    /// Replaces what cannot work.
    pub(super) fn host_only(&self, told: &mut GitOverrides) {
        for setting in in_effect(&self.facts.git.settings) {
            let (section, name) = (setting.key.split('.').next(), setting.key.rsplit('.').next());
            match (section, name, setting.key.as_str()) {
                (Some("credential"), Some("helper"), key) => self.credential_helper(key, setting, told),
                (_, _, "core.fsmonitor") if self.facts.git.is_on("core.fsmonitor") => {
                    told.set("core.fsmonitor", "false", "the host's file system monitor is not inside");
                    told.replaced(setting, "off");
                }
                (_, _, key @ "core.pager") | (Some("pager"), _, key) if !is_boolean(&setting.value) => {
                    self.replace(key, setting, PAGER, "a pager that is inside", told)
                }
                (_, _, key @ ("core.editor" | "sequence.editor")) => {
                    self.replace(key, setting, "vi", "an editor that is inside", told)
                }
                (_, _, key @ "core.sshcommand") => self.replace(key, setting, "ssh", "ssh as it is inside", told),
                (_, _, key @ "interactive.difffilter") => {
                    self.replace(key, setting, "cat", "a filter that is inside", told)
                }
                (_, _, LFS_PROCESS) if self.lacks_lfs() => {
                    told.set("filter.lfs.smudge", LFS_SMUDGE, "without git-lfs, its files stay pointers");
                    told.set("filter.lfs.clean", LFS_CLEAN, "without git-lfs, its files are stored as it stores them");
                    told.replaced(
                        setting,
                        "where git-lfs is missing: files stay pointers, changes are stored as it would",
                    );
                }
                (_, _, "core.hookspath") if self.is_outside(&setting.value) => {
                    told.left(setting, "the hooks there are not inside, and do not run");
                }
                (_, _, "diff.external" | "core.askpass" | "gpg.program" | "gpg.x509.program")
                | (Some("difftool" | "mergetool" | "merge"), Some("path" | "cmd" | "driver"), _)
                    if !self.is_inside(&setting.value) =>
                {
                    told.left(setting, "works only where the program is inside");
                }
                _ => {}
            }
        }
    }

    /// Whether git-lfs is set up by the user, and not to be expected inside. Its long-running filter cannot be replaced by a
    /// shell command, and Git asks no other while it is set.
    pub(super) fn lacks_lfs(&self) -> bool {
        let setting = self.facts.git.get(LFS_PROCESS).filter(|setting| setting.scope == Scope::Global);
        setting.is_some_and(|setting| !self.is_inside(&setting.value))
    }

    /// What a helper of the host's unlocks stays outside; an empty value ends the list of helpers.
    fn credential_helper(&self, key: &str, setting: &Setting, told: &mut GitOverrides) {
        let name = setting.value.split(' ').next().unwrap_or_default();
        let program = credential_program(&setting.value);
        let is_command = name.starts_with('!') || name.starts_with('/');
        let is_inside = if is_command { self.is_inside(&setting.value) } else { self.is_inside(&program) };
        if name.is_empty() || BUILT_IN.contains(&name) || is_inside {
            return;
        }
        told.set(key, "", "the host's credential helper is not inside");
        told.replaced(setting, "off");
    }

    fn replace(&self, key: &str, setting: &Setting, value: &str, reason: &str, told: &mut GitOverrides) {
        if self.is_inside(&setting.value) {
            return;
        }
        told.set(key, value, reason);
        told.replaced(setting, reason);
    }

    /// Whether the program that a command line begins with is to be expected inside.
    fn is_inside(&self, command: &str) -> bool {
        let Some(program) = program_of(command) else { return false };
        let program = program.as_str();
        if COMMON.contains(&program) {
            return true;
        }
        match self.engine {
            EngineKind::SandboxExec => return true,
            EngineKind::Docker | EngineKind::Podman => return false,
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

/// Returns the program that a command line of a setting begins with, after assignments of variables.
fn program_of(command: &str) -> Option<String> {
    let words = shlex::split(command.trim_start_matches('!')).unwrap_or_default();
    words.into_iter().find(|word| !word.contains('='))
}

/// The decisive setting of every name, in the order of the names.
fn in_effect(settings: &[Setting]) -> impl Iterator<Item = &Setting> {
    let by_key: BTreeMap<&str, &Setting> = settings.iter().map(|setting| (setting.key.as_str(), setting)).collect();
    by_key.into_values()
}

fn is_boolean(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "true" | "false" | "yes" | "no" | "on" | "off" | "0" | "1")
}
