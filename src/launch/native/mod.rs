//! Makes the steps of a plan. Pure: what `explain` lists is what `spawn` executes.

pub mod step;

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::value::{Access, NetworkMode};
use crate::error::{Error, Result};
use crate::launch::Downgrade;
use crate::launch::native::step::{Bind, Group, Limits, Sandbox, Step};
use crate::plan::HelperConfig;
use crate::plan::{PROXY_PORT, Plan, Secret, Source, VariableValue};
use crate::session::registry::Record;

/// A native launch: the steps, and the command with exactly its environment.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeLaunch {
    /// What is set up.
    pub sandbox: Sandbox,
    /// The guest's command.
    pub argv: Vec<OsString>,
    /// All of its variables.
    pub env: Vec<(String, Secret)>,
    /// What is done before the command starts.
    pub helper_config: HelperConfig,
    /// What cannot be enforced.
    pub downgrades: Vec<Downgrade>,
}

/// Makes a launch of a plan.
pub fn compile(plan: &Plan) -> Result<NativeLaunch> {
    let (Some(uid), Some(gid)) = (plan.user.uid, plan.user.gid) else {
        return Err(
            Error::usage("the native engine has no image whose user the guest could be").hint("drop --user image")
        );
    };
    let mut steps = vec![Step::Proc, Step::Dev, Step::Dir { path: "/run".into(), mode: 0o755 }];
    steps.extend(plan.mounts.iter().map(|mount| {
        let target = PathBuf::from(mount.target.as_path());
        match &mount.source {
            Source::Host(source) => {
                Step::Bind(Bind { source: source.as_path().to_owned(), target, writable: mount.access == Access::Rw })
            }
            Source::Tmpfs { mode } => Step::Tmpfs { path: target, mode: *mode },
            // Volumes are of container engines.
            Source::Volume(_) => Step::Dir { path: target, mode: 0o755 },
            Source::Text(content) => Step::File { path: target, content: content.clone().into_bytes(), mode: 0o644 },
            Source::Link(to) => Step::Symlink { path: target, to: to.clone() },
        }
    }));
    let (limits, mut downgrades) = limits(plan);
    if plan.engine.abilities.leaves_abstract_sockets && plan.network.mode == NetworkMode::On {
        downgrades.push(Downgrade {
            asked: "the host's abstract sockets out of reach".into(),
            got: "reachable while the network is on".into(),
            reason: "this kernel's Landlock cannot scope them (Linux 6.12 can); --network off keeps them away".into(),
        });
    }
    if let Some(keep) = &plan.keep {
        downgrades.push(Downgrade {
            asked: format!("the sandbox kept ({})", keep.origin),
            got: "nothing is kept".into(),
            reason: "a native sandbox is processes and mounts, which end with it; name an image to have a container"
                .into(),
        });
    }
    let env = plan.env.iter().map(|variable| {
        let value = match &variable.value {
            VariableValue::Plain(value) => Secret::new(value),
            VariableValue::Secret(secret) => secret.clone(),
        };
        (variable.name.clone(), value)
    });
    Ok(NativeLaunch {
        sandbox: Sandbox {
            steps,
            hostname: plan.id.name(),
            uid,
            gid,
            cwd: plan.workdir.as_path().to_owned(),
            share_network: plan.network.mode == NetworkMode::On,
            listen: plan.network.proxy.as_ref().map(|_| PROXY_PORT),
            group: Group::Own,
            limits,
        },
        argv: plan.command.clone(),
        env: env.collect(),
        helper_config: plan.helper_config.clone(),
        downgrades,
    })
}

