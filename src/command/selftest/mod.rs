//! The self-test: plants canaries on the host, has the probe run in a sandbox like any command, and compares what it found, and what
//! arrived outside, with what the plan promises.

mod canary;
mod files;
mod network;
pub mod probe;
mod report;
mod walls;

pub use canary::Canaries;
pub use report::{Probe, Report, State};

use std::ffi::OsString;

use crate::cli::{Format, Selftest};
use crate::command::selftest::probe::{Findings, Order};
use crate::error::{Error, Kind, Result};
use crate::host::Host;
use crate::launch::Launch;
use crate::path::HostPath;
use crate::plan::{CONTROL_DIR, EngineKind, FINDINGS, Mount, Plan, Source};
use crate::process::{Outcome, untrusted};
use crate::resolve::Resolved;
use crate::session;
use crate::ui::Ui;
use crate::vars;

/// Runs the probe as the command of a sandbox, on the same path as `run`.
pub fn run(arguments: Selftest, ui: Ui) -> Result<Outcome> {
    super::close_inherited_files();
    let mut resolved = Resolved::read(&arguments.options, Vec::new())?;
    // A self-test that is killed must not leave anything for the next one.
    resolved.config.keep = None;
    resolved.request.is_selftest = true;
    let mut resolved = resolved.for_launch(ui)?;
    let canaries = Canaries::plant(&resolved.host)?;
    let id = resolved.id();
    let (draft, _) = resolved.plan(id.clone())?;
    let order = order(&resolved.host, &canaries, &draft);
    resolved.request.command = command(&resolved.host, &draft, &order)?;
    let ran = resolved.ready(id, ui).and_then(|(plan, launch)| {
        let found = plan.session_dir.join(FINDINGS);
        let look = || {
            // Read before the review sets aside what the probe planted.
            let hook = hooks(&plan).is_some_and(|hooks| canaries.arrived_in(hooks.as_path()));
            (untrusted::read(found.as_path(), LARGEST).ok(), hook)
        };
        let (_, (findings, hook)) = session::run_with_inspection(&resolved.host, &plan, &launch, ui, look)?;
        Ok((plan, launch, findings, hook))
    });
    let (plan, launch, findings, hook) = match ran {
        // A probe that could not run counts as failed, whatever the reason.
        Err(error) if error.kind() == Kind::Launch => {
            ui.error(&error);
            return Err(Error::failed("no probe could run: the sandbox did not start"));
        }
        ran => ran?,
    };
    let findings = findings.and_then(|text| serde_json::from_str::<Findings>(&text).ok()).unwrap_or_default();
    let evidence =
        Evidence { host: &resolved.host, plan: &plan, launch: &launch, canaries: &canaries, findings: &findings, hook };
    let report = evidence.judge();
    let text = if arguments.format == Format::Json { report.json()? } else { report.text() };
    super::print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.holds())))
}

/// Directories of the system, which no guest may write to.
const SYSTEM: &[&str] = &["/usr", "/etc", "/var/lib"];

/// More than the findings ever are.
pub const LARGEST: u64 = 1 << 20;

/// What the probe is to try in this plan.
pub fn order(host: &Host, canaries: &Canaries, plan: &Plan) -> Order {
    let places = || canaries.home.iter().chain(&canaries.temp);
    let mut plant = canary::texts(places().map(|place| &place.directory));
    plant.extend(SYSTEM.iter().map(|directory| (*directory).to_owned()));
    plant.extend(hooks(plan).and_then(|hooks| hooks.to_str().map(str::to_owned)));
    let mut read = canary::texts(&canary::secrets(host));
    read.extend(canary::texts(&places().map(canary::Place::secret).collect::<Vec<_>>()));
    let agent = host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| path.to_str()).map(str::to_owned);
    let report = match plan.seatbelt.as_ref() {
        Some(seatbelt) => seatbelt.session.join(FINDINGS).to_string(),
        None => format!("{CONTROL_DIR}/{FINDINGS}"),
    };
    Order {
        report,
        name: canaries.name.clone(),
        word: canaries.word.clone(),
        read,
        plant,
        sockets: canary::texts(&canary::engine_sockets(host)),
        agents: [Some(crate::plan::ssh::SOCKET.to_owned()), agent].into_iter().flatten().collect(),
        tcp: [Some(&canaries.loopback), canaries.outer.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|listener| canary::address(listener.local_addr()))
            .collect(),
        udp: canary::address(canaries.datagrams.local_addr()).into_iter().collect(),
        pids: Some(u64::from(plan.limits.pids.value.0)).filter(|_| walls::limits_processes(plan)),
        memory: plan.limits.memory.as_ref().map(|memory| memory.value.bytes()),
    }
}

