//! The JSON of `explain` has every key, with the right type, in every state of the engine.

use serde_json::Value;

use crate::support::Fixture;

/// Each row has the path of a key (`list[].key` for the members of a list) and its types.
const CONTRACT: &[(&str, &str)] = &[
    ("schema", "number"),
    ("engine", "object"),
    ("engine.name", "string"),
    ("engine.program", "string|null"),
    ("engine.reason", "string"),
    ("engine.from", "string"),
    ("image", "object|null"),
    ("image.reference", "string"),
    ("image.reason", "string"),
    ("image.from", "string"),
    ("host.platform", "string"),
    ("host.home", "string"),
    ("host.uid", "number"),
    ("host.gid", "number"),
    ("workdir.host", "string"),
    ("workdir.guest", "string"),
    ("user.uid", "number|null"),
    ("user.gid", "number|null"),
    ("user.home", "string"),
    ("user.how", "string"),
    ("user.reason", "string"),
    ("mounts", "array"),
    ("mounts[].source", "string"),
    ("mounts[].target", "string"),
    ("mounts[].mode", "string"),
    ("mounts[].options", "array"),
    ("mounts[].reason", "string"),
    ("mounts[].from", "string"),
    ("mounts[].requirement", "string|null"),
    ("env", "array"),
    ("env[].name", "string"),
    ("env[].value", "string|null"),
    ("env[].secret", "boolean"),
    ("env[].reason", "string"),
    ("env[].from", "string"),
    ("ports", "array"),
    ("limits.cpus", "string|null"),
    ("limits.memory", "string|null"),
    ("limits.pids", "number|null"),
    ("network.mode", "string"),
    ("network.allow_hosts", "array"),
    ("network.reason", "string"),
    ("push.rules", "array"),
    ("push.remotes", "array"),
    ("ssh.state", "string"),
    ("ssh.strategy", "string"),
    ("ssh.socket", "string|null"),
    ("ssh.keys", "number|null"),
    ("ssh.pending", "array"),
    ("ssh.reason", "string"),
    ("command", "array"),
    ("argv", "array"),
    ("warnings", "array"),
    ("downgrades", "array"),
    ("downgrades[].asked", "string"),
    ("downgrades[].got", "string"),
    ("downgrades[].reason", "string"),
];

/// Returns the values at a path, with `None` for an absent key.
fn at<'a>(value: &'a Value, path: &str) -> Vec<Option<&'a Value>> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (name, is_list) = first.strip_suffix("[]").map_or((first, false), |name| (name, true));
    let found = value.get(name);
    let found: Vec<Option<&Value>> = match (is_list, found) {
        (true, Some(list)) => list.as_array().into_iter().flatten().map(Some).collect(),
        (_, found) => vec![found],
    };
    match rest {
        None => found,
        Some(rest) => found.into_iter().flat_map(|found| found.map_or(vec![None], |found| at(found, rest))).collect(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[track_caller]
fn fulfils(json: &Value) {
    for (path, types) in CONTRACT {
        for found in at(json, path) {
            let found = found.unwrap_or_else(|| panic!("{path} is absent: {json:#}"));
            assert!(types.split('|').any(|name| name == kind(found)), "{path} is {found}: expected {types}");
        }
    }
    let one_of = |path: &str, names: &[&str]| {
        for found in at(json, path).into_iter().flatten() {
            assert!(names.iter().any(|name| found == name), "{path} is {found}: expected one of {names:?}");
        }
    };
    assert_eq!(json["schema"], 1);
    one_of("engine.name", &["docker", "podman", "sandbox-exec", "native", "kubernetes"]);
    one_of("host.platform", &["linux", "macos"]);
    one_of("user.how", &["host", "image", "keep-id"]);
    one_of("mounts[].mode", &["ro", "rw"]);
    one_of("network.mode", &["on", "off", "proxied"]);
    one_of("ssh.state", &["forwarded", "off", "skipped"]);
    one_of("ssh.strategy", &["mount", "host-service", "tunnel", "relay", "none"]);
    for path in [
        "engine.reason",
        "engine.from",
        "image.reason",
        "user.reason",
        "mounts[].reason",
        "mounts[].from",
        "env[].reason",
        "env[].from",
        "network.reason",
        "ssh.reason",
    ] {
        assert!(
            at(json, path).iter().flatten().all(|found| found.as_str().is_some_and(|text| !text.is_empty())),
            "{path} is empty: {json:#}"
        );
    }
    for variable in json["env"].as_array().unwrap() {
        assert_eq!(variable["secret"] == true, variable["value"].is_null(), "{variable}");
    }
    for list in ["command", "argv", "warnings"] {
        assert!(json[list].as_array().unwrap().iter().all(Value::is_string), "{list}");
    }
    assert!(json["ports"].as_array().unwrap().iter().all(Value::is_number));
}

#[test]
fn every_key_is_there_with_its_type() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    fixture.write(".gitconfig", "");
    let everything = [
        "--image",
        "x:1",
        "--mount",
        "/etc:/x",
        "--env",
        "GH_TOKEN",
        "--env",
        "A=b",
        "--publish",
        "3000",
        "--cpus",
        "1",
        "--memory",
        "64m",
        "--agent",
        "llxprt",
        "--",
        "llxprt",
        "--yolo",
    ];
    let variables =
        [("GH_TOKEN", "x"), ("GEMINI_API_KEY", "x"), ("SSH_AUTH_SOCK", "/nowhere"), ("SANDPEN_SSH_AGENT", "auto")];
    for engine in ["docker", "podman"] {
        for more in [
            &[][..],
            &everything,
            &["--user", "image"],
            &["--network", "off"],
            &["--tmp", "host"],
            &["--assume-host", "macos"],
        ] {
            fulfils(
                &fixture.explain_normalized(
                    &["--engine", engine].iter().chain(more).copied().collect::<Vec<_>>(),
                    &variables,
                ),
            );
        }
    }
    let json = fixture.explain_normalized(&everything, &variables);
    assert_eq!(json["command"], serde_json::json!(["llxprt", "--yolo"]));
    assert_eq!(json["ports"], serde_json::json!([3000]));
    assert_eq!(json["argv"][0], "docker");
    assert_eq!(json["engine"]["program"], "[ROOT]/bin/docker");
}

#[test]
fn every_key_is_there_when_the_engine_is_down() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.uninstall("docker");
    for arguments in
        [&[][..], &["--engine", "docker"], &["--engine", "podman"], &["--user", "image"], &["--assume-host", "macos"]]
    {
        let json = fixture.explain_normalized(arguments, &[]);
        fulfils(&json);
        assert_eq!(json["engine"]["program"], Value::Null);
        assert!(json["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty()));
        assert!(json["argv"].as_array().is_some_and(|argv| argv.len() > 5));
    }
}

/// If `run` would fail, `explain` must warn: published ports on macOS need the helper.
#[test]
fn explain_on_macos_without_the_helper_says_what_run_will_say() {
    let fixture = Fixture::new().with_recording_docker();
    let run = fixture.fails_without_effect(
        44,
        &mut fixture.sandpen(["run", "--assume-host", "macos", "--publish", "3000", "--user", "host"]),
    );
    assert!(run.contains("requires the guest helper"), "{run}");
    let finished = fixture.finish(&mut fixture.sandpen([
        "explain",
        "--assume-host",
        "macos",
        "--publish",
        "3000",
        "--user",
        "host",
    ]));
    assert!(finished.stderr.contains("requires the guest helper"), "{}", finished.stderr);
}
