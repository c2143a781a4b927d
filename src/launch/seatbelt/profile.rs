//! Writes the profile and its parameters. The last matching rule wins, so the order is: base, network,
//! workspace, protected places, grants inside protected places, the sandbox's private files.

use std::fmt::Write;

use crate::config::value::{Access, NetworkMode, Stance};
use crate::path::HostPath;
use crate::plan::seatbelt::{Base, SeatbeltPlan};
use crate::plan::{Plan, Source};

const PERMISSIVE: &str = include_str!("profiles/permissive.sb");
const RESTRICTIVE: &str = include_str!("profiles/restrictive.sb");
const OPEN: &str = include_str!("profiles/open.sb");
const CLOSED: &str = include_str!("profiles/closed.sb");
const PROXIED: &str = include_str!("profiles/proxied.sb");
const PROTECTED: &str = include_str!("profiles/protected.sb");
const LAST: &str = include_str!("profiles/last.sb");

/// The paths below HOME that `protected.sb` denies; a test compares the two.
const PROTECTED_IN_HOME: &[&str] = &[
    ".aws",
    ".azure",
    ".bash_aliases",
    ".bash_history",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".cargo",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".colima",
    ".config/fish",
    ".config/gcloud",
    ".config/gh",
    ".config/git",
    ".config/git/credentials",
    ".config/hub",
    ".config/nvim",
    ".config/op",
    ".config/zsh",
    ".cshrc",
    ".docker",
    ".emacs.d",
    ".gem/credentials",
    ".git-credentials",
    ".gitconfig",
    ".gitignore_global",
    ".gnupg",
    ".inputrc",
    ".kube",
    ".lima",
    ".local/bin",
    ".local/share/containers",
    ".login",
    ".netrc",
    ".npmrc",
    ".orbstack",
    ".password-store",
    ".pgpass",
    ".profile",
    ".pypirc",
    ".rd",
    ".ssh",
    ".tcshrc",
    ".terraform.d",
    ".vault-token",
    ".vim",
    ".vimrc",
    ".zlogin",
    ".zlogout",
    ".zprofile",
    ".zsh_history",
    ".zsh_sessions",
    ".zshenv",
    ".zshrc",
    "Library/Application Support/Arc",
    "Library/Application Support/BraveSoftware",
    "Library/Application Support/Chromium",
    "Library/Application Support/Firefox",
    "Library/Application Support/Google",
    "Library/Application Support/Microsoft Edge",
    "Library/Application Support/Vivaldi",
    "Library/Containers",
    "Library/Cookies",
    "Library/Group Containers",
    "Library/Keychains",
    "Library/LaunchAgents",
    "Library/Mail",
    "Library/Messages",
    "Library/Preferences",
    "Library/Safari",
];

/// A profile of the user may refer to `INCLUDE_DIR_0` to `INCLUDE_DIR_4`, as the profiles of llxprt do.
/// Parameters without a directory get this path.
const NO_DIRECTORY: &str = "/dev/null";
const INCLUDE_PARAMETERS: usize = 5;

pub struct Profile {
    pub text: String,
    /// The values of `(param "NAME")`, by name.
    pub parameters: Vec<(String, HostPath)>,
}

/// Permission to use the path that a parameter names.
struct Grant {
    parameter: String,
    writable: bool,
}

pub fn of(plan: &Plan, seatbelt: &SeatbeltPlan, helper: &HostPath) -> Profile {
    let mut profile = Profile { text: String::new(), parameters: Vec::new() };
    let facts = &seatbelt.facts;
    profile.parameter("TARGET_DIR", &seatbelt.target);
    profile.parameter("TMP_DIR", &seatbelt.temp);
    profile.parameter("HOME_DIR", &facts.home);
    profile.parameter("CACHE_DIR", &facts.cache);
    for (number, directory) in seatbelt.includes.iter().enumerate() {
        profile.parameter(&format!("INCLUDE_DIR_{number}"), directory);
    }
    profile.parameter("CONFIG_DIR", &facts.config);
    profile.parameter("STATE_DIR", &facts.state);
    profile.parameter("SESSIONS_DIR", &facts.sessions);
    profile.parameter("STATUS_FILE", &seatbelt.session.join(crate::process::status_file::STATUS));
    profile.parameter("HELPER", helper);

    profile.base(seatbelt, plan.network.mode);
    let (early, late) = profile.grants(plan, seatbelt);
    profile.open("The workspace and the mounts.", &early);
    profile.part(PROTECTED);
    profile.agent(seatbelt);
    profile.open("Mounts inside protected places.", &late);
    profile.part(LAST);
    profile.keep_in_place(seatbelt.includes.len());
    profile.fixed_files(plan);
    profile.hidden_files(plan);
    profile
}

impl Profile {
    fn parameter(&mut self, name: &str, path: &HostPath) {
        self.parameters.push((name.to_owned(), path.clone()));
    }

