//! Builds the command line that Docker and Podman share: `run`, its flags in a fixed order, the image,
//! the command.

use std::ffi::{OsStr, OsString};

use super::{
    CacheArgument, ContainerLaunch, Downgrade, DowngradeKind, LaunchError, labels, limits, remote, sidecar, volume,
};
use crate::config::value::NetworkMode;
use crate::host::ProcessStamp;
use crate::path::HostPath;
use crate::plan::channel;
use crate::plan::ssh::Strategy;
use crate::plan::{EngineKind, Mount, Plan, Secret, Source, UserHow, VariableValue};
use crate::process::Client;
use crate::vars;

/// The client writes the container's id to this file in the session directory.
pub const CONTAINER_ID: &str = "container";

/// The arguments that differ between Docker and Podman.
pub struct Dialect {
    /// Come before `run`.
    pub global: Vec<OsString>,
    /// Follow the labels, before the flags that describe the guest.
    pub flags: Vec<OsString>,
}

/// Builds the launch. The order is: base, labels, hardening, limits, network, user, mounts,
/// environment, the flags of `--engine-flag`, image, command.
pub fn compile(
    plan: &Plan,
    owner: ProcessStamp,
    client: Client,
    dialect: Dialect,
    helper: Option<HostPath>,
) -> Result<ContainerLaunch, LaunchError> {
    let kind = plan.engine.kind;
    let image = plan.image.as_ref().ok_or(LaunchError::NoImage)?;
    let mut builder = Builder { argv: vec![kind.name().into()], ..Builder::default() };
    builder.argv.extend(dialect.global.iter().cloned());
    builder.flag("run");
    base(plan, &mut builder);
    for (name, value) in labels(plan, owner) {
        builder.pair("--label", format!("{name}={value}"));
    }
    builder.argv.extend(dialect.flags.iter().cloned());
    hardening(plan, &mut builder);
    limits(plan, &mut builder);
    builder.downgrades.extend(super::nested_downgrade(plan));
    network(plan, &mut builder);
    match &plan.remote {
        Some(_) => remote::privileges(&mut builder),
        None => user(plan, &mut builder),
    }
    agent_group(plan, &mut builder);
    let is_mounted = |_: &&Mount| plan.remote.is_none();
    for mount in plan.mounts.iter().filter(is_mounted) {
        builder.argv.extend(volume::arguments(mount, kind)?);
        if let Source::Cache { .. } = mount.source {
            builder.caches.push(CacheArgument { at: builder.argv.len() - 1, mount: mount.clone() });
        }
    }
    if plan.remote.is_none() {
        environment(plan, &mut builder)?;
    }
    builder.argv.extend(plan.engine_flags.iter().map(OsString::from));
    if image.reference.is_local() {
        builder.pair("--pull", "never");
    }
    let transfer = remote::transfer(plan, helper)?;
    match &transfer {
        Some(_) => {
            remote::entry(plan, image, &mut builder)?;
            builder.downgrades.extend(remote::copy_downgrades(plan, "a container on another machine"));
        }
        None => entry(plan, &mut builder)?,
    }
    let on_container = |words: &[&str]| -> Vec<OsString> {
        let client = std::iter::once(kind.name().into()).chain(dialect.global.iter().cloned());
        client.chain(words.iter().map(OsString::from)).chain([plan.id.name().into()]).collect()
    };
    let remove = match kind {
        // Without `--time`, Podman waits ten seconds for a guest that ignores SIGTERM.
        EngineKind::Podman => on_container(&["rm", "--force", "--time", "0"]),
        // `--volumes` removes anonymous volumes only: those of caches and of the image.
        _ => on_container(&["rm", "--force", "--volumes"]),
    };
    Ok(ContainerLaunch {
        client,
        argv: builder.argv,
        caches: builder.caches,
        inherited: builder.inherited,
        files: builder.files,
        tunnel: plan.ssh.tunnel.clone(),
        channel: channel(plan, &dialect),
        transfer,
        sidecar: sidecar::compile(plan, owner, &dialect)?,
        end: if plan.keep.is_some() { on_container(&["kill"]) } else { remove.clone() },
        remove,
        downgrades: builder.downgrades,
    })
}

