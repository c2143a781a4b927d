//! Decides whether the tokens of an agent's login stay outside. Reads no token; `gate::login` does.

use super::engine::EnginePlan;
use super::entry::Source;
use super::secrets::{SecretError, SecretPlace, SecretPlan};
use super::{Draft, NetworkPlan};
use crate::config::login::LoginForm;
use crate::config::preset::{Directory, Preset};
use crate::config::value::{Access, KeysMode, SecretHeader};
use crate::config::{Config, Origin};
use crate::error::Result;
use crate::facts::{FileKind, LoginFact, LoginQuestion};
use crate::host::Host;
use crate::path::HostPath;
use crate::warning::{Warning, WarningTopic};

/// A login whose tokens are outside, and the files that hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginPlan {
    pub agent: String,
    /// The host's file.
    pub file: HostPath,
    /// The copy that was given to the sandboxes of the agent last, kept where no guest reads it.
    pub given: HostPath,
    /// Held while tokens are refreshed.
    pub lock: HostPath,
    /// The directory that the agent itself makes on the host while it refreshes its tokens.
    pub agent_lock: Option<HostPath>,
    pub form: LoginForm,
}

/// A login of the preset, and what the guest gets of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginDecision {
    /// The file, below the home.
    pub below: String,
    pub place: LoginPlace,
    pub plan: LoginPlan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginPlace {
    /// A copy with placeholders.
    Outside,
    /// The file itself, copied both ways.
    Inside,
    /// Nobody is logged in: a first login inside is copied to the host.
    First,
}

/// Lists the login files to look at.
pub fn questions(host: &Host, config: &Config, preset: Option<&Preset>) -> Vec<LoginQuestion> {
    let logins = preset.into_iter().flat_map(|preset| &preset.logins).filter(|_| config.keys.value != KeysMode::Inside);
    let question = |form: &LoginForm| LoginQuestion {
        file: host.home.join(form.file.below()),
        encrypted: form.encrypted.iter().map(|path| host.home.join(path.below())).collect(),
        form: form.clone(),
    };
    logins.map(question).collect()
}

/// Returns the directory of the preset in which a login file is a shared part.
fn directory_of<'a>(preset: &'a Preset, form: &LoginForm) -> Option<(&'a Directory, String)> {
    preset.directories.iter().find_map(|directory| {
        let name = form.file.below().strip_prefix(directory.path.below())?.strip_prefix('/')?;
        let is_shared = directory.shared.iter().any(|part| !part.is_directory() && part.name() == name);
        (directory.own && directory.mode == Access::Rw && is_shared).then(|| (directory, name.to_owned()))
    })
}

impl LoginPlan {
    /// Describes the login to people.
    pub fn name(&self) -> String {
        format!("the login of {}", self.agent)
    }
}

