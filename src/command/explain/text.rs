//! A plan and its launch as a page for people: grouped, aligned, each entry with its reason, and its origin if somebody asked.

use std::ffi::OsString;

use crate::command::explain::files;
use crate::config::Origin;
use crate::config::value::Guard;
use crate::launch::Launch;
use crate::plan::{Detail, Mount, Plan, Topic, Variable, VariableValue, Why};
use crate::ui::Page;
use crate::ui::View;
use crate::ui::shell::{shell_word, shell_words};

/// Variables alike are summed up from this many on.
const MANY: usize = 3;
/// What is cut off of a variable's value, unless everything is wanted.
const LONG_VALUE: usize = 60;
/// Settings that Git is told by variables, three to a setting.
const GIT_VARIABLES: &str = "GIT_CONFIG_";

/// The page.
pub fn text(plan: &Plan, launch: &Launch, view: View) -> String {
    let mut page = Page::new(view);
    sandbox(&mut page, plan);
    files::yours(&mut page, plan);
    preset(&mut page, plan);
    files::others(&mut page, plan);
    environment(&mut page, plan);
    network(&mut page, plan, launch);
    page.section("Limits");
    details(&mut page, plan, |name| LIMITS.contains(&name));
    ssh(&mut page, plan);
    git(&mut page, plan);
    enforcement(&mut page, launch);
    steps(&mut page, launch);
    page.section("Command line");
    match launch.argv() {
        [] => page.line("(a shell)"),
        argv if view.is_terminal => folded(argv, view.width).iter().for_each(|line| page.line(line)),
        argv => page.line(&shell_words(argv)),
    }
    page.finish()
}

/// A reason, and in brackets who asked; what nobody asked for is sandpen's default, and says so only in detail.
pub fn because(why: &Why, view: View) -> String {
    match (&why.from, why.requirement) {
        (from, Some(number)) if view.detailed => format!("{} ({from}, {number})", why.reason),
        (Origin::Default, _) if !view.detailed => why.reason.clone(),
        (Origin::Preset(_), _) if !view.detailed && why.topic == Topic::Preset => why.reason.clone(),
        (from, _) => format!("{} ({from})", why.reason),
    }
}

fn asked(reason: &str, from: &Origin, view: View) -> String {
    because(&Why::new(reason, from.clone()).about(Topic::Sandbox), view)
}

/// Decisions with a section of their own.
const LIMITS: [&str; 3] = ["cpus", "memory", "pids"];
const NETWORK: [&str; 1] = ["port"];
const ENVIRONMENT: [&str; 3] = ["PATH", "PYTHONPATH", "startup"];
/// The same for every sandbox.
const USUAL: [&str; 4] = ["terminal", "stdin", "init", "exit code"];

fn details(page: &mut Page, plan: &Plan, which: impl Fn(&str) -> bool) {
    for Detail { name, value, reason, from } in plan.details.iter().filter(|detail| which(detail.name)) {
        let reason = asked(reason, from, page.view());
        page.row(name, value, &reason);
    }
}

fn sandbox(page: &mut Page, plan: &Plan) {
    let view = page.view();
    page.section("Sandbox");
    if !view.detailed {
        page.note("in brackets: who asked; without: sandpen's default");
    }
    page.row("engine", plan.engine.kind.name(), &asked(&plan.engine.reason, &plan.engine.from, view));
    if let Some(image) = &plan.image {
        page.row("image", image.reference.as_str(), &asked(&image.reason, &image.from, view));
    }
    page.row("directory", &plan.workdir.to_string(), "the working directory, under its own name");
    let id = |id: Option<u32>| id.map_or("?".to_owned(), |id| id.to_string());
    let user = format!("{}:{}, home {}", id(plan.user.uid), id(plan.user.gid), plan.user.home);
    page.row("user", &user, &plan.user.reason);
    details(page, plan, |name| {
        let elsewhere = LIMITS.contains(&name) || NETWORK.contains(&name) || ENVIRONMENT.contains(&name);
        !elsewhere && (view.detailed || !USUAL.contains(&name))
    });
}

/// Everything that is there because of the agent's preset.
fn preset(page: &mut Page, plan: &Plan) {
    let mounts: Vec<&Mount> = plan.mounts.iter().filter(|mount| mount.why.topic == Topic::Preset).collect();
    let variables: Vec<&Variable> = plan.env.iter().filter(|variable| variable.why.topic == Topic::Preset).collect();
    let mut origins = mounts.iter().map(|mount| &mount.why).chain(variables.iter().map(|variable| &variable.why));
    let Some(Origin::Preset(name)) = origins.next().map(|why| &why.from) else { return };
    page.section(&format!("Preset {name}"));
    page.note("--agent none leaves it out");
    files::rows(page, plan, &mounts, false);
    for variable in variables {
        let shown = format!("{} {}", variable.name, value(variable, page.view()));
        page.row("env", &shown, &because(&variable.why, page.view()));
    }
}