#[derive(Default)]
pub struct Builder {
    pub argv: Vec<OsString>,
    caches: Vec<CacheArgument>,
    inherited: Vec<(String, Secret)>,
    files: Vec<(HostPath, Secret)>,
    downgrades: Vec<Downgrade>,
}

impl Builder {
    pub fn flag(&mut self, flag: impl Into<OsString>) {
        self.argv.push(flag.into());
    }

    pub fn pair(&mut self, flag: &str, value: impl Into<OsString>) {
        self.argv.push(flag.into());
        self.argv.push(value.into());
    }
}

fn base(plan: &Plan, builder: &mut Builder) {
    if plan.keep.is_none() {
        builder.flag("--rm");
    }
    builder.flag("--interactive");
    if plan.terminal && plan.remote.is_none() {
        builder.flag("--tty");
    }
    if plan.helper.is_none() {
        builder.flag("--init");
    }
    builder.pair("--name", plan.id.name());
    builder.pair("--hostname", &plan.host_name);
    // `ps` finds the container's processes by its id.
    builder.pair("--cidfile", plan.session_dir.join(CONTAINER_ID).as_os_str());
    // On another machine the first process makes the working directory.
    builder.pair("--workdir", if plan.remote.is_some() { OsStr::new("/") } else { plan.workdir.as_os_str() });
}

/// Adds the restrictions of every container that sandpen starts.
pub fn hardening(plan: &Plan, builder: &mut Builder) {
    builder.pair("--cap-drop", "ALL");
    builder.pair("--security-opt", "no-new-privileges");
    if plan.engine.abilities.selinux || plan.ssh.strategy == Strategy::Tunnel {
        // SELinux labels would deny the guest the mounted files, and sandpen does not relabel files of
        // the user. Podman machines enforce SELinux even if the host does not.
        builder.pair("--security-opt", "label=disable");
    }
    // sandpen never reads the engine's log, which would fill the disk with the guest's output.
    builder.pair("--log-driver", "none");
}

fn limits(plan: &Plan, builder: &mut Builder) {
    let cannot = |controller| plan.engine.abilities.cannot_limit.contains(&controller);
    let reason =
        "a rootless engine needs this cgroup controller delegated to the user (cgroup v2 with systemd), and it is not";
    let (limits, downgrades) = limits::divide(plan, cannot, reason);
    builder.downgrades.extend(downgrades);
    if let Some(cpus) = limits.cpus {
        builder.pair("--cpus", cpus.to_string());
    }
    if let Some(memory) = limits.memory {
        builder.pair("--memory", memory.to_string());
    }
    if let Some(pids) = limits.pids {
        builder.pair("--pids-limit", pids.to_string());
    }
}

fn network(plan: &Plan, builder: &mut Builder) {
    // A filtered guest has no network either: it reaches the proxy through a passed listening socket.
    if plan.network.mode != NetworkMode::On {
        builder.pair("--network", "none");
    }
    if plan.network.names_host {
        builder.pair("--add-host", "host.docker.internal:host-gateway");
    }
    for forward in &plan.helper_config.forward {
        builder.pair("--publish", format!("127.0.0.1:{}:{}", forward.port, forward.listen));
    }
}

/// Adds the guest's user and the user namespace.
pub fn user(plan: &Plan, builder: &mut Builder) {
    if plan.user.is_mapped
        && let Some(uid) = plan.user.uid
    {
        // Without --user, Podman would run the command as the host's user.
        let gid = plan.user.gid.unwrap_or(uid);
        builder.pair("--userns", format!("keep-id:uid={uid},gid={gid}"));
        builder.pair("--user", format!("{uid}:{gid}"));
        return;
    }
    let (Some(uid), Some(gid)) = (plan.user.uid, plan.user.gid) else { return };
    match plan.user.how {
        UserHow::Image => return,
        UserHow::KeepId => builder.pair("--userns", format!("keep-id:uid={uid},gid={gid}")),
        UserHow::Host => {}
    }
    builder.pair("--user", format!("{uid}:{gid}"));
}

