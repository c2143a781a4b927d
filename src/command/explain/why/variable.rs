//! Whether a variable is set inside, and by whom.

use crate::command::explain::why::Answer;
use crate::config::Origin;
use crate::host::Host;
use crate::plan::{Plan, Topic, VariableValue};
use crate::vars;

/// The answer about a variable.
pub fn answer(host: &Host, plan: &Plan, name: &str) -> Answer {
    if let Some(variable) = plan.env.iter().find(|variable| variable.name == name) {
        let how = match &variable.value {
            VariableValue::Plain(value) => format!("set inside: {value}"),
            VariableValue::Secret(_) => "set inside, as a secret: never shown, on no command line".to_owned(),
        };
        let answer = Answer::new("variable", name, Some(true), how).because(&variable.why);
        return match variable.why.topic {
            Topic::Preset => answer
                .change("--agent none", "leaves the preset out")
                .change(format!("--env {name}=VALUE"), "sets another"),
            Topic::Ssh => answer.change("--ssh-agent off", "leaves it out, and the agent with it"),
            Topic::Network => answer.change("--network off", "leaves it out, and the network with it"),
            Topic::Git if name != vars::GIT_DISCOVERY => answer,
            _ if name == vars::GIT_DISCOVERY => answer,
            _ => answer.change(format!("--env {name}=VALUE"), "sets another"),
        };
    }
    let outside = match host.env.raw(name) {
        Some(_) if vars::looks_secret(name) => "not set inside, and it looks like a secret",
        Some(_) => "not set inside",
        None => "not set inside, nor on the host",
    };
    let image = if plan.engine.kind.is_container() { ", unless the image sets one of its own" } else { "" };
    let mut answer = Answer::new("variable", name, Some(false), format!("{outside}{image}"))
        .reason("nobody asked for it: the host's variables stay outside");
    answer.from = Some(Origin::Default);
    if host.env.raw(name).is_some() {
        answer = answer.change(format!("--env {name}"), "passes the host's value, as a secret");
    }
    answer.change(format!("--env {name}=VALUE"), "sets one")
}
