//! Sets the values of keys in requests of the guest to their hosts: ends TLS for those hosts with
//! certificates of the session, replaces the guest's credentials, and redacts what comes back.
//!
//! ```text
//! guest ══TLS══► peer ─► head (credentials out, value in) ─► peer ══TLS══► host
//!                 ▲                                           │
//!                 └──────── redact ◄── body ◄── answer ◄──────┘
//! ```
//!
//! The values are in the launcher's memory only. Other hosts are not looked at.

mod answer;
mod binding;
mod body;
mod exchange;
mod head;
mod peer;
mod redact;
mod refresh;
mod websocket;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use super::login::Login;
use crate::config::value::{HostName, SecretHeader, SecretHost};
use crate::error::{Diagnostic, Kind};
use crate::event_log::{EventLog, Gate, Verdict};
use crate::host::Host;
use crate::plan::{AUTHORITY, BUNDLE, SecretsPlan, SecretsProxy};
use crate::process::untrusted;
use crate::proxy::{Choose, Intercept, Refusal, Traffic};
use crate::tls::{Authority, Client, TlsError, accept, server_config};
use crate::ui::Ui;
use crate::vars;
pub use binding::encodings;
use binding::{Binding, Bound, Credential, forms};
use exchange::{Exchange, Observer};
use peer::Peer;
use redact::SessionPatterns;

/// How long a connection to a host, with its handshake, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the guest may take for its handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of a file of certificates that the host adds for Node.js.
const MAX_ADDED: u64 = 1 << 20;

/// Serves the hosts of keys.
#[derive(Debug)]
pub struct SecretGate {
    bindings: Vec<Binding>,
    configs: Vec<Arc<ServerConfig>>,
    client: Client,
    log: Arc<EventLog>,
    /// Keys that a host did not accept.
    stale: Mutex<BTreeMap<String, String>>,
    /// What went wrong with logins on the host.
    problems: Mutex<Vec<String>>,
}

/// Why no values can be set.
#[derive(Debug, thiserror::Error)]
pub enum SecretGateError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("no login outside: {0}")]
    Login(String),
}

impl Diagnostic for SecretGateError {
    fn kind(&self) -> Kind {
        match self {
            SecretGateError::Tls(error) => error.kind(),
            SecretGateError::Login(_) => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            SecretGateError::Tls(error) => error.hints(),
            SecretGateError::Login(_) => vec!["log in anew on the host, or use `--keys inside`".to_owned()],
        }
    }
}

impl SecretGate {
    /// Makes the session's authority and writes its certificate for the guest. Starts no thread.
    pub fn open(
        host: &Host,
        plan: &SecretsPlan,
        proxy: &SecretsProxy,
        log: Arc<EventLog>,
    ) -> Result<Self, SecretGateError> {
        let client = Client::new(host)?;
        let logins = plan.logins.iter().map(|login| Login::open(login).map(Arc::new));
        let logins = logins.collect::<Result<Vec<_>, _>>().map_err(SecretGateError::Login)?;
        let bindings = bindings(plan, &logins);
        let names: Vec<String> = bindings.iter().map(|binding| binding.host.name.clone()).collect();
        let authority = Authority::new(&names)?;
        let written = write_certificates(host, proxy, &authority, &client);
        written.map_err(|source| TlsError::Unwritable { path: proxy.certificates.as_path().to_owned(), source })?;
        let configs = bindings.iter().map(|binding| server_config(&authority, &binding.host.name));
        let configs = configs.collect::<Result<_, _>>()?;
        Ok(SecretGate { bindings, configs, client, log, stale: Mutex::default(), problems: Mutex::default() })
    }

    /// Tells the user which keys were not accepted.
    pub fn close(&self, ui: Ui) {
        for problem in self.problems.lock().iter().flat_map(|problems| problems.iter()) {
            ui.warn(problem);
        }
        for (name, host) in self.stale.lock().iter().flat_map(|stale| stale.iter()) {
            ui.warn(&format!("{host} did not accept the value of {name} on the host (401); it may have expired"));
        }
    }

    fn find(&self, host: &HostName, port: u16) -> Option<usize> {
        self.bindings.iter().position(|binding| binding.host.host() == *host && binding.host.port == port)
    }

    fn connect(&self, host: &SecretHost, choose: Choose<'_>) -> Result<Peer, String> {
        let connected = self.client.connect_to(&host.host(), host.port, CONNECT_TIMEOUT, |addresses| {
            choose(addresses).map_err(ConnectError::Refused)
        });
        let stream = connected.map_err(|error| error.to_string())?;
        let (connection, socket) = (stream.conn, stream.sock);
        let timeouts = [socket.set_read_timeout(None), socket.set_write_timeout(None)];
        timeouts.into_iter().collect::<io::Result<()>>().map_err(|error| error.to_string())?;
        Peer::new(socket, connection.into()).map_err(|error| error.to_string())
    }
}

/// Why there is no connection to a host.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{}", .0.reason)]
    Refused(Refusal),
}

impl Intercept for SecretGate {
    fn intercepts(&self, host: &HostName, port: u16) -> bool {
        self.find(host, port).is_some()
    }

