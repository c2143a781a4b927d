//! Evaluates the probes of files and sockets: home, temp directory, system, Git's hooks, SSH agent,
//! engines.

use super::canary::{CanaryDirectory, engine_sockets, secrets};
use super::probe_result::ProbeResult;
use super::{SYSTEM_DIRECTORIES, SelftestInput, hooks, mount_of};
use crate::config::value::{Access, GitMode};
use crate::path::HostPath;
use crate::plan::{Mount, SshState};
use crate::ui::counted;

const NOT_TESTED: &str = "not tested";

impl SelftestInput<'_> {
    pub(super) fn files(&self) -> Vec<ProbeResult> {
        let mut results = self.canary("home", self.canaries.home.as_ref(), "your home directory");
        results.extend(self.canary("temp", self.canaries.temp.as_ref(), "the host's temp directory"));
        results.push(self.secrets());
        results.push(self.system());
        results.extend(self.hooks());
        results.push(self.sockets());
        results.push(self.agent());
        results
    }

    fn canary(&self, name: &'static str, canary: Option<&CanaryDirectory>, place: &str) -> Vec<ProbeResult> {
        let promised = format!("cannot read or write {place}");
        let Some(canary) = canary else {
            let seen = "no file could be planted there";
            return vec![ProbeResult::check(name, &promised, Some(()), |()| (false, seen.to_owned()))];
        };
        let arrived = self.canaries.arrived_in(canary.path.as_path());
        let intact = std::fs::read_to_string(canary.secret().as_path()).is_ok_and(|text| text == canary.content);
        let was_written = arrived || !intact;
        let was_read = self.findings.read.as_ref().map(|read| {
            canary.secret().to_str().and_then(|path| read.get(path)).is_some_and(|content| *content == canary.content)
        });
        let seen = |was_read: bool| {
            match (was_read, was_written) {
                (false, false) => "no access",
                (true, false) => "read a planted file",
                (false, true) => "wrote a file",
                (true, true) => "read a planted file and wrote another",
            }
            .to_owned()
        };
        if let Some(mount) = mount_of(self.plan, &canary.path) {
            return vec![ProbeResult::not_promised(name, mounted(mount), was_read.map_or(NOT_TESTED.into(), seen))];
        }
        if self.is_seatbelt() {
            let why = "Seatbelt permits reading files of the host, except credentials";
            return vec![
                ProbeResult::check(name, &format!("cannot write {place}"), Some(()), |()| (!was_written, seen(false))),
                ProbeResult::not_promised("reading", why, was_read.map_or(NOT_TESTED.into(), seen)),
            ];
        }
        vec![ProbeResult::check(name, &promised, was_read, |was_read| (!was_read && !was_written, seen(was_read)))]
    }

    fn secrets(&self) -> ProbeResult {
        let (mounted_files, hidden): (Vec<HostPath>, Vec<HostPath>) =
            secrets(self.host).into_iter().partition(|path| mount_of(self.plan, path).is_some());
        let promised = match mounted_files.first().and_then(|path| mount_of(self.plan, path)) {
            Some(mount) => format!("cannot read keys and credentials, except those {}", mounted(mount)),
            None => "cannot read keys and credentials".to_owned(),
        };
        ProbeResult::check("credentials", &promised, self.findings.read.as_ref(), |read| {
            let found: Vec<&str> =
                hidden.iter().filter_map(|path| path.to_str()).filter(|path| read.contains_key(*path)).collect();
            if found.is_empty() {
                (true, format!("{} tried, none readable", counted(hidden.len(), "file")))
            } else {
                (false, format!("read {}", found.join(", ")))
            }
        })
    }

    fn system(&self) -> ProbeResult {
        let arrived: Vec<&str> = SYSTEM_DIRECTORIES
            .iter()
            .copied()
            .filter(|directory| self.canaries.arrived_in(directory.as_ref()))
            .collect();
        let promised = "cannot write the host's system directories";
        ProbeResult::check("system", promised, self.findings.planted.as_ref(), |_| {
            if arrived.is_empty() {
                (true, "no access".into())
            } else {
                (false, format!("wrote a file to {}", arrived.join(", ")))
            }
        })
    }

    /// Returns `None` outside of a repository.
    fn hooks(&self) -> Option<ProbeResult> {
        let directory = hooks(self.plan)?;
        let arrived = self.hook_planted;
        let seen = if arrived { "planted a hook" } else { "no hook planted" };
        let is_fixed = self.plan.git_mode == GitMode::Private
            || self.plan.fixed.paths.iter().any(|fixed| directory.is_within(fixed))
            || mount_of(self.plan, &directory).is_some_and(|mount| mount.access == Access::Ro);
        Some(if is_fixed {
            let planted = self.findings.planted.as_ref();
            ProbeResult::check("hooks", "cannot write Git's hooks", planted, |_| (!arrived, seen.into()))
        } else {
            ProbeResult::not_promised("hooks", "Git's hooks are writable", seen)
        })
    }

    fn sockets(&self) -> ProbeResult {
        let known = engine_sockets(self.host);
        let mount = known.iter().find_map(|socket| mount_of(self.plan, socket));
        let accepted = self.findings.sockets.as_ref();
        let seen = |accepted: &Vec<String>| {
            if accepted.is_empty() { "no access".to_owned() } else { format!("connected to {}", accepted.join(", ")) }
        };
        match mount {
            Some(mount) => {
                ProbeResult::not_promised("engines", mounted(mount), accepted.map_or(NOT_TESTED.to_owned(), seen))
            }
            None => ProbeResult::check("engines", "cannot connect to Docker or Podman", accepted, |accepted| {
                (accepted.is_empty(), seen(accepted))
            }),
        }
    }

    fn agent(&self) -> ProbeResult {
        let ssh = &self.plan.ssh;
        let agents = self.findings.agents.as_ref();
        let seen = match agents.and_then(|agents| agents.iter().next()) {
            None => "no agent answers".to_owned(),
            Some((path, keys)) => format!("an agent answers at {path} with {}", counted(*keys as usize, "key")),
        };
        match ssh.state {
            SshState::Forwarded => {
                let socket = ssh.socket().map(|(inside, _)| inside.to_string()).unwrap_or_default();
                let promised = format!("the SSH agent is available at {socket}");
                ProbeResult::check("ssh agent", &promised, agents, |agents| {
                    (agents.get(&socket).copied() == ssh.keys && ssh.keys.is_some(), seen)
                })
            }
            SshState::Off | SshState::Skipped => {
                ProbeResult::check("ssh agent", "cannot connect to an SSH agent", agents, |agents| {
                    (agents.is_empty(), seen)
                })
            }
        }
    }
}

fn mounted(mount: &Mount) -> String {
    format!("mounted by {} ({})", mount.why.from, mount.why.reason)
}
