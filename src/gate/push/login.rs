//! Asks the host's credential helpers for logins.

use std::io::Write;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};

use super::transport::Transport;
use crate::plan::push::HttpRemote;
use crate::process::read_output;
use crate::secret::Secret;

/// A helper may ask the user in a window of its own.
const HELPER_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_OUTPUT: usize = 64 << 10;

/// A user's name and password.
#[derive(Debug, Clone)]
pub struct Login {
    pub user: String,
    pub password: Secret,
}

impl Login {
    /// Returns the login that is part of the URL.
    pub fn of_url(remote: &HttpRemote) -> Option<Self> {
        let (user, password) = remote.login();
        Some(Login { user: user?, password: Secret::new(password?) })
    }

    /// Returns the line of an HTTP request that carries the login.
    pub fn header(&self) -> String {
        let pair = [self.user.as_bytes(), b":", self.password.reveal().as_encoded_bytes()].concat();
        format!("Authorization: Basic {}", Base64::encode_string(&pair))
    }

    /// Asks the helpers.
    pub fn fill(transport: &Transport, remote: &HttpRemote) -> Result<Self, String> {
        let nothing = || format!("the host has no login for {}: try `git ls-remote` there", remote.public_url());
        let output = call(transport, "fill", &question(remote)).ok_or_else(nothing)?;
        let text = String::from_utf8(output).map_err(|_| nothing())?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let (user, password) = value("username").zip(value("password")).ok_or_else(nothing)?;
        Ok(Login { user: user.to_owned(), password: Secret::new(password) })
    }

    /// Tells the helpers whether the login was accepted.
    pub fn report(&self, transport: &Transport, remote: &HttpRemote, is_accepted: bool) {
        let password = self.password.reveal().to_string_lossy();
        let answer = format!("{}username={}\npassword={password}\n", address(remote), self.user);
        call(transport, if is_accepted { "approve" } else { "reject" }, &answer);
    }
}

fn address(remote: &HttpRemote) -> String {
    let path = remote.path.trim_start_matches('/');
    format!("protocol={}\nhost={}\npath={path}\n", remote.protocol(), remote.authority)
}

fn question(remote: &HttpRemote) -> String {
    let user = remote.login().0.map_or(String::new(), |user| format!("username={user}\n"));
    format!("{}{user}", address(remote))
}

fn call(transport: &Transport, action: &str, input: &str) -> Option<Vec<u8>> {
    let mut command = transport.git_command().ok()?;
    command.args(["credential", action]);
    let (process, mut streams) = transport.start(command, "git").ok()?;
    streams.stdin.write_all(format!("{input}\n").as_bytes()).ok()?;
    drop(streams.stdin);
    let output = read_output(streams.stdout, Instant::now() + HELPER_TIMEOUT, MAX_OUTPUT).ok()?;
    process.finish().0.then_some(output)
}
