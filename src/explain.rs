//! Shows a plan and its launch: as text for people, as JSON for programs. Decides nothing and starts nothing.

use std::ffi::OsString;
use std::fmt::Write;

use serde_json::{Value, json};

use crate::config::value::Guard;
use crate::engine::Launch;
use crate::error::{Error, Result};
use crate::escape::{escape, escape_json};
use crate::host::Host;
use crate::plan::{Mount, Plan, ProxyPlan, Source, SshState, Variable, VariableValue};

/// The JSON of the interface. Unknown values are `null`; keys are never absent.
pub fn json(host: &Host, plan: &Plan, launch: &Launch) -> Result<String> {
    let report = json!({
        "schema": 1,
        "engine": {
            "name": plan.engine.kind.name(),
            "program": plan.engine.program,
            "reason": plan.engine.reason,
            "from": plan.engine.from,
        },
        "image": plan.image.as_ref().map(|image| json!({
            "reference": image.reference, "reason": image.reason, "from": image.from,
        })),
        "host": {"platform": host.platform, "home": host.home, "uid": host.uid, "gid": host.gid},
        "workdir": {"host": plan.workdir, "guest": plan.workdir},
        "user": {
            "uid": plan.user.uid, "gid": plan.user.gid, "home": plan.user.home, "how": plan.user.how, "reason": plan.user.reason,
        },
        "mounts": plan.mounts.iter().map(mount_json).collect::<Vec<_>>(),
        "env": plan.env.iter().map(variable_json).collect::<Vec<_>>(),
        "ports": plan.ports,
        "limits": {
            "cpus": plan.limits.cpus.as_ref().map(|cpus| cpus.value),
            "memory": plan.limits.memory.as_ref().map(|memory| memory.value),
            "pids": plan.limits.pids.value,
        },
        "network": {
            "mode": plan.network.mode,
            "allow_hosts": plan.network.allow_hosts.iter().map(|rule| &rule.value).collect::<Vec<_>>(),
            "proxy": plan.network.proxy.as_ref().map(ProxyPlan::name),
            "proxy_argv": launch.proxy_argv().map(texts),
            "reason": plan.network.reason,
        },
        "ssh": {
            "state": plan.ssh.state,
            "strategy": plan.ssh.strategy,
            "socket": plan.ssh.mount.as_ref().filter(|_| plan.ssh.state == SshState::Forwarded).map(|mount| &mount.target),
            "keys": plan.ssh.keys,
            "pending": plan.ssh.pending,
            "reason": plan.ssh.reason,
        },
        "git": {"settings": plan.git, "guard": plan.guard_mode},
        "command": texts(&plan.command),
        "argv": texts(launch.argv()),
        "steps": launch.steps(),
        "details": plan.details,
        "warnings": warnings(plan),
        "downgrades": launch.downgrades(),
    });
    let text = serde_json::to_string_pretty(&report)
        .map_err(|error| Error::failed("the plan cannot be written as JSON").cause(error))?;
    Ok(format!("{}\n", escape_json(&text)))
}