    fn part(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn base(&mut self, seatbelt: &SeatbeltPlan, network: NetworkMode) {
        match &seatbelt.base {
            Base::BuiltIn(built_in) => {
                self.part(match built_in.stance {
                    Stance::Permissive => PERMISSIVE,
                    Stance::Restrictive => RESTRICTIVE,
                });
                if network == NetworkMode::On {
                    self.part(OPEN);
                }
            }
            Base::Own(own) => {
                for number in seatbelt.includes.len()..INCLUDE_PARAMETERS {
                    if let Ok(nothing) = HostPath::new(NO_DIRECTORY) {
                        self.parameter(&format!("INCLUDE_DIR_{number}"), &nothing);
                    }
                }
                self.part(&own.text);
            }
        }
        match network {
            NetworkMode::On => {}
            NetworkMode::Off => self.part(CLOSED),
            NetworkMode::Proxied => self.part(PROXIED),
        }
    }

    /// Returns the grants that precede the protected places, and those inside a protected place, which
    /// must follow them to take effect.
    fn grants(&mut self, plan: &Plan, seatbelt: &SeatbeltPlan) -> (Vec<Grant>, Vec<Grant>) {
        let writable = |parameter: String| Grant { parameter, writable: true };
        let includes = (0..seatbelt.includes.len()).map(|number| writable(format!("INCLUDE_DIR_{number}")));
        let mut early: Vec<Grant> = [writable("TARGET_DIR".into())].into();
        early.extend(includes);
        let mut late = Vec::new();
        let known = |path: &HostPath| {
            [&seatbelt.target, &seatbelt.temp].contains(&path)
                || seatbelt.includes.contains(path)
                || seatbelt.agent.as_ref() == Some(path)
        };
        let places = plan.mounts.iter().filter_map(|mount| match &mount.source {
            Source::Host(source) if !known(source) => Some((mount, source)),
            _ => None,
        });
        for (number, (mount, source)) in places.enumerate() {
            let parameter = format!("MOUNT_{number}");
            self.parameter(&parameter, source);
            let grant = Grant { parameter, writable: mount.access == Access::Rw };
            if is_protected(seatbelt, source) { &mut late } else { &mut early }.push(grant);
        }
        (early, late)
    }

    fn open(&mut self, title: &str, grants: &[Grant]) {
        if grants.is_empty() {
            return;
        }
        let filters = |writable: bool, wrap: fn(&str) -> String| -> Vec<String> {
            let chosen = grants.iter().filter(|grant| grant.writable == writable);
            chosen.map(|grant| wrap(&grant.parameter)).collect()
        };
        let place = |name: &str| format!("(subpath (param \"{name}\"))");
        self.part(&format!(";; {title}"));
        self.rule("allow file-read* file-write*", &filters(true, place));
        self.rule(
            "allow network-bind",
            &filters(true, |name| format!("(local unix-socket (subpath (param \"{name}\")))")),
        );
        self.rule(
            "allow network-outbound",
            &filters(true, |name| format!("(remote unix-socket (subpath (param \"{name}\")))")),
        );
        self.rule("allow file-read*", &filters(false, place));
    }

    fn rule(&mut self, head: &str, filters: &[String]) {
        if !filters.is_empty() {
            let _ = writeln!(self.text, "({head}\n  {})", filters.join("\n  "));
        }
    }

    fn agent(&mut self, seatbelt: &SeatbeltPlan) {
        if let Some(socket) = &seatbelt.hidden_agent {
            let title = "Deny the SSH agent's own socket: it is not forwarded, or through a socket of sandpen.";
            self.socket("deny", title, "HIDDEN_SSH_AGENT", socket);
        }
        if let Some(socket) = &seatbelt.agent {
            self.socket("allow", "The SSH agent is forwarded: allow its socket.", "SSH_AGENT", socket);
        }
    }

    fn socket(&mut self, action: &str, title: &str, parameter: &str, socket: &HostPath) {
        self.parameter(parameter, socket);
        self.part(&format!(";; {title}"));
        self.rule(&format!("{action} file-read* file-write*"), &[format!("(literal (param \"{parameter}\"))")]);
        self.rule(
            &format!("{action} network-outbound"),
            &[format!("(remote unix-socket (literal (param \"{parameter}\")))")],
        );
    }

    /// Denies access to hidden files.
    fn hidden_files(&mut self, plan: &Plan) {
        let mut filters = Vec::new();
        for (number, path) in plan.hidden.iter().enumerate() {
            let parameter = format!("HIDDEN_{number}");
            filters.push(format!("(subpath (param \"{parameter}\"))"));
            self.parameter(&parameter, path);
        }
        if !filters.is_empty() {
            self.part(";; Files that --hide names.");
            self.rule("deny file-read* file-write*", &filters);
        }
    }

    /// Denies writing the files that Git on the host obeys, and moving the Git directories around
    /// them.
    fn fixed_files(&mut self, plan: &Plan) {
        for (name, rule, places) in [
            ("FIXED", "deny file-write*", &plan.fixed.paths),
            ("GIT_DIR", "deny file-write-unlink", &plan.fixed.git_dirs),
        ] {
            let mut filters = Vec::new();
            for path in places {
                let parameter = format!("{name}_{}", filters.len());
                let filter = if name == "FIXED" { "subpath" } else { "literal" };
                filters.push(format!("({filter} (param \"{parameter}\"))"));
                self.parameter(&parameter, path);
            }
            self.rule(rule, &filters);
        }
    }

    /// Denies moving the included directories and their repositories.
    fn keep_in_place(&mut self, includes: usize) {
        let filters = (0..includes).flat_map(|number| {
            let place = format!("(param \"INCLUDE_DIR_{number}\")");
            [format!("(literal {place})"), format!("(literal (string-append {place} \"/.git\"))")]
        });
        self.rule("deny file-write-unlink", &filters.collect::<Vec<_>>());
    }
}

/// Tells whether a mount is inside a protected place, for example a key in `~/.ssh` or a socket.
fn is_protected(seatbelt: &SeatbeltPlan, source: &HostPath) -> bool {
    let mut protected = PROTECTED_IN_HOME.iter().map(|name| seatbelt.facts.home.join(name));
    protected.any(|place| source.is_within(&place)) || source.as_path().extension().is_some_and(|end| end == "sock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_protected_places_is_that_of_the_profile() {
        let places = PROTECTED.split("(param \"HOME_DIR\") \"/").skip(1).filter_map(|rest| rest.split('"').next());
        let mut places: Vec<&str> = places.collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places, PROTECTED_IN_HOME);
    }
}
