//! Tests the pod that `explain` shows: the *restricted* Pod Security Standard admits it, and it says
//! nothing about the user.

use serde_json::{Value, json};

use super::with_silent_kubectl;
use crate::support::{Fixture, RunToEnd};

/// The types of volumes that *restricted* admits.
const VOLUMES: [&str; 8] =
    ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];

fn manifest(fixture: &Fixture, arguments: &[&str]) -> Value {
    let mut command = fixture.command("explain");
    command.args(["--engine", "kubernetes", "--image", "debian:12", "--format", "json"]).args(arguments);
    command.finish().json()["manifest"].clone()
}

/// Lists what *restricted* refuses about a pod.
fn problems(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut problems = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            problems.push(what.to_owned());
        }
    };
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        check(spec[key].is_null() || spec[key] == json!(false), key);
    }
    let of_pod = &spec["securityContext"];
    for container in spec["containers"].as_array().expect("containers") {
        let context = &container["securityContext"];
        let either = |key: &str| if context[key].is_null() { &of_pod[key] } else { &context[key] };
        check(either("runAsNonRoot") == &json!(true), "runAsNonRoot");
        check(either("runAsUser").as_u64().is_some_and(|uid| uid != 0), "runAsUser");
        let profile = &either("seccompProfile")["type"];
        check(profile == "RuntimeDefault" || profile == "Localhost", "seccompProfile");
        check(context["allowPrivilegeEscalation"] == json!(false), "allowPrivilegeEscalation");
        check(context["capabilities"]["drop"] == json!(["ALL"]), "capabilities.drop");
        check(context["capabilities"]["add"].is_null(), "capabilities.add");
        check(context["privileged"].is_null(), "privileged");
        check(context["procMount"].is_null(), "procMount");
        let ports = container["ports"].as_array().into_iter().flatten();
        ports.for_each(|port| check(port["hostPort"].is_null(), "hostPort"));
    }
    for volume in spec["volumes"].as_array().expect("volumes") {
        let kinds = volume.as_object().expect("a volume").keys().filter(|key| *key != "name");
        kinds.for_each(|kind| check(VOLUMES.contains(&kind.as_str()), kind));
    }
    problems
}

