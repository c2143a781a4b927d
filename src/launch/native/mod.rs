//! Compiles a plan into the set-up of a native sandbox. Pure: `spawn` executes what `explain`
//! lists.

pub mod step;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use step::{Bind, BindKind, CacheStep, NativeLimits, NativeSetup, OverlayRoot, Step};

use super::{Downgrade, DowngradeKind, limits};
use crate::config::value::{Access, NetworkMode};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::engines::Controller;
use crate::plan::{HelperConfig, ImageRoot, Mount, Plan, Secret, Source, Topic, VariableValue};
use crate::proxy::PROXY_PORT;

/// A native sandbox and the guest's command.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeLaunch {
    pub setup: NativeSetup,
    pub argv: Vec<OsString>,
    /// The whole environment of the command.
    pub env: Vec<(String, Secret)>,
    pub helper_config: HelperConfig,
    pub downgrades: Vec<Downgrade>,
}

#[derive(Debug, thiserror::Error)]
pub enum NativeCompileError {
    #[error("the native engine has no image whose user could be used")]
    ImageUser,
}

impl Diagnostic for NativeCompileError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::ImageUser => vec!["drop --user image".into()],
        }
    }
}

pub fn compile(plan: &Plan) -> Result<NativeLaunch> {
    let (Some(uid), Some(gid)) = (plan.user.uid, plan.user.gid) else {
        return Err(NativeCompileError::ImageUser.into());
    };
    let nested = plan.nested.is_allowed();
    // An image may have files in `/dev`.
    let cover = plan.image_root.as_ref().map(|_| Step::Tmpfs { path: "/dev".into(), mode: 0o755 });
    let mut steps: Vec<Step> = cover.into_iter().collect();
    steps.extend([Step::Proc, Step::Dev, Step::Dir { path: "/run".into(), mode: 0o755 }]);
    steps.extend(plan.mounts.iter().map(|mount| {
        let target = PathBuf::from(mount.target.as_path());
        match &mount.source {
            Source::Host(source) => Step::Bind(Bind {
                source: source.as_path().to_owned(),
                target,
                writable: mount.access == Access::Rw,
                kind: bind_kind(mount),
            }),
            Source::Tmpfs { mode } => Step::Tmpfs { path: target, mode: *mode },
            // Only container engines have volumes and virtual machines.
            Source::Volume(_) | Source::Machine(_) => Step::Dir { path: target, mode: 0o755 },
            Source::Cache { host, layer } => Step::Cache(CacheStep {
                host: host.as_path().to_owned(),
                layer: layer.as_path().to_owned(),
                target,
                is_needed: false,
            }),
            Source::Overlay { host, layer } => Step::Cache(CacheStep {
                host: host.as_path().to_owned(),
                layer: layer.as_path().to_owned(),
                target,
                is_needed: true,
            }),
            Source::Text(content) => Step::File { path: target, content: content.clone().into_bytes(), mode: 0o644 },
            Source::Link(to) => Step::Symlink { path: target, to: to.clone() },
        }
    }));
    let (limits, mut downgrades) = native_limits(plan);
    if plan.engine.abilities.leaves_abstract_sockets && plan.network.mode == NetworkMode::On {
        downgrades.push(Downgrade {
            kind: DowngradeKind::AbstractSockets,
            asked: "isolation from the host's abstract sockets".into(),
            got: "reachable while the network is on".into(),
            reason:
                "Landlock of this kernel cannot scope them (Linux 6.12 can); `--network off` and `proxied` isolate them"
                    .into(),
        });
    }
    downgrades.extend(super::nested_downgrade(plan));
    if let Some(keep) = &plan.keep {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Keep,
            asked: format!("the sandbox kept ({})", keep.origin),
            got: "nothing is kept".into(),
            reason: "a native sandbox is processes and mounts, which end with it; use --image to run a container"
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
        setup: NativeSetup {
            root: plan.image_root.as_ref().map(overlay_root),
            steps,
            hostname: plan.host_name.clone(),
            uid,
            gid,
            cwd: plan.workdir.as_path().to_owned(),
            share_network: plan.network.mode == NetworkMode::On,
            // A network that is shared has a listener of the launcher's.
            listen: plan.network.proxy.as_ref().filter(|_| plan.network.mode != NetworkMode::On).map(|_| PROXY_PORT),
            limits,
            memory_files: plan.limits.memory.as_ref().map(|memory| memory.value.bytes()),
            nested,
        },
        argv: plan.command.clone(),
        env: env.collect(),
        helper_config: plan.helper_config.clone(),
        downgrades,
    })
}

/// The host may rewrite its name servers in place while the sandbox runs, which a copy would not show.
const REWRITTEN: &str = "/etc/resolv.conf";

fn bind_kind(mount: &Mount) -> BindKind {
    let target = mount.target.as_path();
    let is_setting = mount.why.topic == Topic::System && mount.access == Access::Ro && target.starts_with("/etc");
    match mount.is_directory {
        true => BindKind::Directory,
        false if is_setting && target != Path::new(REWRITTEN) => BindKind::Copied,
        false => BindKind::File,
    }
}

