//! What `selftest` starts inside (hidden subcommand `probe`): it tries what a guest must not be able to do, and writes down what
//! happened. It judges nothing; the launcher does, from what it sees outside as well.

#![allow(clippy::disallowed_methods, reason = "runs inside the sandbox, where there is no Host")]

mod files;
mod kernel;
mod limits;
mod network;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

pub use limits::Limited;

/// What is tried, as JSON in the first argument.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Where the findings go.
    pub report: String,
    /// The name of every file that is planted.
    pub name: String,
    /// What is sent to every address that is reached.
    pub word: String,
    /// Files that are read.
    pub read: Vec<String>,
    /// Directories in which a file is planted.
    pub plant: Vec<String>,
    /// Unix sockets that are connected to.
    pub sockets: Vec<String>,
    /// Sockets at which an SSH agent is asked for its keys, besides the one that the environment names.
    pub agents: Vec<String>,
    /// Addresses that are reached over TCP.
    pub tcp: Vec<String>,
    /// Addresses that are reached over UDP.
    pub udp: Vec<String>,
    /// The processes that should be the most.
    pub pids: Option<u64>,
    /// The bytes that should be the most.
    pub memory: Option<u64>,
}

/// What came of one attempt; an error says why it could not be made.
pub type Seen<T> = Result<T, String>;

/// What happened. What is `None` was not tried, because the probe did not come so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The files that could be read, with their first bytes.
    pub read: Option<BTreeMap<String, String>>,
    /// The directories in which a file could be planted.
    pub planted: Option<Vec<String>>,
    /// The sockets that accepted.
    pub sockets: Option<Vec<String>>,
    /// The agents that answered, with their number of keys.
    pub agents: Option<BTreeMap<String, u32>>,
    /// Capability sets that are not empty, by name.
    pub capabilities: Option<Seen<BTreeMap<String, String>>>,
    /// Whether privileges can be gained.
    pub no_new_privileges: Option<Seen<bool>>,
    /// The mode of the system call filter.
    pub seccomp: Option<Seen<u32>>,
    /// What came of typing into the terminal: an error's number, 0 when it was allowed.
    pub terminal: Option<Seen<i32>>,
    /// What came of making a user namespace, likewise.
    pub namespace: Option<Seen<i32>>,
    /// The namespace of processes.
    pub processes: Option<Seen<String>>,
    /// Network interfaces besides loopback.
    pub interfaces: Option<Seen<Vec<String>>>,
    /// Whether there is a way to another network.
    pub route: Option<bool>,
    /// The addresses that accepted over TCP.
    pub tcp: Option<Vec<String>>,
    /// What the proxy says to a host that nobody allowed; `None` inside when no proxy is named.
    pub proxy: Option<Option<Seen<String>>>,
    /// Processes.
    pub pids: Option<Seen<Limited>>,
    /// Memory.
    pub memory: Option<Seen<Limited>>,
}

/// The probe's `main`: the arguments after `probe`. `namespace` and `memory` are what it does in a process of its own.
pub fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = arguments.by_ref().filter_map(|word| word.into_string().ok()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["namespace"] => ExitCode::from(kernel::unshare()),
        ["memory", bytes] => limits::use_up(bytes.parse().unwrap_or(0)),
        [order] => match serde_json::from_str(order) {
            Ok(order) => run(&order),
            Err(_) => ExitCode::from(2),
        },
        _ => ExitCode::from(2),
    }
}

fn run(order: &Order) -> ExitCode {
    let mut findings = Findings {
        read: Some(files::read(&order.read)),
        planted: Some(files::plant(order)),
        sockets: Some(files::connect(&order.sockets)),
        agents: Some(files::ask_agents(&order.agents)),
        ..Findings::default()
    };
    let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"));
    findings.capabilities = Some(kernel::capabilities(&status));
    findings.no_new_privileges = Some(kernel::field(&status, "NoNewPrivs").map(|value| value == "1"));
    findings.seccomp = Some(
        kernel::field(&status, "Seccomp").and_then(|value| value.parse().map_err(|_| "it is not a number".to_owned())),
    );
    findings.terminal = Some(kernel::type_into_terminal());
    findings.namespace = Some(kernel::make_namespace());
    findings.processes =
        Some(fs::read_link("/proc/self/ns/pid").map(|id| id.display().to_string()).map_err(|error| error.to_string()));
    findings.interfaces = Some(network::interfaces());
    findings.route = Some(network::has_route());
    network::send(&order.udp, &order.word);
    findings.tcp = Some(network::reach(&order.tcp, &order.word));
    findings.proxy = Some(network::ask_proxy());
    // What follows may end this process, if a wall is where it should not be.
    let mut written = write(order, &findings);
    findings.memory = order.memory.map(limits::memory);
    written = write(order, &findings) && written;
    findings.pids = order.pids.map(limits::processes);
    written = write(order, &findings) && written;
    ExitCode::from(u8::from(!written))
}

fn write(order: &Order, findings: &Findings) -> bool {
    serde_json::to_vec(findings).is_ok_and(|text| fs::write(&order.report, text).is_ok())
}
