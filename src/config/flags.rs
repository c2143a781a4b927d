//! The flag layer: command-line options become settings.

use super::environment::parse_value;
use super::settings::Settings;
use super::sourced::{Origin, Sourced};
use super::value::Value;
use crate::cli::Options;
use crate::error::Result;

/// Parses the options that are text; an empty value means "not set".
pub fn settings(options: &Options) -> Result<Settings> {
    Ok(Settings {
        engine: one(&options.engine, "--engine")?,
        image: one(&options.image, "--image")?,
        cpus: one(&options.cpus, "--cpus")?,
        memory: one(&options.memory, "--memory")?,
        pids: one(&options.pids, "--pids")?,
        network: one(&options.network, "--network")?,
        proxy_command: text(&options.proxy_command, "--proxy-command"),
        ssh_agent: one(&options.ssh_agent, "--ssh-agent")?,
        user: one(&options.user, "--user")?,
        tmp: one(&options.tmp, "--tmp")?,
        seatbelt_profile: text(&options.seatbelt_profile, "--seatbelt-profile"),
        agent: text(&options.agent, "--agent"),
        guard: one(&options.guard, "--guard")?,
        allow_home: named(options.allow_home.then_some(true), "--allow-home"),
        strict: named(options.strict.then_some(true), "--strict"),
        build: None,
        name: one(&options.name, "--name")?,
        keep: named(options.keep.then_some(true), "--keep"),
        mounts: many(&options.mounts, "--mount")?,
        env: many(&options.env, "--env")?,
        ports: many(&options.publish, "--publish")?,
        allow_hosts: many(&options.allow_hosts, "--allow-host")?,
        engine_flags: options
            .engine_flags
            .iter()
            .filter(|flag| !flag.is_empty())
            .map(|flag| Sourced::new(flag.clone(), Origin::Flag("--engine-flag")))
            .collect(),
        include_dirs: options
            .include_dirs
            .iter()
            .filter(|dir| !dir.as_os_str().is_empty())
            .map(|dir| Sourced::new(dir.clone(), Origin::Flag("--include-dir")))
            .collect(),
    })
}

fn named<T>(value: Option<T>, flag: &'static str) -> Option<Sourced<T>> {
    value.map(|value| Sourced::new(value, Origin::Flag(flag)))
}

fn text(value: &Option<String>, flag: &'static str) -> Option<Sourced<String>> {
    named(value.clone().filter(|text| !text.is_empty()), flag)
}

fn one<T: Value>(value: &Option<String>, flag: &'static str) -> Result<Option<Sourced<T>>> {
    value.as_deref().filter(|text| !text.is_empty()).map(|text| parse_value(text, Origin::Flag(flag))).transpose()
}

fn many<T: Value>(values: &[String], flag: &'static str) -> Result<Vec<Sourced<T>>> {
    values.iter().filter(|text| !text.is_empty()).map(|text| parse_value(text, Origin::Flag(flag))).collect()
}
