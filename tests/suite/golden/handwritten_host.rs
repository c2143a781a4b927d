//! Builds a host that does not depend on the machine: its files are those of a fixture; its
//! engines, agent and user are data.

use std::fs;
use std::path::PathBuf;

use sandpen::HostPath;
use sandpen::internals::value::EngineSetting;
use sandpen::internals::{
    AgentFacts, Controller, DesktopFacts, DockerFacts, Environment, FileFact, FileKind, Host, ImageFacts, NativeFacts,
    Platform, PodmanFacts, ProcessStamp, Reach, Resolved, RootImageFacts, RootImageUser, SystemEntry, SystemFacts,
    Terminal,
};

use crate::support::Fixture;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Docker,
    DockerRootless,
    DockerMacos,
    Podman,
    PodmanRootless,
    Native,
    /// With an image, which the scenario names.
    NativeImage,
}

impl Engine {
    /// Without the one that needs an image.
    pub const ALL: [Engine; 6] = [
        Engine::Docker,
        Engine::DockerRootless,
        Engine::DockerMacos,
        Engine::Podman,
        Engine::PodmanRootless,
        Engine::Native,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Engine::Docker => "docker",
            Engine::DockerRootless => "docker-rootless",
            Engine::DockerMacos => "docker-macos",
            Engine::Podman => "podman",
            Engine::PodmanRootless => "podman-rootless",
            Engine::Native => "native",
            Engine::NativeImage => "native-image",
        }
    }

    pub fn setting(self) -> EngineSetting {
        match self {
            Engine::Docker | Engine::DockerRootless | Engine::DockerMacos => EngineSetting::Docker,
            Engine::Podman | Engine::PodmanRootless => EngineSetting::Podman,
            Engine::Native | Engine::NativeImage => EngineSetting::Native,
        }
    }
}

pub struct HandwrittenHost {
    /// Planning reads files, so they are real.
    pub files: Fixture,
    pub host: Host,
    pub engine: Engine,
    variables: Vec<(String, String)>,
}

impl HandwrittenHost {
    pub fn new(engine: Engine) -> Self {
        let files = Fixture::with_root_prefix("sandpen-golden-");
        let root = &files.root;
        fs::create_dir(root.join("bin")).expect("bin");
        // On macOS the helper is a file beside the program.
        fs::write(root.join("bin/sandpen-linux-amd64"), "").expect("helper");
        let path = |path: &PathBuf| HostPath::new(path).expect("absolute");
        let (uid, gid) = match engine {
            Engine::Podman => (0, 0),
            Engine::DockerMacos => (501, 20),
            _ => (1000, 1000),
        };
        let host = Host {
            platform: if engine == Engine::DockerMacos { Platform::Macos } else { Platform::Linux },
            arch: "amd64",
            env: Environment::default(),
            uid,
            gid,
            user: if uid == 0 { "root".into() } else { "me".into() },
            home: path(&files.home),
            cwd: path(&files.project),
            own_places: Vec::new(),
            terminal: Terminal::default(),
            name: "machine".into(),
            sandbox: None,
            executable: Some(path(&root.join("bin/sandpen"))),
            process: ProcessStamp::default(),
        };
        HandwrittenHost { files, host, engine, variables: Vec::new() }
    }

    pub fn env(&mut self, name: &str, value: &str) {
        self.variables.push((name.into(), value.into()));
        self.host.env = self.variables.iter().cloned().collect();
    }

    /// Creates a directory and makes it the current one.
    pub fn change_to(&mut self, below: &str) {
        let directory = self.files.root.join(below);
        fs::create_dir_all(&directory).expect("directory");
        self.host.cwd = HostPath::new(directory).expect("absolute");
    }

