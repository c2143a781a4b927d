//! A home, a project and a `sandbox-exec` that writes down how it was called, keeps the profile, and becomes the command.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::judge::Profile;
use crate::support::{Ran, RunToEnd, binary};

pub const PROFILES: [&str; 6] = [
    "permissive-open",
    "permissive-closed",
    "permissive-proxied",
    "restrictive-open",
    "restrictive-closed",
    "restrictive-proxied",
];

/// A profile for a filtered network needs somebody who filters.
pub fn listed(profile: &str) -> &'static [&'static str] {
    if profile.ends_with("-proxied") { &["--allow-host", "example.org"] } else { &[] }
}

pub struct World {
    pub root: PathBuf,
    pub home: PathBuf,
    pub project: PathBuf,
    _directory: TempDir,
}

impl World {
    pub fn new() -> Self {
        Self::named("home")
    }

    /// The home's name may be an odd one.
    pub fn named(home: &str) -> Self {
        // A short path: sockets are made below it.
        let directory = tempfile::Builder::new().prefix("sb-").tempdir_in("/var/tmp").expect("temp directory");
        let root = directory.path().canonicalize().expect("real path");
        let home = root.join(home);
        let project = home.join("project");
        fs::create_dir_all(&project).expect("project");
        let world = World { root, home, project, _directory: directory };
        let calls = world.root.display().to_string();
        world.stand_in(&format!(
            "printf '%s\\0' \"$@\" >'{calls}/argv'\n\
             while [ \"$1\" != -- ]; do [ \"$1\" = -f ] && cp \"$2\" '{calls}/profile.sb'; shift; done\n\
             shift\n"
        ));
        world
    }

    /// Lets the stand-in do something before it becomes the command.
    pub fn stand_in(&self, script: &str) {
        let file = self.root.join("sandbox-exec");
        fs::write(&file, format!("#!/bin/sh\n{script}exec \"$@\"\n")).expect("stand-in");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    pub fn write(&self, path: impl AsRef<Path>, content: &str) -> PathBuf {
        let path = self.home.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("write");
        path
    }

    /// `sandpen COMMAND` as on a Mac, with nothing in its environment that the test did not put there.
    pub fn sandpen(&self, command: &str) -> Command {
        let mut program = Command::new(binary());
        program.args([command, "--assume-host", "macos"]);
        program.current_dir(&self.project).stdin(Stdio::null()).env_clear();
        program.env("HOME", &self.home).env("PATH", "/usr/bin:/bin").env("SANDPEN_SSH_AGENT", "off");
        program.env("SANDPEN_ENGINE", "sandbox-exec");
        program.env("SANDPEN_STAND_IN_SANDBOX_EXEC", self.root.join("sandbox-exec"));
        program
    }

    /// Runs a shell script inside.
    pub fn sh(&self, script: &str) -> Ran {
        self.sandpen("run").args(["--", "sh", "-c", script]).ran()
    }

    /// `explain --format json` with these options.
    #[track_caller]
    pub fn explain(&self, options: &[&str]) -> Value {
        let listed = options.iter().map(|option| listed(option)).find(|options| !options.is_empty()).unwrap_or(&[]);
        let ran = self.sandpen("explain").args(["--format", "json"]).args(listed).args(options).ran();
        serde_json::from_str(ran.ok()).expect("JSON")
    }

    /// The profile that these options lead to, ready to be asked.
    #[track_caller]
    pub fn profile(&self, options: &[&str]) -> Profile {
        let json = self.explain(options);
        Profile::read(&text(&json), parameters(&json))
    }

    pub fn neutral(&self, text: &str) -> String {
        text.replace(&self.root.display().to_string(), "[ROOT]")
    }

    /// The session directories that exist.
    pub fn sessions(&self) -> usize {
        let entries = fs::read_dir(self.home.join(".local/state/sandpen/sessions")).into_iter().flatten().flatten();
        // A file there is the lock by which sandboxes share the proxy's port.
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count()
    }

    pub fn path(&self, below: &str) -> String {
        self.home.join(below).display().to_string()
    }
}

/// The rules, as `explain` shows them.
pub fn text(json: &Value) -> String {
    let steps = json["steps"].as_array().expect("steps");
    steps.iter().map(|line| line.as_str().expect("a line").to_owned() + "\n").collect()
}

/// What stands after each `-D`.
pub fn parameters(json: &Value) -> BTreeMap<String, String> {
    let argv: Vec<&str> = json["argv"].as_array().expect("argv").iter().filter_map(Value::as_str).collect();
    let end = argv.iter().position(|word| *word == "--").expect("--");
    let definitions = argv[..end].windows(2).filter(|pair| pair[0] == "-D").map(|pair| pair[1]);
    let pairs = definitions.map(|definition| definition.split_once('=').expect("NAME=VALUE"));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
