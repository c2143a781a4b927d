//! Decides which keys stay outside, which hosts get their values, and how programs inside reach and
//! trust the proxy that sets them. Reads no value; `facts::secrets` does.

use core::net::Ipv4Addr;

use sha2::{Digest, Sha256};

use super::engine::EnginePlan;
use super::entry::{Mount, Topic, Why};
use super::logins::{LoginPlace, LoginPlan};
use super::network::ProxyPlan;
use super::{Draft, NetworkPlan};
use crate::config::preset::{Preset, PresetKey};
use crate::config::value::{
    Access, EngineKind, KeysMode, NetworkMode, SecretHeader, SecretHost, SecretRequest, SecretSource, Value,
};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{FileKind, SecretFact, SecretQuestion};
use crate::path::HostPath;
use crate::secret::Secret;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// The directory in the session's directory with the certificates of the session.
const DIRECTORY: &str = "certificates";
/// The roots of this machine and the session's authority.
pub const BUNDLE: &str = "bundle.pem";
/// The session's authority, and what the host adds for Node.js.
pub const AUTHORITY: &str = "session.pem";

/// Where programs of the distributions look for the roots.
const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// Variables that name a bundle of all roots.
const BUNDLE_VARIABLES: &[&str] = &[
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "BUNDLE_SSL_CA_CERT",
    "AWS_CA_BUNDLE",
    "CODEX_CA_CERTIFICATE",
    "npm_config_cafile",
];
/// Variables that name roots in addition to those of the program.
const ADDED_VARIABLES: &[&str] = &[vars::NODE_EXTRA_CA_CERTS, "DENO_CERT"];

/// The keys of a sandbox, and what programs inside need for them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecretsPlan {
    pub keys: Vec<SecretPlan>,
    /// Logins that are outside; each is among the keys, too.
    pub logins: Vec<LoginPlan>,
    /// `None` if no request gets a value: nothing is outside, or the network is off.
    pub proxy: Option<SecretsProxy>,
}

/// A key, and where its value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPlan {
    pub name: String,
    pub place: SecretPlace,
    /// The hosts that get the value, and the header that carries it.
    pub hosts: Vec<(SecretHost, SecretHeader)>,
    /// `None` if it is inside, or is read at the launch only.
    pub value: Option<Secret>,
    pub placeholder: Option<Secret>,
    /// Where the value comes from, for people.
    pub source: String,
    pub reason: String,
    pub from: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretPlace {
    Outside,
    Inside,
}

/// The proxy that sets values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsProxy {
    /// The directory of the session's certificates, on the host.
    pub certificates: HostPath,
    /// Asked from clients if other processes of this machine can reach the proxy.
    pub password: Option<Secret>,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{origin}: `{name}` cannot stay outside: {reason}")]
    NotOutside { origin: Origin, name: String, reason: String, hint: String },
    #[error("{origin}: no value for `{name}`: {problem}")]
    NoValue { origin: Origin, name: String, problem: String },
}

impl Diagnostic for SecretError {
    fn kind(&self) -> Kind {
        match self {
            Self::NotOutside { .. } => Kind::Usage,
            Self::NoValue { .. } => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::NotOutside { hint, .. } => vec![hint.clone()],
            Self::NoValue { .. } => {
                vec!["expected a value of at least 8 printable characters without blanks, on one line".to_owned()]
            }
        }
    }
}

/// Lists the keys whose values must be read.
pub fn questions(config: &Config, preset: Option<&Preset>) -> Vec<SecretQuestion> {
    if config.keys.value == KeysMode::Inside && config.secrets.is_empty() {
        return Vec::new();
    }
    let asked = requests(config)
        .into_iter()
        .map(|request| SecretQuestion { name: request.value.name.as_str().to_owned(), source: request.value.from });
    let keys = preset.into_iter().flat_map(|preset| &preset.keys);
    let keys = keys.map(|key| SecretQuestion { name: key.name.as_str().to_owned(), source: SecretSource::Env });
    let mut questions: Vec<SecretQuestion> = asked.collect();
    for question in keys {
        if !questions.iter().any(|known| known.name == question.name) {
            questions.push(question);
        }
    }
    questions
}

/// Returns the paths at which certificates may be mounted.
pub fn paths_of_interest() -> impl Iterator<Item = HostPath> {
    SYSTEM_BUNDLES.iter().filter_map(|path| HostPath::new(path).ok())
}

/// Lists the requests of the user. Those of one layer for the same name are one request for all their
/// hosts; those of lower layers have no effect.
fn requests(config: &Config) -> Vec<Sourced<SecretRequest>> {
    let mut requests: Vec<Sourced<SecretRequest>> = Vec::new();
    for Sourced { value, origin } in &config.secrets {
        match requests.iter_mut().find(|known| known.value.name == value.name) {
            Some(known) if known.origin == *origin => known.value.hosts.extend(value.hosts.iter().cloned()),
            Some(_) => {}
            None => requests.push(Sourced::new(value.clone(), origin.clone())),
        }
    }
    requests
}

