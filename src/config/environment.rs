//! The environment layer: picks the variable that counts, and reads those with a special form.

use super::error::ConfigError;
use super::layer::{Layer, parse_value};
use super::sourced::{Origin, Sourced};
use super::value::{EngineSetting, EnvRequest, InvalidValue, Reason, UserMode};
use crate::host::Environment;

/// The variables of an option.
#[derive(Debug, Clone, Copy)]
pub struct VariableSpec {
    /// The names: the leftmost one that is not empty is taken.
    pub names: &'static [&'static str],
    /// The difference between a variable's value and a flag's; empty if there is none.
    pub note: &'static str,
}

/// Reads the leftmost variable that is not empty.
pub fn read<L: Default>(
    env: &Environment,
    names: &[&'static str],
    parse: impl Fn(&str, &Origin) -> Result<L, ConfigError>,
) -> Result<L, ConfigError> {
    for name in names {
        let Some(value) = env.raw(name).filter(|value| !value.is_empty()) else { continue };
        let text = value.to_str().ok_or(ConfigError::NotUtf8(name))?;
        return parse(text, &Origin::Env(name));
    }
    Ok(L::default())
}

/// `LLXPRT_SANDBOX` can also be a boolean that asks for a sandbox; sandpen always makes one.
pub fn engine(text: &str, origin: &Origin) -> Result<Option<Sourced<EngineSetting>>, ConfigError> {
    if *origin == Origin::Env("LLXPRT_SANDBOX")
        && let Some(is_wanted) = boolean(text)
    {
        return Ok(is_wanted.then(|| Sourced::new(EngineSetting::Auto, origin.clone())));
    }
    parse_value(text, origin.clone()).map(Some)
}

pub fn user(text: &str, origin: &Origin) -> Result<Option<Sourced<UserMode>>, ConfigError> {
    let user = if required_boolean(text, origin)? { UserMode::Host } else { UserMode::Image };
    Ok(Some(Sourced::new(user, origin.clone())))
}

/// A boolean that has no effect when it is false.
pub fn switch(text: &str, origin: &Origin) -> Result<Option<Sourced<bool>>, ConfigError> {
    Ok(required_boolean(text, origin)?.then(|| Sourced::new(true, origin.clone())))
}

/// Unlike `--env`, the variable passes no values of the host: each entry has its own (R2.4).
pub fn assignments(text: &str, origin: &Origin) -> Result<Vec<Sourced<EnvRequest>>, ConfigError> {
    let requests: Vec<Sourced<EnvRequest>> = Layer::from_variable(text, origin)?;
    match requests.iter().find(|request| request.value.value.is_none()) {
        None => Ok(requests),
        Some(request) => {
            let reason = Reason::Because("there is no `=` after the name".to_owned());
            let form = "`NAME=VALUE`; `--env NAME` passes the host's value";
            let invalid = InvalidValue { form, ..InvalidValue::new::<EnvRequest>(&request.value.name, reason) };
            Err(ConfigError::Value { origin: origin.clone(), invalid })
        }
    }
}

pub fn shell_words(text: &str, origin: &Origin) -> Result<Vec<Sourced<String>>, ConfigError> {
    let words = shlex::split(text)
        .ok_or_else(|| ConfigError::UnbalancedQuote { origin: origin.clone(), text: text.to_owned() })?;
    Ok(words.into_iter().map(|word| Sourced::new(word, origin.clone())).collect())
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn required_boolean(text: &str, origin: &Origin) -> Result<bool, ConfigError> {
    boolean(text).ok_or_else(|| {
        let form = "`1`, `true`, `0` or `false`";
        let invalid = InvalidValue { form, ..InvalidValue::new::<bool>(text, Reason::Form) };
        ConfigError::Value { origin: origin.clone(), invalid }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use crate::error::Error;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_environment(&pairs.iter().copied().collect()).map_err(Into::into)
    }

    #[test]
    fn the_leftmost_non_empty_name_wins() {
        let agent = |pairs: &[(&str, &str)]| {
            read(pairs).map(|s| s.ssh_agent.map(|v| (v.value.to_string(), v.origin.to_string())))
        };
        let both = [("SANDBOX_SSH_AGENT", "on"), ("LLXPRT_SANDBOX_SSH_AGENT", "off")];
        assert_eq!(agent(&both), Ok(Some(("off".into(), "env LLXPRT_SANDBOX_SSH_AGENT".into()))));
        let empty = [("SANDBOX_SSH_AGENT", "on"), ("LLXPRT_SANDBOX_SSH_AGENT", "")];
        assert_eq!(agent(&empty), Ok(Some(("on".into(), "env SANDBOX_SSH_AGENT".into()))));
    }

    #[test]
    fn llxprt_sandbox_can_be_a_boolean() {
        let engine = |value| read(&[("LLXPRT_SANDBOX", value)]).map(|s| s.engine.map(|v| v.value));
        assert_eq!(engine("true"), Ok(Some(EngineSetting::Auto)));
        assert_eq!(engine("0"), Ok(None));
        assert_eq!(engine("podman"), Ok(Some(EngineSetting::Podman)));
        assert!(engine("lxc").is_err());
        assert!(read(&[("SANDPEN_ENGINE", "true")]).is_err());
    }

    #[test]
    fn a_switch_that_is_off_is_not_set() {
        let build = |value| read(&[("BUILD_SANDBOX", value)]).map(|s| s.build.map(|v| v.value));
        assert_eq!((build("1"), build("false")), (Ok(Some(true)), Ok(None)));
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        for (name, value) in [
            ("SANDBOX_PORTS", "80,x"),
            ("SANDBOX_MOUNTS", "/a:b"),
            ("SANDBOX_FLAGS", "'"),
            ("SANDBOX_SET_UID_GID", "maybe"),
            ("SANDBOX_ENV", "=1"),
            ("SANDBOX_ENV", "A=b,GH_TOKEN"),
        ] {
            let error = read(&[(name, value)]).err();
            assert!(
                error
                    .as_ref()
                    .is_some_and(|e| e.message().starts_with(&format!("env {name}:")) && !e.hints().is_empty()),
                "{error:?}"
            );
        }
    }
}