fn environment(page: &mut Page, plan: &Plan) {
    let view = page.view();
    page.section("Environment");
    page.note("Git's and the preset's have their own place; nothing else of yours is inside");
    let is_here = |variable: &&Variable| view.detailed || !matches!(variable.why.topic, Topic::Preset | Topic::Git);
    let variables: Vec<&Variable> = plan.env.iter().filter(is_here).collect();
    let mut summed_up: Vec<&str> = Vec::new();
    for variable in &variables {
        let reason = variable.why.reason.as_str();
        let alike = variables.iter().filter(|other| other.why.reason == reason && other.why.topic != Topic::Asked);
        let alike: Vec<&str> = alike.map(|other| other.name.as_str()).collect();
        if view.detailed || alike.len() < MANY {
            page.row(&variable.name, &value(variable, view), &because(&variable.why, view));
        } else if !summed_up.contains(&reason) {
            summed_up.push(reason);
            page.prose(&format!("{} variables", alike.len()), &format!("{reason}: {}", alike.join(", ")));
        }
    }
    details(page, plan, |name| ENVIRONMENT.contains(&name));
}

fn value(variable: &Variable, view: View) -> String {
    match &variable.value {
        VariableValue::Secret(_) => "(secret)".to_owned(),
        VariableValue::Plain(value) if view.detailed || value.chars().count() <= LONG_VALUE => value.clone(),
        VariableValue::Plain(value) => value.chars().take(LONG_VALUE - 1).chain(['…']).collect(),
    }
}

fn network(page: &mut Page, plan: &Plan, launch: &Launch) {
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
    details(page, plan, |name| NETWORK.contains(&name));
}

fn ssh(page: &mut Page, plan: &Plan) {
    page.section("SSH agent");
    let state = serde_json::to_value(plan.ssh.state).ok();
    let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or_default();
    page.row("state", state, &plan.ssh.reason);
    if let Some(keys) = plan.ssh.keys {
        page.row("keys", &keys.to_string(), "listed by the agent; the keys themselves stay with it");
    }
    if let Some(tunnel) = &plan.ssh.tunnel {
        page.row("tunnel", &shell_words(&tunnel.argv), "not started by `explain`");
    }
    for check in &plan.ssh.pending {
        page.row("pending", check, "only the launch can tell");
    }
}

fn git(page: &mut Page, plan: &Plan) {
    page.section("Git");
    page.prose("guard", &format!("{} – {}", plan.guard_mode, guard_reason(plan.guard_mode)));
    let told = plan.env.iter().filter(|variable| variable.name.starts_with("GIT_CONFIG_KEY_"));
    let told: Vec<&str> = told
        .filter_map(|variable| match &variable.value {
            VariableValue::Plain(key) => Some(key.as_str()),
            VariableValue::Secret(_) => None,
        })
        .collect();
    if !told.is_empty() && !page.view().detailed {
        page.prose("told", &format!("{} – by {GIT_VARIABLES}… variables, over every file", told.join(", ")));
    }
    let view = page.view();
    let is_here = |variable: &&Variable| variable.why.topic == Topic::Git && !is_shown(variable, view);
    for variable in plan.env.iter().filter(is_here) {
        page.prose("env", &format!("{}={} – {}", variable.name, value(variable, view), because(&variable.why, view)));
    }
    for treatment in &plan.git {
        let place = treatment.file.as_deref().map_or(String::new(), |file| format!(" ({file})"));
        page.row(&treatment.key, &treatment.value, &format!("inside: {}{place}", treatment.done));
    }
}

/// Whether a variable of Git's is shown elsewhere: among the settings that Git is told, or in detail.
fn is_shown(variable: &Variable, view: View) -> bool {
    let is_setting = variable
        .name
        .strip_prefix(GIT_VARIABLES)
        .is_some_and(|rest| rest == "COUNT" || rest.starts_with("KEY_") || rest.starts_with("VALUE_"));
    view.detailed || is_setting
}

fn guard_reason(mode: Guard) -> &'static str {
    match mode {
        Guard::Review => "hooks are read-only; new settings that run code are set aside when the sandbox ends",
        Guard::Strict => "hooks and Git's configuration are read-only; what is new is set aside when the sandbox ends",
        Guard::Off => "what is planted in the repository may run on the host",
    }
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
    page.section("Set-up, in this order");
    if !page.view().detailed {
        page.line(&format!("{} steps; -v lists them", steps.len()));
        return;
    }
    for (number, step) in steps.iter().enumerate() {
        page.row(&format!("{}", number + 1), step, "");
    }
}

/// A command line over several lines, each of which a shell continues with the next.
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

/// The words, an option together with its value.
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
