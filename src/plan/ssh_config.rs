//! Decides which lines of ssh's configuration are inside: those that only work outside are left out
//! and listed. Reads no files; `facts::ssh_config` does.

use super::Draft;
use super::detail::Detail;
use crate::config::Origin;
use crate::config::value::{EngineKind, NetworkMode};
use crate::facts::{SshConfigFacts, SshConfigFile, SshLine, ssh_path};
use crate::path::{GuestPath, constant};

/// A block that no host matches. Its lines have no effect, and the lines of the block before it
/// keep theirs.
const NO_HOST: &str = "Host !*";

/// Names the details that list lines which are left out.
pub const SSH_CONFIG: &str = "ssh config";

/// The user's file in images whose user is not the host's: ssh refuses one that belongs to another.
const FOR_ALL_USERS: &str = "/etc/ssh/ssh_config.d/00-sandpen.conf";
const SYSTEM: &str = "/etc/ssh/ssh_config";

/// The lines that are left out.
#[derive(Default)]
pub struct LeftOut {
    pub details: Vec<Detail>,
    /// Those without which some connections may fail.
    pub missed: Vec<String>,
}

/// What happens to a line.
enum Verdict {
    Keep(String),
    /// Left out, with the reason: some connections may fail without it.
    Drop(&'static str),
    /// Left out, with the reason: connections work without it.
    Omit(&'static str),
    /// Replaced, with the reason.
    Replace(String, &'static str),
}

impl Draft<'_> {
    /// Adds the user's configuration of ssh, and on native the system's. `proxy` is what ssh needs
    /// to reach allowed hosts. Returns the lines that are left out.
    pub fn ssh_configuration(&mut self, network: NetworkMode, proxy: Option<&str>) -> LeftOut {
        let mut left_out = LeftOut::default();
        if self.engine == EngineKind::SandboxExec {
            return left_out;
        }
        let facts = &self.facts.ssh_config;
        // A configuration that the user mounts wins.
        let start = self.user.home.join(".ssh/config");
        let mut text = String::new();
        if !facts.files.is_empty() {
            // An image may have an older ssh, and a Mac's configuration has keywords of its own.
            text.push_str("IgnoreUnknown *\n");
        }
        for (number, file) in facts.files.iter().enumerate() {
            let lines = self.ssh_lines(facts, file, network, &mut left_out);
            if number == 0 {
                text.push_str(&lines);
            } else {
                let name = format!("ssh_config-{number}");
                self.generated_ssh(&name, lines, file.path.to_guest(), "included by your configuration of ssh");
            }
        }
        if let Some(proxy) = proxy {
            text.push_str(proxy);
        }
        if !text.is_empty() {
            let reason = match (facts.files.is_empty(), proxy) {
                (true, _) => "ssh uses the proxy: allow HOST:22",
                (false, None) => "your configuration of ssh, without what only works outside",
                (false, Some(_)) => {
                    "your configuration of ssh, without what only works outside; ssh uses the proxy: allow HOST:22"
                }
            };
            if self.user.is_host_user() {
                self.generated_ssh("ssh_config", text.clone(), start, reason);
            }
            if !self.has_host_tools() && (proxy.is_some() || !self.user.is_host_user()) {
                self.generated_ssh("ssh_config.d", text, constant!(GuestPath, FOR_ALL_USERS), reason);
            }
        }
        self.named_by_ssh(facts);
        if self.has_host_tools() {
            self.system_ssh(network, &mut left_out);
        }
        for file in &facts.refused {
            let reason = "the guest can write it, so it is not read";
            left_out.missed.push(file.to_string());
            left_out.details.push(Detail {
                name: SSH_CONFIG,
                value: file.to_string(),
                reason: reason.into(),
                from: Origin::Default,
            });
        }
        left_out
    }

    fn system_ssh(&mut self, network: NetworkMode, left_out: &mut LeftOut) {
        let Some(native) = &self.facts.native else { return };
        let system = &native.system.ssh;
        for (number, file) in system.files.iter().enumerate() {
            let lines = self.ssh_lines(system, file, network, left_out);
            let target = if number == 0 { constant!(GuestPath, SYSTEM) } else { file.path.to_guest() };
            self.generated_ssh(
                &format!("ssh_config-system-{number}"),
                lines,
                target,
                "the host's configuration of ssh",
            );
        }
    }

    /// Adds public keys, by which ssh chooses among the agent's keys, and lists of host keys.
    fn named_by_ssh(&mut self, facts: &SshConfigFacts) {
        for (number, (path, key)) in facts.public_keys.iter().enumerate() {
            let is_public = path.as_path().extension().is_some_and(|end| end == "pub");
            let target = if is_public { Ok(path.to_guest()) } else { GuestPath::new(format!("{path}.pub")) };
            if let Ok(target) = target {
                let reason = "a public key, by which ssh chooses the agent's key";
                self.generated_ssh(&format!("ssh_key-{number}"), format!("{key}\n"), target, reason);
            }
        }
        for (number, (path, keys)) in facts.host_keys.iter().enumerate() {
            let reason = "host keys that your configuration of ssh names";
            self.generated_ssh(&format!("ssh_hosts-{number}"), keys.clone(), path.to_guest(), reason);
        }
    }

    /// Adds a generated file, unless a directory of the host is mounted there.
    fn generated_ssh(&mut self, name: &str, text: String, target: GuestPath, reason: &str) {
        if !self.is_host_directory(&target) {
            self.generated_at(name, text, target, reason);
        }
    }

    fn ssh_lines(
        &self,
        facts: &SshConfigFacts,
        file: &SshConfigFile,
        network: NetworkMode,
        left_out: &mut LeftOut,
    ) -> String {
        let mut text = String::new();
        for line in &file.lines {
            let verdict = self.judge(facts, line, network);
            let place = format!("{}:{}: {}", file.path, line.number, line.text);
            if matches!(verdict, Verdict::Drop(_) | Verdict::Replace(..)) {
                left_out.missed.push(place.clone());
            }
            let (kept, reason) = match verdict {
                Verdict::Keep(kept) => (Some(kept), None),
                Verdict::Drop(reason) | Verdict::Omit(reason) => (None, Some(reason)),
                Verdict::Replace(kept, reason) => (Some(kept), Some(reason)),
            };
            if let Some(reason) = reason {
                left_out.details.push(Detail {
                    name: SSH_CONFIG,
                    value: place,
                    reason: format!("left out: {reason}"),
                    from: Origin::Default,
                });
            }
            if let Some(kept) = kept {
                text.push_str(&kept);
                text.push('\n');
            }
        }
        text
    }

    fn judge(&self, facts: &SshConfigFacts, line: &SshLine, network: NetworkMode) -> Verdict {
        let keep = || Verdict::Keep(line.text.clone());
        let first = line.words.first().map_or("", String::as_str);
        match line.keyword.as_str() {
            "include" => Verdict::Keep(self.absolute_includes(line, &facts.files)),
            "match" if line.words.iter().any(|word| word.eq_ignore_ascii_case("exec")) => {
                Verdict::Replace(NO_HOST.into(), "its condition is a command of the host")
            }
            "controlmaster" | "controlpath" | "controlpersist" => {
                Verdict::Omit("connections are not shared with the host")
            }
            "identityagent" if first != "none" => Verdict::Omit("the forwarded agent is used"),
            "addkeystoagent" | "usekeychain" => Verdict::Omit("keys are not inside"),
            "pkcs11provider" | "securitykeyprovider" => Verdict::Drop("the library of a key is not inside"),
            "identityfile" => match ssh_path(self.host, first).filter(|path| facts.public_keys.contains_key(path)) {
                Some(_) => keep(),
                None if first == "none" => keep(),
                None => Verdict::Drop("the key is not inside, and it has no public key file beside it"),
            },
            "certificatefile" => Verdict::Drop("the certificate is not inside"),
            // Without key files, it would leave no key to try.
            "identitiesonly" if self.lacks_public_key(facts) => {
                Verdict::Drop("a key that it selects has no public key file")
            }
            "userknownhostsfile" | "globalknownhostsfile" | "revokedhostkeys" => {
                let is_inside = |word: &String| {
                    let path = ssh_path(self.host, word);
                    word == "none"
                        || word == "/dev/null"
                        || path.is_some_and(|path| facts.host_keys.contains_key(&path))
                };
                if line.words.iter().all(is_inside) { keep() } else { Verdict::Drop("the file is not inside") }
            }
            "proxycommand" | "knownhostscommand" => self.judge_command(facts, line, first, network),
            "proxyjump" if first == "none" && network == NetworkMode::Proxied => Verdict::Omit("ssh uses the proxy"),
            _ => keep(),
        }
    }

    fn judge_command(&self, facts: &SshConfigFacts, line: &SshLine, first: &str, network: NetworkMode) -> Verdict {
        let is_ssh = first == "ssh" || first.ends_with("/ssh");
        match network {
            NetworkMode::Proxied if line.keyword == "proxycommand" && !is_ssh => Verdict::Omit("ssh uses the proxy"),
            _ if first == "none" || is_ssh => Verdict::Keep(line.text.clone()),
            _ => {
                let program = facts.programs.get(first);
                let is_inside = self.has_host_tools() && program.is_some_and(|path| self.is_visible(path));
                if is_inside { Verdict::Keep(line.text.clone()) } else { Verdict::Drop("its program is not inside") }
            }
        }
    }

    /// Tells whether a key of the configuration cannot be chosen, because only its private file is
    /// known.
    fn lacks_public_key(&self, facts: &SshConfigFacts) -> bool {
        let lines = facts.files.iter().flat_map(|file| &file.lines).filter(|line| line.keyword == "identityfile");
        lines.filter_map(|line| line.words.first()).any(|word| {
            word != "none" && ssh_path(self.host, word).is_none_or(|path| !facts.public_keys.contains_key(&path))
        })
    }

    /// Names included files by their absolute paths, at which they are inside: `~` and relative
    /// paths depend on the user and on the including file.
    fn absolute_includes(&self, line: &SshLine, files: &[SshConfigFile]) -> String {
        let base = files.first().and_then(|first| first.path.as_path().parent().map(std::path::Path::to_owned));
        let base = base.unwrap_or_else(|| self.host.home.as_path().join(".ssh"));
        let absolute = line.words.iter().map(|word| {
            let path = std::path::Path::new(word);
            let path = if path.starts_with("~") { self.host.expand(path) } else { base.join(path) };
            format!("\"{}\"", path.display())
        });
        format!("Include {}", absolute.collect::<Vec<_>>().join(" "))
    }
}
