//! Judges files and sockets: the home, the temp directory, the system, Git's hooks, the SSH agent, the engines' sockets.

use crate::command::selftest::canary::{Place, engine_sockets, secrets};
use crate::command::selftest::{Evidence, Probe, SYSTEM, hooks, judge, shown, unpromised};
use crate::config::value::Access;
use crate::path::HostPath;
use crate::plan::{Mount, SshState};

impl Evidence<'_> {
    pub(super) fn files(&self) -> Vec<Probe> {
        let mut probes = self.place("home", self.canaries.home.as_ref(), "your home");
        probes.extend(self.place("temp", self.canaries.temp.as_ref(), "the host's temp directory"));
        probes.push(self.secrets());
        probes.push(self.system());
        probes.extend(self.hooks());
        probes.push(self.sockets());
        probes.push(self.agent());
        probes
    }

    /// A directory with a secret: nothing comes out of it, nothing goes in.
    fn place(&self, name: &'static str, place: Option<&Place>, what: &str) -> Vec<Probe> {
        let promised = format!("nothing of {what} is read or written");
        let Some(place) = place else {
            let seen = "no file could be planted there to try it with";
            return vec![judge(name, &promised, Some(()), |()| (false, seen.to_owned()))];
        };
        let arrived = self.canaries.arrived_in(place.directory.as_path());
        let intact = std::fs::read_to_string(place.secret().as_path()).is_ok_and(|text| text == place.content);
        let carried = self.findings.read.as_ref().map(|read| {
            place.secret().to_str().and_then(|path| read.get(path)).is_some_and(|content| *content == place.content)
        });
        let seen = |carried: bool| match (carried, arrived || !intact) {
            (false, false) => "nothing was".to_owned(),
            (true, false) => "a file planted there was read".to_owned(),
            (false, true) => "a file was written there".to_owned(),
            (true, true) => "a file planted there was read, and one was written".to_owned(),
        };
        if let Some(mount) = shown(self.plan, &place.directory) {
            return vec![unpromised(name, mounted(mount), carried.map_or("not tried".into(), seen))];
        }
        if self.is_seatbelt() {
            let promised = format!("nothing of {what} is written");
            let why = "Seatbelt shows the host's files, except those with credentials";
            let written = judge(name, &promised, Some(()), |()| (!arrived && intact, seen(false)));
            return vec![written, unpromised("reading", why, carried.map_or("not tried".into(), seen))];
        }
        vec![judge(name, &promised, carried, |carried| (!carried && !arrived && intact, seen(carried)))]
    }

    /// Files that hold credentials, where there are any.
    fn secrets(&self) -> Probe {
        let (meant, kept): (Vec<HostPath>, Vec<HostPath>) =
            secrets(self.host).into_iter().partition(|path| shown(self.plan, path).is_some());
        let promised = match meant.first().and_then(|path| shown(self.plan, path)) {
            Some(mount) => format!("keys and credentials are not read, except what is {}", mounted(mount)),
            None => "keys and credentials are not read".to_owned(),
        };
        judge("credentials", &promised, self.findings.read.as_ref(), |read| {
            let found: Vec<&str> =
                kept.iter().filter_map(|path| path.to_str()).filter(|path| read.contains_key(*path)).collect();
            match found.is_empty() {
                true => (true, format!("none of {} was", kept.len())),
                false => (false, format!("{} was", found.join(", "))),
            }
        })
    }

    fn system(&self) -> Probe {
        let arrived: Vec<&str> =
            SYSTEM.iter().copied().filter(|directory| self.canaries.arrived_in(directory.as_ref())).collect();
        judge("system", "nothing of the host's system is written", self.findings.planted.as_ref(), |_| {
            match arrived.is_empty() {
                true => (true, "nothing was".into()),
                false => (false, format!("a file was written to {}", arrived.join(", "))),
            }
        })
    }

    /// Only in a repository.
    fn hooks(&self) -> Option<Probe> {
        let directory = hooks(self.plan)?;
        let arrived = self.hook;
        let seen = if arrived { "a hook was planted" } else { "no hook was planted" };
        let guard = self.plan.guard.as_ref();
        let fixed = guard.is_some_and(|guard| guard.fixed.iter().any(|fixed| directory.as_path().starts_with(fixed)))
            || shown(self.plan, &directory).is_some_and(|mount| mount.access == Access::Ro);
        Some(match fixed {
            true => judge("hooks", "Git's hooks are not written", self.findings.planted.as_ref(), |_| {
                (!arrived, seen.into())
            }),
            false => unpromised("hooks", "nothing keeps Git's hooks from being written", seen),
        })
    }

    fn sockets(&self) -> Probe {
        let known = engine_sockets(self.host);
        let shown = known.iter().find_map(|socket| shown(self.plan, socket));
        let seen = |reached: &Vec<String>| match reached.is_empty() {
            true => "none is".to_owned(),
            false => format!("{} answers", reached.join(", ")),
        };
        match shown {
            Some(mount) => {
                let found = self.findings.sockets.as_ref().map_or("not tried".to_owned(), seen);
                unpromised("engines", mounted(mount), found)
            }
            None => judge(
                "engines",
                "no socket of Docker or Podman is reached",
                self.findings.sockets.as_ref(),
                |reached| (reached.is_empty(), seen(reached)),
            ),
        }
    }

    fn agent(&self) -> Probe {
        let ssh = &self.plan.ssh;
        let Some(agents) = &self.findings.agents else {
            return judge("ssh agent", "as planned", None::<()>, |()| (false, String::new()));
        };
        let seen = match agents.iter().next() {
            None => "none answers".to_owned(),
            Some((path, keys)) => {
                format!("one answers at {path}, with {keys} key{}", if *keys == 1 { "" } else { "s" })
            }
        };
        match ssh.state {
            SshState::Forwarded => {
                let place = ssh.mount.as_ref().map(|mount| mount.target.to_string()).unwrap_or_default();
                let promised = format!("the SSH agent answers at {place}");
                judge("ssh agent", &promised, Some(agents), |agents| {
                    (agents.get(&place).copied() == ssh.keys && ssh.keys.is_some(), seen)
                })
            }
            SshState::Off | SshState::Skipped => {
                judge("ssh agent", "no SSH agent is reached", Some(agents), |agents| (agents.is_empty(), seen))
            }
        }
    }
}

/// Who asked for a mount.
fn mounted(mount: &Mount) -> String {
    format!("mounted by {}: {}", mount.why.from, mount.why.reason)
}
