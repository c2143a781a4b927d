//! macOS Seatbelt: which profile, and what of the plan it opens. There are no mounts on this path: the guest sees the host's files
//! under their own names, and a mount in the plan is a grant to read, or to write, what it names.

use std::path::PathBuf;

use super::entry::{Mount, Source, Topic, Why};
use super::prepare::Prepare;
use super::ssh::{SshPlan, SshState};
use super::{Draft, EngineKind};
use crate::config::value::{Access, BuiltIn, NetworkMode, Stance, TmpMode};
use crate::config::{Config, Sourced};
use crate::error::{Error, Result};
use crate::facts::{Facts, OwnProfile, SeatbeltFacts};
use crate::path::HostPath;
use crate::process::status_file::STATUS;
use crate::vars;

/// What the profile's text starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// One of sandpen's own.
    BuiltIn(BuiltIn),
    /// The user's. sandpen's protections, and a network that was switched off, come on top of it.
    Own(OwnProfile),
}

/// What a Seatbelt sandbox needs beyond the rest of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltPlan {
    /// The profile.
    pub base: Base,
    /// The host's real paths.
    pub facts: SeatbeltFacts,
    /// The workspace.
    pub target: HostPath,
    /// Further workspaces.
    pub includes: Vec<HostPath>,
    /// Where temporary files go.
    pub temp: HostPath,
    /// The session's directory, its real path.
    pub session: HostPath,
    /// The agent's socket, when it must not be reached.
    pub hidden_agent: Option<HostPath>,
    /// The agent's socket, when it may be.
    pub agent: Option<HostPath>,
}

/// Caches that would be written below the home: the host's own programs execute what they find there.
const CACHES: &[(&str, &str)] =
    &[("XDG_CACHE_HOME", "cache"), ("npm_config_cache", "cache/npm"), ("GOCACHE", "cache/go-build")];

/// The network policy. A profile that names one decides it, unless someone asked for another: that contradicts.
pub fn policy(config: &Config, engine: EngineKind) -> Result<(NetworkMode, String)> {
    let asked = &config.network;
    let named = config.seatbelt_profile.as_ref().filter(|_| engine == EngineKind::SandboxExec);
    let profile = named.and_then(|named| Some((BuiltIn::named(&named.value)?, named)));
    Ok(match profile {
        Some((profile, named)) if asked.is_asked_for() && profile.network != asked.value => {
            return Err(Error::usage(format!(
                "{}: the profile `{}` is for the network `{}`, but {} says `{}`",
                named.origin, named.value, profile.network, asked.origin, asked.value
            ))
            .hint(format!("drop one of the two, or use `{}`", BuiltIn { network: asked.value, ..profile }.name())));
        }
        Some((profile, named)) if !asked.is_asked_for() => {
            (profile.network, format!("the profile `{}` says so ({})", named.value, named.origin))
        }
        _ if asked.is_asked_for() => (asked.value, format!("asked for by {}", asked.origin)),
        _ => (asked.value, "nobody asked for less".into()),
    })
}

/// The profile that a name, or else the network policy, leads to.
fn base(config: &Config, facts: &SeatbeltFacts, network: NetworkMode) -> Base {
    let named = config.seatbelt_profile.as_ref().and_then(|named| BuiltIn::named(&named.value));
    match (&facts.own, named) {
        (Some(own), _) => Base::Own(own.clone()),
        (None, Some(built_in)) => Base::BuiltIn(built_in),
        (None, None) => Base::BuiltIn(BuiltIn { stance: Stance::Permissive, network }),
    }
}

impl SeatbeltPlan {
    /// The profile's name for people, and for programs inside.
    pub fn name(&self) -> String {
        match &self.base {
            Base::BuiltIn(profile) => profile.name().into(),
            Base::Own(own) => own.path.to_string(),
        }
    }
}

/// Why there is no Seatbelt here.
pub fn problem(facts: &Facts) -> Option<Error> {
    match facts.seatbelt.as_ref()?.program {
        Some(_) => None,
        None => Some(
            Error::launch("there is no `/usr/bin/sandbox-exec` here, which is a part of macOS")
                .hint("use `--engine docker` or `--engine podman`"),
        ),
    }
}