impl Draft<'_> {
    /// Decides where each login of the preset is. A login that is outside is an entry among the keys.
    pub(super) fn logins(&mut self, engine: &EnginePlan, network: &NetworkPlan) -> Result<Vec<SecretPlan>> {
        let Some(preset) = self.preset else { return Ok(Vec::new()) };
        let mut keys = Vec::new();
        for form in &preset.logins {
            let obstacle = self.login_obstacle(preset, form, engine, network);
            let fact = self.facts.logins.get(&self.host.home.join(form.file.below())).clone();
            let (place, key) = self.login_place(preset, form, obstacle, fact)?;
            keys.extend(key);
            if let Some((directory, name)) = directory_of(preset, form) {
                let below = form.file.below().to_owned();
                let place_on_host = self.host.home.join(directory.path.below());
                let real = self.facts.files.get(&place_on_host).filter(|fact| fact.kind == FileKind::Directory);
                let root = self.host.state_dir().join("agents").join(&preset.name);
                let plan = LoginPlan {
                    agent: preset.name.clone(),
                    file: real.map_or(place_on_host, |fact| fact.real.clone()).join(&name),
                    given: root.join("given").join(&below),
                    lock: root.join("login-lock"),
                    agent_lock: form.lock.as_ref().map(|path| self.host.home.join(path.below())),
                    form: form.clone(),
                };
                self.login_decisions.push(LoginDecision { below, place, plan });
            }
        }
        Ok(keys)
    }

    fn login_obstacle(
        &self,
        preset: &Preset,
        form: &LoginForm,
        engine: &EnginePlan,
        network: &NetworkPlan,
    ) -> Option<String> {
        let keys = &self.config.keys;
        match (keys.value, &form.outside) {
            (KeysMode::Inside, _) => return Some(format!("{} is `inside`", keys.origin)),
            (KeysMode::Auto, None) => return Some(format!("it was not seen to work with {}", preset.name)),
            _ => {}
        }
        match directory_of(preset, form) {
            None => Some(format!("`~/{}` is not a shared file of a directory with `own`", form.file.below())),
            Some(_) if !self.has_own_state() => Some("the agent's directory is mounted as it is".to_owned()),
            Some((directory, _)) if self.is_mounted_otherwise(directory) => {
                Some(format!("`~/{}` is mounted by the user", directory.path.below()))
            }
            Some(_) => self.engine_obstacle(engine, network),
        }
    }

    /// Whether the user mounts the agent's directory, or one around it or in it.
    fn is_mounted_otherwise(&self, directory: &Directory) -> bool {
        let place = self.host.home.join(directory.path.below());
        let real = self.facts.files.get(&place).map_or_else(|| place.clone(), |fact| fact.real.clone());
        let meets =
            |path: &HostPath| [&place, &real].iter().any(|place| place.is_within(path) || path.is_within(place));
        let homes = self.homes(directory.path.below());
        let is_mounted = self.mounts.iter().any(|mount| {
            let is_source = matches!(&mount.source, Source::Host(path) if meets(path));
            is_source || homes.iter().any(|home| home.is_within(&mount.target) || mount.target.is_within(home))
        });
        is_mounted || self.workspace.trees().any(meets)
    }

    fn login_place(
        &mut self,
        preset: &Preset,
        form: &LoginForm,
        obstacle: Option<String>,
        fact: LoginFact,
    ) -> Result<(LoginPlace, Option<SecretPlan>)> {
        let mode = self.config.keys.value;
        let name = format!("the login of {}", preset.name);
        let file = format!("~/{}", form.file.below());
        let (obstacle, left_out) = match (obstacle, fact) {
            (_, LoginFact::Absent) if mode == KeysMode::Inside => return Ok((LoginPlace::Inside, None)),
            (Some(_), LoginFact::Absent) => return Ok((LoginPlace::Inside, None)),
            // A login that is made inside must not become the host's if all stays outside.
            (None, LoginFact::Absent) if mode == KeysMode::Outside => return Ok((LoginPlace::Outside, None)),
            (None, LoginFact::Absent) => return Ok((LoginPlace::First, None)),
            // It could not be outside, whatever else is in the way.
            (_, LoginFact::Encrypted) => {
                let files = form.encrypted.iter().map(|path| format!("`~/{}`", path.below()));
                let files = files.collect::<Vec<_>>().join(" or ");
                (Some(format!("{files} is encrypted, so its tokens cannot be replaced")), Vec::new())
            }
            (Some(obstacle), _) => (Some(obstacle), Vec::new()),
            (None, LoginFact::Problem(problem)) => (Some(format!("`{file}` {problem}")), Vec::new()),
            (None, LoginFact::Present { left_out }) => (None, left_out),
        };
        let hosts = form.tokens.iter().flat_map(|token| token.hosts.iter().cloned());
        let mut key = SecretPlan {
            name,
            place: SecretPlace::Outside,
            hosts: hosts.map(|host| (host, SecretHeader::Bearer)).collect(),
            value: None,
            placeholder: None,
            source: format!("the file `{file}`"),
            reason: "the proxy sets its tokens in requests to its hosts".to_owned(),
            from: Origin::Preset(preset.name.clone()),
        };
        let Some(reason) = obstacle else {
            if !left_out.is_empty() {
                let text = format!(
                    "{}: `{}` of `{file}` is not inside, because its hosts are not known; `--keys inside` passes it",
                    key.from,
                    left_out.join("`, `")
                );
                self.warnings.push(Warning::new(WarningTopic::Environment, text));
            }
            return Ok((LoginPlace::Outside, Some(key)));
        };
        match mode {
            KeysMode::Outside => {
                let origin = self.config.keys.origin.clone();
                let hint =
                    format!("use `--keys auto` to pass what cannot stay outside, or log in to {} anew", preset.name);
                return Err(SecretError::NotOutside { origin, name: key.name, reason, hint }.into());
            }
            KeysMode::Auto => {
                let warning = Warning::new(WarningTopic::Environment, format!("{} is inside: {reason}", key.name));
                // An agent may have several logins.
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
            KeysMode::Inside => {}
        }
        (key.place, key.reason) = (SecretPlace::Inside, reason);
        Ok((LoginPlace::Inside, Some(key)))
    }

    /// Returns what is decided on a file of an agent's directory.
    pub(super) fn login_at(&self, below: &str) -> Option<&LoginDecision> {
        self.login_decisions.iter().find(|decision| decision.below == below)
    }
}