    fn serve(&self, client: &TcpStream, host: &HostName, port: u16, read_ahead: &[u8], choose: Choose<'_>) -> Traffic {
        let Some(at) = self.find(host, port) else { return Traffic::default() };
        let binding = &self.bindings[at];
        let mut client = client;
        if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").is_err() {
            return Traffic::default();
        }
        let accepted = client.try_clone().and_then(|socket| {
            let limit = Instant::now() + HANDSHAKE_TIMEOUT;
            let (socket, connection) = accept(self.configs[at].clone(), socket, read_ahead, limit)?;
            Peer::new(socket, connection.into())
        });
        let mut observer = Record { gate: self, host: &binding.host, used: Vec::new() };
        let guest = match accepted {
            Ok(guest) => guest,
            Err(error) => {
                observer.refused(&format!("the sandbox's TLS handshake failed: {error}"), false);
                return Traffic::default();
            }
        };
        let connect = || self.connect(&binding.host, choose);
        let mut exchange = Exchange { binding, connect: &connect, observer: &mut observer, traffic: (0, 0) };
        exchange.serve(guest);
        Traffic { sent: exchange.traffic.0, received: exchange.traffic.1 }
    }

    fn detour(&self, host: &HostName, port: u16) -> Option<io::Result<TcpStream>> {
        let tunnel = self.client.tunnel_through_proxy(host, port, CONNECT_TIMEOUT)?;
        Some(tunnel.map_err(io::Error::other))
    }
}

/// Writes the record of one connection.
struct Record<'a> {
    gate: &'a SecretGate,
    host: &'a SecretHost,
    used: Vec<String>,
}

impl Record<'_> {
    fn record(&self, verdict: Verdict, what: &str, reason: &str) {
        self.gate.log.record(Gate::Secret, verdict, what, reason);
    }
}

impl Observer for Record<'_> {
    fn used(&mut self, bound: &Bound) {
        if !self.used.contains(&bound.name) {
            self.used.push(bound.name.clone());
            self.record(Verdict::Allowed, &self.host.to_string(), &format!("the value of {} is set", bound.name));
        }
    }

    fn stale(&mut self, bound: &Bound) {
        bound.refuse();
        if let Ok(mut stale) = self.gate.stale.lock() {
            stale.insert(bound.name.clone(), self.host.to_string());
        }
        self.record(
            Verdict::Failed,
            &self.host.to_string(),
            &format!("the value of {} was not accepted (401)", bound.name),
        );
    }

    fn refreshed(&mut self, login: &Login, how: &str, problem: Option<String>) {
        let name = login.plan().name();
        if let Ok(mut stale) = self.gate.stale.lock() {
            stale.remove(&name);
        }
        self.record(Verdict::Done, &self.host.to_string(), &format!("{name}: {how}"));
        if let (Some(problem), Ok(mut problems)) = (problem, self.gate.problems.lock()) {
            self.record(Verdict::Failed, &self.host.to_string(), &problem);
            problems.push(problem);
        }
    }

    fn refused(&mut self, reason: &str, is_by_policy: bool) {
        let verdict = if is_by_policy { Verdict::Refused } else { Verdict::Failed };
        self.record(verdict, &self.host.to_string(), reason);
    }

    fn redacted(&mut self) {
        self.record(Verdict::Done, &self.host.to_string(), "a value in an answer was replaced by its placeholder");
    }
}

/// Groups the values by host.
fn bindings(plan: &SecretsPlan, logins: &[Arc<Login>]) -> Vec<Binding> {
    let keys = plan.outside().filter_map(|key| Some((key.value.as_ref()?, key.placeholder.as_ref()?)));
    let forms = keys.flat_map(|(value, placeholder)| forms(value, placeholder)).collect();
    let patterns = Arc::new(SessionPatterns::new(forms, logins.to_vec()));
    let mut by_host: BTreeMap<SecretHost, Binding> = BTreeMap::new();
    let mut at = |host: &SecretHost, bound: Option<Bound>, refreshes: Option<(String, Arc<Login>)>| {
        let new = || Binding::new(host.clone(), patterns.clone());
        let binding = by_host.entry(host.clone()).or_insert_with(new);
        binding.bound.extend(bound);
        binding.refreshes.extend(refreshes);
    };
    for key in plan.outside() {
        let (Some(value), Some(placeholder)) = (&key.value, &key.placeholder) else { continue };
        for (host, header) in &key.hosts {
            let credential = Credential::Key { value: value.clone(), placeholder: placeholder.clone() };
            at(host, Some(Bound { name: key.name.clone(), header: header.clone(), credential }), None);
        }
    }
    for login in logins {
        let form = &login.plan().form;
        for (index, token) in form.tokens.iter().enumerate() {
            for host in &token.hosts {
                let credential = Credential::Login(login.clone(), index);
                at(host, Some(Bound { name: login.plan().name(), header: SecretHeader::Bearer, credential }), None);
            }
        }
        for url in &form.refresh_at {
            at(&url.host, None, Some((url.path.clone(), login.clone())));
        }
    }
    by_host.into_values().collect()
}

/// Writes the bundle of all roots, and the session's authority with what the host adds for Node.js.
fn write_certificates(host: &Host, proxy: &SecretsProxy, authority: &Authority, client: &Client) -> io::Result<()> {
    let own = authority.pem();
    let added = host.env.path(vars::NODE_EXTRA_CA_CERTS);
    let added = added.and_then(|path| untrusted::read_linked(path, MAX_ADDED).ok()).unwrap_or_default();
    let with_own = |others: &[u8]| [others, b"\n", own.as_bytes()].concat();
    fs::write(
        proxy.certificates.join(BUNDLE).as_path(),
        with_own(&[client.roots().pem(), b"\n", added.as_bytes()].concat()),
    )?;
    fs::write(proxy.certificates.join(AUTHORITY).as_path(), with_own(added.as_bytes()))
}
