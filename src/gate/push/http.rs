//! Reaches a repository over HTTP: fetches with the host's Git, pushes with `curl`, whose
//! configuration, with the login, is written to a pipe.

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use super::Service;
use super::login::Login;
use super::pkt_line::Packet;
use super::process::{Streams, TransportProcess};
use super::ssh::Version;
use super::transport::Transport;
use crate::plan::push::HttpRemote;
use crate::process::inherit::inherit;
use crate::process::read_output;

/// The list of refs has at most this size.
const MAX_REFS: usize = 128 << 20;
const REFS_TIMEOUT: Duration = Duration::from_secs(120);
const SETTINGS_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_SETTINGS: usize = 64 << 10;
/// A pipe takes this much before its reader starts.
const MAX_CONFIG: usize = 32 << 10;
const UNAUTHORIZED: &str = "401";

/// Git's settings for a URL, and the options of curl that they mean.
const OPTIONS: &[(&str, &str)] = &[
    ("http.sslcainfo", "cacert"),
    ("http.sslcapath", "capath"),
    ("http.sslcert", "cert"),
    ("http.sslkey", "key"),
    ("http.proxy", "proxy"),
    ("http.extraheader", "header"),
    ("http.pinnedpubkey", "pinnedpubkey"),
];

/// Starts a fetch with the host's Git.
pub fn start_fetch(transport: &Transport, remote: &HttpRemote) -> Result<(TransportProcess, Streams), String> {
    let header = Login::of_url(remote).map(|login| login.header());
    // Git takes it from its environment as it would from the URL, which other processes could read.
    let header = header.map(|header| (format!("http.{}.extraheader", remote.public_url()), header));
    let mut command = transport.git_command_with(header)?;
    let url = match remote.login() {
        (Some(user), None) => remote.public_url().replacen("://", &format!("://{}@", escaped(&user)), 1),
        _ => remote.public_url(),
    };
    command.args(["remote-https", &url, &url]);
    transport.start(command, "git")
}

/// The list of refs of a server, and the login by which it was read.
pub struct Refs {
    pub bytes: Vec<u8>,
    login: Option<Login>,
}

impl Refs {
    pub fn ask(transport: &Transport, remote: &HttpRemote, service: Service, version: Version) -> Result<Self, String> {
        let get = |login: Option<&Login>| get(transport, remote, service, version, login);
        let own = Login::of_url(remote);
        let (mut code, mut bytes) = get(own.as_ref())?;
        let mut login = own;
        if code == UNAUTHORIZED {
            let filled = Login::fill(transport, remote)?;
            (code, bytes) = get(Some(&filled))?;
            if code == "200" || code == UNAUTHORIZED {
                filled.report(transport, remote, code == "200");
            }
            login = Some(filled);
        }
        match code.as_str() {
            "200" => Ok(Refs { bytes: without_header(bytes, service)?, login }),
            UNAUTHORIZED => {
                Err(format!("the server does not accept the login of the host for {}", remote.public_url()))
            }
            code if code.starts_with('3') => {
                Err(format!("the server redirects {}: set the remote's URL to the new one", remote.public_url()))
            }
            code => Err(format!("the server answered HTTP {code} for {}", remote.public_url())),
        }
    }

    /// Starts a request to the service. Its body is what is written to the program.
    pub fn start_post(
        &self,
        transport: &Transport,
        remote: &HttpRemote,
        service: Service,
        version: Version,
    ) -> Result<(TransportProcess, Streams), String> {
        let mut config = CurlConfig::new(transport, remote, version, self.login.as_ref())?;
        let name = service.name();
        config.set("url", &format!("{}/{name}", remote.public_url()));
        config.set("request", "POST");
        config.set("upload-file", "-");
        config.set("header", &format!("Content-Type: application/x-{name}-request"));
        config.set("header", &format!("Accept: application/x-{name}-result"));
        config.set("header", "Expect:");
        config.flag("fail");
        config.flag("no-buffer");
        let command = config.command(transport)?;
        transport.start(command, "curl")
    }
}

