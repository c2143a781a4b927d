//! Reads the configuration of ssh and the files that it includes and names. Never reads a private
//! key, and no file that the guest can write.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::program::SearchPath;
use crate::config::value::matches_name;
use crate::host::Host;
use crate::path::{HostPath, resolve_dots};
use crate::process::untrusted;

const LARGEST_FILE: u64 = 256 << 10;
const LARGEST_KNOWN_HOSTS: u64 = 1 << 20;
const LARGEST_PUBLIC_KEY: u64 = 16 << 10;
const MOST_FILES: usize = 64;

/// One line of a configuration file that is neither empty nor a comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SshLine {
    /// Counts from 1.
    pub number: usize,
    /// In lower case.
    pub keyword: String,
    /// The arguments, without quotes.
    pub words: Vec<String>,
    /// The line as written.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SshConfigFile {
    pub path: HostPath,
    pub lines: Vec<SshLine>,
}

/// A configuration with all that it includes. The file it starts with comes first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SshConfigFacts {
    pub files: Vec<SshConfigFile>,
    /// Files that are not read because the guest can write them.
    pub refused: Vec<HostPath>,
    /// The first of them that is a configuration: ssh outside runs the commands in it.
    pub refused_configuration: Option<HostPath>,
    /// Public keys, by the path that `IdentityFile` names.
    pub public_keys: BTreeMap<HostPath, String>,
    /// Lists of host keys, by their path.
    pub host_keys: BTreeMap<HostPath, String>,
    /// The programs of commands, by the name or path in the configuration.
    pub programs: BTreeMap<String, HostPath>,
}

/// Where a configuration is read, and for whom.
pub struct SshConfigQuestion<'a> {
    pub host: &'a Host,
    pub path: &'a SearchPath,
    /// Directories that the guest can write.
    pub writable: &'a [HostPath],
    pub start: HostPath,
}

impl SshConfigQuestion<'_> {
    /// Tells whether the guest can write a file, or make it if it does not exist.
    fn is_writable(&self, path: &HostPath) -> bool {
        let real = path.as_path().ancestors().find_map(|above| above.canonicalize().ok());
        let real = real.and_then(|real| HostPath::new(real).ok());
        let is_in = |path: &HostPath| self.writable.iter().any(|root| path.is_within(root));
        is_in(path) || real.is_some_and(|real| is_in(&real))
    }
}

impl SshConfigFacts {
    pub fn look(question: &SshConfigQuestion<'_>) -> Self {
        let mut facts = SshConfigFacts::default();
        facts.read(question, &question.start);
        facts
    }

    fn read(&mut self, question: &SshConfigQuestion<'_>, path: &HostPath) {
        if self.files.len() >= MOST_FILES || self.files.iter().any(|file| file.path == *path) {
            return;
        }
        let Some(content) = self.content(question, path, LARGEST_FILE) else {
            if self.refused.last() == Some(path) {
                self.refused_configuration.get_or_insert_with(|| path.clone());
            }
            return;
        };
        let lines: Vec<SshLine> = content.lines().enumerate().filter_map(|(at, text)| line(at + 1, text)).collect();
        self.files.push(SshConfigFile { path: path.clone(), lines: lines.clone() });
        for line in &lines {
            self.named(question, line);
        }
    }

    /// Reads what a line names.
    fn named(&mut self, question: &SshConfigQuestion<'_>, line: &SshLine) {
        match line.keyword.as_str() {
            "include" => {
                for file in line.words.iter().flat_map(|word| included(question, word)) {
                    self.read(question, &file);
                }
            }
            "identityfile" => {
                if let Some(path) = line.words.first().and_then(|word| named_path(question.host, word)) {
                    let public = if path.as_path().extension().is_some_and(|end| end == "pub") {
                        Some(path.clone())
                    } else {
                        HostPath::new(format!("{path}.pub")).ok()
                    };
                    let text = public.and_then(|public| self.content(question, &public, LARGEST_PUBLIC_KEY));
                    if let Some(key) = text.as_deref().and_then(public_key) {
                        self.public_keys.insert(path, key.to_owned());
                    }
                }
            }
            "userknownhostsfile" | "globalknownhostsfile" | "revokedhostkeys" => {
                for path in line.words.iter().filter_map(|word| named_path(question.host, word)) {
                    if let Some(text) = self.content(question, &path, LARGEST_KNOWN_HOSTS) {
                        self.host_keys.insert(path, text);
                    }
                }
            }
            "proxycommand" | "knownhostscommand" => {
                let program = line.words.first().map(|word| word.trim_start_matches("exec ").to_owned());
                if let Some((program, found)) =
                    program.and_then(|program| Some((program.clone(), question.path.examine(question.host, &program)?)))
                {
                    self.programs.insert(program, found.path);
                }
            }
            _ => {}
        }
    }

