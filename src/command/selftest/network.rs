//! Evaluates the network probes, with the listeners on the host as witnesses.

use super::SelftestInput;
use super::probe_result::ProbeResult;
use crate::config::value::NetworkMode;

impl SelftestInput<'_> {
    pub(super) fn network(&self) -> Vec<ProbeResult> {
        let loopback = self.canaries.was_reached(&self.canaries.loopback);
        let outer = self.canaries.outer.as_ref().is_some_and(|listener| self.canaries.was_reached(listener));
        let mut reached: Vec<&str> = Vec::new();
        reached.extend(loopback.then_some("reached the host's loopback"));
        reached.extend(outer.then_some("reached the host's address"));
        reached.extend(self.canaries.received_datagram().then_some("sent a datagram to the host"));
        match self.plan.network.mode {
            NetworkMode::Off => vec![self.closed_network("no network", reached)],
            NetworkMode::Proxied => {
                vec![self.closed_network("no network but the proxy", reached), self.proxy()]
            }
            NetworkMode::On => vec![self.open_network(loopback, &reached), self.loopback(loopback)],
        }
    }

    fn closed_network(&self, promised: &str, reached: Vec<&str>) -> ProbeResult {
        // Under Seatbelt the host's interfaces are visible, but connections are denied.
        let interfaces = match &self.findings.interfaces {
            _ if self.is_seatbelt() => Some(Vec::new()),
            Some(Ok(names)) => Some(names.clone()),
            _ => None,
        };
        ProbeResult::check("network", promised, interfaces.zip(self.findings.tcp.as_ref()), |(interfaces, _)| {
            let visible = (!interfaces.is_empty()).then(|| format!("found interface {}", interfaces.join(", ")));
            let found: Vec<String> = reached.into_iter().map(str::to_owned).chain(visible).collect();
            (found.is_empty(), if found.is_empty() { "no access".into() } else { found.join(", ") })
        })
    }

    /// sandpen's proxy must refuse a host that is not listed; a proxy command decides for itself.
    fn proxy(&self) -> ProbeResult {
        let is_command = self.plan.network.allow_hosts.is_empty();
        let promised = if is_command { "your proxy answers" } else { "refuses hosts that are not allowed" };
        ProbeResult::check("proxy", promised, self.findings.proxy.as_ref(), |answer| match answer {
            None => (false, "HTTPS_PROXY is not set".into()),
            Some(Err(error)) => (false, format!("does not answer: {error}")),
            Some(Ok(line)) => (is_command || line.split(' ').nth(1) == Some("403"), line.clone()),
        })
    }

    fn shares_network(&self) -> bool {
        !self.plan.engine.kind.is_container()
    }

    fn open_network(&self, loopback: bool, reached: &[&str]) -> ProbeResult {
        ProbeResult::check("network", "is available", self.findings.route, |route| {
            // A host without any network has no route, but a shared loopback works all the same.
            let (held, failure) = if self.shares_network() {
                (loopback, "did not reach the host's loopback")
            } else {
                (route, "no route")
            };
            let seen = match reached {
                _ if !held => failure.to_owned(),
                [] => "found a route".to_owned(),
                reached => reached.join(", "),
            };
            (held, seen)
        })
    }

    fn loopback(&self, was_reached: bool) -> ProbeResult {
        let seen = if was_reached { "reached" } else { "not reached" };
        if self.shares_network() {
            return ProbeResult::not_promised("loopback", "shared with the host, like its network", seen);
        }
        let promised = "cannot connect to the host's loopback";
        ProbeResult::check("loopback", promised, self.findings.tcp.as_ref(), |_| (!was_reached, seen.into()))
    }
}
