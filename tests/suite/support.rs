//! What the tests stand on: an engine to run on, a home and a project of their own, and the program under test.
//!
//! `for_every_engine!(name)` turns `fn name(pen: &Pen)` into one test per engine. Which engines there are is told by
//! SANDPEN_TEST_ENGINES (`scripts/test` sets it); an engine that is not there is skipped, and `scripts/test` names it.

mod process;
pub mod pty;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use process::{Running, comes_true, command_lines, eventually, is_running, signal};
use tempfile::TempDir;

/// By its path: `Command` would look a bare name up in the PATH that a test sets.
const SETPRIV: &str = "/usr/bin/setpriv";

/// The image with git, ssh, bash and perl.
pub const IMAGE: &str = "localhost/sandpen-test:latest";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
    PodmanRootless,
    DockerRootless,
    /// Native, as the rig's ordinary user.
    Native,
    /// Native, as root.
    NativeRoot,
}

impl Engine {
    pub fn rig_name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::Podman => "podman",
            Engine::PodmanRootless => "podman-rootless",
            Engine::DockerRootless => "docker-rootless",
            Engine::Native | Engine::NativeRoot => "native",
        }
    }

    /// The value of `--engine`.
    pub fn flag(self) -> &'static str {
        match self {
            Engine::Docker | Engine::DockerRootless => "docker",
            Engine::Podman | Engine::PodmanRootless => "podman",
            Engine::Native | Engine::NativeRoot => "native",
        }
    }

    /// Whether sandpen runs as the rig's ordinary user.
    pub fn is_rootless(self) -> bool {
        matches!(self, Engine::PodmanRootless | Engine::DockerRootless | Engine::Native)
    }

    /// Whether the guest has an image of its own.
    pub fn is_container(self) -> bool {
        !matches!(self, Engine::Native | Engine::NativeRoot)
    }

    pub fn is_there(self) -> bool {
        let there = std::env::var("SANDPEN_TEST_ENGINES").unwrap_or_default();
        there.split(',').any(|name| name == self.rig_name())
    }
}

/// One test per engine.
#[macro_export]
macro_rules! for_every_engine {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::{Engine, Pen};
            #[test]
            fn docker() { Pen::on(Engine::Docker, super::$name) }
            #[test]
            fn podman() { Pen::on(Engine::Podman, super::$name) }
            #[test]
            fn podman_rootless() { Pen::on(Engine::PodmanRootless, super::$name) }
            #[test]
            fn docker_rootless() { Pen::on(Engine::DockerRootless, super::$name) }
            #[test]
            fn native() { Pen::on(Engine::Native, super::$name) }
            #[test]
            fn native_root() { Pen::on(Engine::NativeRoot, super::$name) }
        }
    )+};
}

/// One test per container engine, for what is about images, containers and their clients.
#[macro_export]
macro_rules! for_every_container_engine {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::{Engine, Pen};
            #[test]
            fn docker() { Pen::on(Engine::Docker, super::$name) }
            #[test]
            fn podman() { Pen::on(Engine::Podman, super::$name) }
            #[test]
            fn podman_rootless() { Pen::on(Engine::PodmanRootless, super::$name) }
            #[test]
            fn docker_rootless() { Pen::on(Engine::DockerRootless, super::$name) }
        }
    )+};
}

/// A home and a project of the test's own, and the program to run over them.
pub struct Pen {
    pub engine: Engine,
    pub home: PathBuf,
    pub project: PathBuf,
    /// The user that runs sandpen.
    pub uid: u32,
    pub gid: u32,
    /// Groups beyond the user's own.
    groups: Option<u32>,
    directory: TempDir,
}

impl Pen {
    /// Runs a test on an engine, if it is there.
    pub fn on(engine: Engine, test: impl FnOnce(&Pen)) {
        if !engine.is_there() {
            eprintln!("SKIPPED: {} is not in SANDPEN_TEST_ENGINES", engine.rig_name());
            return;
        }
        test(&Pen::new(engine));
    }

