//! Simulates another machine: namespaces with dockerd, Podman's service and sshd, reached over a virtual
//! cable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;

use crate::support::{
    Engine, Fixture, IMAGE, RunToEnd, Running, SYSTEM_PATH, eventually, install_script, is_root_or_skip, public_key,
};

/// Runs as the first process of the machine. The directory with its files is the argument.
const INSIDE: &str = r#"set -e
mount --make-rprivate /
mount --bind "$1" /mnt
for place in /home /root /run /tmp /var/tmp /var/lib/containers; do
    [ -d "$place" ] || continue
    mount -t tmpfs none "$place"
done
mkdir -p /run/sshd /run/podman
export CONTAINERS_CONF=/mnt/containers.conf CONTAINERS_STORAGE_CONF=/mnt/storage.conf
dockerd --data-root /mnt/docker --exec-root /run/docker --pidfile /run/docker.pid \
    --host unix:///var/run/docker.sock --iptables=false --ip6tables=false --bridge=none >/mnt/dockerd.log 2>&1 &
podman system service --time=0 unix:///run/podman/podman.sock >/mnt/podman.log 2>&1 &
tries=0
until docker load --quiet --input /mnt/image.tar >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { tail -5 /mnt/dockerd.log >&2; exit 1; }
    sleep 0.1
done
podman load --quiet --input /mnt/image.tar >/dev/null
echo up
exec /usr/sbin/sshd -D -e -f /mnt/sshd_config
"#;

pub struct Machine {
    directory: TempDir,
    number: u32,
    /// Dropping it ends everything in the machine.
    process: Mutex<Option<Running>>,
}

/// The machine, which tests share that run at the same time.
static SHARED: Mutex<Weak<Machine>> = Mutex::new(Weak::new());

/// Runs a test with a fixture whose engine is Docker on the machine.
pub fn with_docker(test: impl FnOnce(&Machine, &Fixture)) {
    with(Engine::Docker, std::convert::identity, test);
}

/// Likewise, with an SSH agent that holds a key.
pub fn with_docker_and_agent(test: impl FnOnce(&Machine, &Fixture)) {
    with(Engine::Docker, Fixture::with_agent, test);
}

/// Runs a test with a fixture whose engine is Podman on the machine.
pub fn with_podman(test: impl FnOnce(&Machine, &Fixture)) {
    with(Engine::Podman, std::convert::identity, test);
}

fn with(engine: Engine, prepare: fn(Fixture) -> Fixture, test: impl FnOnce(&Machine, &Fixture)) {
    if !is_root_or_skip("an engine on another machine") || !Engine::Docker.is_available() || !engine.is_available() {
        return;
    }
    let machine = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let machine = Arc::new(Machine::start());
            *shared = Arc::downgrade(&machine);
            machine
        })
    };
    let fixture = prepare(machine.fixture(engine));
    test(&machine, &fixture);
}

impl Machine {
    /// Starts a machine of the test's own, which may break it.
    pub fn alone(engine: Engine, test: impl FnOnce(&Machine, &Fixture)) {
        if is_root_or_skip("an engine on another machine") && engine.is_available() {
            let machine = Machine::start();
            let fixture = machine.fixture(engine);
            test(&machine, &fixture);
        }
    }

