//! Writes the pod: what the *restricted* Pod Security Standard admits, and nothing of the user's but
//! paths and the names of accounts.

use serde_json::{Map, Value, json};

use super::LaunchError;
use super::held_socket::HeldSocket;
use super::volumes::{Volumes, is_account};
use crate::config::value::{Access, Toleration};
use crate::path::GuestPath;
use crate::plan::kubernetes::KEEPER_DIR;
use crate::plan::{CONTROL_DIR, KubernetesPlan, Plan, Prepare, Source};

/// The containers.
pub const KEEPER: &str = "keeper";
pub const GUEST: &str = "guest";

/// After this time the cluster ends the pod, whatever has become of the launcher.
const DEADLINE: u32 = 7 * 24 * 3600;
/// Bounds the end of a pod that is deleted: the keeper has brought everything home before.
const GRACE_PERIOD: u32 = 1;
/// Waits until the keeper has the helper, and becomes it. The path and the role are arguments.
const WAIT: &str =
    r#"trap "exit 143" TERM; until [ -x "$0" ]; do sleep 0.1 2>/dev/null || sleep 1; done; exec "$0" pod "$@""#;
/// Holds back the guest's container until the keeper has made the sockets that are mounted there: containers
/// start one after the other. Without a launcher it gives up, because a pod whose hook runs cannot be deleted.
/// The helper and the sockets are arguments.
const AWAIT_SOCKETS: &str = r#"n=0; for socket; do until [ -S "$socket" ]; do [ -e "$0.new" ] || [ -e "$0" ] || n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1 2>/dev/null || sleep 1; done; done"#;

/// What a container asks of the node at least. Without requests, a limit would be the request, too.
const CPU_REQUEST: u32 = 10;
const MEMORY_REQUEST: u64 = 32 << 20;

pub fn pod(plan: &Plan, kubernetes: &KubernetesPlan, volumes: &Volumes) -> Result<Value, LaunchError> {
    let mut metadata = json!({
        "name": plan.id.name(),
        "labels": {
            "app.kubernetes.io/managed-by": "sandpen",
            "dev.sandpen.session": plan.id.to_string(),
            "dev.sandpen.owner": kubernetes.owner,
        },
    });
    let accounts = accounts(plan);
    if !accounts.is_empty() {
        metadata["annotations"] = accounts.iter().map(|(file, content)| (annotation(file), json!(content))).collect();
    }
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE,
        "terminationGracePeriodSeconds": GRACE_PERIOD,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": plan.user.uid,
            "runAsGroup": plan.user.gid,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
    });
    if is_host_name(&plan.host_name) {
        spec["hostname"] = json!(plan.host_name);
    }
    placement(kubernetes, &mut spec);
    spec["containers"] =
        json!([container(plan, KEEPER, volumes, &accounts)?, container(plan, GUEST, volumes, &accounts)?,]);
    let mut all: Vec<Value> = volumes.0.iter().map(|volume| empty(&volume.name, volume.is_in_memory)).collect();
    all.push(empty(KEEPER, true));
    if !accounts.is_empty() {
        let items = accounts.iter().map(|(file, _)| {
            json!({ "path": file, "fieldRef": { "fieldPath": format!("metadata.annotations['{}']", annotation(file)) } })
        });
        all.push(json!({ "name": "accounts", "downwardAPI": { "items": items.collect::<Vec<_>>() } }));
    }
    spec["volumes"] = json!(all);
    Ok(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }))
}

/// Adds where the pod may run, and with which account.
fn placement(kubernetes: &KubernetesPlan, spec: &mut Value) {
    if let Some(class) = &kubernetes.runtime_class {
        spec["runtimeClassName"] = json!(class);
    }
    if let Some(account) = &kubernetes.service_account {
        spec["serviceAccountName"] = json!(account);
    }
    if !kubernetes.node_selector.is_empty() {
        let labels = kubernetes.node_selector.iter().map(|label| (label.key.clone(), json!(label.value)));
        spec["nodeSelector"] = Value::Object(labels.collect());
    }
    if !kubernetes.tolerations.is_empty() {
        spec["tolerations"] = kubernetes.tolerations.iter().map(toleration).collect();
    }
    if !kubernetes.image_pull_secrets.is_empty() {
        spec["imagePullSecrets"] = kubernetes.image_pull_secrets.iter().map(|name| json!({ "name": name })).collect();
    }
}