/// Asks for the list of refs. Returns the status of the answer and its body.
fn get(
    transport: &Transport,
    remote: &HttpRemote,
    service: Service,
    version: Version,
    login: Option<&Login>,
) -> Result<(String, Vec<u8>), String> {
    let mut config = CurlConfig::new(transport, remote, version, login)?;
    config.set("url", &format!("{}/info/refs?service={}", remote.public_url(), service.name()));
    config.set("write-out", "%{http_code}");
    let command = config.command(transport)?;
    let (process, streams) = transport.start(command, "curl")?;
    drop(streams.stdin);
    let mut output = read_output(streams.stdout, Instant::now() + REFS_TIMEOUT, MAX_REFS)
        .map_err(|error| format!("the server's refs cannot be read: {error}"))?;
    let (is_done, text) = process.finish();
    if !is_done || output.len() < UNAUTHORIZED.len() {
        return Err(if text.is_empty() { "curl failed".into() } else { text });
    }
    let code = output.split_off(output.len() - UNAUTHORIZED.len());
    Ok((String::from_utf8_lossy(&code).into_owned(), output))
}

/// Removes the packets in front of the refs that name the service. In version 2, servers may leave them
/// out.
fn without_header(bytes: Vec<u8>, service: Service) -> Result<Vec<u8>, String> {
    let mut rest = bytes.as_slice();
    if Packet::read(&mut rest).is_ok_and(|packet| packet == Packet::line("version 2")) {
        return Ok(bytes);
    }
    rest = bytes.as_slice();
    let name = format!("# service={}", service.name());
    match (Packet::read(&mut rest), Packet::read(&mut rest)) {
        (Ok(Packet::Data(line)), Ok(Packet::Flush)) if line.strip_suffix(b"\n").unwrap_or(&line) == name.as_bytes() => {
            Ok(rest.to_vec())
        }
        _ => Err("the server does not speak Git's smart HTTP protocol".into()),
    }
}

/// The text of a configuration of curl.
struct CurlConfig(String);

impl CurlConfig {
    fn new(
        transport: &Transport,
        remote: &HttpRemote,
        version: Version,
        login: Option<&Login>,
    ) -> Result<Self, String> {
        let mut config = CurlConfig(String::new());
        config.flag("silent");
        config.flag("show-error");
        config.flag("netrc-optional");
        config.set("proto", &format!("={}", remote.protocol()));
        config.set("connect-timeout", "60");
        config.set("user-agent", "git/2.0 (sandpen)");
        if version == Version::Two {
            config.set("header", "Git-Protocol: version=2");
        }
        for (key, value) in settings(transport, remote)? {
            if let Some((_, option)) = OPTIONS.iter().find(|(known, _)| *known == key) {
                config.set(option, &value);
            } else if key == "http.sslverify" && matches!(value.as_str(), "false" | "no" | "off" | "0") {
                config.flag("insecure");
            }
        }
        if let Some(login) = login {
            config.set("user", &format!("{}:{}", login.user, login.password.reveal().to_string_lossy()));
        }
        Ok(config)
    }

    fn flag(&mut self, name: &str) {
        self.0.push_str(&format!("{name}\n"));
    }

    fn set(&mut self, name: &str, value: &str) {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
        self.0.push_str(&format!("{name} = \"{value}\"\n"));
    }

    fn command(self, transport: &Transport) -> Result<Command, String> {
        let program = transport.plan.curl.as_ref();
        let program = program.ok_or("pushes over HTTPS need `curl` on the host, which has none")?;
        if self.0.len() > MAX_CONFIG {
            return Err("Git's settings for this URL are too long".into());
        }
        let failed = |error: io::Error| format!("curl cannot be configured: {error}");
        let (read, mut write) = io::pipe().map_err(failed)?;
        write.write_all(self.0.as_bytes()).map_err(failed)?;
        let mut command = transport.environment.command(program.as_path());
        let path = inherit(&mut command, read.into());
        command.args(["-q", "--config", &path]);
        Ok(command)
    }
}

/// Lists Git's settings for a URL.
fn settings(transport: &Transport, remote: &HttpRemote) -> Result<Vec<(String, String)>, String> {
    let mut command = transport.git_command()?;
    command.args(["config", "-z", "--get-urlmatch", "http", &remote.public_url()]);
    let (_process, streams) = transport.start(command, "git")?;
    drop(streams.stdin);
    let output = read_output(streams.stdout, Instant::now() + SETTINGS_TIMEOUT, MAX_SETTINGS)
        .map_err(|error| format!("Git's settings cannot be read: {error}"))?;
    let text = String::from_utf8_lossy(&output).into_owned();
    let pairs = text.split('\0').filter_map(|entry| entry.split_once('\n'));
    Ok(pairs.map(|(key, value)| (key.to_ascii_lowercase(), value.to_owned())).collect())
}

/// Escapes a user's name for a URL.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
