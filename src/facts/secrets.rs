//! Reads the values of keys that stay outside: from variables and files, and from commands at a
//! launch. Makes a placeholder of the same shape for each.

#![allow(clippy::disallowed_methods, reason = "asks the user's own command for a value")]

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::files::examine;
use super::program::SearchPath;
use crate::config::value::SecretSource;
use crate::host::Host;
use crate::path::HostPath;
use crate::process::{read_output, untrusted};
use crate::secret::Secret;

/// How long a command may take, which may ask for a fingerprint or a password.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// The length limits of a value, in bytes. A shorter one could not be told from other text in an
/// answer.
const MAX_VALUE: usize = 16 * 1024;
pub const MIN_VALUE: usize = 8;
/// How many characters of a placeholder are random, at least.
const MIN_RANDOM: usize = 12;

/// A key to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretQuestion {
    pub name: String,
    pub source: SecretSource,
}

/// What was found for each key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretFacts {
    found: BTreeMap<String, SecretFact>,
    /// Commands that were not run yet.
    commands: BTreeMap<String, Vec<String>>,
    /// Lets only the guest use a proxy that other processes of this machine can reach, too.
    pub proxy_password: Option<Secret>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFact {
    /// There is none: the variable is not set, or empty.
    Absent,
    /// It is read at a launch.
    Later {
        placeholder: Secret,
    },
    Value {
        value: Secret,
        placeholder: Secret,
    },
    Problem(String),
}

impl SecretFacts {
    /// Reads variables and files. A login needs the proxy's password, too.
    pub fn look(host: &Host, questions: Vec<SecretQuestion>, has_login: bool, mounted: &[HostPath]) -> Self {
        let mut facts = SecretFacts::default();
        for SecretQuestion { name, source } in questions {
            let fact = match source {
                SecretSource::Env => {
                    host.env.raw(&name).filter(|value| !value.is_empty()).map_or(SecretFact::Absent, |value| {
                        checked(value.as_bytes())
                            .unwrap_or_else(|problem| SecretFact::Problem(format!("the host's variable {problem}")))
                    })
                }
                SecretSource::File(path) => read_file(host, &path, mounted)
                    .unwrap_or_else(|problem| SecretFact::Problem(format!("`{}` {problem}", path.display()))),
                SecretSource::Command(words) => {
                    facts.commands.insert(name.clone(), words);
                    SecretFact::Later { placeholder: Secret::new(placeholder("not-read-yet-000000000000")) }
                }
            };
            facts.found.insert(name, fact);
        }
        if has_login || !facts.found.is_empty() {
            facts.proxy_password = Some(Secret::new(random_text(32)));
        }
        facts
    }

    pub fn get(&self, name: &str) -> &SecretFact {
        self.found.get(name).unwrap_or(&SecretFact::Absent)
    }

    /// Runs the commands. They have a time limit, no terminal, and the host's PATH without mounted
    /// directories.
    pub fn run_commands(&mut self, host: &Host, path: &SearchPath) {
        for (name, words) in std::mem::take(&mut self.commands) {
            let program = words.first().cloned().unwrap_or_default();
            let problem = |problem: String| SecretFact::Problem(format!("the command `{program}` {problem}"));
            let fact = match output(host, path, &words) {
                Ok(output) => checked(&output).unwrap_or_else(problem),
                Err(error) => problem(error),
            };
            self.found.insert(name, fact);
        }
    }
}

fn output(host: &Host, path: &SearchPath, words: &[String]) -> Result<Vec<u8>, String> {
    let (program, arguments) = words.split_first().ok_or("has no words")?;
    let program = path.examine(host, program).ok_or("does not exist on PATH outside of mounted directories")?;
    let mut command = Command::new(program.path.as_path());
    command.args(arguments).env("PATH", path.for_host()).process_group(0);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
    let mut child = started.map_err(|error| format!("cannot be started: {error}"))?;
    let read = match child.stdout.take() {
        Some(stdout) => read_output(stdout, Instant::now() + COMMAND_TIMEOUT, MAX_VALUE + 2),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    };
    if read.is_err()
        && let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let output = read.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => format!("did not end within {} s", COMMAND_TIMEOUT.as_secs()),
        _ => error.to_string(),
    })?;
    if !status.success() {
        return Err(format!("failed: {status}"));
    }
    if output.trim_ascii().is_empty() {
        return Err("printed nothing".to_owned());
    }
    Ok(output)
}