#[test]
fn pods_are_what_the_restricted_standard_admits() {
    let fixture = with_silent_kubectl();
    fixture.write("data/file", "");
    let data = fixture.home.join("data");
    let data = data.to_str().expect("text");
    for arguments in [
        &[][..],
        &["--network", "off", "--cpus", "2", "--memory", "1g"],
        &["--mount", data, "--env", "TOKEN=hunter2", "--user", "host"],
    ] {
        assert_eq!(problems(&manifest(&fixture, arguments)), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn r4_3_the_agents_socket_is_mounted_alone_from_the_keepers_volume() {
    let fixture = with_silent_kubectl().with_agent();
    let pod = manifest(&fixture, &[]);
    assert_eq!(problems(&pod), Vec::<String>::new());
    let [keeper, guest] = &pod["spec"]["containers"].as_array().expect("containers")[..] else { panic!("{pod}") };
    let of_keeper = |mount: &&Value| mount["name"] == "keeper";
    let mounts: Vec<&Value> = guest["volumeMounts"].as_array().expect("mounts").iter().filter(of_keeper).collect();
    assert_eq!(mounts, [&json!({ "name": "keeper", "mountPath": "/ssh-agent", "subPath": "ssh-agent" })]);
    assert!(keeper["lifecycle"]["postStart"]["exec"]["command"].to_string().contains("/.sandpen-keeper/ssh-agent"));
    assert!(manifest(&fixture, &["--ssh-agent", "off"])["spec"]["containers"][0]["lifecycle"].is_null());
}

#[test]
fn the_check_itself_notices_what_is_refused() {
    let pod = manifest(&with_silent_kubectl(), &[]);
    let changes = [
        ("/spec/securityContext/runAsNonRoot", json!(false)),
        ("/spec/securityContext/runAsUser", json!(0)),
        ("/spec/securityContext/seccompProfile/type", json!("Unconfined")),
        ("/spec/containers/1/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/containers/1/securityContext/capabilities/drop", json!([])),
        ("/spec/volumes/0", json!({ "name": "x", "hostPath": { "path": "/" } })),
    ];
    for (place, value) in changes {
        let mut changed = pod.clone();
        *changed.pointer_mut(place).expect(place) = value;
        assert_ne!(problems(&changed), Vec::<String>::new(), "{place}");
    }
}

#[test]
fn no_value_and_no_secret_is_in_a_pod_or_a_command_line() {
    let fixture = with_silent_kubectl();
    let mut command = fixture.command("explain");
    command.args(["--engine", "kubernetes", "--format", "json", "--env", "PLAIN=visible-value", "--env", "API_TOKEN"]);
    let text = command.env("API_TOKEN", "hunter2").finish().json();
    for shown in [text["manifest"].to_string(), text["argv"].to_string()] {
        assert!(!shown.contains("hunter2") && !shown.contains("visible-value"), "{shown}");
    }
    let kinds = text["manifest"].to_string();
    for kind in ["configMap", "\"secret\"", "envFrom", "\"env\""] {
        assert!(!kinds.contains(kind), "{kind}: {kinds}");
    }
    assert_eq!(text["manifest"]["spec"]["automountServiceAccountToken"], json!(false));
}

#[test]
fn limits_have_small_requests_and_a_deadline_bounds_the_pod() {
    let pod = manifest(&with_silent_kubectl(), &["--cpus", "2", "--memory", "4g"]);
    let guest = &pod["spec"]["containers"][1];
    assert_eq!(guest["name"], "guest");
    assert_eq!(guest["resources"]["limits"], json!({ "cpu": "2000m", "memory": "4294967296" }));
    assert_eq!(guest["resources"]["requests"], json!({ "cpu": "10m", "memory": "33554432" }));
    assert!(pod["spec"]["activeDeadlineSeconds"].as_u64().is_some());
    let small = manifest(&with_silent_kubectl(), &["--cpus", "0.005", "--memory", "6m"]);
    let resources = &small["spec"]["containers"][1]["resources"];
    assert_eq!(resources["requests"]["memory"], resources["limits"]["memory"]);
}

#[test]
fn options_of_the_cluster_are_in_the_pod() {
    let fixture = with_silent_kubectl();
    let config = r#"[kubernetes]
runtimeClass = "gvisor"
serviceAccount = "agents"
nodeSelector = ["disktype=ssd"]
tolerations = ["dedicated=agents:NoSchedule"]
imagePullSecrets = ["login"]
"#;
    fixture.write(".config/sandpen/config.toml", config);
    let pod = manifest(&fixture, &[]);
    let spec = &pod["spec"];
    assert_eq!(spec["runtimeClassName"], "gvisor");
    assert_eq!(spec["serviceAccountName"], "agents");
    assert_eq!(spec["nodeSelector"], json!({ "disktype": "ssd" }));
    let toleration = json!([{ "key": "dedicated", "operator": "Equal", "value": "agents", "effect": "NoSchedule" }]);
    assert_eq!(spec["tolerations"], toleration);
    assert_eq!(spec["imagePullSecrets"], json!([{ "name": "login" }]));
}

#[test]
fn the_namespace_is_the_contexts_unless_one_is_named() {
    let fixture = with_silent_kubectl();
    let argv = |arguments: &[&str]| {
        let mut command = fixture.command("explain");
        command.args(["--engine", "kubernetes", "--format", "json"]).args(arguments);
        command.finish().json()["argv"].to_string()
    };
    assert!(argv(&[]).contains("--namespace=agents"));
    let named = argv(&["--namespace", "other", "--context", "far"]);
    assert!(named.contains("--namespace=other") && named.contains("--context=far"), "{named}");
}