/// Limits that can be enforced, and what was asked for beyond them.
fn limits(plan: &Plan) -> (Limits, Vec<Downgrade>) {
    let cannot = |controller: &str| plan.engine.abilities.cannot_limit.contains(&controller);
    let reason = "no control group can be made here (needs root, or cgroup v2 delegated to the user by systemd)";
    let mut downgrades = Vec::new();
    let mut miss = |asked: String| downgrades.push(Downgrade { asked, got: "no limit".into(), reason: reason.into() });
    let mut limits = Limits::default();
    if let Some(cpus) = &plan.limits.cpus {
        match cannot("cpu") {
            true => miss(format!("cpus {} ({})", cpus.value, cpus.origin)),
            false => limits.cpus = Some(f64::from(cpus.value.millis()) / 1000.0),
        }
    }
    if let Some(memory) = &plan.limits.memory {
        match cannot("memory") {
            true => miss(format!("memory {} ({})", memory.value, memory.origin)),
            false => limits.memory = Some(memory.value.bytes()),
        }
    }
    let pids = &plan.limits.pids;
    match cannot("pids") {
        // The default is best effort; what was asked for is a promise.
        true if pids.is_asked_for() => miss(format!("pids {} ({})", pids.value, pids.origin)),
        true => {}
        false if plan.engine.abilities.skips_default_pids && !pids.is_asked_for() => {}
        false => limits.pids = Some(u64::from(pids.value.0)),
    }
    (limits, downgrades)
}

/// The steps as `explain` shows them.
pub fn describe(step: &Step) -> String {
    match step {
        Step::Dir { path, mode } => format!("directory {} ({mode:o})", path.display()),
        Step::Bind(bind) => {
            let access = if bind.writable { "rw" } else { "ro" };
            format!("bind {access} {} at {}", bind.source.display(), bind.target.display())
        }
        Step::Tmpfs { path, .. } => format!("tmpfs {}", path.display()),
        Step::Symlink { path, to } => format!("link {} to {}", path.display(), to.display()),
        Step::File { path, .. } => format!("file {}", path.display()),
        Step::Proc => "proc /proc".into(),
        Step::Dev => "dev /dev".into(),
    }
}

impl NativeLaunch {
    /// What the walls of a further command in a running sandbox need to know; its mounts and namespaces stand already.
    pub fn entering(record: &Record, group: Group) -> Sandbox {
        let (uid, gid) = record.user.unwrap_or_default();
        Sandbox {
            steps: Vec::new(),
            hostname: record.name.clone(),
            uid,
            gid,
            cwd: PathBuf::from(&record.directory),
            share_network: true,
            listen: None,
            group,
            limits: Limits { pids: record.pids, ..Limits::default() },
        }
    }

    /// All set-up operations in order, the walls included.
    pub fn steps(&self) -> Vec<String> {
        let sandbox = &self.sandbox;
        let network = match (sandbox.share_network, sandbox.listen) {
            (true, _) => "the host's network".to_owned(),
            (false, None) => "an empty network namespace".to_owned(),
            (false, Some(port)) => format!("an empty network namespace, with the proxy at 127.0.0.1:{port}"),
        };
        let first = [
            format!("namespaces: user, mount, pid, ipc, uts, cgroup; {network}"),
            format!("uid {} gid {}, host name {}", sandbox.uid, sandbox.gid, sandbox.hostname),
        ];
        let limit = |name: &str, value: Option<String>| value.map(|value| format!("limit {name} {value}"));
        let limits = [
            limit("cpus", sandbox.limits.cpus.map(|cpus| cpus.to_string())),
            limit("memory", sandbox.limits.memory.map(|bytes| bytes.to_string())),
            limit("pids", sandbox.limits.pids.map(|pids| pids.to_string())),
        ];
        let last = [
            "pivot into the new root; the host's is detached".to_owned(),
            format!("working directory {}", sandbox.cwd.display()),
            "no capabilities, no new privileges".to_owned(),
            "Landlock, as far as the kernel has it: no signals and no abstract sockets beyond the sandbox".to_owned(),
            "seccomp: the system calls containers deny, TIOCSTI, new namespaces".to_owned(),
        ];
        let steps = sandbox.steps.iter().map(describe);
        first.into_iter().chain(limits.into_iter().flatten()).chain(steps).chain(last).collect()
    }
}
