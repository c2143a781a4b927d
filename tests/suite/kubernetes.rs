//! Tests sandboxes in pods of a real cluster, and what is refused there. The manifests are checked without
//! a cluster.

mod changes;
mod failures;
mod gates;
mod manifest;
mod pods;

use std::process::Command;

use serde_json::Value;

use crate::support::{Fixture, install_script, rig_variable};

/// Prints the configuration of a cluster that nothing listens at, and refuses everything else.
const KUBECTL: &str = r#"#!/bin/sh
case "$*" in
  "config view"*) echo '{"contexts":[{"name":"far","context":{"cluster":"c","namespace":"agents"}}],"clusters":[{"name":"c","cluster":{"server":"https://far.example:6443"}}]}' ;;
  *) echo "error: this kubectl has no cluster" >&2; exit 1 ;;
esac
"#;

/// Returns a fixture with a kubectl that has a configuration and no cluster.
fn with_silent_kubectl() -> Fixture {
    let mut fixture = Fixture::new();
    let programs = fixture.root.join("programs");
    install_script(programs.join("kubectl"), KUBECTL);
    fixture.set("PATH", &format!("{}:/usr/bin:/bin", programs.display()));
    fixture
}

/// Returns the rig's kubectl with the configuration of a user with few rights.
fn kubectl(arguments: &[&str]) -> Command {
    let rig = rig_variable("SANDPEN_TEST_KUBE");
    let mut command = Command::new(format!("{rig}/bin/kubectl"));
    command.arg(format!("--kubeconfig={rig}/config")).args(arguments);
    command
}

/// Returns the pods of a fixture's installation that are not being deleted.
pub fn pods_of(fixture: &Fixture) -> Vec<Value> {
    let owner = std::fs::read_to_string(fixture.home.join(".local/state/sandpen/kubernetes-owner")).unwrap_or_default();
    let selector = format!("--selector=dev.sandpen.owner={owner}");
    let output = kubectl(&["get", "pods", &selector, "--output=json"]).output().expect("kubectl");
    let list: Value = serde_json::from_slice(&output.stdout).expect("a list");
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    pods.into_iter().filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none()).collect()
}