fn overlay_root(root: &ImageRoot) -> OverlayRoot {
    OverlayRoot {
        lowers: root.layers.iter().map(|layer| layer.as_path().to_owned()).collect(),
        layer: root.layer.as_ref().map(|layer| layer.as_path().to_owned()),
        place: root.session.as_path().to_owned(),
    }
}

/// Splits the plan's limits into those that can be enforced here and those that cannot.
fn native_limits(plan: &Plan) -> (NativeLimits, Vec<Downgrade>) {
    let abilities = &plan.engine.abilities;
    let cannot = |controller| abilities.cannot_limit.contains(&controller);
    let reason = "no control group can be created here (needs root, or cgroup v2 delegated to the user by systemd)";
    let (enforceable, downgrades) = limits::divide(plan, cannot, reason);
    let skips_pids = abilities.skips_default_pids && !plan.limits.pids.is_asked_for();
    let limits = NativeLimits {
        cpus: enforceable.cpus.map(|cpus| f64::from(cpus.millis()) / 1000.0),
        memory: enforceable.memory.map(|memory| memory.bytes()),
        pids: enforceable.pids.filter(|_| !skips_pids).map(|pids| u64::from(pids.0)),
    };
    (limits, downgrades)
}

/// Returns the downgrades for limits that turned out not to be enforceable at the launch.
pub fn unenforced(plan: &Plan, limits: NativeLimits, error: &std::io::Error) -> Vec<Downgrade> {
    let is_unenforced = |controller| match controller {
        Controller::Cpu => limits.cpus.is_some(),
        Controller::Memory => limits.memory.is_some(),
        Controller::Pids => limits.pids.is_some(),
    };
    limits::divide(plan, is_unenforced, &format!("cannot create a control group: {error}")).1
}

fn describe(step: &Step) -> String {
    match step {
        Step::Dir { path, mode } => format!("directory {} ({mode:o})", path.display()),
        Step::Bind(bind) if bind.kind == BindKind::Copied => {
            format!("copy of {} at {}", bind.source.display(), bind.target.display())
        }
        Step::Bind(bind) => {
            let access = if bind.writable { "rw" } else { "ro" };
            format!("bind {access} {} at {}", bind.source.display(), bind.target.display())
        }
        Step::Cache(cache) => {
            let (host, layer) = (cache.host.display(), cache.layer.display());
            format!("overlay of {layer} over {host} at {}", cache.target.display())
        }
        Step::Tmpfs { path, .. } => format!("tmpfs {}", path.display()),
        Step::Symlink { path, to } => format!("link {} to {}", path.display(), to.display()),
        Step::File { path, .. } => format!("file {}", path.display()),
        Step::Proc => "proc /proc".into(),
        Step::Dev => "dev /dev".into(),
    }
}

impl NativeLaunch {
    /// Describes the whole set-up in order of execution, for `explain`.
    pub fn steps(&self) -> Vec<String> {
        let setup = &self.setup;
        let network = match (setup.share_network, setup.listen) {
            (true, _) => "the host's network".to_owned(),
            (false, None) => "an empty network namespace".to_owned(),
            (false, Some(port)) => format!("an empty network namespace, with the proxy at 127.0.0.1:{port}"),
        };
        let first = [
            format!("namespaces: user, mount, pid, ipc, uts, cgroup; {network}"),
            format!("uid {} gid {}, host name {}", setup.uid, setup.gid, setup.hostname),
        ];
        let limit = |name: &str, value: Option<String>| value.map(|value| format!("limit {name} {value}"));
        let limits = [
            limit("cpus", setup.limits.cpus.map(|cpus| cpus.to_string())),
            limit("memory", setup.limits.memory.map(|bytes| bytes.to_string())),
            limit("pids", setup.limits.pids.map(|pids| pids.to_string())),
        ];
        let namespaces = if setup.nested { "" } else { ", new namespaces" };
        let last = [
            "pivot into the new root; the host's is detached".to_owned(),
            format!("working directory {}", setup.cwd.display()),
            "no capabilities, no new privileges".to_owned(),
            "Landlock, as far as the kernel has it: no signals and no abstract sockets beyond the sandbox".to_owned(),
            format!("seccomp: the system calls containers deny, TIOCSTI{namespaces}"),
        ];
        let root = setup.root.as_ref().map(|root| {
            let lowers: Vec<String> = root.lowers.iter().map(|lower| lower.display().to_string()).collect();
            let layer = root.layer.as_ref().map_or("memory".into(), |layer| layer.display().to_string());
            format!("overlay of {layer} over {} at /", lowers.join(", "))
        });
        let steps = root.into_iter().chain(setup.steps.iter().map(describe));
        first.into_iter().chain(limits.into_iter().flatten()).chain(steps).chain(last).collect()
    }
}