fn toleration(taint: &Toleration) -> Value {
    let mut toleration = match &taint.value {
        Some(value) => json!({ "key": taint.key, "operator": "Equal", "value": value }),
        None => json!({ "key": taint.key, "operator": "Exists" }),
    };
    if let Some(effect) = &taint.effect {
        toleration["effect"] = json!(effect);
    }
    toleration
}

fn container(plan: &Plan, name: &str, volumes: &Volumes, accounts: &[(String, String)]) -> Result<Value, LaunchError> {
    let image = plan.image.as_ref().ok_or(LaunchError::NoImage)?;
    let is_keeper = name == KEEPER;
    let held = HeldSocket::all(plan);
    let text = |path: &GuestPath| -> Result<String, LaunchError> {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| LaunchError::PathNotUtf8 { path: path.to_string(), engine: plan.engine.kind })
    };
    let mut mounts: Vec<Value> = Vec::new();
    for volume in &volumes.0 {
        let mut mount = json!({ "name": volume.name, "mountPath": text(&volume.target)? });
        if volume.access == Access::Ro && !is_keeper {
            mount["readOnly"] = json!(true);
        }
        mounts.push(mount);
    }
    if is_keeper {
        mounts.push(json!({ "name": KEEPER, "mountPath": KEEPER_DIR }));
    } else {
        for socket in &held {
            mounts.push(json!({ "name": KEEPER, "mountPath": text(socket.target())?, "subPath": socket.name }));
        }
    }
    mounts.extend(accounts.iter().map(|(file, _)| {
        json!({ "name": "accounts", "mountPath": format!("/etc/{file}"), "subPath": file, "readOnly": true })
    }));
    let security = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": is_keeper,
    });
    let helper = format!("{CONTROL_DIR}/sandpen");
    let mut command = vec!["sh", "-c", WAIT, &helper, if is_keeper { "keep" } else { "guest" }];
    if is_keeper {
        command.extend(held.iter().map(|socket| socket.name));
    }
    let mut container = json!({
        "name": name,
        "image": image.reference.as_str(),
        "imagePullPolicy": if image.reference.is_local() { "Never" } else { "IfNotPresent" },
        "command": command,
        "workingDir": "/",
        "securityContext": security,
        "resources": resources(plan, is_keeper),
        "volumeMounts": mounts,
    });
    if is_keeper && !held.is_empty() {
        let sockets: Vec<String> = held.iter().map(HeldSocket::path).collect();
        let start = ["sh", "-c", AWAIT_SOCKETS, &helper].map(str::to_owned);
        let command: Vec<String> = start.into_iter().chain(sockets).collect();
        container["lifecycle"] = json!({ "postStart": { "exec": { "command": command } } });
    }
    Ok(container)
}

fn resources(plan: &Plan, is_keeper: bool) -> Value {
    let (mut cpu, mut memory, mut limits) = (CPU_REQUEST, MEMORY_REQUEST, Map::new());
    if !is_keeper {
        if let Some(asked) = &plan.limits.cpus {
            cpu = cpu.min(asked.value.millis());
            limits.insert("cpu".into(), json!(format!("{}m", asked.value.millis())));
        }
        if let Some(asked) = &plan.limits.memory {
            memory = memory.min(asked.value.bytes());
            limits.insert("memory".into(), json!(asked.value.bytes().to_string()));
        }
    }
    let mut resources = json!({ "requests": { "cpu": format!("{cpu}m"), "memory": memory.to_string() } });
    if !limits.is_empty() {
        resources["limits"] = Value::Object(limits);
    }
    resources
}

fn empty(name: &str, is_in_memory: bool) -> Value {
    json!({ "name": name, "emptyDir": if is_in_memory { json!({ "medium": "Memory" }) } else { json!({}) } })
}

/// Returns the names and contents of the files with accounts, without which ssh fails.
fn accounts(plan: &Plan) -> Vec<(String, String)> {
    let files = plan.mounts.iter().filter(|mount| is_account(mount)).filter_map(|mount| {
        let Source::Host(source) = &mount.source else { return None };
        let content = plan.prepare.iter().find_map(|item| match item {
            Prepare::File { path, content } if path == source => Some(content.clone()),
            _ => None,
        })?;
        let name = mount.target.as_path().file_name()?.to_str()?.to_owned();
        Some((name, content))
    });
    files.collect()
}

fn annotation(file: &str) -> String {
    format!("sandpen.dev/{file}")
}

/// Tells whether a name can be a pod's host name.
fn is_host_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [name.bytes().next(), name.bytes().last()];
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| is_plain(byte) || byte == b'-')
        && ends.into_iter().flatten().all(is_plain)
}
