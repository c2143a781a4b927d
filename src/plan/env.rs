//! Decides the guest's environment variables. No other variable of the host is passed.

use super::entry::{Topic, VariableTable, Why};
use super::user::UserPlan;
use super::{Inputs, latest_first};
use crate::config::value::{EnvRequest, VariableName};
use crate::config::{Config, Origin};
use crate::host::Host;
use crate::session_id::SessionId;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// Variables that only their own names pass: others set them for the inside, or they name a socket.
const NEVER_MATCHED: &[&str] = &[vars::PATH, vars::SSH_AUTH_SOCK];

/// Collects the variables, starting with the highest layer, because the first of a name wins.
pub fn plan(inputs: Inputs, user: &UserPlan, id: &SessionId, warnings: &mut Vec<Warning>) -> VariableTable {
    let Inputs { host, config, .. } = inputs;
    let mut table = VariableTable::default();
    table.plain(
        vars::GIT_DISCOVERY,
        "1",
        Why::default("Git finds the repository across mount points").about(Topic::Git).requirement("R2.1"),
    );
    requested(host, config, &mut table, warnings);
    preset(inputs, &mut table);
    if user.is_host_user() {
        let home = user.home.to_string();
        table.plain(vars::HOME, home, Why::default("a private home directory at the host's path").about(Topic::Home));
        table.plain("USER", &user.name, Why::default("the name of the guest's user"));
        table.plain("LOGNAME", &user.name, Why::default("the name of the guest's user"));
        let temp = host.temp_dir().to_string();
        if temp != "/tmp" {
            table.plain(vars::TMPDIR, temp, Why::default("the host's directory for temporary files"));
        }
    }
    table.plain(vars::SANDBOX, id.name(), Why::default("tells programs that they run in a sandbox, and its name"));
    for name in vars::TERMINAL {
        from_host(host, name, "the type of your terminal", Origin::Default, &mut table);
    }
    for name in vars::GIT_IDENTITY {
        from_host(host, name, "the identity for Git commits", Origin::Default, &mut table);
    }
    from_host(host, vars::NODE_OPTIONS, "your options for Node.js", Origin::Default, &mut table);
    matching(host, config, &mut table, warnings);
    table
}

/// Adds the variables of `--env`, `SANDBOX_ENV` and `env` in files.
fn requested(host: &Host, config: &Config, table: &mut VariableTable, warnings: &mut Vec<Warning>) {
    for request in latest_first(&config.env).filter(|request| !request.value.is_pattern()) {
        let (name, origin) = (&request.value.name, request.origin.clone());
        if name == vars::GIT_DISCOVERY {
            warnings
                .push(Warning::new(WarningTopic::Environment, format!("{origin}: {name} is always 1 inside (R2.1)")));
            continue;
        }
        match &request.value.value {
            Some(value) if vars::looks_secret(name) || vars::has_user_information(value) => {
                table.secret(
                    name,
                    value,
                    Why::new("requested; its name or value marks it as a secret", origin).about(Topic::Asked),
                );
            }
            Some(value) => table.plain(name, value, Why::new("requested", origin).about(Topic::Asked)),
            None => match host.env.raw(name) {
                Some(value) => table.secret(
                    name,
                    value,
                    Why::new("requested by name: the host's value", origin).about(Topic::Asked),
                ),
                None => warnings.push(Warning::new(
                    WarningTopic::Environment,
                    format!("{origin}: {name} is not set on the host, so it is not set inside"),
                )),
            },
        }
    }
}

/// Adds the host's variables that a pattern matches. They come last: a pattern replaces nothing that
/// is set inside for another reason.
fn matching(host: &Host, config: &Config, table: &mut VariableTable, warnings: &mut Vec<Warning>) {
    for request in latest_first(&config.env).filter(|request| request.value.is_pattern()) {
        let (pattern, origin) = (&request.value, &request.origin);
        let is_passed = |name: &str| pattern.matches(name) && !NEVER_MATCHED.contains(&name);
        let mut found = false;
        for (name, value) in host.env.iter() {
            if let Some(name) = name.to_str().filter(|name| is_passed(name)) {
                found = true;
                let why = Why::new(format!("requested by `{}`: the host's value", pattern.name), origin.clone());
                table.secret(name, value, why.about(Topic::Asked));
            }
        }
        if !found {
            warnings.push(Warning::new(
                WarningTopic::Environment,
                format!("{origin}: no variable of the host matches `{}`", pattern.name),
            ));
        }
    }
}

fn preset(inputs: Inputs, table: &mut VariableTable) {
    let Inputs { host, preset: Some(preset), .. } = inputs else { return };
    let origin = || Origin::Preset(preset.name.clone());
    for name in preset.secrets.iter().map(VariableName::as_str) {
        if let Some(value) = host.env.raw(name).filter(|value| !value.is_empty()) {
            table.secret(name, value, Why::new(format!("{} needs it", preset.name), origin()));
        }
    }
    for EnvRequest { name, value } in &preset.set {
        match (host.env.text(name), value) {
            (Some(_), _) | (None, None) => from_host(host, name, &format!("{} reads it", preset.name), origin(), table),
            (None, Some(value)) => {
                table.plain(name, value, Why::new(format!("suits {} inside", preset.name), origin()))
            }
        }
    }
    for name in preset.variables.iter().chain(&preset.credential_files).map(VariableName::as_str) {
        from_host(host, name, &format!("{} reads it", preset.name), origin(), table);
    }
}

/// Adds a variable if it is set on the host.
fn from_host(host: &Host, name: &str, reason: &str, origin: Origin, table: &mut VariableTable) {
    let Some(value) = host.env.text(name) else { return };
    let why = Why::new(reason, origin);
    if vars::looks_secret(name) || vars::has_user_information(value) {
        table.secret(name, value, why);
    } else {
        table.plain(name, value, why);
    }
}
