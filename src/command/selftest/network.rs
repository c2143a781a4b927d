//! Judges the network by its policy, with listeners outside that know who came.

use crate::command::selftest::{Evidence, Probe, judge, unpromised};
use crate::config::value::NetworkMode;

impl Evidence<'_> {
    pub(super) fn network(&self) -> Vec<Probe> {
        let loopback = self.canaries.came_to(&self.canaries.loopback);
        let outer = self.canaries.outer.as_ref().is_some_and(|listener| self.canaries.came_to(listener));
        let datagram = self.canaries.sent_datagram();
        let mut ways: Vec<&str> = Vec::new();
        ways.extend(loopback.then_some("the host's loopback was reached"));
        ways.extend(outer.then_some("the host's address was reached"));
        ways.extend(datagram.then_some("a datagram arrived"));
        match self.plan.network.mode {
            NetworkMode::Off => vec![self.nothing_but("nothing is reached", ways)],
            NetworkMode::Proxied => {
                vec![self.nothing_but("nothing is reached but the proxy", ways), self.proxy()]
            }
            NetworkMode::On => self.open(loopback, ways),
        }
    }

    fn nothing_but(&self, promised: &str, ways: Vec<&str>) -> Probe {
        // Under Seatbelt the interfaces are the host's; what they lead to is denied.
        let interfaces = match (self.is_seatbelt(), &self.findings.interfaces) {
            (true, _) => Some(Vec::new()),
            (false, Some(Ok(names))) => Some(names.clone()),
            (false, _) => None,
        };
        judge("network", promised, interfaces.zip(self.findings.tcp.as_ref()), |(interfaces, _)| {
            let there = (!interfaces.is_empty()).then(|| format!("there is {}", interfaces.join(", ")));
            let found: Vec<String> = ways.into_iter().map(str::to_owned).chain(there).collect();
            (found.is_empty(), if found.is_empty() { "nothing was".into() } else { found.join(", ") })
        })
    }

    /// sandpen's own refuses what nobody allowed; the user's decides for itself.
    fn proxy(&self) -> Probe {
        let is_own = self.plan.network.allow_hosts.is_empty();
        let promised = if is_own { "your own answers" } else { "refuses what is not allowed" };
        judge("proxy", promised, self.findings.proxy.as_ref(), |answer| match answer {
            None => (false, "none is named inside".into()),
            Some(Err(error)) => (false, format!("it does not answer: {error}")),
            Some(Ok(line)) => (is_own || line.split(' ').nth(1) == Some("403"), line.clone()),
        })
    }

    fn open(&self, loopback: bool, ways: Vec<&str>) -> Vec<Probe> {
        let shares = !self.plan.engine.kind.is_container();
        let said = if ways.is_empty() { "there is a way out".to_owned() } else { ways.join(", ") };
        let network = judge("network", "is there", self.findings.route, |route| match (shares, loopback || route) {
            // A machine without any network has no way out; its own loopback is shared all the same.
            (true, _) => (loopback, if loopback { said } else { "the host's loopback was not reached".into() }),
            (false, true) => (route, said),
            (false, false) => (false, "there is no way out".into()),
        });
        let seen = if loopback { "it was" } else { "it was not" };
        let host = match shares {
            true => unpromised("loopback", "the host's network is shared, its loopback with it", seen),
            false => judge("loopback", "the host's own is not reached", self.findings.tcp.as_ref(), |_| {
                (!loopback, seen.into())
            }),
        };
        vec![network, host]
    }
}
