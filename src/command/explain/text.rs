//! Writes a plan and its launch as a page: each entry with its reason and, if it was requested, its
//! origin.

use std::ffi::OsString;

use super::files;
use crate::config::Origin;
use crate::launch::Launch;
use crate::plan::{Detail, Mount, Plan, ProxyPlan, SecretPlace, Topic, Variable, VariableValue, Why};
use crate::ui::shell::{shell_word, shell_words};
use crate::ui::{Page, View};

/// As many variables with the same reason become one row.
const MANY: usize = 3;
/// Longer values are cut unless the view is detailed.
const MAX_VALUE_LENGTH: usize = 60;
/// Prefix of the variables that pass settings to Git.
const GIT_VARIABLES: &str = "GIT_CONFIG_";

pub fn text(plan: &Plan, launch: &Launch, view: View) -> String {
    let mut page = Page::new(view);
    sandbox(&mut page, plan);
    files::user_sections(&mut page, plan);
    preset(&mut page, plan);
    files::system_sections(&mut page, plan);
    environment(&mut page, plan);
    network(&mut page, plan, launch);
    secrets(&mut page, plan);
    page.section("Limits");
    details(&mut page, plan, |name| LIMITS.contains(&name));
    ssh(&mut page, plan);
    push(&mut page, plan);
    git(&mut page, plan);
    enforcement(&mut page, launch);
    steps(&mut page, launch);
    manifest(&mut page, launch);
    page.section("Command line");
    match launch.argv() {
        [] => page.line("(a shell)"),
        argv if view.is_terminal => folded(argv, view.width).iter().for_each(|line| page.line(line)),
        argv => page.line(&shell_words(argv)),
    }
    page.finish()
}

/// Writes a reason with its origin in parentheses. Only a detailed view shows the origin of defaults.
pub fn because(why: &Why, view: View) -> String {
    match (&why.from, why.requirement) {
        (from, Some(number)) if view.detailed => format!("{} ({from}, {number})", why.reason),
        (Origin::Default, _) if !view.detailed => why.reason.clone(),
        (Origin::Preset(_), _) if !view.detailed && why.topic == Topic::Preset => why.reason.clone(),
        (from, _) => format!("{} ({from})", why.reason),
    }
}

fn with_origin(reason: &str, from: &Origin, view: View) -> String {
    because(&Why::new(reason, from.clone()).about(Topic::Sandbox), view)
}

// Details that are shown in other sections than Sandbox.
const LIMITS: [&str; 3] = ["cpus", "memory", "pids"];
const NETWORK: [&str; 1] = ["port"];
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "startup"];
/// Details that are the same for almost every sandbox; only a detailed view shows them.
const USUAL: [&str; 4] = ["terminal", "stdin", "init", "exit code"];

fn details(page: &mut Page, plan: &Plan, which: impl Fn(&str) -> bool) {
    for Detail { name, value, reason, from } in plan.details.iter().filter(|detail| which(detail.name)) {
        let reason = with_origin(reason, from, page.view());
        page.row(name, value, &reason);
    }
}

fn sandbox(page: &mut Page, plan: &Plan) {
    let view = page.view();
    page.section("Sandbox");
    if !view.detailed {
        page.note("(origin) in parentheses; no origin means default");
    }
    page.row("engine", plan.engine.kind.name(), &with_origin(&plan.engine.reason, &plan.engine.from, view));
    if let Some(image) = &plan.image {
        page.row("image", image.reference.as_str(), &with_origin(&image.reason, &image.from, view));
    }
    page.row("directory", &plan.workdir.to_string(), "the working directory, at the same path as on the host");
    let id = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
    let user = format!("{}:{}, home {}", id(plan.user.uid), id(plan.user.gid), plan.user.home);
    page.row("user", &user, &plan.user.reason);
    details(page, plan, |name| {
        let elsewhere = LIMITS.contains(&name) || NETWORK.contains(&name) || ENVIRONMENT.contains(&name);
        !elsewhere && (view.detailed || !USUAL.contains(&name))
    });
}

