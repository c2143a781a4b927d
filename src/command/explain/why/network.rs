//! Whether a host can be reached from inside.

use crate::command::explain::why::Answer;
use crate::config::value::{HostName, HostRule, NetworkMode};
use crate::plan::{Plan, ProxyPlan};

/// The answer about a host.
pub fn answer(plan: &Plan, host: &HostName, port: Option<u16>) -> Answer {
    let asked = port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
    let network = &plan.network;
    let listing = format!("--allow-host {asked}");
    match network.mode {
        NetworkMode::On => {
            let how = match is_loopback(host) && plan.engine.kind.is_container() {
                true => "reached inside, but as the guest's own loopback, which is not the host's",
                false => "reached inside, as far as the host's network goes",
            };
            Answer::new("host", asked, Some(true), how)
                .reason(format!("the network is on: {}", network.reason))
                .change("--network off", "leaves no network at all")
                .change(listing, "leaves this host and others that are listed")
        }
        NetworkMode::Off => Answer::new("host", asked, Some(false), "not reached")
            .reason(format!("the network is off: {}", network.reason))
            .change(format!("--network proxied {listing}"), "allows this host")
            .change("--network on", "allows every host"),
        NetworkMode::Proxied => match &network.proxy {
            Some(ProxyPlan::Command { .. }) => Answer::new("host", asked, None, "as your proxy says")
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
        let why = if others > 0 { "it is on the list, but not with this port" } else { "it is not on the list" };
        return Answer::new("host", asked, Some(false), "refused by the proxy")
            .reason(format!("{why}: {}", plan.network.reason))
            .change(format!("--allow-host {wanted}"), "allows it");
    };
    let mut answer = Answer::new("host", asked, Some(true), format!("reached through the proxy, on port {port}"))
        .reason(format!("`{}` is on the list; a local address must be listed itself", rule.value));
    answer.from = Some(rule.origin.clone());
    answer.change("--network off", "leaves no network at all")
}

fn is_loopback(host: &HostName) -> bool {
    match host {
        HostName::Name(name) => name == "localhost",
        HostName::Address(address) => address.is_loopback(),
    }
}
