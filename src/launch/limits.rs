//! Splits the limits of a plan into those that an engine can enforce and downgrades for the others.

use super::{Downgrade, DowngradeKind};
use crate::config::value::{Cpus, Memory, Pids};
use crate::facts::engines::Controller;
use crate::plan::Plan;

/// The limits of a plan that can be enforced; `None` means no limit.
#[derive(Debug, Default)]
pub struct Enforceable<'a> {
    pub cpus: Option<&'a Cpus>,
    pub memory: Option<&'a Memory>,
    pub pids: Option<&'a Pids>,
}

/// Drops the limits whose cgroup controller `cannot` names. A requested limit becomes a downgrade with
/// `reason`; the default limit of processes is best effort and is dropped silently.
pub fn divide<'a>(
    plan: &'a Plan,
    cannot: impl Fn(Controller) -> bool,
    reason: &str,
) -> (Enforceable<'a>, Vec<Downgrade>) {
    let limits = &plan.limits;
    let mut enforceable = Enforceable::default();
    let mut downgrades = Vec::new();
    let mut weaken = |kind, asked| downgrades.push(Downgrade::unlimited(kind, asked, reason));
    if let Some(cpus) = &limits.cpus {
        if cannot(Controller::Cpu) {
            weaken(DowngradeKind::Cpus, format!("cpus {} ({})", cpus.value, cpus.origin));
        } else {
            enforceable.cpus = Some(&cpus.value);
        }
    }
    if let Some(memory) = &limits.memory {
        if cannot(Controller::Memory) {
            weaken(DowngradeKind::Memory, format!("memory {} ({})", memory.value, memory.origin));
        } else {
            enforceable.memory = Some(&memory.value);
        }
    }
    let pids = &limits.pids;
    if !cannot(Controller::Pids) {
        enforceable.pids = Some(&pids.value);
    } else if pids.is_asked_for() {
        weaken(DowngradeKind::Pids, format!("pids {} ({})", pids.value, pids.origin));
    }
    (enforceable, downgrades)
}
