//! Answers whether a host can be reached from inside.

use super::Answer;
use crate::config::value::{HostName, HostRule, NetworkMode};
use crate::plan::{Plan, ProxyPlan};

pub fn answer(plan: &Plan, host: &HostName, port: Option<u16>) -> Answer {
    let asked = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
    let network = &plan.network;
    let listing = format!("--allow-host {asked}");
    match network.mode {
        NetworkMode::On => {
            let how = if is_loopback(host) && plan.engine.kind.is_container() {
                "reachable, but it is the sandbox's loopback interface and not the host's"
            } else {
                "reachable if the host can reach it"
            };
            Answer::new("host", asked, Some(true), how)
                .reason(format!("the network is on: {}", network.reason))
                .change("--network off", "disables the network")
                .change(listing, "allows only this host and others that are listed")
        }
        NetworkMode::Off => Answer::new("host", asked, Some(false), "not reachable")
            .reason(format!("the network is off: {}", network.reason))
            .change(format!("--network proxied {listing}"), "allows this host")
            .change("--network on", "allows every host"),
        NetworkMode::Proxied => match &network.proxy {
            Some(ProxyPlan::Command { .. }) => Answer::new("host", asked, None, "your proxy decides")
                .reason("the proxy command decides about every host"),
            _ => listed(plan, host, port, asked),
        },
    }
}

fn listed(plan: &Plan, host: &HostName, port: Option<u16>, asked: String) -> Answer {
    let ports = port.map_or_else(|| vec![443, 80], |port| vec![port]);
    let allowed = |port: u16| plan.network.allow_hosts.iter().find(|rule| rule.value.allows(host, port));
    let Some((port, rule)) = ports.iter().find_map(|port| Some((port, allowed(*port)?))) else {
        let wanted = HostRule::wanted(host, ports[0]);
        let others = plan.network.allow_hosts.iter().filter(|rule| rule.value.names(&host.to_string())).count();
        let why = if others > 0 { "it is listed, but not with this port" } else { "it is not listed" };
        return Answer::new("host", asked, Some(false), "refused by the proxy")
            .reason(format!("{why}: {}", plan.network.reason))
            .change(format!("--allow-host {wanted}"), "allows it");
    };
    let mut answer = Answer::new("host", asked, Some(true), format!("reachable through the proxy, on port {port}"))
        .reason(format!(
            "`{}` is listed; names that resolve to local addresses are refused unless the address is listed",
            rule.value
        ));
    answer.from = Some(rule.origin.clone());
    answer.change("--network off", "disables the network")
}

fn is_loopback(host: &HostName) -> bool {
    match host {
        HostName::Name(name) => name == "localhost",
        HostName::Address(address) => address.is_loopback(),
    }
}
