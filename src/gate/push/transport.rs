//! What all connections of the push gate share.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::Command;
use std::sync::Mutex;

use super::advertisement::Advertisement;
use super::decision::DefaultBranch;
use super::process::{HostEnvironment, Streams, TransportProcess};
use super::programs::RunningPrograms;
use super::record::Recorder;
use super::slots::PushSlots;
use super::ssh::Version;
use super::{MAX_PUSHES, Service, http, ls_refs, ssh};
use crate::gate::repository::host_git::HostGit;
use crate::plan::PushPlan;
use crate::plan::push::{Remote, RemoteUrl};

pub struct Transport {
    pub plan: PushPlan,
    pub environment: HostEnvironment,
    pub git: HostGit,
    pub recorder: Recorder,
    pub programs: RunningPrograms,
    pub pushes: PushSlots,
    /// The default branches that servers have named, by the number of the remote.
    default_branches: Mutex<BTreeMap<usize, DefaultBranch>>,
}

impl Transport {
    pub fn new(
        plan: PushPlan,
        environment: HostEnvironment,
        git: HostGit,
        recorder: Recorder,
        programs: RunningPrograms,
    ) -> Self {
        Transport {
            plan,
            environment,
            git,
            recorder,
            programs,
            pushes: PushSlots::new(MAX_PUSHES),
            default_branches: Mutex::default(),
        }
    }

    /// Starts a program of the host, which ends with the session.
    pub fn start(&self, command: Command, name: &str) -> Result<(TransportProcess, Streams), String> {
        TransportProcess::start(command, &self.programs).map_err(|error| format!("{name} cannot be run: {error}"))
    }

    pub fn remote(&self, number: usize) -> Result<&Remote, String> {
        self.plan.remotes.get(number).ok_or_else(|| "there is no such remote".to_owned())
    }

    /// Prepares a call of the host's Git with the user's settings for HTTP and logins, and no
    /// others.
    pub fn git_command(&self) -> Result<Command, String> {
        self.git_command_with(None)
    }

    /// Prepares a call with one more setting, which only the environment holds.
    pub fn git_command_with(&self, more: Option<(String, String)>) -> Result<Command, String> {
        let program = self.plan.git.as_ref().ok_or("there is no Git on the host")?;
        let mut command = self.environment.command(program.as_path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_CEILING_DIRECTORIES", "/");
        let fixed =
            [("core.askPass", ""), ("protocol.version", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let settings: Vec<_> = self.plan.settings.iter().cloned().chain(fixed).chain(more).collect();
        command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (number, (key, value)) in settings.into_iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), key).env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        Ok(command)
    }

    /// Asks the server for the default branch, once in a session.
    pub fn default_branch(&self, number: usize) -> Result<DefaultBranch, String> {
        if let Some(known) = self.default_branches.lock().ok().and_then(|known| known.get(&number).cloned()) {
            return Ok(known);
        }
        let advertisement = match &self.remote(number)?.url {
            RemoteUrl::Ssh(remote) => {
                let (_process, mut streams) = ssh::start(self, remote, Service::UploadPack, Version::Zero)?;
                Advertisement::read(&mut streams.stdout).map_err(unreadable)?
            }
            RemoteUrl::Http(remote) => {
                let found = http::Refs::ask(self, remote, Service::UploadPack, Version::Zero)?;
                Advertisement::read(&mut found.bytes.as_slice()).map_err(unreadable)?
            }
        };
        let mut found = DefaultBranch::of(&advertisement);
        if found == DefaultBranch::Unknown
            && let Some(name) = self.unborn_head(number)?
        {
            found = DefaultBranch::Named(name);
        }
        if let Ok(mut known) = self.default_branches.lock() {
            known.insert(number, found.clone());
        }
        Ok(found)
    }

    /// Asks the server which branch HEAD names although it does not exist.
    fn unborn_head(&self, number: usize) -> Result<Option<String>, String> {
        match &self.remote(number)?.url {
            RemoteUrl::Ssh(remote) => {
                let (_process, mut streams) = ssh::start(self, remote, Service::UploadPack, Version::Two)?;
                let request = ls_refs::request(&mut streams.stdout).map_err(unreadable)?;
                let Some(request) = request else { return Ok(None) };
                streams.stdin.write_all(&request).map_err(unreadable)?;
                ls_refs::head(&mut streams.stdout).map_err(unreadable)
            }
            RemoteUrl::Http(remote) => {
                let refs = http::Refs::ask(self, remote, Service::UploadPack, Version::Two)?;
                let request = ls_refs::request(&mut refs.bytes.as_slice()).map_err(unreadable)?;
                let Some(request) = request else { return Ok(None) };
                let (_process, mut streams) = refs.start_post(self, remote, Service::UploadPack, Version::Two)?;
                streams.stdin.write_all(&request).map_err(unreadable)?;
                drop(streams.stdin);
                ls_refs::head(&mut streams.stdout).map_err(unreadable)
            }
        }
    }
}

fn unreadable(error: io::Error) -> String {
    format!("the server's default branch cannot be read: {error}")
}
