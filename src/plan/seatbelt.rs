//! Decides the profile of a macOS Seatbelt sandbox and what it allows.
//!
//! Seatbelt has no mounts: files have the same paths inside and outside, and a mount in the plan is
//! a permission to read or write its path.

use std::path::PathBuf;

use super::entry::{Mount, Source, Topic, Why};
use super::prepare::Prepare;
use super::ssh::{SshPlan, SshState};
use super::{Draft, EngineKind};
use crate::config::value::{Access, BuiltIn, NetworkMode, Stance, TmpMode};
use crate::config::{Config, Origin, Sourced};
use crate::error::{Diagnostic, Error, Kind};
use crate::facts::{Facts, OwnProfile, SeatbeltFacts};
use crate::path::HostPath;
use crate::process::status_file::STATUS;
use crate::vars;

/// The profile that the generated rules are appended to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    BuiltIn(BuiltIn),
    /// The user's profile. sandpen's protections, and `--network off`, apply in addition.
    Own(OwnProfile),
}

/// The parts of a plan that only Seatbelt uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltPlan {
    pub base: Base,
    pub facts: SeatbeltFacts,
    /// The root of the workspace.
    pub target: HostPath,
    /// Directories that `--include-dir` adds.
    pub includes: Vec<HostPath>,
    /// The guest's directory for temporary files.
    pub temp: HostPath,
    /// The session's directory with all links resolved.
    pub session: HostPath,
    /// The agent's socket, if the guest must not reach it.
    pub hidden_agent: Option<HostPath>,
    /// The agent's socket, if it is forwarded.
    pub agent: Option<HostPath>,
}

#[derive(Debug, thiserror::Error)]
pub enum SeatbeltError {
    #[error(
        "{profile_origin}: the profile `{profile}` is for the network `{network}`, but {asked_origin} says `{asked}`"
    )]
    Contradiction {
        profile_origin: Origin,
        profile: String,
        network: NetworkMode,
        asked_origin: Origin,
        asked: NetworkMode,
        /// The built-in profile for the network that was requested.
        alternative: &'static str,
    },
    #[error("there is no `/usr/bin/sandbox-exec` here, which is a part of macOS")]
    NotInstalled,
}

impl Diagnostic for SeatbeltError {
    fn kind(&self) -> Kind {
        match self {
            Self::Contradiction { .. } => Kind::Usage,
            Self::NotInstalled => Kind::Launch,
        }
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Contradiction { alternative, .. } => vec![format!("drop one of the two, or use `{alternative}`")],
            Self::NotInstalled => vec!["use `--engine docker` or `--engine podman`".into()],
        }
    }
}

/// Caches that are redirected, because the host's programs execute files from the ones in the home
/// directory.
const CACHES: &[(&str, &str)] =
    &[("XDG_CACHE_HOME", "cache"), ("npm_config_cache", "cache/npm"), ("GOCACHE", "cache/go-build")];

/// Returns the network policy and its reason. A built-in profile includes a policy, which an option
/// must not contradict.
pub fn policy(config: &Config, engine: EngineKind) -> Result<(NetworkMode, String), SeatbeltError> {
    let asked = &config.network;
    let named = config.seatbelt_profile.as_ref().filter(|_| engine == EngineKind::SandboxExec);
    let profile = named.and_then(|named| Some((BuiltIn::named(&named.value)?, named)));
    Ok(match profile {
        Some((profile, named)) if asked.is_asked_for() && profile.network != asked.value => {
            return Err(SeatbeltError::Contradiction {
                profile_origin: named.origin.clone(),
                profile: named.value.clone(),
                network: profile.network,
                asked_origin: asked.origin.clone(),
                asked: asked.value,
                alternative: BuiltIn { network: asked.value, ..profile }.name(),
            });
        }
        Some((profile, named)) if !asked.is_asked_for() => {
            (profile.network, format!("set by the profile `{}` ({})", named.value, named.origin))
        }
        _ if asked.is_asked_for() => (asked.value, format!("set by {}", asked.origin)),
        _ => (asked.value, "no option restricts it".into()),
    })
}

/// Returns the named profile, else the permissive one for the network policy.
fn base(config: &Config, facts: &SeatbeltFacts, network: NetworkMode) -> Base {
    let named = config.seatbelt_profile.as_ref().and_then(|named| BuiltIn::named(&named.value));
    match (&facts.own, named) {
        (Some(own), _) => Base::Own(own.clone()),
        (None, Some(built_in)) => Base::BuiltIn(built_in),
        (None, None) => Base::BuiltIn(BuiltIn { stance: Stance::Permissive, network }),
    }
}

impl SeatbeltPlan {
    /// Returns the name of the profile, or the path of the user's.
    pub fn name(&self) -> String {
        match &self.base {
            Base::BuiltIn(profile) => profile.name().into(),
            Base::Own(own) => own.path.to_string(),
        }
    }
}

/// Returns the reason for which Seatbelt cannot be used.
pub fn problem(facts: &Facts) -> Option<Error> {
    let is_missing = facts.seatbelt.as_ref()?.program.is_none();
    is_missing.then(|| SeatbeltError::NotInstalled.into())
}

impl Draft<'_> {
    /// Decides the profile, and adapts mounts and variables to a sandbox that shares the host's
    /// file system.
    pub fn seatbelt(&mut self, ssh: &SshPlan, network: NetworkMode) -> Option<SeatbeltPlan> {
        let facts = self.facts.seatbelt.clone()?;
        let session = facts.sessions.join(self.session_dir.as_path().file_name().unwrap_or_default());
        // ssh reads the user's file at its usual path.
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
            self.tools();
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
                (session.join("tmp"), "a private directory for temporary files")
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
            Why::default("your home directory: mostly readable, not writable").about(Topic::Home),
        );
        let name = EngineKind::SandboxExec.name();
        self.env.set_default(
            vars::SANDBOX,
            name,
            Why::default("tells programs that they run in a sandbox, and in which kind"),
        );
        let why = match &self.config.seatbelt_profile {
            Some(Sourced { origin, .. }) => Why::new("the name of the profile", origin.clone()),
            None => Why::default("the name of the profile"),
        };
        self.env.plain("SEATBELT_PROFILE", plan.name(), why);
        let template = "no template: it contains hooks, which cannot be written here, so `git init` would fail";
        self.env.plain("GIT_TEMPLATE_DIR", "", Why::default(template));
        for (name, below) in CACHES {
            let why = Why::default("a private cache, because the host's programs execute files from theirs");
            self.env.plain(name, plan.temp.join(below).to_string(), why);
        }
        let entries: Vec<PathBuf> = self.facts.path.outside.iter().map(|entry| entry.as_path().to_owned()).collect();
        let path = std::env::join_paths(entries).unwrap_or_default();
        self.env.plain(
            vars::PATH,
            path.to_string_lossy(),
            Why::default("the host's PATH, without writable directories"),
        );
        self.language();
    }

    /// Returns the socket of an agent that is not forwarded, to which the profile denies access
    /// (R4.1).
    fn hidden_agent(&self, ssh: &SshPlan) -> Option<HostPath> {
        if ssh.state == SshState::Forwarded && ssh.gate.is_none() {
            return None;
        }
        let variable = self.host.env.path(vars::SSH_AUTH_SOCK).and_then(|path| HostPath::new(path).ok())?;
        Some(self.facts.files.get(&variable).map_or(variable, |fact| fact.real.clone()))
    }
}
