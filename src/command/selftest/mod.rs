//! `sandpen selftest`: plants canaries on the host, runs the probe in a sandbox like any command, and
//! compares what the probe could do, and what arrived outside, with the promises of the plan.

mod canary;
mod echo;
mod error;
mod files;
mod fingerprint;
mod kernel;
mod keys;
mod network;
pub mod probe;
mod probe_result;

use std::ffi::OsString;

use canary::Canaries;
use echo::EchoServer;
use error::SelftestError;
use probe::{Findings, Request};
use probe_result::ProbeResult;

use super::report::Report;
use crate::cli::{Format, Selftest};
use crate::config::Options;
use crate::error::{Kind, Result};
use crate::host::Host;
use crate::launch::Launch;
use crate::path::HostPath;
use crate::plan::questions::Purpose;
use crate::plan::{CONTROL_DIR, EngineKind, FINDINGS, Mount, Plan, Source};
use crate::process::{Outcome, untrusted};
use crate::resolve::Resolved;
use crate::session;
use crate::session_id::SessionId;
use crate::ui::Ui;
use crate::vars;

/// The guest must not be able to write to these directories of the host.
const SYSTEM_DIRECTORIES: &[&str] = &["/usr", "/etc", "/var/lib"];

/// The guest writes the findings, so a larger file is not read.
const MAX_FINDINGS_SIZE: u64 = 1 << 20;

pub fn run(arguments: Selftest, ui: Ui) -> Result<Outcome> {
    super::mark_inherited_files_close_on_exec();
    let value = keys::value();
    let (mut resolved, mut echo) = with_key(&arguments.options, &value)?;
    // A killed self-test must not leave a sandbox for the next one.
    resolved.config.keep = None;
    resolved.request.is_selftest = true;
    if resolved.facts.kubernetes.is_some() {
        return Err(SelftestError::Kubernetes.into());
    }
    let mut resolved = resolved.for_launch(ui)?;
    let canaries = Canaries::plant(&resolved.host)?;
    let id = resolved.id();
    let (draft, _) = resolved.plan(id.clone())?;
    if draft.remote.is_some() {
        return Err(SelftestError::Elsewhere.into());
    }
    let mut request = request(&resolved.host, &canaries, &draft);
    if keys::is_outside(&draft) {
        request.keys = Some(keys::request(&draft, &value, echo.as_ref()));
    }
    resolved.request.command = command(&resolved.host, &draft, &request)?;
    let ran = resolved.ready(id, ui).and_then(|(plan, launch)| {
        let file = plan.session_dir.join(FINDINGS);
        let inspect = || {
            let hook_planted = hooks(&plan).is_some_and(|hooks| canaries.arrived_in(hooks.as_path()));
            (untrusted::read(file.as_path(), MAX_FINDINGS_SIZE).ok(), hook_planted)
        };
        let (_, (findings, hook_planted)) = session::run_with_inspection(&resolved.host, &plan, &launch, ui, inspect)?;
        Ok((plan, launch, findings, hook_planted))
    });
    let (plan, launch, findings, hook_planted) = match ran {
        // A probe that could not run counts as failed, whatever the reason.
        Err(error) if error.kind() == Kind::Launch => {
            ui.error(&error);
            return Err(SelftestError::NotStarted.into());
        }
        ran => ran?,
    };
    let findings = findings.and_then(|text| serde_json::from_str::<Findings>(&text).ok()).unwrap_or_default();
    let input = SelftestInput {
        host: &resolved.host,
        plan: &plan,
        launch: &launch,
        canaries: &canaries,
        findings: &findings,
        hook_planted,
        value_was_echoed: echo.as_mut().is_some_and(EchoServer::has_seen_value),
    };
    let report = input.report();
    let text =
        if arguments.format == Format::Json { probe_result::json(&report)? } else { probe_result::text(&report) };
    super::print(ui, &text).map(|_| Outcome::Exited(u8::from(!report.passed())))
}

