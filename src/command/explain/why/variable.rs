//! Answers whether a variable is set inside, and by which rule.

use super::Answer;
use crate::config::Origin;
use crate::host::Host;
use crate::plan::{Plan, Topic, VariableValue};
use crate::vars;

pub fn answer(host: &Host, plan: &Plan, name: &str) -> Answer {
    if let Some(variable) = plan.env.iter().find(|variable| variable.name == name) {
        let how = match &variable.value {
            VariableValue::Plain(value) => format!("set inside: {value}"),
            VariableValue::Secret(_) => "set inside as a secret: never shown and not on a command line".to_owned(),
        };
        let answer = Answer::new("variable", name, Some(true), how).because(&variable.why);
        return match variable.why.topic {
            Topic::Preset => answer
                .change("--agent none", "disables the preset")
                .change(format!("--env {name}=VALUE"), "sets another value"),
            Topic::Ssh => answer.change("--ssh-agent off", "unsets it and disables agent forwarding"),
            Topic::Network => answer.change("--network off", "unsets it and disables the network"),
            Topic::Git => answer,
            _ => answer.change(format!("--env {name}=VALUE"), "sets another value"),
        };
    }
    let outside = match host.env.raw(name) {
        Some(_) if vars::looks_secret(name) => "not set inside, and it looks like a secret",
        Some(_) => "not set inside",
        None if name.chars().any(|letter| letter.is_ascii_lowercase()) => {
            "neither a program on PATH nor a variable that is set"
        }
        None => "set neither inside nor on the host",
    };
    let image = if plan.engine.kind.is_container() { ", unless the image sets it" } else { "" };
    let mut answer = Answer::new("variable", name, Some(false), format!("{outside}{image}"))
        .reason("variables of the host are only passed on request");
    answer.from = Some(Origin::Default);
    if host.env.raw(name).is_some() {
        answer = answer.change(format!("--env {name}"), "passes the host's value, as a secret");
    }
    answer.change(format!("--env {name}=VALUE"), "sets a value")
}
