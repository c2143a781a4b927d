//! Provides the fixture of every test that runs sandpen: a home and a project, a user, and an
//! environment that contains only variables of the fixture.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::agent::Agent;
use super::program::install_script;
use super::user::{User, rig_variable};
use super::{Engine, Finished, IMAGE, SYSTEM_PATH, image_store};

pub struct Fixture {
    /// Contains all other directories. Normalized texts show it as `[ROOT]`.
    pub root: PathBuf,
    pub home: PathBuf,
    /// sandpen runs in this directory, which is below `home`.
    pub project: PathBuf,
    /// This user runs sandpen.
    pub uid: u32,
    pub gid: u32,
    pub(super) user: User,
    pub(super) engine: Option<Engine>,
    /// Every command has exactly these variables.
    pub(super) variables: BTreeMap<String, String>,
    /// `command` adds these options after the subcommand.
    pub(super) options: Vec<String>,
    pub(super) agent: Option<Agent>,
    /// Accepts connections at the address in DOCKER_HOST.
    pub(super) docker_socket: Option<UnixListener>,
    _directory: TempDir,
}

impl Fixture {
    /// Creates a home and a project without any engine, for the user that runs the tests.
    pub fn new() -> Self {
        Self::with_root_prefix("sandpen-run-")
    }

    /// Texts that align columns depend on the length of the root's name.
    pub fn with_root_prefix(prefix: &str) -> Self {
        // Every sandbox replaces /tmp, so the fixture is elsewhere.
        let directory = tempfile::Builder::new().prefix(prefix).tempdir_in("/var/tmp").expect("temp directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        let root = directory.path().canonicalize().expect("real path");
        let (home, project) = (root.join("home"), root.join("home/project"));
        fs::create_dir_all(&project).expect("project");
        let user = User::current();
        let mut fixture = Fixture {
            root,
            home,
            project,
            uid: user.uid,
            gid: user.gid,
            user,
            engine: None,
            variables: BTreeMap::new(),
            options: Vec::new(),
            agent: None,
            docker_socket: None,
            _directory: directory,
        };
        fixture.set("HOME", &fixture.home.display().to_string());
        fixture.set("PATH", "/usr/bin:/bin");
        fixture.set("SANDPEN_SSH_AGENT", "off");
        fixture
    }

    /// Runs a test on an engine, if the engine is available.
    #[track_caller]
    pub fn on(engine: Engine, test: impl FnOnce(&Fixture)) {
        Self::on_prepared(engine, std::convert::identity, test);
    }

    /// Like `on`, with further steps of the builder.
    #[track_caller]
    pub fn on_prepared(engine: Engine, prepare: fn(Fixture) -> Fixture, test: impl FnOnce(&Fixture)) {
        if engine.is_available() {
            test(&prepare(Fixture::new().with_engine(engine)));
        }
    }

    /// Runs a test on rootful Docker, used by an ordinary user who may open its socket.
    pub fn on_docker_as_ordinary_user(prepare: fn(Fixture) -> Fixture, test: impl FnOnce(&Fixture)) {
        if Engine::Docker.is_available() {
            let group = fs::metadata("/var/run/docker.sock").expect("Docker's socket").gid();
            let fixture = Fixture::new().with_engine(Engine::Docker).with_user(User::ordinary_in_group(group));
            test(&prepare(fixture));
        }
    }

    /// Uses a real engine, as the user that the engine is for. `command` adds `--engine` and the
    /// test image.
    pub fn with_engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self.set("PATH", SYSTEM_PATH);
        if let Ok(file) = std::env::var("CONTAINERS_CONF") {
            self.set("CONTAINERS_CONF", &file);
        }
        if engine.is_rootless() {
            self.set("XDG_RUNTIME_DIR", &rig_variable("SANDPEN_TEST_USER_RUNTIME"));
            self.set("CONTAINERS_STORAGE_CONF", &rig_variable("SANDPEN_TEST_USER_STORAGE_CONF"));
        }
        if engine == Engine::DockerRootless {
            self.set("DOCKER_HOST", &rig_variable("SANDPEN_TEST_ROOTLESS_DOCKER_HOST"));
        }
        if engine == Engine::Kubernetes {
            let rig = rig_variable("SANDPEN_TEST_KUBE");
            self.set("PATH", &format!("{rig}/bin:{SYSTEM_PATH}"));
            self.set("KUBECONFIG", &format!("{rig}/config"));
        }
        self.options = vec!["--engine".into(), engine.flag().into()];
        if engine.has_image() {
            self.options.extend(["--image", IMAGE].map(str::to_owned));
        }
        let fixture = self.with_user(engine.user());
        if engine == Engine::NativeImage {
            image_store::give(&fixture);
        }
        fixture
    }

    fn with_user(mut self, user: User) -> Self {
        (self.uid, self.gid) = (user.uid, user.gid);
        if user.uid != 0 {
            self.set("USER", &user.name);
        }
        self.user = user;
        for path in [&self.root, &self.home, &self.project] {
            self.give_to_user(path);
        }
        self
    }

