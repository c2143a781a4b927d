//! A home, a project and a PATH that hold nothing but what a test puts there, and a `docker` that only writes down its calls.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Ran, RunToEnd, binary};

/// Where a test runs. `PATH` is one directory outside of the project; what answers at `DOCKER_HOST` is this process, and Docker
/// is asked for in the weakest way, by `LLXPRT_SANDBOX`: without it the host's own tools would be meant.
pub struct World {
    pub root: PathBuf,
    pub home: PathBuf,
    pub project: PathBuf,
    _directory: TempDir,
    _daemon: UnixListener,
}

impl World {
    /// A world whose only engine is a recording `docker`.
    pub fn new() -> Self {
        // Not below /tmp, which is a mount of its own inside.
        let directory = tempfile::Builder::new().prefix("sandpen-cli-").tempdir_in("/var/tmp").expect("temp directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let root = directory.path().canonicalize().expect("real path");
        let (home, project) = (root.join("home"), root.join("home/project"));
        fs::create_dir_all(&project).expect("project");
        fs::create_dir(root.join("bin")).expect("bin");
        let daemon = UnixListener::bind(root.join("docker.sock")).expect("socket");
        let world = World { root, home, project, _directory: directory, _daemon: daemon };
        world.install("docker");
        world
    }

    /// Puts a recording engine on PATH. `image inspect` finds nothing; `run` exits with what EXIT_CODE says, else 0.
    pub fn install(&self, engine: &str) {
        let calls = self.root.join("calls");
        let script = format!(
            "#!/bin/sh\n{{ printf '%s\\0' {engine} \"$@\"; printf '\\n\\0'; }} >>'{0}'\nexport -p >'{0}.env'\n\
             case $1 in image) exit 1;; esac\nexit \"${{EXIT_CODE:-0}}\"\n",
            calls.display()
        );
        self.program(engine, &script);
    }

    /// Puts a script on PATH.
    pub fn program(&self, name: &str, script: &str) {
        let file = self.root.join("bin").join(name);
        fs::write(&file, script).expect("script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// Takes an engine off PATH.
    pub fn uninstall(&self, engine: &str) {
        fs::remove_file(self.root.join("bin").join(engine)).expect("installed");
    }

    /// Writes a file below the home.
    pub fn write(&self, path: impl AsRef<Path>, content: &str) -> PathBuf {
        let path = self.home.join(path);
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("write");
        path
    }

    /// The user's configuration file.
    pub fn config(&self, content: &str) {
        self.write(".config/sandpen/config.toml", content);
    }

    /// The program in the project, with nothing in its environment that the test did not put there.
    pub fn sandpen<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(&self.project).stdin(Stdio::null()).env_clear();
        command.env("HOME", &self.home).env("PATH", self.root.join("bin")).env("SANDPEN_SSH_AGENT", "off");
        command.env("LLXPRT_SANDBOX", "docker");
        command.env("DOCKER_HOST", format!("unix://{}", self.root.join("docker.sock").display()));
        command
    }

    /// What a command did, with the world's place as `[ROOT]`.
    pub fn ran(&self, command: &mut Command) -> Ran {
        let ran = command.ran();
        assert!(!matches!(ran.code, None | Some(101 | 134)), "a crash: {ran:?}");
        Ran { stdout: self.neutral(&ran.stdout), stderr: self.neutral(&ran.stderr), ..ran }
    }

    pub fn neutral(&self, text: &str) -> String {
        text.replace(&self.root.display().to_string(), "[ROOT]")
    }

    /// Asserts that a command ended with `code`, printed no data, started nothing and wrote nothing. Returns stderr.
    #[track_caller]
    pub fn stopped(&self, code: i32, command: &mut Command) -> String {
        let (before, calls) = (self.tree(), self.calls().len());
        let ran = self.ran(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{command:?}\n{}", ran.stderr);
        assert_eq!(self.calls()[calls..], Vec::<Vec<String>>::new(), "{command:?} started something");
        assert_eq!(self.tree(), before, "{command:?} wrote something");
        ran.stderr
    }

    /// Asserts exit code 2, as [`World::stopped`].
    #[track_caller]
    pub fn refused(&self, command: &mut Command) -> String {
        self.stopped(2, command)
    }

    /// `explain --format json` with these arguments and variables.
    #[track_caller]
    pub fn explain(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut command = self.sandpen(["explain", "--format", "json"].iter().chain(arguments));
        let ran = self.ran(command.envs(variables.iter().copied()));
        serde_json::from_str(ran.ok()).expect("JSON")
    }

    /// The calls of engines so far, each as argv.
    pub fn calls(&self) -> Vec<Vec<String>> {
        let text = fs::read(self.root.join("calls")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let calls = text.split_terminator("\n\0");
        calls.map(|call| call.split_terminator('\0').map(|word| self.neutral(word)).collect()).collect()
    }

    /// The environment of the last engine call, as the shell lists it.
    pub fn engine_environment(&self) -> String {
        fs::read_to_string(self.root.join("calls.env")).unwrap_or_default()
    }

    /// Every file below the world with its content, the record of calls aside.
    pub fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut tree = BTreeMap::new();
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let kind = entry.file_type().expect("file type");
                if kind.is_dir() {
                    open.push(path.clone());
                }
                let content = if kind.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
                tree.insert(path, content);
            }
        }
        tree.retain(|path, _| !path.starts_with(self.root.join("calls")) && *path != self.root.join("calls.env"));
        tree
    }
}

/// The entry of a list in the JSON whose `key` is `value`.
#[track_caller]
pub fn entry<'a>(json: &'a Value, list: &str, key: &str, value: &str) -> &'a Value {
    let entries = json[list].as_array().expect("a list");
    entries.iter().find(|entry| entry[key] == value).unwrap_or_else(|| panic!("no {key} {value} in {list}: {json:#}"))
}
