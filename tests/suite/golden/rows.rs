//! The plan of the scenario "everything" contains every feature that the container engines must
//! provide, with a reason.

use std::fs;

use serde_json::Value;

use super::file;
use super::handwritten_host::Engine;

/// Each row has a feature of llxprt's sandbox, and texts of which one entry of the plan must
/// contain at least one. `cli::commands` tests the build, because it is not part of a plan.
const ROWS: &[(&str, &[&str])] = &[
    ("Image presence check + error msg", &["ghcr.io/vybestack/llxprt-code/sandbox:0.11.0"]),
    ("Base args: run, --rm, --init, --workdir", &["\"name\":\"init\",\"value\":\"sandpen\""]),
    ("SANDBOX_FLAGS parsing", &["SANDBOX_FLAGS", "--shm-size"]),
    ("Resource limits: cpus", &["1.5"]),
    ("Resource limits: memory", &["2g"]),
    ("Resource limits: pids", &["\"name\":\"pids\",\"value\":\"300\""]),
    ("TTY detection", &["\"name\":\"terminal\",\"value\":\"yes\""]),
    ("Mount: working directory", &["\"target\":\"[ROOT]/home/project\""]),
    ("Mount: user settings dir", &["\"target\":\"[ROOT]/home/.config/llxprt-code\""]),
    ("Mount: user settings dir of older versions", &["\"target\":\"[ROOT]/home/.llxprt\""]),
    ("Mount: os.tmpdir()", &["\"target\":\"/tmp\""]),
    ("Mount: gcloud config dir", &["\"target\":\"[ROOT]/home/.config/gcloud\""]),
    ("Mount: Git configuration (R3.1)", &["\"target\":\"[ROOT]/home/.gitconfig\""]),
    ("Mount: Git configuration (R3.2)", &["\"target\":\"[ROOT]/home/.config/git/config\""]),
    ("Mount: Git configuration (R3.3)", &["\"target\":\"[ROOT]/home/.gitignore_global\""]),
    ("Mount: known hosts", &["\"target\":\"/etc/ssh/ssh_known_hosts\""]),
    ("Mount: ADC credentials file", &["\"target\":\"[ROOT]/home/adc.json\""]),
    ("Mount: SANDBOX_MOUNTS env var", &["\"from\":\"env SANDBOX_MOUNTS\""]),
    ("SSH agent socket mount", &["\"strategy\":\"mount\"", "\"strategy\":\"host-service\""]),
    ("Port exposure", &["3000"]),
    ("Environment variables: API keys", &["\"name\":\"GEMINI_API_KEY\""]),
    ("Environment variables: model", &["\"name\":\"GEMINI_MODEL\""]),
    ("Environment variables: TERM", &["\"name\":\"TERM\""]),
    ("Environment variables: COLORTERM", &["\"name\":\"COLORTERM\""]),
    ("Environment variables: Git (R2.1)", &["\"name\":\"GIT_DISCOVERY_ACROSS_FILESYSTEM\""]),
    ("Passthrough env vars", &["\"name\":\"GOOGLE_CLOUD_PROJECT\""]),
    ("VIRTUAL_ENV mount", &["\"target\":\"[ROOT]/home/project/.venv\""]),
    ("SANDBOX_ENV custom env vars", &["\"from\":\"env SANDBOX_ENV\""]),
    ("NODE_OPTIONS", &["\"name\":\"NODE_OPTIONS\""]),
    ("SANDBOX name", &["\"name\":\"SANDBOX\""]),
    ("UID/GID mapping + HOME env", &["\"how\":\"host\"", "\"how\":\"image\"", "\"how\":\"keep-id\""]),
    ("Entrypoint: PATH parts below the working directory", &["node_modules/.bin"]),
    ("Entrypoint: PYTHONPATH parts below the working directory", &["project/lib"]),
    ("Entrypoint: sandbox.bashrc", &["sandbox.bashrc"]),
    ("Stdin TTY handoff", &["\"name\":\"stdin\",\"value\":\"passed through\""]),
    ("Exit handling", &["\"name\":\"exit code\""]),
];
/// The native engine has neither an image nor a command line, and uses the host's Python.
const CONTAINER_ONLY: &[&str] = &["Image presence check + error msg", "SANDBOX_FLAGS parsing", "VIRTUAL_ENV mount"];
const PODMAN_ROWS: &[(&str, &[&str])] = &[("Podman authfile workaround", &["authfile", "auth.json"])];
const MAPPED_HOME_ROWS: &[(&str, &[&str])] = &[("HOME env", &["\"name\":\"HOME\""])];
/// R3.4 demands a second home if the guest is the image's user.
const DUAL_HOME_ROWS: &[(&str, &[&str])] = &[
    ("Mount: user settings dir (dual-HOME pattern)", &["\"target\":\"/home/node/.config/llxprt-code\""]),
    ("Mount: Git configuration (R3.4)", &["\"target\":\"/home/node/.gitconfig\""]),
];

/// Collects every object that has a reason, as compact text.
fn collect_entries_with_reason(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if members.get("reason").and_then(Value::as_str).is_some_and(|reason| !reason.is_empty()) {
                found.push(value.to_string());
            }
            members.values().for_each(|member| collect_entries_with_reason(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_entries_with_reason(item, found)),
        _ => {}
    }
}

#[test]
fn every_required_feature_has_an_entry_with_a_reason() {
    let mut missing = Vec::new();
    for engine in Engine::ALL {
        let text = fs::read_to_string(file(&format!("everything.{}.json", engine.name()))).expect("golden file");
        let json: Value = serde_json::from_str(&text).expect("JSON");
        let mut entries = Vec::new();
        collect_entries_with_reason(&json, &mut entries);
        let more = match engine {
            Engine::Podman | Engine::PodmanRootless => PODMAN_ROWS,
            Engine::DockerMacos => DUAL_HOME_ROWS,
            Engine::Docker | Engine::DockerRootless | Engine::Native | Engine::NativeImage => MAPPED_HOME_ROWS,
        };
        let applies = |row: &str| engine != Engine::Native || !CONTAINER_ONLY.contains(&row);
        for (row, parts) in ROWS.iter().chain(more).filter(|(row, _)| applies(row)) {
            if !entries.iter().any(|entry| parts.iter().any(|part| entry.contains(part))) {
                missing.push(format!("{}: {row}", engine.name()));
            }
        }
    }
    assert!(missing.is_empty(), "everything.*.json has no entry with a reason for\n{}", missing.join("\n"));
}

/// R3.7: no plan may contain these.
#[test]
fn r3_7_git_credentials_and_other_variables_are_nowhere() {
    for engine in Engine::ALL {
        let text = fs::read_to_string(file(&format!("everything.{}.json", engine.name()))).expect("golden file");
        for forbidden in ["git-credentials", "NOT_ASKED_FOR", "hunter2"] {
            assert!(!text.contains(forbidden), "{} in {}", forbidden, engine.name());
        }
    }
}