/// A key that could stay outside, before that is decided.
struct Candidate {
    name: String,
    hosts: Vec<(SecretHost, SecretHeader)>,
    source: String,
    from: Origin,
    /// Why it cannot be outside, if that is known.
    obstacle: Option<String>,
}

impl SecretsPlan {
    /// Whether a key is bound to this host.
    pub fn names(&self, host: &str) -> bool {
        self.outside().any(|key| key.hosts.iter().any(|(bound, _)| bound.name == host))
            || self.logins.iter().any(|login| login.form.all_hosts().iter().any(|bound| bound.name == host))
    }

    pub fn outside(&self) -> impl Iterator<Item = &SecretPlan> {
        self.keys.iter().filter(|key| key.place == SecretPlace::Outside)
    }
}

impl Draft<'_> {
    /// Decides where each key is, and replaces the values of variables by placeholders. Returns the
    /// network with the proxy that sets values, if it needs one.
    pub fn secrets(&mut self, engine: &EnginePlan, network: NetworkPlan) -> Result<(SecretsPlan, NetworkPlan)> {
        let mode = &self.config.keys;
        let mut plan = SecretsPlan::default();
        let engine_obstacle = self.engine_obstacle(engine, &network);
        for candidate in self.candidates() {
            let obstacle = match mode.value {
                KeysMode::Inside => Some(format!("{} is `inside`", mode.origin)),
                KeysMode::Auto => candidate.obstacle.clone().or_else(|| engine_obstacle.clone()),
                // The user wants it although nobody has tried this agent.
                KeysMode::Outside => self.hard_obstacle(&candidate).or_else(|| engine_obstacle.clone()),
            };
            if let Some(key) = self.key(candidate, obstacle)? {
                plan.keys.push(key);
            }
        }
        self.refuse_unbound(&plan)?;
        plan.keys.extend(self.logins(engine, &network)?);
        let outside = self.login_decisions.iter().filter(|decision| decision.place == LoginPlace::Outside);
        plan.logins = outside.map(|decision| decision.plan.clone()).collect();
        let network = if plan.outside().next().is_some() && network.mode != NetworkMode::Off {
            let is_shared = !self.engine.is_container() || !self.config.engine_flags.is_empty();
            let is_open = network.mode == NetworkMode::On;
            let password = self.facts.secrets.proxy_password.clone().filter(|_| is_shared && is_open);
            plan.proxy = Some(SecretsProxy { certificates: self.session_dir.join(DIRECTORY), password });
            self.certificates_inside();
            let listen = (!self.engine.is_container()).then(|| loopback_address(&self.id.to_string()));
            let proxy = network.proxy.clone().or(Some(ProxyPlan::ForSecrets { listen }));
            NetworkPlan { proxy, ..network }
        } else {
            network
        };
        Ok((plan, network))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = requests(self.config)
            .into_iter()
            .map(|Sourced { value, origin }| Candidate {
                name: value.name.as_str().to_owned(),
                hosts: value.hosts.iter().map(|host| (host.clone(), value.header_for(host))).collect(),
                source: value.from.to_string(),
                from: origin,
                obstacle: None,
            })
            .collect();
        let Some(preset) = self.preset else { return candidates };
        for key in &preset.keys {
            let name = key.name.as_str();
            if !candidates.iter().any(|known| known.name == name) {
                candidates.push(self.preset_candidate(preset, key));
            }
        }
        candidates
    }

    fn preset_candidate(&self, preset: &Preset, key: &PresetKey) -> Candidate {
        let name = key.name.as_str().to_owned();
        let moved = key.base_url.as_ref().and_then(|variable| {
            let url = self.host.env.text(variable.as_str())?;
            Some((variable.as_str().to_owned(), host_of_url(url)))
        });
        let not_tried = preset.keys_outside.is_none();
        let mut obstacle = not_tried.then(|| format!("it was not seen to work with {}", preset.name));
        let hosts = match moved {
            None => key.hosts.clone(),
            Some((_, Some(host))) => vec![host],
            Some((variable, None)) => {
                obstacle = Some(format!("{variable} is not an `https://` URL with a host name"));
                Vec::new()
            }
        };
        let header = |host: &SecretHost| key.header.clone().unwrap_or_else(|| SecretHeader::of_host(&host.name));
        Candidate {
            hosts: hosts.into_iter().map(|host| (host.clone(), header(&host))).collect(),
            name,
            source: SecretSource::Env.to_string(),
            from: Origin::Preset(preset.name.clone()),
            obstacle,
        }
    }

    /// Returns why not even `--keys outside` can keep a key outside.
    fn hard_obstacle(&self, candidate: &Candidate) -> Option<String> {
        candidate.obstacle.clone().filter(|_| candidate.hosts.is_empty())
    }

    /// Returns why this engine has no proxy that could set values.
    pub(super) fn engine_obstacle(&self, engine: &EnginePlan, network: &NetworkPlan) -> Option<String> {
        let is_elsewhere = engine.abilities.remote
            || (engine.kind == EngineKind::Docker
                && self.facts.docker.as_ref().is_some_and(|docker| docker.is_desktop()));
        match (&network.proxy, engine.kind) {
            _ if network.mode == NetworkMode::Off => None,
            (_, EngineKind::Kubernetes) => Some("the proxy does not yet reach pods".to_owned()),
            (_, EngineKind::SandboxExec) => Some("sandbox-exec has no private network for the proxy".to_owned()),
            _ if self.host.platform == crate::host::Platform::Macos || is_elsewhere => {
                Some("the engine runs on another machine, which does not reach the proxy".to_owned())
            }
            (Some(ProxyPlan::Command { .. }), _) => Some("the network has a proxy of yours".to_owned()),
            _ if self.facts.helper.is_none() => Some("the guest helper is missing".to_owned()),
            _ => None,
        }
    }

    fn key(&mut self, candidate: Candidate, obstacle: Option<String>) -> Result<Option<SecretPlan>> {
        let Candidate { name, hosts, source, from, .. } = candidate;
        let mode = self.config.keys.value;
        let is_preset = matches!(from, Origin::Preset(_));
        let is_asked_for = self.env.origin(&name).is_some_and(|origin| !matches!(origin, Origin::Preset(_)));
        let (value, placeholder, problem) = match self.facts.secrets.get(&name).clone() {
            SecretFact::Absent if is_preset => return Ok(None),
            SecretFact::Absent => {
                self.warnings.push(Warning::new(
                    WarningTopic::Environment,
                    format!("{from}: {name} is not set on the host, so it is not set inside"),
                ));
                return Ok(None);
            }
            SecretFact::Problem(problem) => (None, None, Some(problem)),
            SecretFact::Later { placeholder } => (None, Some(placeholder), None),
            SecretFact::Value { value, placeholder } => (Some(value), Some(placeholder), None),
        };
        let obstacle = match (obstacle, problem) {
            (_, _) if is_asked_for => Some("it is passed by `env`".to_owned()),
            (Some(obstacle), _) => Some(obstacle),
            // A preset's variable may be anything; what the user binds must be usable.
            (None, Some(problem)) if is_preset && mode == KeysMode::Auto => Some(problem),
            (None, Some(problem)) => return Err(SecretError::NoValue { origin: from, name, problem }.into()),
            (None, None) => None,
        };
        let Some(reason) = obstacle else {
            let placeholder = placeholder.unwrap_or_else(|| Secret::new(""));
            let why = Why::new("a placeholder: the value stays outside", from.clone());
            self.env.replace_by_secret(&name, placeholder.reveal(), why);
            let reason = "the proxy sets the value in requests to its hosts".to_owned();
            let place = SecretPlace::Outside;
            return Ok(Some(SecretPlan {
                name,
                place,
                hosts,
                value,
                placeholder: Some(placeholder),
                source,
                reason,
                from,
            }));
        };
        if mode == KeysMode::Outside {
            let hint = "use `--keys auto` to pass what cannot stay outside, or `--keys inside`".to_owned();
            return Err(SecretError::NotOutside { origin: self.config.keys.origin.clone(), name, reason, hint }.into());
        }
        if mode == KeysMode::Auto && !is_asked_for {
            let text = format!("the value of {name} is inside: {reason}");
            self.warnings.push(Warning::new(WarningTopic::Environment, text));
        }
        if let (false, false, Some(value)) = (is_preset, is_asked_for, &value) {
            let why = Why::new("requested: its value is inside", from.clone()).about(Topic::Asked);
            self.env.secret(&name, value.reveal(), why);
        }
        let place = SecretPlace::Inside;
        Ok(Some(SecretPlan { name, place, hosts, value: None, placeholder: None, source, reason, from }))
    }

    /// Refuses keys of the preset whose hosts are not known, if all must stay outside.
    fn refuse_unbound(&self, plan: &SecretsPlan) -> Result<()> {
        let (Some(preset), KeysMode::Outside) = (self.preset, self.config.keys.value) else { return Ok(()) };
        let names = preset.secrets.iter().map(|name| name.as_str());
        let is_set = |name: &&str| self.host.env.raw(name).is_some_and(|value| !value.is_empty());
        let mut unbound = names.filter(is_set).filter(|name| !plan.keys.iter().any(|key| key.name == *name));
        match unbound.next() {
            None => Ok(()),
            Some(name) => Err(SecretError::NotOutside {
                origin: self.config.keys.origin.clone(),
                name: name.to_owned(),
                reason: "its hosts are not known".to_owned(),
                hint: format!("name them with `--secret {name}@HOST`, or use `--keys auto`"),
            }
            .into()),
        }
    }

    /// Mounts the session's certificates where programs look for roots, and names them in variables.
    fn certificates_inside(&mut self) {
        let directory = self.session_dir.join(DIRECTORY);
        let target = self.control_dir().join(DIRECTORY);
        let why = || {
            Why::default("the roots of this machine and of the session, which the proxy's certificates have")
                .about(Topic::Network)
        };
        self.prepare.push(super::Prepare::Directory { path: directory.clone(), mode: 0o755 });
        self.mounts.add(Mount::directory(directory.clone(), target.clone(), Access::Ro, why()));
        for path in SYSTEM_BUNDLES {
            let Ok(place) = HostPath::new(path) else { continue };
            let place = if self.engine.is_container() {
                place.to_guest()
            } else {
                // A mount point must exist, and the file itself is replaced, whatever links lead to it.
                match self.facts.files.get(&place) {
                    Some(fact) if fact.kind == FileKind::File => fact.real.to_guest(),
                    _ => continue,
                }
            };
            self.mounts.add(Mount::file(directory.join(BUNDLE), place, Access::Ro, why()));
        }
        for (names, file) in [(BUNDLE_VARIABLES, BUNDLE), (ADDED_VARIABLES, AUTHORITY)] {
            let path = target.join(file).to_string();
            for name in names {
                let why = Why::default("programs find the roots by this variable").about(Topic::Network);
                self.force_with_warning(name, &path, why, "when keys stay outside");
            }
        }
    }

    /// Adds the variables by which programs find a proxy that is there for secrets only: other
    /// connections than HTTPS go around it.
    pub fn secrets_proxy_variables(&mut self, address: &str, password: Option<&Secret>, own: &str) {
        let why = || Why::default("programs reach the hosts of keys through the proxy").about(Topic::Network);
        for name in ["HTTPS_PROXY", "https_proxy"] {
            let login = password.map(|password| format!("sandpen:{}@", password.reveal().to_string_lossy()));
            let value = format!("http://{}{address}", login.clone().unwrap_or_default());
            if login.is_some() {
                self.env.replace_by_secret(name, value, why());
            } else {
                self.force_with_warning(name, &value, why(), "when keys stay outside");
            }
        }
        for name in vars::NO_PROXIES {
            self.force_with_warning(name, own, why(), "when keys stay outside");
        }
        self.force_with_warning(vars::NODE_PROXY, "1", why(), "when keys stay outside");
    }

    fn force_with_warning(&mut self, name: &str, value: &str, why: Why, when: &str) {
        if let Some(origin) = self.env.force(name, value, why)
            && !matches!(origin, Origin::Preset(_) | Origin::Default)
        {
            let text = format!("{origin}: {name} is always {value} inside {when}");
            self.warnings.push(Warning::new(WarningTopic::Network, text));
        }
    }
}

