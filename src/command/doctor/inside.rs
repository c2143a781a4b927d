//! Checks whether the SSH agent and Git's settings work inside.

use super::Planned;
use super::check::{Check, Group};
use crate::command::report::State;
use crate::config::value::GitMode;
use crate::facts::AgentFacts;
use crate::plan::ssh::Strategy;
use crate::plan::{GitSettingChange, SettingEffect, SshState};
use crate::ui::counted;

const START_AGENT: &str = "eval \"$(ssh-agent)\" && ssh-add";

pub fn ssh(planned: &Planned) -> Vec<Check> {
    let line = |state, name: &str, text: String| Check::new(Group::Ssh, state, name, text);
    let agent = match &planned.facts.agent {
        AgentFacts::NotAsked => return vec![line(State::Note, "agent", planned.plan.ssh.reason.clone())],
        AgentFacts::Unset => {
            line(State::Warning, "agent", "SSH_AUTH_SOCK is not set: SSH keys do not work inside".into())
                .fix(START_AGENT)
        }
        AgentFacts::Missing { path } => {
            line(State::Warning, "agent", format!("SSH_AUTH_SOCK names `{path}`, which does not exist"))
                .fix(START_AGENT)
        }
        AgentFacts::Silent { path, error } => {
            line(State::Warning, "agent", format!("no agent answers at `{path}` ({error})")).fix(START_AGENT)
        }
        AgentFacts::Answers { socket, keys: 0 } => {
            line(State::Warning, "agent", format!("answers at `{socket}`, but holds no keys")).fix("ssh-add")
        }
        AgentFacts::Answers { socket, keys } => {
            line(State::Ok, "agent", format!("answers at `{socket}`, holds {}", counted(*keys as usize, "key")))
        }
    };
    let answers = matches!(planned.facts.agent, AgentFacts::Answers { .. });
    std::iter::once(agent).chain(answers.then(|| forwarding(planned))).collect()
}

fn forwarding(planned: &Planned) -> Check {
    let ssh = &planned.plan.ssh;
    if let Some(problem) = &ssh.problem {
        return Check::from_error(Group::Ssh, State::Problem, "forwarding", problem);
    }
    let how = match ssh.strategy {
        Strategy::Mount => "its socket is mounted",
        Strategy::HostService => "through the agent socket of the engine's machine",
        Strategy::Tunnel => "through a tunnel into the engine's machine",
        Strategy::Relay if ssh.channel.is_some() => "over a channel to sandpen, which lists keys and signs only",
        Strategy::Relay => "through a socket of sandpen, which lists keys and signs only",
        Strategy::None => "not forwarded",
    };
    let pending: String = ssh.pending.iter().map(|check| format!("; checked at launch: {check}")).collect();
    match ssh.state {
        SshState::Forwarded => Check::new(Group::Ssh, State::Ok, "forwarding", format!("{how}{pending}")),
        SshState::Off | SshState::Skipped => Check::new(Group::Ssh, State::Warning, "forwarding", &ssh.reason)
            .fix("to run without it and hide this warning: --ssh-agent off"),
    }
}

/// Checks Git on the host, and lists its settings that are different inside.
pub fn git(planned: &Planned) -> Vec<Check> {
    let line = |state, name: &str, text: String| Check::new(Group::Git, state, name, text);
    let mut checks = vec![match &planned.facts.git.program {
        Some(program) => line(State::Ok, "git", program.to_string()),
        None => line(State::Note, "git", "not installed on the host: its settings are not available inside".into()),
    }];
    for GitSettingChange { key, value, file, done, effect } in &planned.plan.git {
        let file = file.as_ref().map_or(String::new(), |file| format!(" in {file}"));
        let state = match effect {
            SettingEffect::Left => State::Warning,
            SettingEffect::Replaced => State::Note,
        };
        checks.push(line(state, key, format!("`{value}`{file} works on the host only; inside: {done}")));
    }
    if planned.config.git.value == GitMode::Shared {
        let origin = &planned.config.git.origin;
        let text = format!("shared by {origin}: the host runs code that the guest plants in its Git directory");
        checks.push(line(State::Warning, "shared", text).fix("--git private"));
    }
    checks
}