/// Adds group 0, because Docker Desktop's agent socket is `root:root 0660`.
fn agent_group(plan: &Plan, builder: &mut Builder) {
    if plan.ssh.lacks_gate {
        builder.downgrades.push(Downgrade {
            kind: DowngradeKind::SshAgent,
            asked: "an SSH agent that lists and signs by rule".into(),
            got: "the agent's own socket".into(),
            reason:
                "a socket of sandpen cannot be mounted into the engine's virtual machine; --ssh-agent raw accepts that"
                    .into(),
        });
    }
    if plan.ssh.strategy == Strategy::HostService && plan.user.uid != Some(0) {
        builder.pair("--group-add", "0");
    }
}

/// Runs the helper a second time in the container. As root, although without capabilities, it makes
/// sockets in directories of the image, where the guest can neither remove nor replace them.
fn channel(plan: &Plan, dialect: &Dialect) -> Vec<OsString> {
    if plan.channel.is_empty() && plan.proxy_port.is_none() {
        return Vec::new();
    }
    let client = std::iter::once(plan.engine.kind.name().into()).chain(dialect.global.iter().cloned());
    let exec = ["exec", "--interactive", "--user", "0:0", "--workdir", "/"].map(OsString::from);
    client
        .chain(exec)
        .chain([plan.id.name().into()])
        .chain(channel::arguments(&plan.channel, plan.proxy_port))
        .collect()
}

/// Passes secrets by name only; the client inherits their values. A variable that the client itself
/// reads must not change in its environment: it is passed as `NAME=value`, or in a private file if it
/// is a secret.
fn environment(plan: &Plan, builder: &mut Builder) -> Result<(), LaunchError> {
    let mut private = OsString::new();
    for variable in &plan.env {
        let name = &variable.name;
        match &variable.value {
            VariableValue::Plain(value) => builder.pair("--env", format!("{name}={value}")),
            VariableValue::Secret(secret) if vars::affects_engine_client(name) => {
                let value = secret.reveal();
                if value.as_encoded_bytes().contains(&b'\n') {
                    return Err(LaunchError::MultilineSecret { name: name.clone(), origin: variable.why.from.clone() });
                }
                private.push(name);
                private.push("=");
                private.push(value);
                private.push("\n");
            }
            VariableValue::Secret(secret) => {
                builder.pair("--env", name);
                builder.inherited.push((name.clone(), secret.clone()));
            }
        }
    }
    if !private.is_empty() {
        let file = plan.session_dir.join("env");
        builder.pair("--env-file", file.as_os_str());
        builder.files.push((file, Secret::new(private)));
    }
    Ok(())
}

/// Replaces the image's ENTRYPOINT with the helper or, without one, with the command itself.
fn entry(plan: &Plan, builder: &mut Builder) -> Result<(), LaunchError> {
    let image = plan.image.as_ref().map_or("", |image| image.reference.as_str());
    for (index, argument) in plan.command.iter().enumerate() {
        if argument.to_str().is_none() {
            let position =
                if index == 0 { "the command".to_owned() } else { format!("argument {index} of the command") };
            let shown = argument.display().to_string();
            return Err(LaunchError::ArgumentNotUtf8 { position, shown, engine: plan.engine.kind });
        }
    }
    match &plan.helper {
        Some(helper) => {
            builder.pair("--entrypoint", helper.as_os_str());
            builder.flag(image);
            builder.flag("guest");
            let config =
                serde_json::to_string(&plan.helper_config).map_err(|source| LaunchError::HelperConfig { source })?;
            builder.flag(config);
            builder.argv.extend(plan.command.iter().cloned());
        }
        None => {
            let mut words = plan.command.iter().map(OsString::as_os_str);
            builder.pair("--entrypoint", words.next().unwrap_or(OsStr::new("sh")));
            builder.flag(image);
            builder.argv.extend(words.map(OsStr::to_owned));
        }
    }
    Ok(())
}
