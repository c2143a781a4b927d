//! macOS Seatbelt: the command line of `/usr/bin/sandbox-exec`, and the profile it reads. No path is ever part of the profile's
//! text: all of them are parameters, which the profile language takes as they are.

mod profile;

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::Origin;
use crate::error::{Error, Result};
use crate::host::ProcessStamp;
use crate::launch::{Downgrade, DowngradeKind, limits};
use crate::path::HostPath;
use crate::plan::HelperConfig;
use crate::plan::{Plan, Secret, Source, Variable, VariableValue};
use profile::Profile;

/// The profile's name in the session's directory.
const FILE: &str = "profile.sb";

/// What a further command in the same sandbox needs: the same walls and the same environment. Secrets are not kept on the disk, only
/// their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The program.
    pub program: Option<PathBuf>,
    /// The command line up to the helper's helper_config.
    pub argv: Vec<OsString>,
    /// Where the command starts.
    pub directory: PathBuf,
    /// The variables that may be shown.
    pub env: Vec<(String, String)>,
    /// The names of the others.
    pub secrets: Vec<String>,
}

/// A launch through `sandbox-exec`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatbeltLaunch {
    /// The program; `None` when it is not there.
    pub program: Option<HostPath>,
    /// The command line; the first word is the program.
    pub argv: Vec<OsString>,
    /// All variables of the guest.
    pub env: Vec<(String, Secret)>,
    /// How a further command gets in.
    pub entry: Entry,
    /// Where the profile is written.
    pub file: HostPath,
    /// Its text.
    pub profile: String,
    /// What cannot be enforced.
    pub downgrades: Vec<Downgrade>,
}

impl SeatbeltLaunch {
    /// The rules, as `explain` lists them.
    pub fn steps(&self) -> Vec<String> {
        let rules = self.profile.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
        rules.map(str::to_owned).collect()
    }
}

/// Makes a launch of a plan.
pub fn compile(plan: &Plan, owner: ProcessStamp) -> Result<SeatbeltLaunch> {
    let seatbelt = plan.seatbelt.as_ref().ok_or_else(|| Error::launch("nobody looked for Seatbelt on this host"))?;
    let helper = seatbelt.facts.helper.as_ref();
    let helper =
        helper.ok_or_else(|| Error::launch("sandpen's own program file cannot be found, which starts the command"))?;
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

/// What the first process inside does: the same as in a container, except that the network is the host's, so that there are no
/// ports to relay.
fn helper_config(plan: &Plan, session: &HostPath, owner: ProcessStamp) -> Result<String> {
    let control_dir = session.to_str().ok_or_else(|| Error::launch(format!("`{session}` is not UTF-8")))?;
    let helper_config = HelperConfig {
        forward: Vec::new(),
        owner: false,
        control_dir: Some(control_dir.to_owned()),
        launcher: Some(owner.pid),
        ..plan.helper_config.clone()
    };
    serde_json::to_string(&helper_config).map_err(|error| Error::launch("the command cannot be described").cause(error))
}

/// Seatbelt judges what is done, not how much of it, and shows every file under its own name.
fn downgrades(plan: &Plan) -> Vec<Downgrade> {
    let (_, mut downgrades) = limits::divide(plan, |_| true, "Seatbelt has no limits");
    if let Some(keep) = &plan.keep {
        downgrades.push(Downgrade {
            kind: DowngradeKind::Keep,
            asked: format!("the sandbox kept ({})", keep.origin),
            got: "nothing is kept".into(),
            reason: "a Seatbelt sandbox is processes, which end with it; name an image to have a container".into(),
        });
    }
    for mount in plan.mounts.iter().filter(|mount| !matches!(mount.why.from, Origin::Default | Origin::Preset(_))) {
        if let Source::Host(source) = &mount.source
            && source.as_path() != mount.target.as_path()
        {
            downgrades.push(Downgrade {
                kind: DowngradeKind::MountTarget,
                asked: format!("`{source}` at `{}` ({})", mount.target, mount.why.from),
                got: format!("at its own place, `{source}`"),
                reason: "Seatbelt shows the host's files under their own names".into(),
            });
        }
    }
    downgrades
}
