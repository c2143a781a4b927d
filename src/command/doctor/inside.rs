//! What works inside as outside: the SSH agent and Git.

use crate::command::doctor::Planned;
use crate::command::doctor::report::{Check, Group, State};
use crate::config::value::Guard;
use crate::facts::AgentFacts;
use crate::plan::ssh::Strategy;
use crate::plan::{GitSettingChange, SettingEffect, SshState};

const START: &str = "eval \"$(ssh-agent)\" && ssh-add";

/// Whether the agent answers, and how it gets inside.
pub fn ssh(planned: &Planned) -> Vec<Check> {
    let line = |state, name: &str, text: String| Check::new(Group::Ssh, state, name, text);
    let agent = match &planned.facts.agent {
        AgentFacts::NotAsked => return vec![line(State::Note, "agent", planned.plan.ssh.reason.clone())],
        AgentFacts::Unset => {
            line(State::Warning, "agent", "SSH_AUTH_SOCK is not set: SSH keys do not work inside".into()).fix(START)
        }
        AgentFacts::Missing { path } => {
            line(State::Warning, "agent", format!("SSH_AUTH_SOCK names `{path}`, which does not exist")).fix(START)
        }
        AgentFacts::Silent { path, error } => {
            line(State::Warning, "agent", format!("nothing answers at `{path}` ({error})")).fix(START)
        }
        AgentFacts::Answers { socket, keys: 0 } => {
            line(State::Warning, "agent", format!("answers at `{socket}`, and holds no keys")).fix("ssh-add")
        }
        AgentFacts::Answers { socket, keys } => {
            let plural = if *keys == 1 { "" } else { "s" };
            line(State::Ok, "agent", format!("answers at `{socket}`, and holds {keys} key{plural}"))
        }
    };
    let answers = matches!(planned.facts.agent, AgentFacts::Answers { .. });
    std::iter::once(agent).chain(answers.then(|| forwarding(planned))).collect()
}

fn forwarding(planned: &Planned) -> Check {
    let ssh = &planned.plan.ssh;
    if let Some(problem) = &ssh.problem {
        return Check::of(Group::Ssh, State::Problem, "forwarding", problem);
    }
    let how = match ssh.strategy {
        Strategy::Mount => "its socket, directly",
        Strategy::HostService => "through the socket that the engine's machine keeps",
        Strategy::Tunnel => "through a tunnel into the engine's machine",
        Strategy::None => "not at all",
    };
    let pending: String = ssh.pending.iter().map(|check| format!("; only a launch tells {check}")).collect();
    match ssh.state {
        SshState::Forwarded => Check::new(Group::Ssh, State::Ok, "forwarding", format!("{how}{pending}")),
        SshState::Off | SshState::Skipped => Check::new(Group::Ssh, State::Warning, "forwarding", &ssh.reason)
            .fix("do without, and silence this: --ssh-agent off"),
    }
}

/// Git on the host, and its settings that are not simply the same inside.
pub fn git(planned: &Planned) -> Vec<Check> {
    let line = |state, name: &str, text: String| Check::new(Group::Git, state, name, text);
    let mut checks = vec![match &planned.facts.git.program {
        Some(program) => line(State::Ok, "git", program.to_string()),
        None => line(State::Note, "git", "not installed on the host: its settings are not read".into()),
    }];
    for GitSettingChange { key, value, file, done, effect } in &planned.plan.git {
        let file = file.as_ref().map_or(String::new(), |file| format!(" in {file}"));
        let state = match effect {
            SettingEffect::Left => State::Warning,
            SettingEffect::Replaced => State::Note,
        };
        checks.push(line(state, key, format!("`{value}`{file} works on the host only; inside: {done}")));
    }
    if planned.config.guard.value == Guard::Off {
        let text =
            format!("switched off by {}: code planted in Git's files runs on the host", planned.config.guard.origin);
        checks.push(line(State::Warning, "guard", text).fix("--guard review"));
    }
    checks
}