/// The command that tries it.
pub fn command(host: &Host, plan: &Plan, order: &Order) -> Result<Vec<OsString>> {
    let helper: OsString = match plan.engine.kind {
        EngineKind::SandboxExec => host.executable.as_ref().map(|program| program.as_os_str().to_owned()),
        EngineKind::Native => Some(format!("{CONTROL_DIR}/sandpen").into()),
        EngineKind::Docker | EngineKind::Podman => plan.helper.as_ref().map(|helper| helper.as_os_str().to_owned()),
    }
    .ok_or_else(|| {
        Error::failed("the guest helper, which probes the sandbox, does not lie beside sandpen")
            .hint("build it with `scripts/build-helper`, and put it there")
    })?;
    let order =
        serde_json::to_string(order).map_err(|error| Error::failed("the probe cannot be described").cause(error))?;
    Ok(vec![helper, "probe".into(), order.into()])
}

/// The directory from which Git on the host runs code, if the workspace is a repository.
pub fn hooks(plan: &Plan) -> Option<HostPath> {
    let workspaces = plan.workdir.as_path().ancestors().filter_map(|above| HostPath::new(above).ok());
    let mut hooks = workspaces.map(|above| above.join(".git/hooks")).filter(|hooks| hooks.as_path().is_dir());
    hooks.find(|hooks| shown(plan, hooks).is_some())
}

/// What there is to judge.
pub struct Evidence<'a> {
    /// The host.
    pub host: &'a Host,
    /// What was promised.
    pub plan: &'a Plan,
    /// By the engine.
    pub launch: &'a Launch,
    /// What was planted.
    pub canaries: &'a Canaries,
    /// What the probe says.
    pub findings: &'a Findings,
    /// Whether a file of the probe's arrived among Git's hooks.
    pub hook: bool,
}

impl Evidence<'_> {
    /// Judges every probe.
    pub fn judge(&self) -> Report {
        let mut probes = self.files();
        probes.extend(self.walls());
        probes.extend(self.network());
        probes.extend(self.limits());
        Report { engine: self.plan.engine.kind.name(), probes }
    }

    fn is_seatbelt(&self) -> bool {
        self.plan.engine.kind == EngineKind::SandboxExec
    }
}

/// The mount that shows a path of the host's, the closest one above it.
fn shown<'a>(plan: &'a Plan, path: &HostPath) -> Option<&'a Mount> {
    let shows = |mount: &&Mount| matches!(&mount.source, Source::Host(source) if path.is_within(source));
    plan.mounts.iter().filter(shows).max_by_key(|mount| match &mount.source {
        Source::Host(source) => source.as_os_str().len(),
        _ => 0,
    })
}

/// A judgement: what did not come back could not be tried, and that is a failure.
fn judge<T>(name: &'static str, promised: &str, found: Option<T>, look: impl FnOnce(T) -> (bool, String)) -> Probe {
    let (held, seen) = found.map_or((false, "the probe could not try it".to_owned()), look);
    let state = if held { State::Held } else { State::Failed };
    Probe { name, promised: promised.to_owned(), seen, state }
}

/// No promise, and why; what is so all the same.
fn unpromised(name: &'static str, why: impl Into<String>, seen: impl Into<String>) -> Probe {
    Probe { name, promised: why.into(), seen: seen.into(), state: State::NotPromised }
}