    /// Reads a file, unless the guest could have written it or the link to it.
    fn content(&mut self, question: &SshConfigQuestion<'_>, path: &HostPath, largest: u64) -> Option<String> {
        if question.is_writable(path) {
            self.refused.push(path.clone());
            return None;
        }
        untrusted::read(&path.as_path().canonicalize().ok()?, largest).ok()
    }
}

/// Accepts one line in the form of a public key.
fn public_key(text: &str) -> Option<&str> {
    let line = text.lines().next()?;
    let mut words = line.split_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    let is_kind = ["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start));
    let is_key =
        key.starts_with("AAAA") && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
    (is_kind && is_key).then_some(line)
}

fn line(number: usize, text: &str) -> Option<SshLine> {
    let text = text.trim();
    let keyword_end = text.find([' ', '\t', '=']).unwrap_or(text.len());
    let (keyword, rest) = text.split_at(keyword_end);
    if keyword.is_empty() || keyword.starts_with('#') {
        return None;
    }
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    Some(SshLine { number, keyword: keyword.to_ascii_lowercase(), words: words(rest), text: text.to_owned() })
}

/// Splits arguments at blanks outside of quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == character => quote = None,
            (None, ' ' | '\t') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Expands a path of the configuration. One with tokens that depend on the connection is `None`.
pub fn named_path(host: &Host, word: &str) -> Option<HostPath> {
    let word = word.replace("%d", &host.home.to_string()).replace("%u", &host.user);
    if word.contains(['%', '$']) || word == "none" {
        return None;
    }
    let path = Path::new(&word);
    if !path.is_absolute() && !path.starts_with("~") {
        return None;
    }
    HostPath::new(host.expand(path)).ok()
}

/// Lists the files that an argument of Include names: relative ones start at the directory of the
/// first file, and each part may be a pattern.
fn included(question: &SshConfigQuestion<'_>, word: &str) -> Vec<HostPath> {
    let base = question.start.as_path().parent().unwrap_or(Path::new("/"));
    let path = Path::new(word);
    let path = if path.starts_with("~") { question.host.expand(path) } else { resolve_dots(&base.join(path)) };
    let mut found = vec![PathBuf::from("/")];
    for part in path.iter().skip(1) {
        let is_pattern = part.as_bytes().iter().any(|byte| b"*?[".contains(byte));
        let expand = |above: PathBuf| {
            // The guest could make a file that matches.
            let is_writable = || HostPath::new(&above).is_ok_and(|above| question.is_writable(&above));
            if is_pattern && !is_writable() { children(&above, part.as_bytes()) } else { vec![above.join(part)] }
        };
        found = found.into_iter().flat_map(expand).collect();
    }
    found.into_iter().filter_map(|path| HostPath::new(path).ok()).collect()
}

fn children(directory: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MOST_FILES * 4);
    let names = entries.map(|entry| entry.file_name()).filter(|name| {
        let is_hidden = name.as_bytes().starts_with(b".") && !pattern.starts_with(b".");
        !is_hidden && matches_name(pattern, name.as_bytes())
    });
    let mut paths: Vec<PathBuf> = names.map(|name| directory.join(name)).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_ssh_reads_them() {
        let read = |text: &str| line(1, text).map(|line| (line.keyword, line.words));
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(read("  Host a *.b"), Some(("host".into(), owned(&["a", "*.b"]))));
        assert_eq!(read("Port=22"), Some(("port".into(), owned(&["22"]))));
        assert_eq!(read("IdentityFile = \"~/a b\""), Some(("identityfile".into(), owned(&["~/a b"]))));
        assert_eq!(read("# Host x"), None);
        assert_eq!(read("   "), None);
    }

    #[test]
    fn only_public_keys_are_taken_for_public_keys() {
        assert_eq!(public_key("ssh-ed25519 AAAAC3Nz me@host\nmore"), Some("ssh-ed25519 AAAAC3Nz me@host"));
        for text in ["-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA", "", "ssh-ed25519", "secret AAAA", "ssh-rsa AA$A"] {
            assert_eq!(public_key(text), None, "{text}");
        }
    }
}