    /// Runs every `bash`, `sh` and `perl` as root of a user namespace of its own, with its own
    /// mounts, inside the sandbox.
    pub fn nested(mut self) -> Self {
        let programs = self.root.join("nested-programs");
        fs::create_dir(&programs).expect("directory");
        for name in ["bash", "sh", "perl"] {
            let script = format!(
                "#!/usr/bin/dash\nexec /usr/bin/unshare --user --map-root-user --mount /usr/bin/{name} \"$@\"\n"
            );
            install_script(programs.join(name), &script);
        }
        let mount = format!("{}:/nested-programs", programs.display());
        let path = format!("PATH=/nested-programs:{SYSTEM_PATH}");
        self.options.extend(["--nested", "on", "--mount", &mount, "--env", &path].map(str::to_owned));
        self
    }

    /// Gives the home directory another name.
    pub fn with_home_named(mut self, name: &str) -> Self {
        let home = self.root.join(name);
        fs::rename(&self.home, &home).expect("rename");
        self.project = home.join("project");
        self.set("HOME", &home.display().to_string());
        self.home = home;
        self
    }

    /// Starts an SSH agent that holds one key, and lets sandpen decide whether to forward it.
    pub fn with_agent(self) -> Self {
        let fixture = self.with_empty_agent();
        fixture.agent().add_new_key(&fixture);
        fixture
    }

    /// Starts an SSH agent without keys.
    pub fn with_empty_agent(mut self) -> Self {
        let agent = Agent::start(&self);
        self.variables.remove("SANDPEN_SSH_AGENT");
        self.set("SSH_AUTH_SOCK", &agent.socket.display().to_string());
        self.agent = Some(agent);
        self
    }

    /// Reaches the daemon of this machine at the address that Docker Desktop uses, so that it counts as
    /// one in a virtual machine.
    pub fn with_desktop_address(mut self) -> Self {
        let directory = self.home.join(".docker/desktop");
        fs::create_dir_all(&directory).expect("directory");
        let socket = directory.join("docker.sock");
        std::os::unix::fs::symlink("/var/run/docker.sock", &socket).expect("link");
        self.set("DOCKER_HOST", &format!("unix://{}", socket.display()));
        self
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    #[track_caller]
    pub fn engine(&self) -> Engine {
        self.engine.expect("a fixture with an engine")
    }

    #[track_caller]
    pub fn agent(&self) -> &Agent {
        self.agent.as_ref().expect("a fixture with an agent")
    }

    /// Returns the name of the user that runs sandpen.
    pub fn user_name(&self) -> &str {
        &self.user.name
    }

    /// Writes a file below the home, owned by the user.
    pub fn write(&self, path: impl AsRef<Path>, content: &str) -> PathBuf {
        let path = self.make_parents(path.as_ref());
        fs::write(&path, content).expect("write");
        self.give_to_user(&path);
        path
    }

    /// Writes a script below the home, owned by the user and ready to be executed.
    pub fn write_script(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        let path = self.make_parents(path.as_ref());
        install_script(&path, text);
        self.give_to_user(&path);
        path
    }

    fn make_parents(&self, path: &Path) -> PathBuf {
        let path = self.home.join(path);
        let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
        fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        for parent in missing {
            self.give_to_user(parent);
        }
        path
    }

    /// Creates a directory beside the home, owned by the user.
    pub fn outside(&self, name: &str) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(&path).expect("directory");
        self.give_to_user(&path);
        path
    }

    #[track_caller]
    pub fn give_to_user(&self, path: impl AsRef<Path>) {
        chown(path, Some(self.uid), Some(self.gid)).expect("chown");
    }

    /// Returns the session directories that exist.
    pub fn sessions(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.home.join(".local/state/sandpen/sessions")).into_iter().flatten();
        entries.map(|entry| entry.expect("entry").path()).filter(|path| path.is_dir()).collect()
    }

    /// Replaces the fixture's own path by `[ROOT]`.
    pub fn normalize(&self, text: &str) -> String {
        text.replace(&self.root.display().to_string(), "[ROOT]")
    }
}

impl Drop for Fixture {
    /// Ends the detached sandboxes and removes the containers that a failed test left running.
    fn drop(&mut self) {
        let Some(engine) = self.engine else { return };
        if std::thread::panicking() {
            let _ = self.sandpen(["stop", "--all", "--time", "0"]).output();
        }
        if std::thread::panicking() && engine.is_container() {
            let filter = format!("label=dev.sandpen.workdir={}", self.project.display());
            let found = self.client().args(["ps", "--all", "--quiet", "--filter", &filter]).output();
            let found = found.map(|output| Finished::from(output).stdout).unwrap_or_default();
            for container in found.lines() {
                let _ = self.client().args(["rm", "--force", container]).output();
            }
        }
    }
}
