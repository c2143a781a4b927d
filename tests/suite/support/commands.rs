//! Builds the commands of a fixture: sandpen itself, programs of the host, the engine's client.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Engine, Finished, Fixture, RunToEnd, binary};

impl Fixture {
    /// Returns a command that runs a program of the host as the fixture's user, in the project,
    /// with the fixture's environment.
    pub fn host_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.user.command(program);
        command.env_clear().envs(&self.variables).current_dir(&self.project).stdin(Stdio::null());
        command
    }

    pub fn sandpen<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, arguments: I) -> Command {
        let mut command = self.host_command(binary());
        command.args(arguments);
        command
    }

    /// Returns a subcommand of sandpen, with the options that select the fixture's engine.
    pub fn command(&self, name: &str) -> Command {
        let mut command = self.sandpen([name]);
        command.args(&self.options);
        command
    }

    /// Returns `sandpen run` on the fixture's engine; callers add options, then `--` and the
    /// command.
    pub fn run(&self) -> Command {
        self.command("run")
    }

    /// Returns `sandpen run` on the fixture's engine, with another image.
    pub fn run_image(&self, image: &str) -> Command {
        self.sandpen(["run", "--engine", self.engine().flag(), "--image", image])
    }

    /// Runs a bash script in a sandbox.
    pub fn bash(&self, script: &str) -> Finished {
        self.run().args(["--", "bash", "-c", script]).finish()
    }

    /// Runs `sandpen explain --format json` and parses its output.
    #[track_caller]
    pub fn explain(&self, arguments: &[&str]) -> Value {
        self.explain_with(arguments, &[])
    }

    /// Runs `explain` with further variables in sandpen's environment.
    #[track_caller]
    pub fn explain_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut command = self.command("explain");
        command.args(["--format", "json"]).args(arguments).envs(variables.iter().copied());
        command.finish().json()
    }

    /// Runs a command to its end, asserts that it did not crash, and normalizes its output.
    #[track_caller]
    pub fn finish(&self, command: &mut Command) -> Finished {
        let finished = command.finish();
        assert!(!matches!(finished.code, None | Some(101 | 134)), "the command crashed: {finished:?}");
        let (stdout, stderr) = (self.normalize(&finished.stdout), self.normalize(&finished.stderr));
        Finished { stdout, stderr, ..finished }
    }

    /// Returns a command that runs the engine's client.
    pub fn client(&self) -> Command {
        self.host_command(self.engine().flag())
    }

    /// Returns the names of the containers for this project, in any state.
    pub fn containers(&self) -> Vec<String> {
        if self.engine() == Engine::Kubernetes {
            let name = |pod: Value| pod["metadata"]["name"].as_str().map(str::to_owned);
            return crate::kubernetes::pods_of(self).into_iter().filter_map(name).collect();
        }
        if !self.engine().is_container() {
            return Vec::new();
        }
        let filter = format!("label=dev.sandpen.workdir={}", self.project.display());
        let list = self.client().args(["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]).finish();
        list.success().lines().map(str::to_owned).collect()
    }
}