    /// Replaces everything that was found on this machine, except for the fixture's files.
    pub fn replace_facts(&self, resolved: &mut Resolved, with_agent: bool) {
        // The files belong to the user that runs the tests, not to the host's user.
        resolved.request.workspace.owner = self.host.uid;
        let facts = &mut resolved.facts;
        facts.selinux = false;
        facts.apparmor = false;
        facts.session_base = self.host.state_dir().join("sessions");
        facts.docker = (self.engine.setting() == EngineSetting::Docker).then(|| DockerFacts {
            program: HostPath::new("/usr/bin/docker").ok(),
            endpoint: "unix:///var/run/docker.sock".into(),
            chosen_by: Default::default(),
            reach: Reach::Answers,
            rootless: self.engine == Engine::DockerRootless,
            remote: false,
            controllers: ["cpu", "memory", "pids"].map(String::from).into(),
        });
        facts.podman = (self.engine.setting() == EngineSetting::Podman).then(|| PodmanFacts {
            elsewhere: None,
            program: HostPath::new("/usr/bin/podman").ok(),
            reach: Reach::Answers,
            rootless: self.engine == Engine::PodmanRootless,
            remote: false,
            has_auth: false,
            // Without systemd no controller is delegated, so limits become downgrades.
            controllers: Vec::new(),
        });
        facts.native = (self.engine.setting() == EngineSetting::Native).then(|| NativeFacts {
            problem: None,
            limits_processes: true,
            scopes_sockets: facts.native.as_ref().is_none_or(|native| native.scopes_sockets),
            // A user session delegates memory and pids, but not CPUs.
            cannot_limit: vec![Controller::Cpu],
            system: system(),
        });
        facts.root_image = (self.engine == Engine::NativeImage).then(|| self.root_image());
        facts.agent = if with_agent {
            AgentFacts::Answers { socket: HostPath::new("/run/user/1000/agent").expect("absolute"), keys: 2 }
        } else {
            AgentFacts::Unset
        };
        // Docker reports its operating system like this; the socket is detected at launch.
        let desktop = || DesktopFacts { system: "Docker Desktop".into(), socket: None };
        facts.desktop = (self.engine == Engine::DockerMacos).then(desktop);
        facts.connection = None;
        facts.ssh = HostPath::new("/usr/bin/ssh").ok();
        // The engine reports this user when the guest runs as the image's user.
        facts.image = Some(ImageFacts {
            user: Some("node".into()),
            home: None,
            arch: Some("amd64".into()),
            user_ids: Some((1000, 1000)),
        });
    }

    /// Describes an image of two layers in sandpen's store.
    fn root_image(&self) -> RootImageFacts {
        let layer = |name: &str| self.host.state_dir().join("images/layers").join(name).join("files");
        RootImageFacts {
            reference: "example.org:5000/node:22".into(),
            digest: format!("sha256:{}", "0".repeat(64)),
            platform: "linux/amd64".into(),
            layers: vec![layer("lower"), layer("upper")],
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin".into()), ("NODE_VERSION".into(), "22".into())],
            user: Some(RootImageUser { name: "node".into(), uid: 1000, gid: 1000, home: "/home/node".into() }),
            runs_init: false,
            has_memory_layer: true,
            origin: "pulled from example.org:5000".into(),
        }
    }

    /// Replaces text that differs between two runs: the root directory, and the digests of paths
    /// below it.
    pub fn normalize(&self, text: &str) -> String {
        let text = self.files.normalize(text);
        // Digests of paths, which contain the name of a temporary directory.
        ["/venv/project-", "/cache/project-", "/dev/shm/sandpen-1000-sessions-"].into_iter().fold(
            text,
            |text, start| {
                let mut parts = text.split(start);
                let first = parts.next().unwrap_or_default().to_owned();
                parts.fold(first, |text, part| {
                    format!("{text}{start}[DIGEST]{}", part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
                })
            },
        )
    }
}

/// Describes a small merged-usr system: a directory, a link, a setting, and a setting that is a
/// link out of /usr.
fn system() -> SystemFacts {
    let path = |path: &str| HostPath::new(path).expect("absolute");
    let shown = |place: &str, real: &str, kind| SystemEntry::Shown {
        path: path(place),
        fact: FileFact { kind, real: path(real), links: Vec::new(), uid: 0 },
    };
    SystemFacts {
        entries: vec![
            shown("/usr", "/usr", FileKind::Directory),
            SystemEntry::Link { path: path("/bin"), to: "usr/bin".into() },
            shown("/etc/ssl/certs", "/etc/ssl/certs", FileKind::Directory),
            shown("/etc/localtime", "/opt/zones/UTC", FileKind::File),
        ],
        resolv_conf: HostPath::new("/run/systemd/resolve/stub-resolv.conf").ok(),
        hosts: "127.0.0.1 localhost\n".into(),
        ssh: Default::default(),
    }
}
