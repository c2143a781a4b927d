//! Checks the cluster in which the engine `kubernetes` would run the sandbox.

use super::check::{Check, Group};
use crate::command::report::State;
use crate::launch::KubernetesLaunch;
use crate::session::ClusterCheckup;

pub fn checks(launch: &KubernetesLaunch) -> Vec<Check> {
    let mut checks = Vec::new();
    let checkup = ClusterCheckup::look(launch);
    match &checkup.server {
        Err(error) => return vec![Check::from_error(Group::Sandbox, State::Problem, "cluster", error)],
        Ok(version) => {
            let text = format!("Kubernetes {version}, namespace `{}`", launch.namespace);
            checks.push(line(State::Ok, "cluster", text));
        }
    }
    checks.push(match checkup.denied.first() {
        None => line(State::Ok, "rights", "you may do all that sandpen needs"),
        Some((verb, resource)) => {
            let denied: Vec<String> =
                checkup.denied.iter().map(|(verb, resource)| format!("{verb} {resource}")).collect();
            let command = format!("kubectl auth can-i {verb} {resource} --namespace {}", launch.namespace);
            line(State::Problem, "rights", format!("you may not: {}", denied.join(", ")))
                .fix(format!("ask for what `{command}` denies"))
        }
    });
    checks.push(match &checkup.refusal {
        None => line(State::Ok, "pod", "the cluster would admit it"),
        Some(error) => Check::from_error(Group::Sandbox, State::Problem, "pod", error),
    });
    if launch.helper.is_none() {
        let text = "the guest helper for this machine's architecture is missing beside sandpen";
        checks.push(line(State::Problem, "helper", text).fix("scripts/build-helper"));
    }
    checks
}

fn line(state: State, name: &str, text: impl Into<String>) -> Check {
    Check::new(Group::Sandbox, state, name, text)
}