impl Draft<'_> {
    /// What differs from a sandbox with a file system of its own.
    pub fn seatbelt(&mut self, ssh: &SshPlan, network: NetworkMode) -> Option<SeatbeltPlan> {
        let facts = self.facts.seatbelt.clone()?;
        let session = facts.sessions.join(self.session_dir.as_path().file_name().unwrap_or_default());
        // The host's own file is where ssh looks, and nothing can be put elsewhere.
        self.mounts.retain(|mount| mount.target.as_path() != std::path::Path::new("/etc/ssh/ssh_known_hosts"));
        let temp = self.seatbelt_temp(&facts, &session);
        self.prepare.push(Prepare::Shared { path: self.session_dir.join(STATUS) });
        let plan = SeatbeltPlan {
            base: base(self.config, &facts, network),
            target: self.workspace.root().clone(),
            includes: self.workspace.includes.clone(),
            temp,
            session,
            hidden_agent: self.hidden_agent(ssh),
            agent: ssh.mount.as_ref().and_then(|mount| HostPath::new(mount.target.as_path()).ok()),
            facts,
        };
        if matches!(plan.base, Base::BuiltIn(BuiltIn { stance: Stance::Restrictive, .. })) {
            self.tool();
            self.mounts.retain(|mount| !matches!(mount.source, Source::Link(_)));
        }
        self.seatbelt_environment(&plan);
        Some(plan)
    }

    fn seatbelt_temp(&mut self, facts: &SeatbeltFacts, session: &HostPath) -> HostPath {
        let origin = self.config.tmp.origin.clone();
        let (place, reason) = match self.config.tmp.value {
            TmpMode::Host => (facts.temp.clone(), "the host's temporary files"),
            TmpMode::Private => {
                self.prepare.push(Prepare::Directory { path: self.session_dir.join("tmp"), mode: 0o700 });
                (session.join("tmp"), "temporary files of the sandbox's own")
            }
        };
        let why = Why::new(reason, origin).about(Topic::Temp);
        self.mounts.add(Mount::directory(place.clone(), place.to_guest(), Access::Rw, why.clone()));
        self.env.set_default(vars::TMPDIR, place.to_string(), why);
        place
    }

    fn seatbelt_environment(&mut self, plan: &SeatbeltPlan) {
        let home = self.user.home.to_string();
        self.env.set_default(
            vars::HOME,
            home,
            Why::default("your own home: most of it can be read, nothing of it written").about(Topic::Home),
        );
        let name = EngineKind::SandboxExec.name();
        self.env.set_default(
            vars::SANDBOX,
            name,
            Why::default("tells programs that they are in a sandbox, and in which kind"),
        );
        let why = match &self.config.seatbelt_profile {
            Some(Sourced { origin, .. }) => Why::new("the profile, for programs that show it", origin.clone()),
            None => Why::default("the profile, for programs that show it"),
        };
        self.env.plain("SEATBELT_PROFILE", plan.name(), why);
        let template = "no hooks from a template: hooks cannot be written here, and `git init` would fail";
        self.env.plain("GIT_TEMPLATE_DIR", "", Why::default(template));
        for (name, below) in CACHES {
            let why = Why::default("the host's own programs execute what they find in caches: inside, others are used");
            self.env.plain(name, plan.temp.join(below).to_string(), why);
        }
        let entries: Vec<PathBuf> = self.facts.path.outside.iter().map(|entry| entry.as_path().to_owned()).collect();
        let path = std::env::join_paths(entries).unwrap_or_default();
        self.env.plain(
            vars::PATH,
            path.to_string_lossy(),
            Why::default("the host's PATH, without what can be written"),
        );
        self.language();
    }

    /// R4.1: an agent that is not forwarded is out of reach, even where its directory is open.
    fn hidden_agent(&self, ssh: &SshPlan) -> Option<HostPath> {
        if ssh.state == SshState::Forwarded {
            return None;
        }
        let variable = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok())?;
        Some(self.facts.files.get(&variable).map_or(variable, |fact| fact.real.clone()))
    }
}