/// Resolves the options with a key of the self-test, if it can be outside; a key that is inside would say
/// nothing. The launcher trusts the echo server besides what this machine trusts.
fn with_key(options: &Options, value: &str) -> Result<(Resolved, Option<EchoServer>)> {
    let mut host = Host::read()?;
    let echo = EchoServer::start(&host, value).ok();
    let variables = host.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let roots = echo.iter().map(|echo| ("SSL_CERT_FILE".into(), echo.roots().as_os_str().to_owned()));
    host.env = variables.chain(roots).chain([(keys::NAME.into(), value.into())]).collect();
    let mut with_key = options.clone();
    with_key.secret.push(keys::binding(echo.as_ref()));
    let resolved = Resolved::on(host, &with_key, Vec::new(), Purpose::Run)?;
    match resolved.plan(SessionId::placeholder()) {
        Ok((plan, _)) if keys::is_outside(&plan) => Ok((resolved, echo)),
        _ => Ok((Resolved::read(options, Vec::new())?, None)),
    }
}

/// Lists what the probe shall try under this plan.
fn request(host: &Host, canaries: &Canaries, plan: &Plan) -> Request {
    let directories = || canaries.home.iter().chain(&canaries.temp);
    let mut plant = canary::texts(directories().map(|canary| &canary.path));
    plant.extend(SYSTEM_DIRECTORIES.iter().map(|directory| (*directory).to_owned()));
    plant.extend(hooks(plan).and_then(|hooks| hooks.to_str().map(str::to_owned)));
    let mut read = canary::texts(&canary::secrets(host));
    read.extend(canary::texts(&directories().map(canary::CanaryDirectory::secret).collect::<Vec<_>>()));
    let agent = host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| path.to_str()).map(str::to_owned);
    let findings = match plan.seatbelt.as_ref() {
        Some(seatbelt) => seatbelt.session.join(FINDINGS).to_string(),
        None => format!("{CONTROL_DIR}/{FINDINGS}"),
    };
    Request {
        findings,
        file_name: canaries.file_name.clone(),
        token: canaries.token.clone(),
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
        pids: Some(u64::from(plan.limits.pids.value.0)).filter(|_| kernel::limits_processes(plan)),
        memory: plan.limits.memory.as_ref().map(|memory| memory.value.bytes()),
        keys: None,
    }
}

/// Returns the command line of the probe inside.
fn command(host: &Host, plan: &Plan, request: &Request) -> Result<Vec<OsString>> {
    let helper: OsString = match plan.engine.kind {
        EngineKind::SandboxExec => host.executable.as_ref().map(|program| program.as_os_str().to_owned()),
        EngineKind::Native => Some(format!("{CONTROL_DIR}/sandpen").into()),
        EngineKind::Docker | EngineKind::Podman | EngineKind::Kubernetes => {
            plan.helper.as_ref().map(|helper| helper.as_os_str().to_owned())
        }
    }
    .ok_or(SelftestError::NoHelper)?;
    let request = serde_json::to_string(request).map_err(|source| SelftestError::Request { source })?;
    Ok(vec![helper, "probe".into(), request.into()])
}

/// Returns the directory of Git's hooks, if the workspace is a repository.
fn hooks(plan: &Plan) -> Option<HostPath> {
    let workspaces = plan.workdir.as_path().ancestors().filter_map(|above| HostPath::new(above).ok());
    let mut hooks = workspaces.map(|above| above.join(".git/hooks")).filter(|hooks| hooks.as_path().is_dir());
    hooks.find(|hooks| mount_of(plan, hooks).is_some())
}

/// The promises, and the observations from inside and outside.
struct SelftestInput<'a> {
    host: &'a Host,
    plan: &'a Plan,
    launch: &'a Launch,
    canaries: &'a Canaries,
    findings: &'a Findings,
    /// Whether a file of the probe arrived among Git's hooks.
    hook_planted: bool,
    /// Whether the echo server received the value of the self-test's key.
    value_was_echoed: bool,
}

impl SelftestInput<'_> {
    fn report(&self) -> Report<ProbeResult> {
        let mut lines = self.files();
        lines.extend(self.kernel());
        lines.extend(self.network());
        lines.extend(self.limits());
        lines.push(self.keys());
        Report { engine: Some(self.plan.engine.kind.name()), lines }
    }

    fn is_seatbelt(&self) -> bool {
        self.plan.engine.kind == EngineKind::SandboxExec
    }
}

/// Returns the innermost mount that makes a path of the host visible.
fn mount_of<'a>(plan: &'a Plan, path: &HostPath) -> Option<&'a Mount> {
    let contains = |mount: &&Mount| matches!(&mount.source, Source::Host(source) if path.is_within(source));
    plan.mounts.iter().filter(contains).max_by_key(|mount| match &mount.source {
        Source::Host(source) => source.as_os_str().len(),
        _ => 0,
    })
}
