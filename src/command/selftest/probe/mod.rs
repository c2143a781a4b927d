//! The internal subcommand `probe`, which `selftest` starts inside the sandbox: it tries what a guest
//! must not be able to do and writes its findings to a file. The launcher evaluates them.

#![allow(clippy::disallowed_methods, reason = "runs inside the sandbox, where there is no Host")]

mod files;
mod kernel;
mod keys;
mod limits;
mod network;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub use keys::{EchoRequest, KeySearch, KeysRequest, Needle};
pub use limits::Limit;

/// The attempts of the probe; passed as JSON in the first argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The findings are written to this file.
    pub findings: String,
    /// The name of every file that the probe plants.
    pub file_name: String,
    /// The text that the probe sends to every address.
    pub token: String,
    /// Files to read.
    pub read: Vec<String>,
    /// Directories to plant a file in.
    pub plant: Vec<String>,
    /// Unix sockets to connect to.
    pub sockets: Vec<String>,
    /// Sockets to ask for an SSH agent's keys, besides SSH_AUTH_SOCK.
    pub agents: Vec<String>,
    pub tcp: Vec<String>,
    pub udp: Vec<String>,
    /// The limit of processes to test.
    pub pids: Option<u64>,
    /// The limit of memory to test, in bytes.
    pub memory: Option<u64>,
    /// What must not be inside.
    pub keys: Option<KeysRequest>,
}

/// The outcome of an attempt, or why it could not be made.
pub type ProbeOutcome<T> = Result<T, String>;

/// The results of all attempts. A field is `None` if the probe ended before it made the attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The files that could be read, with their first bytes.
    pub read: Option<BTreeMap<String, String>>,
    /// The directories in which a file could be planted.
    pub planted: Option<Vec<String>>,
    /// The sockets that accepted a connection.
    pub sockets: Option<Vec<String>>,
    /// The number of keys of each agent that answered, by socket.
    pub agents: Option<BTreeMap<String, u32>>,
    /// The capability sets that are not empty.
    pub capabilities: Option<ProbeOutcome<BTreeMap<String, String>>>,
    pub no_new_privileges: Option<ProbeOutcome<bool>>,
    /// The kernel's number for the mode of seccomp; 2 means filtered.
    pub seccomp: Option<ProbeOutcome<u32>>,
    /// The error number of TIOCSTI, or 0.
    pub terminal: Option<ProbeOutcome<i32>>,
    /// The error number of creating a user namespace, or 0.
    pub namespace: Option<ProbeOutcome<i32>>,
    /// The PID namespace, as `/proc/self/ns/pid` names it.
    pub processes: Option<ProbeOutcome<String>>,
    /// The network interfaces other than loopback.
    pub interfaces: Option<ProbeOutcome<Vec<String>>>,
    /// Whether there is a route to another network.
    pub route: Option<bool>,
    /// The addresses that accepted a TCP connection.
    pub tcp: Option<Vec<String>>,
    /// The proxy's status line for a host that is not allowed; the inner `None` means that no proxy is
    /// set.
    pub proxy: Option<Option<ProbeOutcome<String>>>,
    pub pids: Option<ProbeOutcome<Limit>>,
    pub memory: Option<ProbeOutcome<Limit>>,
    pub keys: Option<KeySearch>,
}

/// Runs the subcommand `probe`. `namespace` and `memory` select what its child processes do; `echo` is a
/// process outside.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = arguments.filter_map(|word| word.into_string().ok()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["namespace"] => ExitCode::from(kernel::unshare()),
        ["echo"] => super::echo::serve(),
        ["memory", bytes] => limits::allocate(bytes.parse().unwrap_or(0)),
        [request] => match serde_json::from_str(request) {
            Ok(request) => run(&request),
            Err(_) => ExitCode::from(2),
        },
        _ => ExitCode::from(2),
    }
}

fn run(request: &Request) -> ExitCode {
    let mut findings = Findings {
        read: Some(files::read(&request.read)),
        planted: Some(files::plant(request)),
        sockets: Some(files::connect(&request.sockets)),
        agents: Some(files::count_agent_keys(&request.agents)),
        ..Findings::default()
    };
    let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"));
    findings.capabilities = Some(kernel::capabilities(&status));
    findings.no_new_privileges = Some(kernel::field(&status, "NoNewPrivs").map(|value| value == "1"));
    findings.seccomp = Some(
        kernel::field(&status, "Seccomp")
            .and_then(|value| value.parse().map_err(|_| "the field Seccomp is not a number".to_owned())),
    );
    findings.terminal = Some(kernel::insert_terminal_input());
    findings.namespace = Some(kernel::create_namespace());
    findings.processes =
        Some(fs::read_link("/proc/self/ns/pid").map(|id| id.display().to_string()).map_err(|error| error.to_string()));
    findings.interfaces = Some(network::interfaces());
    findings.route = Some(network::has_route());
    network::send_datagrams(&request.udp, &request.token);
    findings.tcp = Some(network::connect(&request.tcp, &request.token));
    findings.proxy = Some(network::ask_proxy());
    findings.keys = request.keys.as_ref().map(keys::search);
    // The tests of limits may kill this process, so write the findings before each.
    let mut written = write(request, &findings);
    findings.memory = request.memory.map(limits::memory);
    written = write(request, &findings) && written;
    findings.pids = request.pids.map(limits::processes);
    written = write(request, &findings) && written;
    ExitCode::from(u8::from(!written))
}

fn write(request: &Request, findings: &Findings) -> bool {
    serde_json::to_vec(findings).is_ok_and(|text| fs::write(&request.findings, text).is_ok())
}
