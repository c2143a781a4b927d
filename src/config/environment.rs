//! The environment layer: variables become settings, each with the name it came from.

use super::settings::Settings;
use super::sourced::{Origin, Sourced};
use super::value::{EngineSetting, Mismatch, UserMode, Value};
use crate::error::{Error, Result};
use crate::host::Environment;
use crate::vars::{self, Setting};

/// Parses a value that came from `origin`; the error names all three: value, origin, form.
pub fn parse_value<T: Value>(text: &str, origin: Origin) -> Result<Sourced<T>> {
    match T::parse(text) {
        Ok(value) => Ok(Sourced::new(value, origin)),
        Err(reason) => Err(Mismatch::of::<T>(text, reason).error(origin)),
    }
}

/// Reads every variable that sets an option.
pub fn settings(env: &Environment) -> Result<Settings> {
    Ok(Settings {
        engine: one_by(env, vars::ENGINE, parse_engine)?,
        image: one(env, vars::IMAGE)?,
        cpus: one(env, vars::CPUS)?,
        memory: one(env, vars::MEMORY)?,
        pids: one(env, vars::PIDS)?,
        network: one(env, vars::NETWORK)?,
        proxy_command: one_by(env, vars::PROXY_COMMAND, |text, _| Ok(Some(text.to_owned())))?,
        ssh_agent: one(env, vars::SSH_AGENT)?,
        user: one_by(env, vars::USER, |text, origin| {
            let user = truth(text, origin)?;
            Ok(Some(if user { UserMode::Host } else { UserMode::Image }))
        })?,
        seatbelt_profile: one_by(env, vars::SEATBELT_PROFILE, |text, _| Ok(Some(text.to_owned())))?,
        build: one_by(env, vars::BUILD, |text, origin| truth(text, origin).map(Some))?,
        mounts: list(env, vars::MOUNTS)?,
        env: list(env, vars::ENV)?,
        ports: list(env, vars::PORTS)?,
        engine_flags: flags(env)?,
        ..Settings::default()
    })
}

/// The name of the profile that the environment asks for.
pub fn profile(env: &Environment) -> Result<Option<Sourced<String>>> {
    Ok(chosen(env, vars::PROFILE)?.map(|(text, origin)| Sourced::new(text.to_owned(), origin)))
}

/// The leftmost non-empty variable of a setting.
fn chosen(env: &Environment, setting: Setting) -> Result<Option<(&str, Origin)>> {
    for name in setting.names {
        let Some(value) = env.raw(name).filter(|value| !value.is_empty()) else { continue };
        let text = value.to_str().ok_or_else(|| {
            Error::usage(format!("env {name}: the value is not UTF-8"))
                .hint(format!("set {name} to plain text, or unset it"))
        })?;
        return Ok(Some((text, Origin::Env(name))));
    }
    Ok(None)
}

fn one<T: Value>(env: &Environment, setting: Setting) -> Result<Option<Sourced<T>>> {
    chosen(env, setting)?.map(|(text, origin)| parse_value(text, origin)).transpose()
}

fn one_by<T>(
    env: &Environment,
    setting: Setting,
    parse: impl Fn(&str, &Origin) -> Result<Option<T>>,
) -> Result<Option<Sourced<T>>> {
    let Some((text, origin)) = chosen(env, setting)? else { return Ok(None) };
    Ok(parse(text, &origin)?.map(|value| Sourced::new(value, origin)))
}

fn list<T: Value>(env: &Environment, setting: Setting) -> Result<Vec<Sourced<T>>> {
    let Some((text, origin)) = chosen(env, setting)? else { return Ok(Vec::new()) };
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(|item| parse_value(item, origin.clone()))
        .collect()
}

fn flags(env: &Environment) -> Result<Vec<Sourced<String>>> {
    let Some((text, origin)) = chosen(env, vars::ENGINE_FLAGS)? else { return Ok(Vec::new()) };
    let words = shlex::split(text).ok_or_else(|| {
        Error::usage(format!("{origin}: `{text}` has an unbalanced quote")).hint("expected words as a shell reads them")
    })?;
    Ok(words.into_iter().map(|word| Sourced::new(word, origin.clone())).collect())
}

/// `LLXPRT_SANDBOX` also says whether a sandbox is wanted at all; sandpen always makes one.
fn parse_engine(text: &str, origin: &Origin) -> Result<Option<EngineSetting>> {
    if *origin == Origin::Env("LLXPRT_SANDBOX") {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" => return Ok(Some(EngineSetting::Auto)),
            "false" | "0" => return Ok(None),
            _ => {}
        }
    }
    parse_value(text, origin.clone()).map(|sourced: Sourced<EngineSetting>| Some(sourced.value))
}

fn truth(text: &str, origin: &Origin) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Error::usage(format!("{origin}: `{text}` is not a truth value"))
            .hint("expected `1`, `true`, `0` or `false`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings> {
        settings(&pairs.iter().copied().collect())
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
    fn llxprt_sandbox_may_be_a_truth_value() {
        let engine = |value| read(&[("LLXPRT_SANDBOX", value)]).map(|s| s.engine.map(|v| v.value));
        assert_eq!(engine("true"), Ok(Some(EngineSetting::Auto)));
        assert_eq!(engine("0"), Ok(None));
        assert_eq!(engine("podman"), Ok(Some(EngineSetting::Podman)));
        assert!(engine("lxc").is_err());
        assert!(read(&[("SANDPEN_ENGINE", "true")]).is_err());
    }

    #[test]
    fn a_wrong_value_names_its_variable() {
        for (name, value) in [
            ("SANDBOX_PORTS", "80,x"),
            ("SANDBOX_MOUNTS", "/a:b"),
            ("SANDBOX_FLAGS", "'"),
            ("SANDBOX_SET_UID_GID", "maybe"),
            ("SANDBOX_ENV", "=1"),
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