/// Adds the mounts and variables of the agent's preset.
fn preset(page: &mut Page, plan: &Plan) {
    let mounts: Vec<&Mount> = plan.mounts.iter().filter(|mount| mount.why.topic == Topic::Preset).collect();
    let variables: Vec<&Variable> = plan.env.iter().filter(|variable| variable.why.topic == Topic::Preset).collect();
    let mut origins = mounts.iter().map(|mount| &mount.why).chain(variables.iter().map(|variable| &variable.why));
    let Some(Origin::Preset(name)) = origins.next().map(|why| &why.from) else { return };
    page.section(&format!("Preset {name}"));
    page.note("disable it with --agent none");
    files::rows(page, plan, &mounts, false);
    for variable in variables {
        let shown = format!("{} {}", variable.name, value(variable, page.view()));
        page.row("env", &shown, &because(&variable.why, page.view()));
    }
}

fn environment(page: &mut Page, plan: &Plan) {
    let view = page.view();
    page.section("Environment");
    page.note("no other variables of the host are set; the Preset and Git sections list theirs");
    let is_here = |variable: &&Variable| view.detailed || !matches!(variable.why.topic, Topic::Preset | Topic::Git);
    let variables: Vec<&Variable> = plan.env.iter().filter(is_here).collect();
    let mut summarized: Vec<&str> = Vec::new();
    for variable in &variables {
        let reason = variable.why.reason.as_str();
        let alike = variables.iter().filter(|other| other.why.reason == reason && other.why.topic != Topic::Asked);
        let alike: Vec<&str> = alike.map(|other| other.name.as_str()).collect();
        if view.detailed || alike.len() < MANY {
            page.row(&variable.name, &value(variable, view), &because(&variable.why, view));
        } else if !summarized.contains(&reason) {
            summarized.push(reason);
            page.prose(&format!("{} variables", alike.len()), &format!("{reason}: {}", alike.join(", ")));
        }
    }
    details(page, plan, |name| ENVIRONMENT.contains(&name));
}

fn value(variable: &Variable, view: View) -> String {
    match &variable.value {
        VariableValue::Secret(_) => "(secret)".to_owned(),
        VariableValue::Plain(value) if view.detailed || value.chars().count() <= MAX_VALUE_LENGTH => value.clone(),
        VariableValue::Plain(value) => value.chars().take(MAX_VALUE_LENGTH - 1).chain(['…']).collect(),
    }
}

fn network(page: &mut Page, plan: &Plan, launch: &Launch) {
    page.section("Network");
    page.row("policy", &plan.network.mode.to_string(), &plan.network.reason);
    if let Some(proxy) = &plan.network.proxy {
        let reason = match proxy {
            ProxyPlan::ForSecrets { .. } => "programs reach it by HTTPS_PROXY; other hosts are passed on unchanged",
            _ => "the guest has no network, only the proxy's port on its loopback interface",
        };
        page.row("proxy", proxy.name(), reason);
    }
    for rule in &plan.network.allow_hosts {
        page.row("allowed", &rule.value.to_string(), &rule.origin.to_string());
    }
    if let Some(argv) = launch.proxy_argv() {
        page.row("command", &shell_words(argv), "started before the guest, stopped after it");
    }
    details(page, plan, |name| NETWORK.contains(&name));
}

/// Adds the keys with their hosts, and never a value.
fn secrets(page: &mut Page, plan: &Plan) {
    page.section("Keys");
    for key in &plan.secrets.keys {
        let reason = with_origin(&key.reason, &key.from, page.view());
        match key.place {
            SecretPlace::Inside => page.row("inside", &key.name, &reason),
            SecretPlace::Outside => {
                let hosts = key.hosts.iter().map(|(host, header)| format!("{host} ({header})"));
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                page.row("outside", &format!("{} → {hosts}", key.name), &format!("{}: {reason}", key.source));
            }
        }
    }
    if plan.secrets.outside().next().is_some() {
        page.note("programs that ignore HTTPS_PROXY or the variables for certificates cannot use them, such as Java");
    }
}

fn ssh(page: &mut Page, plan: &Plan) {
    page.section("SSH agent");
    let state = serde_json::to_value(plan.ssh.state).ok();
    let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or_default();
    page.row("state", state, &plan.ssh.reason);
    if let Some(keys) = plan.ssh.keys {
        page.row("keys", &keys.to_string(), "listed by the agent; it does not hand out private keys");
    }
    if plan.ssh.gate.is_some() {
        page.row("gate", "list and sign", "every other request is refused, and the agent does not see it");
    }
    if let Some(tunnel) = &plan.ssh.tunnel {
        page.row("tunnel", &shell_words(&tunnel.argv), "not started by `explain`");
    }
    for check in &plan.ssh.pending {
        page.row("pending", check, "checked at launch");
    }
}

