//! Evaluates the probes of what the kernel enforces: privileges, system calls, processes, limits.

use std::fmt::Display;

use super::SelftestInput;
use super::probe::Limit;
use super::probe_result::ProbeResult;
use crate::facts::engines::Controller;
use crate::launch::DowngradeKind;
use crate::plan::{EngineKind, Plan};

/// The error that the seccomp filter returns for TIOCSTI; without it the kernel returns ENOTTY.
const FILTERED: i32 = libc::EPERM;

/// Tells whether the plan limits processes, on request or by default.
pub(super) fn limits_processes(plan: &Plan) -> bool {
    let limits = &plan.limits.pids;
    let abilities = &plan.engine.abilities;
    let is_attempted = !abilities.skips_default_pids || limits.is_asked_for();
    let is_possible = !abilities.cannot_limit.contains(&Controller::Pids);
    plan.engine.kind != EngineKind::SandboxExec && is_attempted && is_possible
}

impl SelftestInput<'_> {
    pub(super) fn kernel(&self) -> Vec<ProbeResult> {
        let findings = self.findings;
        if self.is_seatbelt() {
            let why = "Seatbelt restricts files and the network only";
            let names = ["capabilities", "new privileges", "system calls", "terminal", "namespaces", "processes"];
            return names.map(|name| ProbeResult::not_promised(name, why, "not tested")).into();
        }
        let host = std::fs::read_link("/proc/self/ns/pid").map(|id| id.display().to_string());
        vec![
            check("capabilities", "has none", &findings.capabilities, |sets| {
                let named: Vec<String> = sets.iter().map(|(set, value)| format!("{set} {value}")).collect();
                (sets.is_empty(), if named.is_empty() { "all sets are empty".into() } else { named.join(", ") })
            }),
            check("new privileges", "cannot gain any", &findings.no_new_privileges, |set| {
                (*set, if *set { "no_new_privs is set" } else { "no_new_privs is not set" }.into())
            }),
            check("system calls", "are filtered", &findings.seccomp, |mode| {
                (*mode == 2, format!("seccomp mode {mode}"))
            }),
            check("terminal", "cannot insert input", &findings.terminal, |error| {
                let is_filtered = *error == FILTERED;
                (is_filtered, if is_filtered { "TIOCSTI is refused" } else { "TIOCSTI is permitted" }.into())
            }),
            self.namespaces(),
            check("processes", "cannot see those of the host", &findings.processes, |inside| match &host {
                Err(error) => (false, format!("cannot be tested: {error}")),
                Ok(host) if inside == host => (false, "the PID namespace is the host's".into()),
                Ok(_) => (true, "separate PID namespace".into()),
            }),
        ]
    }

    fn namespaces(&self) -> ProbeResult {
        let is_allowed = self.plan.nested.is_allowed();
        let promised = if is_allowed { "can create them (--nested)" } else { "cannot create any" };
        check("namespaces", promised, &self.findings.namespace, |error| {
            ((*error == 0) == is_allowed, if *error == 0 { "created one" } else { "refused" }.into())
        })
    }

    pub(super) fn limits(&self) -> Vec<ProbeResult> {
        let limits = &self.plan.limits;
        let pids = u64::from(limits.pids.value.0);
        let processes = if limits_processes(self.plan) {
            check("pids", &format!("at most {pids} processes"), &self.findings.pids, |found| evaluate(*found, pids))
        } else {
            self.downgraded(DowngradeKind::Pids, "pids")
                .unwrap_or_else(|| ProbeResult::not_promised("pids", "not limited by default here", "not tested"))
        };
        let memory = match &limits.memory {
            None => ProbeResult::not_promised("memory", "not limited by default", "not tested"),
            Some(limit) => self.downgraded(DowngradeKind::Memory, "memory").unwrap_or_else(|| {
                let promised = format!("at most {}", limit.value);
                check("memory", &promised, &self.findings.memory, |found| evaluate(*found, limit.value.bytes()))
            }),
        };
        vec![processes, memory]
    }

    fn downgraded(&self, kind: DowngradeKind, name: &'static str) -> Option<ProbeResult> {
        let downgrade = self.launch.downgrades().iter().find(|downgrade| downgrade.kind == kind)?;
        let why = format!("{} cannot be enforced ({})", downgrade.asked, downgrade.reason);
        Some(ProbeResult::not_promised(name, why, "not tested"))
    }
}

fn evaluate(found: Limit, promised: u64) -> (bool, String) {
    match found {
        Limit::Set(value) => (value <= promised, format!("the control group's limit is {value}")),
        Limit::Stopped(value) => (value <= promised, format!("stopped at {value}")),
        Limit::Exceeded(value) => (false, format!("reached {value}, above the limit")),
        Limit::None => (false, "the control group has no limit".into()),
    }
}

/// Evaluates a probe that may have failed to run.
fn check<T, E: Display>(
    name: &'static str,
    promised: &str,
    found: &Option<Result<T, E>>,
    evaluate: impl FnOnce(&T) -> (bool, String),
) -> ProbeResult {
    ProbeResult::check(name, promised, found.as_ref(), |found| match found {
        Ok(value) => evaluate(value),
        Err(error) => (false, format!("cannot be tested: {error}")),
    })
}
