//! Decides which keys stay outside, and which hosts get their values. Reads no value; `facts::secrets`
//! does, and `secrets_proxy` decides how programs inside reach the proxy that sets them.

use super::engine::EnginePlan;
use super::entry::{Topic, Why};
use super::logins::{LoginPlace, LoginPlan};
use super::network::ProxyPlan;
use super::secrets_proxy::loopback_address;
use super::{Draft, NetworkPlan};
use crate::config::preset::{Preset, PresetKey};
use crate::config::value::{
    EngineKind, KeysMode, NetworkMode, SecretHeader, SecretHost, SecretRequest, SecretSource, Value,
};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{SecretFact, SecretQuestion};
use crate::path::HostPath;
use crate::secret::Secret;
use crate::warning::{Warning, WarningTopic};

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
            plan.proxy = Some(SecretsProxy { certificates: self.certificates_inside(), password });
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
        // Where nothing can be mounted, the connections to the proxy come over the channel.
        let has_channel = engine.abilities.copies_files;
        let is_elsewhere = engine.abilities.remote
            || (engine.kind == EngineKind::Docker
                && self.facts.docker.as_ref().is_some_and(|docker| docker.is_desktop()));
        match (&network.proxy, engine.kind) {
            _ if network.mode == NetworkMode::Off => None,
            (_, EngineKind::Kubernetes) => Some("the proxy does not yet reach pods".to_owned()),
            (_, EngineKind::SandboxExec) => Some("sandbox-exec has no private network for the proxy".to_owned()),
            _ if !has_channel && (self.host.platform == crate::host::Platform::Macos || is_elsewhere) => {
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
}

/// Returns the host of an `https://` URL.
fn host_of_url(url: &str) -> Option<SecretHost> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    SecretHost::parse(authority).ok()
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
}