    /// Rootful Docker, used by an ordinary user who may use its socket.
    pub fn on_docker_as_ordinary_user(test: impl FnOnce(&Pen)) {
        if !Engine::Docker.is_there() {
            eprintln!("SKIPPED: docker is not in SANDPEN_TEST_ENGINES");
            return;
        }
        let group = fs::metadata("/var/run/docker.sock").expect("Docker's socket").gid();
        test(&Pen::of(Engine::Docker, test_user(), Some(group)));
    }

    pub fn new(engine: Engine) -> Self {
        Self::of(engine, if engine.is_rootless() { test_user() } else { (0, 0) }, None)
    }

    fn of(engine: Engine, (uid, gid): (u32, u32), groups: Option<u32>) -> Self {
        // Not below /tmp: the sandbox has a temp directory of its own there, and tests should not depend on that.
        let directory =
            tempfile::Builder::new().prefix("sandpen-test-").tempdir_in("/var/tmp").expect("temp directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let root = directory.path().canonicalize().expect("real path");
        let (home, project) = (root.join("home"), root.join("home/project"));
        fs::create_dir_all(&project).expect("project");
        for path in [&root, &home, &project] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("chown");
        }
        Pen { engine, home, project, uid, gid, groups, directory }
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().canonicalize().expect("real path")
    }

    /// Writes a file below the test's home, owned by the user.
    pub fn write(&self, path: impl AsRef<Path>, content: &str) -> PathBuf {
        let path = self.home.join(path);
        let mut missing: Vec<PathBuf> = Vec::new();
        for parent in path.ancestors().skip(1).take_while(|parent| !parent.exists()) {
            missing.push(parent.to_owned());
        }
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        fs::write(&path, content).expect("write");
        for path in missing.iter().chain([&path]) {
            std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid)).expect("chown");
        }
        path
    }

    /// The program, as the right user, in the project, with a clean environment.
    pub fn sandpen(&self) -> Command {
        self.host_command(binary())
    }

    /// A program of the host, as the same user in the same surroundings.
    pub fn host_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match (self.uid, self.groups) {
            (0, _) => Command::new(program),
            (_, None) => {
                let mut command = as_test_user();
                command.arg(program);
                command
            }
            (uid, Some(group)) => {
                let mut command = Command::new(SETPRIV);
                let ids = [uid, self.gid, group].map(|id| id.to_string());
                command.args(["--reuid", &ids[0], "--regid", &ids[1], "--groups", &ids[2], "--"]).arg(program);
                command
            }
        };
        command.env_clear().current_dir(&self.project).stdin(Stdio::null());
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut env = vec![
            ("HOME", self.home.display().to_string()),
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("SANDPEN_SSH_AGENT", "off".into()),
        ];
        env.extend(std::env::var("CONTAINERS_CONF").ok().map(|value| ("CONTAINERS_CONF", value)));
        if self.uid != 0 {
            env.push(("USER", rig("SANDPEN_TEST_USER")));
        }
        if self.engine.is_rootless() {
            env.push(("XDG_RUNTIME_DIR", rig("SANDPEN_TEST_USER_RUNTIME")));
            env.push(("CONTAINERS_STORAGE_CONF", rig("SANDPEN_TEST_USER_STORAGE_CONF")));
        }
        if self.engine == Engine::DockerRootless {
            env.push(("DOCKER_HOST", rig("SANDPEN_TEST_ROOTLESS_DOCKER_HOST")));
        }
        env
    }

    /// `sandpen run` with the engine and the test image; add options, then `--` and the command.
    pub fn run(&self) -> Command {
        let mut command = self.sandpen();
        command.args(["run", "--engine", self.engine.flag()]).args(self.image());
        command
    }

    /// `sandpen explain --format json`, parsed.
    pub fn explain(&self, arguments: &[&str]) -> serde_json::Value {
        let mut command = self.sandpen();
        command
            .args(["explain", "--format", "json", "--engine", self.engine.flag()])
            .args(self.image())
            .args(arguments);
        let output = command.output().expect("explain");
        assert!(output.status.success(), "{}", Ran::from(output).stderr);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn image(&self) -> &'static [&'static str] {
        if self.engine.is_container() { &["--image", IMAGE] } else { &[] }
    }

    /// The engine's own client.
    pub fn client(&self) -> Command {
        self.host_command(self.engine.flag())
    }

    /// The containers over this project, by name, in whatever state.
    pub fn containers(&self) -> Vec<String> {
        if !self.engine.is_container() {
            return Vec::new();
        }
        let filter = format!("label=dev.sandpen.workdir={}", self.project.display());
        let ran = self.client().args(["ps", "--all", "--filter", &filter, "--format", "{{.Names}}"]).ran();
        ran.ok().lines().map(str::to_owned).collect()
    }

    /// The session directories that exist.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.home.join(".local/state/sandpen/sessions")).into_iter().flatten();
        entries.map(|entry| entry.expect("entry").path()).filter(|path| path.is_dir()).collect()
    }

    /// A directory outside of the home, the user's own.
    pub fn outside(&self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir_all(&path).expect("directory");
        std::os::unix::fs::chown(&path, Some(self.uid), Some(self.gid)).expect("chown");
        path
    }

    /// Runs a shell script inside and returns what it said.
    pub fn bash(&self, script: &str) -> Ran {
        self.run().args(["--", "bash", "-c", script]).ran()
    }
}

