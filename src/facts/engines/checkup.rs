//! Asks all engines to describe themselves, for `doctor`, which judges the answers. Every question
//! has a time limit, and none starts a container.

use std::time::Duration;

use serde::Deserialize;

use super::Controller;
use super::native::NativeUnavailable;
use super::{ask, native, seatbelt};
use crate::config::value::EngineKind;
use crate::error::Error;
use crate::facts::{DockerFacts, PodmanFacts, Reach, SearchPath};
use crate::host::{Host, Platform};
use crate::path::HostPath;
use crate::process::Client;

pub const CHECKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The answers of all engines.
#[derive(Debug, Clone)]
pub struct Checkup {
    pub docker: DockerFacts,
    /// `None` if the daemon cannot be reached.
    pub docker_says: Option<Result<About, String>>,
    pub podman: PodmanFacts,
    /// `None` if Podman is not installed or its service cannot be reached.
    pub podman_says: Option<Result<About, String>>,
    pub kernel: Kernel,
    /// The path of `sandbox-exec`; the outer `None` means another platform than macOS.
    pub sandbox_exec: Option<Option<HostPath>>,
}

/// An engine's description of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    pub version: String,
    pub rootless: bool,
    /// Bytes of memory in the machine that runs the containers.
    pub memory: Option<u64>,
    pub cpus: Option<u32>,
    /// Spelled as the engines do: `amd64`, `arm64`.
    pub arch: Option<String>,
}

/// Features of the kernel that the native engine uses.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The reason for which no sandbox can be made.
    pub problem: Option<Error>,
    pub release: String,
    /// The version of Landlock's interface; 0 if there is none.
    pub landlock: u32,
    pub seccomp: bool,
    /// Names of limits that cannot be enforced.
    pub cannot_limit: Vec<Controller>,
}

impl Checkup {
    /// Asks all engines; Docker and Podman at the same time, because they are slow.
    pub fn look(host: &Host, path: &SearchPath) -> Self {
        // It forks a child to try, so it comes before other threads are started.
        let kernel = Kernel::look(host);
        let docker = DockerFacts::look(host, path.find("docker"));
        let podman = PodmanFacts::look(host, path.find("podman"));
        let client = |program: &Option<HostPath>| Client {
            program: program.clone(),
            path: path.for_host(),
            machine: None,
            endpoint: Vec::new(),
        };
        let (docker_client, podman_client) = (client(&docker.program), client(&podman.program));
        let (docker_says, podman_says) = std::thread::scope(|scope| {
            let docker = (docker.reach == Reach::Answers).then(|| scope.spawn(|| About::docker(&docker_client)));
            let podman = (podman.reach == Reach::Answers).then(|| scope.spawn(|| About::podman(&podman_client)));
            let answer = |asked: std::thread::ScopedJoinHandle<'_, _>| {
                asked.join().unwrap_or_else(|_| Err("the question could not be asked".to_owned()))
            };
            (docker.map(answer), podman.map(answer))
        });
        let sandbox_exec = (host.platform == Platform::Macos).then(|| seatbelt::program(host));
        Checkup { docker, docker_says, podman, podman_says, kernel, sandbox_exec }
    }
}

impl Checkup {
    /// Tells whether an engine answered, so that it can be asked further questions.
    pub fn answers(&self, kind: EngineKind) -> bool {
        match kind {
            EngineKind::Docker => matches!(self.docker_says, Some(Ok(_))),
            EngineKind::Podman => matches!(self.podman_says, Some(Ok(_))),
            EngineKind::Native | EngineKind::SandboxExec => true,
            EngineKind::Kubernetes => false,
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
        // The client may exit with 0 although the daemon did not answer.
        if let Some(error) = info.server_errors.iter().flatten().next() {
            return Err(error.clone());
        }
        Ok(About {
            version: info.server_version,
            rootless: info.security_options.iter().flatten().any(|option| option.contains("rootless")),
            memory: info.mem_total.filter(|bytes| *bytes > 0),
            cpus: info.cpus.filter(|cpus| *cpus > 0),
            arch: info.architecture.map(image_arch),
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
            arch: info.host.arch.map(image_arch),
        })
    }

    /// Tells whether the version is older; `false` if it is unknown.
    pub fn is_before(&self, wanted: (u32, u32)) -> bool {
        let mut parts = self.version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(major), Some(minor)) => (major, minor) < wanted,
            _ => false,
        }
    }
}

/// Translates the kernel's name of an architecture, which Docker reports, into that of images.
fn image_arch(arch: String) -> String {
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
    match serde_json::from_slice(&output.stdout) {
        Ok(info) if output.status.success() => Ok(info),
        Err(_) if output.status.success() => Err("its answer is not the expected JSON".into()),
        _ => Err(last_line(&output.stderr)),
    }
}

/// Returns the error, which follows any warnings.
fn last_line(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it prints no error").to_owned()
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
