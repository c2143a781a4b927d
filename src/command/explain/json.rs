//! Writes a plan and its launch as JSON. Keys are stable and never absent; unknown values are `null`.

use std::ffi::OsString;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::error::Result;
use crate::host::Host;
use crate::launch::Launch;
use crate::plan::{Mount, Plan, ProxyPlan, Source, SshState, Variable, VariableValue};
use crate::ui;

pub fn json(host: &Host, plan: &Plan, launch: &Launch) -> Result<String> {
    ui::json(&json!({
        "schema": 1,
        "engine": {
            "name": plan.engine.kind.name(),
            "program": plan.engine.program,
            "reason": plan.engine.reason,
            "from": plan.engine.from,
        },
        "image": plan.image.as_ref().map(|image| json!({
            "reference": image.reference, "reason": image.reason, "from": image.from,
        })),
        "host": {"platform": host.platform, "home": host.home, "uid": host.uid, "gid": host.gid},
        "workdir": {"host": plan.workdir, "guest": plan.workdir},
        "user": {
            "uid": plan.user.uid, "gid": plan.user.gid, "home": plan.user.home, "how": plan.user.how, "reason": plan.user.reason,
        },
        "mounts": plan.mounts,
        "env": plan.env,
        "ports": plan.ports,
        "limits": {
            "cpus": plan.limits.cpus.as_ref().map(|cpus| cpus.value),
            "memory": plan.limits.memory.as_ref().map(|memory| memory.value),
            "pids": plan.limits.pids.value,
        },
        "network": {
            "mode": plan.network.mode,
            "allow_hosts": plan.network.allow_hosts.iter().map(|rule| &rule.value).collect::<Vec<_>>(),
            "proxy": plan.network.proxy.as_ref().map(ProxyPlan::name),
            "proxy_argv": launch.proxy_argv().map(texts),
            "reason": plan.network.reason,
        },
        "push": {
            "rules": plan.push.rules.iter().map(|rule| &rule.value).collect::<Vec<_>>(),
            "remotes": plan.push.remotes.iter().map(|remote| remote.url.to_string()).collect::<Vec<_>>(),
        },
        "ssh": {
            "state": plan.ssh.state,
            "strategy": plan.ssh.strategy,
            "gate": plan.ssh.gate.is_some(),
            "hosts": plan.ssh.gate.iter().flat_map(|gate| &gate.hosts).map(ToString::to_string).collect::<Vec<_>>(),
            "socket": plan.ssh.mount.as_ref().filter(|_| plan.ssh.state == SshState::Forwarded).map(|mount| &mount.target),
            "keys": plan.ssh.keys,
            "pending": plan.ssh.pending,
            "reason": plan.ssh.reason,
        },
        "secrets": plan.secrets.keys.iter().map(|key| json!({
            "name": key.name,
            "where": key.place,
            "hosts": key.hosts.iter().map(|(host, _)| host).collect::<Vec<_>>(),
            "reason": key.reason,
            "from": key.from,
        })).collect::<Vec<_>>(),
        "git": {
            "mode": plan.git_mode,
            "repositories": plan.repository_gate.repositories.iter().map(|known| known.common_dir.to_string_lossy()).collect::<Vec<_>>(),
            "reason": super::git_reason(plan),
            "settings": plan.git,
        },
        "command": texts(&plan.command),
        "argv": texts(launch.argv()),
        "steps": launch.steps(),
        "manifest": launch.manifest(),
        "details": plan.details,
        "warnings": super::warnings(plan),
        "downgrades": launch.downgrades(),
    }))
}

fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

impl Serialize for Mount {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        mount_json(self).serialize(serializer)
    }
}

/// Omits the value of a secret.
impl Serialize for Variable {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        variable_json(self).serialize(serializer)
    }
}

fn mount_json(mount: &Mount) -> Value {
    let source = match &mount.source {
        Source::Host(path) => path.to_string(),
        Source::Machine(path) => path.to_string(),
        Source::Tmpfs { .. } => "tmpfs".into(),
        Source::Volume(name) => format!("volume {name}"),
        Source::Cache { host, layer } => format!("{host}, changes in {layer}"),
        Source::Text(_) => "generated".into(),
        Source::Link(to) => format!("link to {}", to.display()),
    };
    json!({
        "source": source,
        "target": mount.target,
        "mode": mount.access,
        "options": if mount.relabel { vec!["z"] } else { vec![] },
        "reason": mount.why.reason,
        "from": mount.why.from,
        "requirement": mount.why.requirement,
    })
}

fn variable_json(variable: &Variable) -> Value {
    let (value, secret) = match &variable.value {
        VariableValue::Plain(value) => (Some(value), false),
        VariableValue::Secret(_) => (None, true),
    };
    json!({
        "name": variable.name,
        "value": value,
        "secret": secret,
        "reason": variable.why.reason,
        "from": variable.why.from,
    })
}
