//! Sums the memory of a sandbox's processes from `/proc`. Agents use much memory, so `ps` shows it, and
//! asking the engine would take a slow call for each container.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::launch::CONTAINER_ID;
use crate::process::untrusted;
use crate::session::registry::{Entry, Record};

/// A container's id has 64 characters.
const MAX_ID_LENGTH: u64 = 128;

/// A snapshot of the visible processes.
pub struct Processes {
    /// The pid of every process, with that of its parent.
    parents: Vec<(u32, u32)>,
    /// Maps each argument of a process with children to its pid; read on first use.
    arguments: OnceCell<BTreeMap<Vec<u8>, u32>>,
}

impl Processes {
    pub fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        Processes { parents: entries.filter_map(|entry| parent(&entry.path())).collect(), arguments: OnceCell::new() }
    }

    /// Returns the resident memory in bytes, or `None` if the processes are not visible because they
    /// run in a virtual machine.
    pub fn memory(&self, entry: &Entry, record: &Record) -> Option<u64> {
        let root = match record.engine.as_str() {
            "docker" | "podman" => self.monitor(entry)?,
            _ => record.owner.pid,
        };
        let descendants = self.descendants(root);
        (!descendants.is_empty()).then(|| descendants.iter().filter_map(|pid| resident(*pid)).sum())
    }

    /// Finds the ancestor of a container's processes. Docker's shim and Podman's conmon have the id on
    /// their command line; so do clients that refer to the container, but those have no children.
    fn monitor(&self, entry: &Entry) -> Option<u32> {
        let id = untrusted::read(entry.path.join(CONTAINER_ID).as_path(), MAX_ID_LENGTH).ok()?;
        let id = id.trim();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.arguments.get_or_init(|| self.read_arguments()).get(id.as_bytes()).copied()
    }

    fn read_arguments(&self) -> BTreeMap<Vec<u8>, u32> {
        let parents: BTreeSet<u32> = self.parents.iter().map(|(_, parent)| *parent).collect();
        let mut arguments = BTreeMap::new();
        for pid in self.parents.iter().map(|(pid, _)| *pid).filter(|pid| parents.contains(pid)) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            for argument in line.split(|byte| *byte == 0) {
                arguments.entry(argument.to_owned()).or_insert(pid);
            }
        }
        arguments
    }

    fn descendants(&self, root: u32) -> Vec<u32> {
        let mut found = vec![root];
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            found.extend(self.parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
            next += 1;
        }
        found.split_off(1)
    }
}

fn parent(process: &Path) -> Option<(u32, u32)> {
    let pid = process.file_name()?.to_str()?.parse().ok()?;
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
}

fn resident(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