/// Reads a file, unless the guest can choose which one it is.
fn read_file(host: &Host, path: &Path, mounted: &[HostPath]) -> Result<SecretFact, String> {
    let path = HostPath::new(host.expand(path)).map_err(|error| error.to_string())?;
    let fact = examine(&path).ok_or("does not exist")?;
    let is_mounted = |path: &HostPath| mounted.iter().any(|root| path.is_within(root));
    if is_mounted(&fact.real) || fact.links.iter().any(is_mounted) {
        return Err("is in a directory that is mounted: the sandbox could read it or replace it".to_owned());
    }
    let content = untrusted::read_linked(path.as_path(), MAX_VALUE as u64);
    let content = content.map_err(|error| format!("cannot be read: {error}"))?;
    if content.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    checked(content.as_bytes())
}

/// Makes a value of what a source has, without the line end.
fn checked(bytes: &[u8]) -> Result<SecretFact, String> {
    let text = std::str::from_utf8(bytes.trim_ascii()).unwrap_or_default();
    if text.len() > MAX_VALUE {
        return Err(format!("has a value of more than {MAX_VALUE} bytes"));
    }
    if text.len() < MIN_VALUE {
        return Err(format!("has a value of fewer than {MIN_VALUE} characters"));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a value that is not one line of printable ASCII without blanks".to_owned());
    }
    Ok(SecretFact::Value { value: Secret::new(text), placeholder: Secret::new(placeholder(text)) })
}

/// Makes a text of the same shape: length, prefix, separators and classes of characters are kept, all
/// else is random.
pub fn placeholder(value: &str) -> String {
    let kept = prefix(value);
    let mut random = Random::new();
    let replaced = value.bytes().enumerate().map(|(at, byte)| match byte {
        _ if at < kept => byte,
        b'0'..=b'9' => b'0' + random.below(10),
        b'a'..=b'z' => b'a' + random.below(26),
        b'A'..=b'Z' => b'A' + random.below(26),
        other => other,
    });
    replaced.map(char::from).collect()
}

/// Returns the length of the prefix by which programs recognise a kind of key, such as `sk-ant-api03-`
/// or `ghp_`: short words with a separator, or four letters in front of a long text without any.
fn prefix(value: &str) -> usize {
    let most = value.len().saturating_sub(MIN_RANDOM.max(value.len().div_ceil(2)));
    let mut kept = 0;
    for (at, byte) in value.bytes().enumerate().take(most) {
        if !byte.is_ascii_alphanumeric() {
            if at - kept > 8 {
                break;
            }
            kept = at + 1;
        }
    }
    if kept == 0 && !value.contains(['-', '_', '.']) { 4.min(most) } else { kept }
}

fn random_text(length: usize) -> String {
    let mut random = Random::new();
    (0..length).map(|_| char::from(b'a' + random.below(26))).collect()
}

/// Bytes of the kernel's random source.
struct Random {
    bytes: [u8; 256],
    used: usize,
}

impl Random {
    fn new() -> Self {
        Random { bytes: [0; 256], used: 256 }
    }

    fn byte(&mut self) -> u8 {
        if self.used == self.bytes.len() {
            // A placeholder need not be secret, so a failure leaves it predictable only.
            let _ = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut self.bytes));
            self.used = 0;
        }
        self.used += 1;
        self.bytes[self.used - 1]
    }

    fn below(&mut self, end: u8) -> u8 {
        self.byte() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_placeholder_keeps_the_shape_only() {
        for (value, kept) in [
            ("sk-ant-api03-Ab1-cDefGhIjKlMnOpQrStUvWxYz0123456789", "sk-ant-api03-"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
            ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "AIza"),
            ("sk-proj-ABCDEFGHIJKLMNOPQRSTUVWXYZ", "sk-proj-"),
        ] {
            let made = placeholder(value);
            assert!(made.starts_with(kept), "{made}");
            assert_ne!(made[kept.len()..], value[kept.len()..]);
            assert_ne!(made, placeholder(value));
            let class = |text: &str| {
                text.chars()
                    .map(|c| (c.is_ascii_digit(), c.is_ascii_lowercase(), c.is_ascii_alphanumeric()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(class(&made), class(value));
        }
    }

    #[test]
    fn a_value_is_one_line_of_text() {
        assert!(matches!(checked(b"abcdefgh\n"), Ok(SecretFact::Value { .. })));
        for value in
            [&b"short"[..], b"two words of text", b"two\nlines-of-text", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff"]
        {
            assert!(checked(value).is_err(), "{value:?}");
        }
        assert!(checked(&vec![b'x'; MAX_VALUE + 1]).is_err());
    }

    proptest! {
        #[test]
        fn at_least_half_of_a_value_is_replaced(value in "[a-z0-9_-]{8,80}") {
            prop_assert!(prefix(&value) <= value.len() / 2);
            prop_assert_eq!(placeholder(&value).len(), value.len());
        }
    }
}
