//! Finds the login for a registry where Docker and Podman keep it: in a file, or with a credential
//! helper, which is a program. Logins are neither printed nor stored.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde::Deserialize;

use crate::host::Host;
use crate::process::{Client, output_within, untrusted};

const LARGEST_FILE: u64 = 1 << 20;
/// A helper may ask the user for a password.
const HELPER_TIMEOUT: Duration = Duration::from_secs(120);
/// By this name a helper says that the secret is a token to be exchanged.
const TOKEN_USER: &str = "<token>";

/// The files with logins, and how to find a program on the host's PATH.
pub struct Logins<'a> {
    files: Vec<PathBuf>,
    find_program: &'a dyn Fn(&str) -> Option<Client>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    Password {
        user: String,
        password: String,
    },
    /// A refresh token of OAuth 2.
    Token(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    /// Returns the value of `Authorization`; `None` if a token must be exchanged first.
    pub fn basic(&self) -> Option<String> {
        match self {
            Login::Password { user, password } => {
                Some(format!("Basic {}", Base64::encode_string(format!("{user}:{password}").as_bytes())))
            }
            Login::Token(_) => None,
        }
    }
}

#[derive(Default, Deserialize)]
struct LoginFile {
    #[serde(default)]
    auths: HashMap<String, Entry>,
    #[serde(default, rename = "credHelpers")]
    helpers: HashMap<String, String>,
    #[serde(default, rename = "credsStore")]
    store: Option<String>,
}

#[derive(Default, Deserialize)]
struct Entry {
    #[serde(default)]
    auth: Option<String>,
    #[serde(default, rename = "identitytoken")]
    token: Option<String>,
}

/// What a helper prints.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

impl<'a> Logins<'a> {
    pub fn of(host: &Host, find_program: &'a dyn Fn(&str) -> Option<Client>) -> Self {
        let docker = host.env.path("DOCKER_CONFIG").map_or_else(|| host.home.as_path().join(".docker"), PathBuf::from);
        let podman = host.env.path("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json"));
        let podman = host.env.path("REGISTRY_AUTH_FILE").map(PathBuf::from).or(podman);
        let files = podman.into_iter().chain([docker.join("config.json")]).collect();
        Logins { files, find_program }
    }

    /// Returns the login for a registry; `None` if there is none, or its helper fails.
    pub fn find(&self, registry: &str) -> Option<Login> {
        self.files.iter().find_map(|file| {
            let text = untrusted::read_linked(file, LARGEST_FILE).ok()?;
            let logins: LoginFile = serde_json::from_str(&text).ok()?;
            self.find_in(&logins, registry)
        })
    }

    fn find_in(&self, logins: &LoginFile, registry: &str) -> Option<Login> {
        let names = |key: &&String| names_registry(key, registry);
        if let Some((key, helper)) = logins.helpers.iter().find(|(key, _)| names(key)) {
            return self.ask_helper(helper, key);
        }
        let entry = logins.auths.iter().find(|(key, _)| names(key));
        let kept = entry.and_then(|(_, entry)| entry.login());
        kept.or_else(|| {
            let usual = if is_docker_hub(registry) { "https://index.docker.io/v1/" } else { registry };
            let key = entry.map_or(usual, |(key, _)| key.as_str());
            self.ask_helper(logins.store.as_deref()?, key)
        })
    }

    fn ask_helper(&self, helper: &str, server: &str) -> Option<Login> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !helper.bytes().all(is_name) {
            return None;
        }
        let client = (self.find_program)(&format!("docker-credential-{helper}"))?;
        let mut command = client.quiet_command(["get"]).ok()?;
        let (input, mut writer) = std::io::pipe().ok()?;
        // Shorter than what a pipe holds.
        writer.write_all(server.as_bytes()).ok()?;
        drop(writer);
        command.stdin(Stdio::from(input)).stdout(Stdio::piped());
        let output = output_within(&mut command, HELPER_TIMEOUT).ok().filter(|output| output.status.success())?;
        let answer: HelperAnswer = serde_json::from_slice(&output.stdout).ok()?;
        Some(if answer.username == TOKEN_USER {
            Login::Token(answer.secret)
        } else {
            Login::Password { user: answer.username, password: answer.secret }
        })
    }
}

impl Entry {
    fn login(&self) -> Option<Login> {
        if let Some(token) = self.token.clone().filter(|token| !token.is_empty()) {
            return Some(Login::Token(token));
        }
        let decoded = Base64::decode_vec(self.auth.as_deref()?.trim()).ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        let (user, password) = pair.split_once(':')?;
        Some(Login::Password { user: user.to_owned(), password: password.trim_end_matches('\0').to_owned() })
    }
}

fn is_docker_hub(name: &str) -> bool {
    matches!(name, "docker.io" | "index.docker.io" | "registry-1.docker.io")
}

/// Tells whether a key of a file, which may be an address, names the registry.
fn names_registry(key: &str, registry: &str) -> bool {
    let host = key.split_once("://").map_or(key, |(_, rest)| rest).split('/').next().unwrap_or_default();
    host == registry || is_docker_hub(host) && is_docker_hub(registry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(json: &str, registry: &str) -> Option<Login> {
        let logins = Logins { files: Vec::new(), find_program: &|_| None };
        logins.find_in(&serde_json::from_str(json).expect("JSON"), registry)
    }

    #[test]
    fn logins_are_found_under_every_form_of_a_name() {
        let file = |key: &str| format!(r#"{{"auths":{{"{key}":{{"auth":"bWU6aHVudGVyMg=="}}}}}}"#);
        let expected = Some(Login::Password { user: "me".into(), password: "hunter2".into() });
        for (key, registry) in [
            ("ghcr.io", "ghcr.io"),
            ("https://ghcr.io/v2/", "ghcr.io"),
            ("https://index.docker.io/v1/", "docker.io"),
            ("docker.io", "docker.io"),
            ("localhost:5000", "localhost:5000"),
        ] {
            assert_eq!(find(&file(key), registry), expected, "{key}");
        }
        for (key, registry) in
            [("ghcr.io", "evil.ghcr.io"), ("ghcr.io.evil", "ghcr.io"), ("localhost", "localhost:5000")]
        {
            assert_eq!(find(&file(key), registry), None, "{key}");
        }
        let token = r#"{"auths":{"x.io":{"identitytoken":"abc"}}}"#;
        assert_eq!(find(token, "x.io"), Some(Login::Token("abc".into())));
        assert_eq!(format!("{expected:?}"), "Some(Login(…))");
    }
}