fn texts(words: &[OsString]) -> Vec<String> {
    words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The plan's warnings, and why the engine cannot run now.
pub fn warnings(plan: &Plan) -> Vec<String> {
    let problems = [&plan.engine.problem, &plan.ssh.problem].into_iter().flatten().map(|problem| {
        // Causes stand side by side here: "no engine answers: this one …; that one …".
        let causes = problem.causes().join("; ");
        if causes.is_empty() { problem.message().to_owned() } else { format!("{}: {causes}", problem.message()) }
    });
    problems.chain(plan.warnings.iter().cloned()).collect()
}

fn mount_json(mount: &Mount) -> Value {
    let source = match &mount.source {
        Source::Host(path) => path.to_string(),
        Source::Tmpfs { .. } => "tmpfs".into(),
        Source::Volume(name) => format!("volume {name}"),
        Source::Text(_) => "generated".into(),
        Source::Link(to) => format!("link to {}", to.display()),
    };
    json!({
        "source": source,
        "target": mount.target,
        "mode": mount.access,
        "options": if mount.relabel { vec!["z"] } else { vec![] },
        "reason": mount.why.reason,
        "from": mount.why.from,
        "requirement": mount.why.requirement,
    })
}

fn variable_json(variable: &Variable) -> Value {
    let (value, secret) = match &variable.value {
        VariableValue::Plain(value) => (Some(value), false),
        VariableValue::Secret(_) => (None, true),
    };
    json!({
        "name": variable.name,
        "value": value,
        "secret": secret,
        "reason": variable.why.reason,
        "from": variable.why.from,
    })
}

/// The text for people: grouped, aligned, each line with its reason and origin.
pub fn text(plan: &Plan, launch: &Launch) -> String {
    let mut page = Page::default();
    page.section("Sandbox");
    page.row("engine", plan.engine.kind.name(), &format!("{} ({})", plan.engine.reason, plan.engine.from));
    if let Some(image) = &plan.image {
        page.row("image", image.reference.as_str(), &format!("{} ({})", image.reason, image.from));
    }
    page.row("directory", &plan.workdir.to_string(), "the working directory, under its own name");
    let id = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
    page.row(
        "user",
        &format!("{}:{}, home {}", id(plan.user.uid), id(plan.user.gid), plan.user.home),
        &plan.user.reason,
    );
    for detail in &plan.details {
        page.row(detail.name, &detail.value, &format!("{} ({})", detail.reason, detail.from));
    }

    page.section("Files");
    for mount in &plan.mounts {
        let source = match &mount.source {
            Source::Host(path) if path.as_path() == mount.target.as_path() => String::new(),
            Source::Host(path) => format!(" ← {path}"),
            Source::Tmpfs { .. } => " ← memory".into(),
            Source::Volume(name) => format!(" ← volume {name}"),
            Source::Text(_) => " ← generated".into(),
            Source::Link(to) => format!(" → {}", to.display()),
        };
        let requirement = mount.why.requirement.map_or(String::new(), |number| format!(", {number}"));
        page.row(
            mount.access.as_str(),
            &format!("{}{source}", mount.target),
            &format!("{} ({}{requirement})", mount.why.reason, mount.why.from),
        );
    }

    page.section("Environment");
    for variable in &plan.env {
        let value = match &variable.value {
            VariableValue::Plain(value) => value.as_str(),
            VariableValue::Secret(_) => "(secret)",
        };
        let requirement = variable.why.requirement.map_or(String::new(), |number| format!(", {number}"));
        page.row(&variable.name, value, &format!("{} ({}{requirement})", variable.why.reason, variable.why.from));
    }

    page.section("Network");
    page.row("policy", &plan.network.mode.to_string(), &plan.network.reason);
    if let Some(proxy) = &plan.network.proxy {
        page.row("proxy", proxy.name(), "the guest has no network, only the proxy's port on its loopback");
    }
    for rule in &plan.network.allow_hosts {
        page.row("allowed", &rule.value.to_string(), &rule.origin.to_string());
    }
    if let Some(argv) = launch.proxy_argv() {
        page.row("started", &shell_words(argv), "before the guest, and ended with it");
    }

    page.section("SSH agent");
    let state = serde_json::to_value(plan.ssh.state)
        .ok()
        .and_then(|state| state.as_str().map(str::to_owned))
        .unwrap_or_default();
    page.row("state", &state, &plan.ssh.reason);
    if let Some(keys) = plan.ssh.keys {
        page.row("keys", &keys.to_string(), "listed by the agent");
    }
    if let Some(tunnel) = &plan.ssh.tunnel {
        page.row("tunnel", &shell_words(&tunnel.argv), "not started by `explain`");
    }
    for check in &plan.ssh.pending {
        page.row("pending", check, "only the launch can tell");
    }

    page.section("Git");
    page.row("guard", &plan.guard_mode.to_string(), guard_reason(plan.guard_mode));
    for treatment in &plan.git {
        let place = treatment.file.as_deref().map_or(String::new(), |file| format!(" ({file})"));
        page.row(&treatment.key, &treatment.value, &format!("inside: {}{place}", treatment.done));
    }

    if !launch.downgrades().is_empty() {
        page.section("Not enforced");
        for downgrade in launch.downgrades() {
            page.row(&downgrade.asked, &downgrade.got, &downgrade.reason);
        }
    }
    if let Some(steps) = launch.steps() {
        page.section("Set-up, in this order");
        for (number, step) in steps.iter().enumerate() {
            page.row(&format!("{}", number + 1), step, "");
        }
    }
    page.section("Command line");
    let mut text = page.finish();
    let argv = launch.argv();
    let _ = writeln!(text, "  {}", if argv.is_empty() { "(a shell)".into() } else { shell_words(argv) });
    text
}

fn guard_reason(mode: Guard) -> &'static str {
    match mode {
        Guard::Review => "hooks are read-only; new settings that run code are set aside when the sandbox ends",
        Guard::Strict => "hooks and Git's configuration are read-only; what is new is set aside when the sandbox ends",
        Guard::Off => "what is planted in the repository may run on the host",
    }
}

/// A command line as a shell would read it, escaped for the terminal.
pub fn shell_words(argv: &[OsString]) -> String {
    let words: Vec<String> = argv
        .iter()
        .map(|word| match word.to_str().map(shlex::try_quote) {
            Some(Ok(quoted)) => escape(&quoted).into_owned(),
            // Bytes that are not text, in the form bash and zsh read back.
            _ => format!("$'{}'", word.as_encoded_bytes().escape_ascii()),
        })
        .collect();
    words.join(" ")
}

/// Rows in sections; the first column is as wide as the section needs.
#[derive(Default)]
struct Page {
    text: String,
    title: String,
    rows: Vec<[String; 3]>,
}

impl Page {
    fn section(&mut self, title: &str) {
        self.flush();
        self.title = title.to_owned();
    }

    fn row(&mut self, name: &str, value: &str, reason: &str) {
        self.rows.push([escape(name).into_owned(), escape(value).into_owned(), escape(reason).into_owned()]);
    }

    fn flush(&mut self) {
        if !self.title.is_empty() {
            let gap = if self.text.is_empty() { "" } else { "\n" };
            let _ = writeln!(self.text, "{gap}{}", self.title);
        }
        let width = |column: usize, most: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).filter(|width| *width <= most).max().unwrap_or(0)
        };
        let (names, values) = (width(0, 40), width(1, 60));
        for [name, value, reason] in std::mem::take(&mut self.rows) {
            let line = format!("  {name:names$}  {value:values$}  {reason}");
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    fn finish(mut self) -> String {
        self.flush();
        self.text
    }
}
