//! Judges what the kernel enforces: privileges, system calls, processes, limits.

use std::fmt::Display;

use crate::command::selftest::probe::Limited;
use crate::command::selftest::{Evidence, Probe, State, judge, unpromised};
use crate::launch::DowngradeKind;
use crate::plan::{EngineKind, Plan};

/// What a filter answers; the kernel itself would say that it is no terminal.
const REFUSED: i32 = libc::EPERM;

/// Whether the plan limits processes, asked for or not.
pub(super) fn limits_processes(plan: &Plan) -> bool {
    let limits = &plan.limits.pids;
    let abilities = &plan.engine.abilities;
    let by_default = !abilities.skips_default_pids || limits.is_asked_for();
    plan.engine.kind != EngineKind::SandboxExec && by_default && !abilities.cannot_limit.contains(&"pids")
}

impl Evidence<'_> {
    pub(super) fn walls(&self) -> Vec<Probe> {
        let found = self.findings;
        if self.is_seatbelt() {
            let why = "Seatbelt judges what is opened and reached";
            let names = ["capabilities", "new privileges", "system calls", "terminal", "namespaces", "processes"];
            return names.map(|name| unpromised(name, why, "not tried")).into();
        }
        let outside = std::fs::read_link("/proc/self/ns/pid").map(|id| id.display().to_string()).unwrap_or_default();
        vec![
            seen("capabilities", "none at all", &found.capabilities, |sets| {
                let named: Vec<String> = sets.iter().map(|(set, value)| format!("{set} {value}")).collect();
                (sets.is_empty(), if named.is_empty() { "none".into() } else { named.join(", ") })
            }),
            seen("new privileges", "cannot be gained", &found.no_new_privileges, |set| {
                (*set, if *set { "no_new_privs is set" } else { "no_new_privs is not set" }.into())
            }),
            seen("system calls", "are filtered", &found.seccomp, |mode| (*mode == 2, format!("seccomp mode {mode}"))),
            seen("terminal", "nothing is typed into it for you", &found.terminal, |error| {
                (
                    *error == REFUSED,
                    if *error == REFUSED { "TIOCSTI is refused" } else { "TIOCSTI is let through" }.into(),
                )
            }),
            seen("namespaces", "no new ones are made", &found.namespace, |error| {
                (*error != 0, if *error == 0 { "one was made" } else { "refused" }.into())
            }),
            seen("processes", "none of the host's is seen", &found.processes, |inside| {
                (*inside != outside, if *inside == outside { "they are the host's" } else { "its own only" }.into())
            }),
        ]
    }

    pub(super) fn limits(&self) -> Vec<Probe> {
        let limits = &self.plan.limits;
        let pids = u64::from(limits.pids.value.0);
        let downgraded = |kind: DowngradeKind, name: &'static str| {
            let found = self.launch.downgrades().iter().find(|downgrade| downgrade.kind == kind)?;
            Some(unpromised(name, format!("{} cannot be enforced: {}", found.asked, found.reason), "not tried"))
        };
        let processes = match limits_processes(self.plan) {
            true => {
                seen("pids", &format!("at most {pids} processes"), &self.findings.pids, |found| limited(*found, pids))
            }
            false => downgraded(DowngradeKind::Pids, "pids")
                .unwrap_or_else(|| unpromised("pids", "not limited here unless asked for", "not tried")),
        };
        let memory = match &limits.memory {
            None => unpromised("memory", "not limited unless asked for", "not tried"),
            Some(asked) => downgraded(DowngradeKind::Memory, "memory").unwrap_or_else(|| {
                let promised = format!("at most {}", asked.value);
                seen("memory", &promised, &self.findings.memory, |found| limited(*found, asked.value.bytes()))
            }),
        };
        vec![processes, memory]
    }
}

fn limited(found: Limited, limit: u64) -> (bool, String) {
    match found {
        Limited::To(value) => (value <= limit, format!("the control group says {value}")),
        Limited::Stopped(at) => (at <= limit, format!("stopped at {at}")),
        Limited::Beyond(value) => (false, format!("started {value} processes, above the limit")),
        Limited::Not => (false, "the control group says that there is no limit".into()),
    }
}

/// A finding that may not have been possible.
fn seen<T, E: Display>(
    name: &'static str,
    promised: &str,
    found: &Option<Result<T, E>>,
    look: impl FnOnce(&T) -> (bool, String),
) -> Probe {
    match found {
        Some(Err(error)) => Probe {
            name,
            promised: promised.to_owned(),
            seen: format!("it could not be tried: {error}"),
            state: State::Failed,
        },
        found => judge(name, promised, found.as_ref().and_then(|found| found.as_ref().ok()), look),
    }
}
