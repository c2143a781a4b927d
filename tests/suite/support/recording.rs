//! Provides an engine that only records how it is called, as the only program on PATH, and
//! assertions that a command had no effect.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Fixture, install_script};

impl Fixture {
    /// Puts a recording `docker` on PATH, as the only program there. This process listens at
    /// `DOCKER_HOST`. Docker is selected by `LLXPRT_SANDBOX`, the variable of the lowest
    /// precedence; otherwise sandpen would use the native engine.
    pub fn with_recording_docker(mut self) -> Self {
        let socket = self.root.join("docker.sock");
        self.docker_socket = Some(UnixListener::bind(&socket).expect("socket"));
        self.set("DOCKER_HOST", &format!("unix://{}", socket.display()));
        self.set("LLXPRT_SANDBOX", "docker");
        self.set("PATH", &self.root.join("bin").display().to_string());
        self.install_recording("docker");
        self
    }

    /// Puts a recording engine on PATH. `image inspect` finds nothing; `run` exits with EXIT_CODE,
    /// or 0.
    pub fn install_recording(&self, engine: &str) {
        let calls = self.root.join("calls");
        let script = format!(
            "#!/bin/sh\n{{ printf '%s\\0' {engine} \"$@\"; printf '\\n\\0'; }} >>'{0}'\nexport -p >'{0}.env'\n\
             case $1 in image) exit 1;; version) exit 0;; esac\n\
             while [ $# -gt 0 ]; do [ \"$1\" = --cidfile ] && echo id >\"$2\"; shift; done\n\
             exit \"${{EXIT_CODE:-0}}\"\n",
            calls.display()
        );
        self.install(engine, &script);
    }

    /// Puts a script on PATH.
    pub fn install(&self, name: &str, script: &str) {
        install_script(self.root.join("bin").join(name), script);
    }

    /// Removes a program from PATH.
    pub fn uninstall(&self, name: &str) {
        fs::remove_file(self.root.join("bin").join(name)).expect("installed");
    }

    /// Writes the user's configuration file.
    pub fn write_config(&self, content: &str) {
        self.write(".config/sandpen/config.toml", content);
    }

    /// Returns the calls of recording engines so far, each as argv.
    pub fn calls(&self) -> Vec<Vec<String>> {
        let text = fs::read(self.root.join("calls")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let calls = text.split_terminator("\n\0");
        calls.map(|call| call.split_terminator('\0').map(|word| self.normalize(word)).collect()).collect()
    }

    /// Returns the environment of the last recorded call, as the shell lists it.
    pub fn engine_environment(&self) -> String {
        fs::read_to_string(self.root.join("calls.env")).unwrap_or_default()
    }

    /// Returns every file of the fixture with its content, except for the record of calls.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut open = vec![self.root.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let kind = entry.file_type().expect("file type");
                if kind.is_dir() {
                    open.push(path.clone());
                }
                let content = if kind.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
                files.insert(path, content);
            }
        }
        files.retain(|path, _| !path.starts_with(self.root.join("calls")) && *path != self.root.join("calls.env"));
        files
    }

    /// Asserts that a command exits with `code`, prints nothing to stdout, starts no engine and
    /// writes no file. Returns stderr, normalized.
    #[track_caller]
    pub fn fails_without_effect(&self, code: i32, command: &mut Command) -> String {
        let (before, calls) = (self.snapshot(), self.calls().len());
        let finished = self.finish(command);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{command:?}\n{}", finished.stderr);
        assert_eq!(self.calls()[calls..], Vec::<Vec<String>>::new(), "{command:?} called an engine");
        assert_eq!(self.snapshot(), before, "{command:?} changed a file");
        finished.stderr
    }

    /// Calls `fails_without_effect` with exit code 2, the code of usage errors.
    #[track_caller]
    pub fn usage_error(&self, command: &mut Command) -> String {
        self.fails_without_effect(2, command)
    }

    /// Runs `explain --format json` with further variables and normalizes its output.
    #[track_caller]
    pub fn explain_normalized(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut command = self.command("explain");
        command.args(["--format", "json"]).args(arguments).envs(variables.iter().copied());
        self.finish(&mut command).json()
    }
}