fn push(page: &mut Page, plan: &Plan) {
    page.section("Pushes");
    for rule in &plan.push.rules {
        page.row("allowed", &rule.value.to_string(), &rule.origin.to_string());
    }
    for remote in &plan.push.remotes {
        let reason = format!("`{}`: Git's transport runs outside, and the rules decide what is pushed", remote.name);
        page.row("remote", &remote.url.to_string(), &reason);
    }
}

fn git(page: &mut Page, plan: &Plan) {
    page.section("Git");
    page.prose("git", &format!("{} – {}", plan.git_mode, super::git_reason(plan)));
    let keys = plan.env.iter().filter(|variable| variable.name.starts_with("GIT_CONFIG_KEY_"));
    let keys: Vec<&str> = keys
        .filter_map(|variable| match &variable.value {
            VariableValue::Plain(key) => Some(key.as_str()),
            VariableValue::Secret(_) => None,
        })
        .collect();
    if !keys.is_empty() && !page.view().detailed {
        page.prose("set", &format!("{} – by {GIT_VARIABLES}… variables, which override every file", keys.join(", ")));
    }
    let view = page.view();
    let is_here = |variable: &&Variable| variable.why.topic == Topic::Git && !is_shown(variable, view);
    for variable in plan.env.iter().filter(is_here) {
        page.prose("env", &format!("{}={} – {}", variable.name, value(variable, view), because(&variable.why, view)));
    }
    for change in &plan.git {
        let file = change.file.as_deref().map_or(String::new(), |file| format!(" ({file})"));
        page.row(&change.key, &change.value, &format!("inside: {}{file}", change.done));
    }
}

/// Tells whether another row shows a variable of Git.
fn is_shown(variable: &Variable, view: View) -> bool {
    let is_setting = variable
        .name
        .strip_prefix(GIT_VARIABLES)
        .is_some_and(|rest| rest == "COUNT" || rest.starts_with("KEY_") || rest.starts_with("VALUE_"));
    view.detailed || is_setting
}

fn enforcement(page: &mut Page, launch: &Launch) {
    page.section("Not enforced");
    page.warn();
    page.note("--strict makes this an error");
    for downgrade in launch.downgrades() {
        page.row(&downgrade.asked, &downgrade.got, &downgrade.reason);
    }
}

fn steps(page: &mut Page, launch: &Launch) {
    let Some(steps) = launch.steps() else { return };
    page.section("Setup steps");
    if !page.view().detailed {
        page.line(&format!("{} steps; -v lists them", steps.len()));
        return;
    }
    for (number, step) in steps.iter().enumerate() {
        page.row(&format!("{}", number + 1), step, "");
    }
}

/// Shows the pod as kubectl gets it.
fn manifest(page: &mut Page, launch: &Launch) {
    let Some(manifest) = launch.manifest() else { return };
    page.section("Pod");
    let text = serde_json::to_string_pretty(manifest).unwrap_or_default();
    text.lines().for_each(|line| page.line(line));
}

/// Breaks a command line into lines that end in ` \`, so that a shell reads them as one.
fn folded(argv: &[OsString], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in options(argv) {
        match lines.last_mut() {
            // Room for the indent and ` \`.
            Some(line) if line.chars().count() + word.chars().count() + 5 <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(format!("  {word}"));
            }
            None => lines.push(word),
        }
    }
    lines
}

/// Quotes the arguments and joins each option with its value.
fn options(argv: &[OsString]) -> Vec<String> {
    let is_option = |word: &str| word.starts_with("--") && word.len() > 2 && !word.contains('=');
    let mut parts: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in argv.iter().map(shell_word) {
        match parts.last_mut().filter(|_| is_open && !word.starts_with('-')) {
            Some(option) => {
                option.push(' ');
                option.push_str(&word);
                is_open = false;
            }
            None => {
                is_open = is_option(&word);
                parts.push(word);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_shell_reads_a_folded_command_line_as_it_was(words in prop::collection::vec("[a-z '\\\\=]{0,30}", 1..20), width in 60usize..160) {
            let argv: Vec<OsString> = words.iter().map(OsString::from).collect();
            let lines = folded(&argv, width).join("\n");
            prop_assert_eq!(shlex::split(&lines.replace(" \\\n", " ")), Some(words));
        }
    }
}