/// Returns the host of an `https://` URL.
fn host_of_url(url: &str) -> Option<SecretHost> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    SecretHost::parse(authority).ok()
}

/// Returns an address of this machine's loopback for a session: the guest shares the loopback with
/// other sandboxes, and the address must be known before it starts.
fn loopback_address(id: &str) -> Ipv4Addr {
    let digest = Sha256::digest(id.as_bytes());
    Ipv4Addr::new(127, 64 | (digest[0] & 63), digest[1], 1 + digest[2] % 254)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_names_the_host_that_gets_the_key() {
        let host = |url| host_of_url(url).map(|host| host.to_string());
        assert_eq!(host("https://gateway.example/v1"), Some("gateway.example".into()));
        assert_eq!(host("https://gateway.example:8443"), Some("gateway.example:8443".into()));
        for url in
            ["http://gateway.example", "https://10.0.0.1/", "https://me:pw@gateway.example", "gateway.example", ""]
        {
            assert_eq!(host(url), None, "{url}");
        }
    }

    #[test]
    fn sessions_have_different_addresses() {
        let addresses: Vec<Ipv4Addr> = ["a1b2c3", "a1b2c4", "b1b2c3"].iter().map(|id| loopback_address(id)).collect();
        assert!(addresses.iter().all(|address| address.is_loopback() && address.octets()[1] >= 64));
        assert!(addresses[0] != addresses[1] && addresses[1] != addresses[2]);
    }
}