    fn start() -> Self {
        static NUMBER: Mutex<u32> = Mutex::new(0);
        let number = {
            let mut last = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
            *last += 1;
            (std::process::id() * 4 + *last) % 16000
        };
        let directory = tempfile::Builder::new().prefix("sandpen-machine-").tempdir_in("/var/tmp").expect("directory");
        let machine = Machine { directory, number, process: Mutex::new(None) };
        let keys = Fixture::new();
        let (host_key, identity) = (keys.make_key("host-key", "host"), keys.make_key("identity", "machine"));
        machine.write("known", &format!("{} {}\n", machine.address(), public_key(&host_key)));
        machine.write("authorized", &public_key(&identity));
        fs::copy(&host_key, machine.path("host-key")).expect("key");
        fs::copy(&identity, machine.path("identity")).expect("key");
        machine.write(
            "sshd_config",
            &format!(
                "ListenAddress {}\nHostKey /mnt/host-key\nAuthorizedKeysFile /mnt/authorized\nStrictModes no\n\
                 UsePAM no\nPidFile none\nUseDNS no\nMaxStartups 100\nMaxSessions 100\n",
                machine.address()
            ),
        );
        machine.write(
            "storage.conf",
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"/mnt/podman\"\nrunroot = \"/run/podman-root\"\n",
        );
        let settings = std::env::var("CONTAINERS_CONF").ok().and_then(|file| fs::read_to_string(file).ok());
        machine.write("containers.conf", &settings.unwrap_or_default());
        machine.write("inside", INSIDE);
        let image = machine.path("image.tar").display().to_string();
        Command::new("docker").args(["save", "--output", &image, IMAGE]).env_remove("DOCKER_HOST").finish().success();
        machine.connect();
        let mut process = Running::start(
            Command::new("nsenter")
                .arg(format!("--net=/run/netns/{}", machine.name()))
                .args(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh"])
                .args([machine.path("inside"), machine.directory.path().to_owned()])
                .env_remove("DOCKER_HOST"),
        );
        assert_eq!(process.line(), "up");
        *machine.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
        machine
    }

    /// Makes the network of the machine, and a cable to it.
    fn connect(&self) {
        let (name, address, gateway) = (self.name(), self.address(), self.gateway());
        let peer = format!("{name}b");
        for line in [
            format!("ip netns add {name}"),
            format!("ip link add {name} type veth peer name {peer} netns {name}"),
            format!("ip address add {gateway}/30 dev {name}"),
            format!("ip link set {name} up"),
            format!("ip -n {name} address add {address}/30 dev {peer}"),
            format!("ip -n {name} link set {peer} up"),
            format!("ip -n {name} link set lo up"),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            Command::new(words[0]).args(&words[1..]).finish().success();
        }
    }

    /// Pulls the cable out.
    pub fn disconnect(&self) {
        Command::new("ip").args(["link", "set", &self.name(), "down"]).finish().success();
    }

    fn name(&self) -> String {
        format!("pen{}", self.number)
    }

    fn gateway(&self) -> String {
        self.in_network(1)
    }

    fn address(&self) -> String {
        self.in_network(2)
    }

    /// Every machine has four addresses.
    fn in_network(&self, host: u32) -> String {
        let place = self.number * 4 + host;
        format!("10.91.{}.{}", place / 256 % 256, place % 256)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file of the machine");
    }

    /// Returns the address of an engine.
    pub fn endpoint(&self, engine: Engine) -> String {
        let path = if engine == Engine::Podman { "/run/podman/podman.sock" } else { "" };
        // Podman 4.3 needs the port.
        format!("ssh://root@{}:22{path}", self.address())
    }

    /// Makes a fixture whose engine is on the machine.
    fn fixture(&self, engine: Engine) -> Fixture {
        let mut fixture = Fixture::new().with_engine(engine);
        let programs = fixture.outside("ssh");
        let options = format!(
            "-i {} -o IdentitiesOnly=yes -o UserKnownHostsFile={} -o ConnectTimeout=5",
            self.path("identity").display(),
            self.path("known").display()
        );
        fs::create_dir_all(&programs).expect("directory");
        install_script(programs.join("ssh"), &format!("#!/bin/sh\nexec /usr/bin/ssh {options} \"$@\"\n"));
        fixture.set("PATH", &format!("{}:{SYSTEM_PATH}", programs.display()));
        if engine == Engine::Podman {
            fixture.set("CONTAINER_HOST", &self.endpoint(engine));
            fixture.set("CONTAINER_SSHKEY", &self.path("identity").display().to_string());
            let known = fs::read_to_string(self.path("known")).expect("known hosts");
            fixture.write(".ssh/known_hosts", &known);
        } else {
            fixture.set("DOCKER_HOST", &self.endpoint(engine));
        }
        fixture
    }

    /// Asserts that the machine has no container, in any state.
    #[track_caller]
    pub fn assert_empty(&self, fixture: &Fixture) {
        let names = || fixture.client().args(["ps", "--all", "--format", "{{.Names}}"]).finish().success().to_owned();
        eventually("no container is left", || !names().contains("sandpen-"));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.process.lock().unwrap_or_else(PoisonError::into_inner).take());
        let name = self.name();
        let _ = Command::new("ip").args(["link", "delete", &name]).output();
        let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        // What the daemons have mounted went with their namespace.
        eventually("the machine's files are unused", || !is_mounted_below(self.directory.path()));
    }
}

fn is_mounted_below(directory: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.contains(&directory.display().to_string())
}