impl Drop for Pen {
    /// A test that failed half-way may have left its sandbox running.
    fn drop(&mut self) {
        if std::thread::panicking() && self.engine.is_container() {
            let filter = format!("label=dev.sandpen.workdir={}", self.project.display());
            let found = self.client().args(["ps", "--all", "--quiet", "--filter", &filter]).output();
            let found = found.map(|output| Ran::from(output).stdout).unwrap_or_default();
            for container in found.lines() {
                let _ = self.client().args(["rm", "--force", container]).output();
            }
        }
    }
}

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// What sandpen said about long waits; not part of `stderr`.
    pub waits: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stderr, waits) = apart(&text(output.stderr));
        Ran { code: output.status.code(), stdout: text(output.stdout), stderr, waits }
    }
}

/// What was said, and what was said about long waits, which depends on the machine's load.
pub fn apart(stderr: &str) -> (String, String) {
    let (waits, rest): (Vec<&str>, Vec<&str>) =
        stderr.split_inclusive('\n').partition(|line| line.starts_with("sandpen: waiting for "));
    (rest.concat(), waits.concat())
}

impl Ran {
    /// Asserts success and returns stdout without the last newline.
    #[track_caller]
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim_end()
    }
}

/// Runs a command to its end.
pub trait RunToEnd {
    fn ran(&mut self) -> Ran;
}

impl RunToEnd for Command {
    fn ran(&mut self) -> Ran {
        self.output().expect("the program starts").into()
    }
}

/// The program under test: the released build that `scripts/test` installs, else the one cargo just built.
pub fn binary() -> PathBuf {
    std::env::var_os("SANDPEN_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandpen")), PathBuf::from)
}

fn rig(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with scripts/test"))
}

/// Starts a command as the rig's ordinary user; the environment is the caller's to set.
pub fn as_test_user() -> Command {
    let user = rig("SANDPEN_TEST_USER");
    let mut command = Command::new(SETPRIV);
    command.args(["--reuid", &user, "--regid", &user, "--init-groups", "--"]);
    command
}

fn test_user() -> (u32, u32) {
    let user = rig("SANDPEN_TEST_USER");
    let passwd = fs::read_to_string("/etc/passwd").expect("passwd");
    let line = passwd.lines().find(|line| line.split(':').next() == Some(&user)).expect("the test user exists");
    let fields: Vec<&str> = line.split(':').collect();
    (fields[2].parse().expect("uid"), fields[3].parse().expect("gid"))
}

/// `sandpen` without any engine, in a directory, with a clean environment.
pub fn plain(directory: &Path) -> Command {
    let mut command = Command::new(binary());
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("PATH", "/usr/bin:/bin")
        .current_dir(directory)
        .stdin(Stdio::null());
    command
}

#[allow(dead_code)]
pub fn os(text: &str) -> &OsStr {
    OsStr::new(text)
}
