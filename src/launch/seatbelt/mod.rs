//! Builds the command line of macOS's `/usr/bin/sandbox-exec` and the profile that it reads. Paths are
//! passed as parameters and never written into the profile, where they would need quoting.

mod profile;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Downgrade, DowngradeKind, LaunchError, limits};
use crate::config::Origin;
use crate::host::ProcessStamp;
use crate::path::HostPath;
use crate::plan::{HelperConfig, Plan, Secret, Source, Variable, VariableValue};
use profile::Profile;

/// Name of the profile in the session directory.
const FILE: &str = "profile.sb";

/// The profile and environment with which `exec` starts another command in the same sandbox. It is
/// stored on disk, so it holds the names of secrets and not their values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub program: Option<PathBuf>,
    /// Ends before the helper's configuration.
    pub argv: Vec<OsString>,
    pub directory: PathBuf,
    /// Variables that are not secret.
    pub env: Vec<(String, String)>,
    /// Names of the secret variables.
    pub secrets: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltLaunch {
    /// `None` if `sandbox-exec` does not exist.
    pub program: Option<HostPath>,
    pub argv: Vec<OsString>,
    /// All variables of the guest, secrets included.
    pub env: Vec<(String, Secret)>,
    pub entry: Entry,
    /// The profile is written to this file.
    pub file: HostPath,
    pub profile: String,
    pub downgrades: Vec<Downgrade>,
}

impl SeatbeltLaunch {
    /// Lists the rules for `explain`.
    pub fn steps(&self) -> Vec<String> {
        let rules = self.profile.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
        rules.map(str::to_owned).collect()
    }
}

pub fn compile(plan: &Plan, owner: ProcessStamp) -> Result<SeatbeltLaunch, LaunchError> {
    let seatbelt = plan.seatbelt.as_ref().ok_or(LaunchError::NoSeatbeltFacts)?;
    let helper = seatbelt.facts.helper.as_ref().ok_or(LaunchError::NoProgramFile)?;
    let Profile { text, parameters } = profile::of(plan, seatbelt, helper);
    let mut argv: Vec<OsString> = vec!["/usr/bin/sandbox-exec".into()];
    for (name, path) in parameters {
        let mut definition = OsString::from(format!("{name}="));
        definition.push(path.as_os_str());
        argv.extend(["-D".into(), definition]);
    }
    argv.extend(["-f".into(), seatbelt.session.join(FILE).as_os_str().to_owned(), "--".into()]);
    argv.extend([helper.as_os_str().to_owned(), "guest".into()]);
    let entry = Entry {
        program: plan.engine.program.as_ref().map(|program| program.as_path().to_owned()),
        argv: argv.clone(),
        directory: plan.workdir.as_path().to_owned(),
        env: plan.env.iter().filter_map(plain).collect(),
        secrets: plan.env.iter().filter(|variable| plain(variable).is_none()).map(|it| it.name.clone()).collect(),
    };
    argv.push(helper_config(plan, &seatbelt.session, owner)?.into());
    argv.extend(plan.command.iter().cloned());
    let env = plan.env.iter().map(|variable| {
        let value = match &variable.value {
            VariableValue::Plain(value) => Secret::new(value),
            VariableValue::Secret(secret) => secret.clone(),
        };
        (variable.name.clone(), value)
    });
    Ok(SeatbeltLaunch {
        program: plan.engine.program.clone(),
        argv,
        env: env.collect(),
        entry,
        file: plan.session_dir.join(FILE),
        profile: text,
        downgrades: downgrades(plan),
    })
}

fn plain(variable: &Variable) -> Option<(String, String)> {
    match &variable.value {
        VariableValue::Plain(value) => Some((variable.name.clone(), value.clone())),
        VariableValue::Secret(_) => None,
    }
}

/// Adapts the helper's configuration: the network is the host's, so there are no ports to relay.
fn helper_config(plan: &Plan, session: &HostPath, owner: ProcessStamp) -> Result<String, LaunchError> {
    let control_dir = session.to_str().ok_or_else(|| LaunchError::SessionNotUtf8 { session: session.clone() })?;
    let helper_config = HelperConfig {
        forward: Vec::new(),
        owner: false,
        control_dir: Some(control_dir.to_owned()),
        launcher: Some(owner.pid),
        ..plan.helper_config.clone()
    };
    serde_json::to_string(&helper_config).map_err(|source| LaunchError::HelperConfig { source })
}

/// Seatbelt has no resource limits and cannot show a file at another path.
fn downgrades(plan: &Plan) -> Vec<Downgrade> {
    let (_, mut downgrades) = limits::divide(plan, |_| true, "Seatbelt has no limits");
    if plan.asked_git_mode != plan.git_mode && !plan.fixed.git_dirs.is_empty() {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Git,
            asked: "a private Git directory".into(),
            got: "the host's, with read-only hooks and configuration".into(),
            reason: "sandbox-exec cannot put a directory in the place of another".into(),
        });
    }
    downgrades.extend(super::nested_downgrade(plan));
    if let Some(keep) = &plan.keep {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Keep,
            asked: format!("keep ({})", keep.origin),
            got: "nothing is kept".into(),
            reason: "a Seatbelt sandbox has no files to keep; use --image to run in a container".into(),
        });
    }
    for mount in plan.mounts.iter().filter(|mount| !matches!(mount.why.from, Origin::Default | Origin::Preset(_))) {
        if let Source::Host(source) = &mount.source
            && source.as_path() != mount.target.as_path()
        {
            downgrades.push(Downgrade {
                kind: DowngradeKind::MountTarget,
                asked: format!("`{source}` at `{}` ({})", mount.target, mount.why.from),
                got: format!("at its path on the host, `{source}`"),
                reason: "Seatbelt cannot show a file at another path".into(),
            });
        }
    }
    downgrades
}
