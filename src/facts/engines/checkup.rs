//! What engines say of themselves, beyond what planning needs: for `doctor`, which judges it. Every question has a time limit, and
//! none starts a container.

use std::time::Duration;

use serde::Deserialize;

use super::native::NativeUnavailable;
use super::{ask, native, seatbelt};
use crate::config::value::EngineKind;
use crate::error::Error;
use crate::facts::{DockerFacts, PodmanFacts, Reach, SearchPath};
use crate::host::{Host, Platform};
use crate::path::HostPath;
use crate::process::Client;

/// How long an engine may take to describe itself.
pub const CHECKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything about all engines.
#[derive(Debug, Clone)]
pub struct Checkup {
    /// Docker.
    pub docker: DockerFacts,
    /// What its daemon says; `None` when it was not worth asking.
    pub docker_says: Option<Result<About, String>>,
    /// Podman.
    pub podman: PodmanFacts,
    /// What it says, or its service.
    pub podman_says: Option<Result<About, String>>,
    /// The kernel, as far as the native engine needs it.
    pub kernel: Kernel,
    /// macOS's `sandbox-exec`; `None` on other platforms.
    pub sandbox_exec: Option<Option<HostPath>>,
}

/// An engine's own description.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Its version.
    pub version: String,
    /// Whether it runs as an ordinary user.
    pub rootless: bool,
    /// The memory of the machine its containers run in, in bytes.
    pub memory: Option<u64>,
    /// The processors of that machine.
    pub cpus: Option<u32>,
    /// The architecture of that machine, in the engines' spelling.
    pub arch: Option<String>,
}

/// What the native engine needs of the kernel.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Why no sandbox can be made.
    pub problem: Option<Error>,
    /// Its release.
    pub release: String,
    /// The version of Landlock; 0 when there is none.
    pub landlock: u32,
    /// Whether system calls can be filtered.
    pub seccomp: bool,
    /// The limits that cannot be enforced.
    pub cannot_limit: Vec<&'static str>,
}

impl Checkup {
    /// Asks all engines, those that are slow at the same time.
    pub fn look(host: &Host, path: &SearchPath) -> Self {
        // First, while there is one thread: it tries in a child of its own.
        let kernel = Kernel::look(host);
        let docker = DockerFacts::look(host, path.find("docker"));
        let podman = PodmanFacts::look(host, path.find("podman"));
        let client =
            |program: &Option<HostPath>| Client { program: program.clone(), path: path.for_host(), machine: None };
        let (docker_client, podman_client) = (client(&docker.program), client(&podman.program));
        let (docker_says, podman_says) = std::thread::scope(|scope| {
            let docker = (docker.reach == Reach::Answers).then(|| scope.spawn(|| About::docker(&docker_client)));
            let podman = (podman.reach == Reach::Answers).then(|| scope.spawn(|| About::podman(&podman_client)));
            let answer = |asked: std::thread::ScopedJoinHandle<'_, _>| {
                asked.join().unwrap_or_else(|_| Err("it could not be asked".to_owned()))
            };
            (docker.map(answer), podman.map(answer))
        });
        let sandbox_exec = (host.platform == Platform::Macos).then(|| seatbelt::program(host));
        Checkup { docker, docker_says, podman, podman_says, kernel, sandbox_exec }
    }
}

impl Checkup {
    /// Whether an engine can be asked further questions.
    pub fn answers(&self, kind: EngineKind) -> bool {
        match kind {
            EngineKind::Docker => matches!(self.docker_says, Some(Ok(_))),
            EngineKind::Podman => matches!(self.podman_says, Some(Ok(_))),
            EngineKind::Native | EngineKind::SandboxExec => true,
        }
    }
}

impl Kernel {
    fn look(host: &Host) -> Self {
        let on_linux = host.platform == Platform::Linux;
        Kernel {
            problem: if on_linux { native::problem() } else { Some(NativeUnavailable::NotLinux.into()) },
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            landlock: native::landlock_abi(),
            seccomp: std::path::Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            cannot_limit: native::cannot_limit(),
        }
    }
}

impl About {
    fn docker(client: &Client) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Info {
            #[serde(default)]
            server_version: String,
            #[serde(default)]
            security_options: Option<Vec<String>>,
            mem_total: Option<u64>,
            #[serde(rename = "NCPU")]
            cpus: Option<u32>,
            architecture: Option<String>,
            #[serde(default)]
            server_errors: Option<Vec<String>>,
        }
        let info: Info = json(client, &["info", "--format", "{{json .}}"])?;
        // Its client may exit with success and say this.
        if let Some(error) = info.server_errors.iter().flatten().next() {
            return Err(error.clone());
        }
        Ok(About {
            version: info.server_version,
            rootless: info.security_options.iter().flatten().any(|option| option.contains("rootless")),
            memory: info.mem_total.filter(|bytes| *bytes > 0),
            cpus: info.cpus.filter(|cpus| *cpus > 0),
            arch: info.architecture.map(spelling),
        })
    }

    fn podman(client: &Client) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Info {
            host: Machine,
            version: Version,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Machine {
            arch: Option<String>,
            cpus: Option<u32>,
            mem_total: Option<u64>,
            security: Security,
        }
        #[derive(Deserialize)]
        struct Security {
            #[serde(default)]
            rootless: bool,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Version {
            version: String,
        }
        let info: Info = json(client, &["info", "--format", "json"])?;
        Ok(About {
            version: info.version.version,
            rootless: info.host.security.rootless,
            memory: info.host.mem_total,
            cpus: info.host.cpus,
            arch: info.host.arch.map(spelling),
        })
    }

    /// Whether it is older than a version.
    pub fn is_before(&self, wanted: (u32, u32)) -> bool {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor) < wanted,
            // What does not say its version is not accused of being old.
            _ => false,
        }
    }
}

/// Docker names the kernel's architecture, images that of Go.
fn spelling(arch: String) -> String {
    match arch.as_str() {
        "x86_64" => "amd64".into(),
        "aarch64" => "arm64".into(),
        _ => arch,
    }
}

fn json<T: serde::de::DeserializeOwned>(client: &Client, arguments: &[&str]) -> Result<T, String> {
    let mut command = ask::question(client, arguments).ok_or_else(|| "there is no program to ask".to_owned())?;
    let output = ask::within(&mut command, CHECKUP_TIMEOUT)
        .ok_or_else(|| format!("it does not answer within {} s", CHECKUP_TIMEOUT.as_secs()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The last line is the error; warnings come before it.
    let error = || said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it says nothing").to_owned();
    match serde_json::from_slice(&output.stdout) {
        Ok(info) if output.status.success() => Ok(info),
        Err(_) if output.status.success() => Err("its answer is not the JSON that was asked for".into()),
        _ => Err(error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let about = |version: &str| About { version: version.into(), ..About::default() };
        assert!(about("4.2.9").is_before((4, 3)) && about("3.10").is_before((4, 3)));
        assert!(!about("4.3.1").is_before((4, 3)) && !about("10.0-rc1").is_before((4, 3)));
        assert!(!about("").is_before((4, 3)) && !about("unknown").is_before((4, 3)));
    }
}
