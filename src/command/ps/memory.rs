//! What a sandbox's processes hold, from one look at `/proc`. Asking the engines would cost a slow call for each container.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::launch::CONTAINER_ID;
use crate::process::untrusted;
use crate::session::registry::{Entry, Record};

/// The length of a container's id, with some room.
const LONGEST_ID: u64 = 128;

/// All processes that can be seen: each with its parent.
pub struct Processes {
    /// Every process and its parent.
    parents: Vec<(u32, u32)>,
    /// The words of the command lines of those that have children, read once for all containers.
    words: OnceCell<BTreeMap<Vec<u8>, u32>>,
}

impl Processes {
    /// Looks.
    pub fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        Processes { parents: entries.filter_map(|entry| parent(&entry.path())).collect(), words: OnceCell::new() }
    }

    /// The resident memory of a running sandbox; `None` where its processes cannot be seen, as in a virtual machine.
    pub fn memory(&self, entry: &Entry, record: &Record) -> Option<u64> {
        let root = match record.engine.as_str() {
            "docker" | "podman" => self.monitor(entry)?,
            _ => record.owner.pid,
        };
        let descendants = self.descendants(root);
        (!descendants.is_empty()).then(|| descendants.iter().filter_map(|pid| resident(*pid)).sum())
    }

    /// The process in which a container's own descend: Docker's shim and Podman's monitor have its id on their command line, and
    /// so may others who ask about it, but those have no children.
    fn monitor(&self, entry: &Entry) -> Option<u32> {
        let id = untrusted::read(entry.path.join(CONTAINER_ID).as_path(), LONGEST_ID).ok()?;
        let id = id.trim();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        self.words.get_or_init(|| self.words()).get(id.as_bytes()).copied()
    }

    /// Each with the first process that has it. A container's id is one of them, for both engines.
    fn words(&self) -> BTreeMap<Vec<u8>, u32> {
        let parents: BTreeSet<u32> = self.parents.iter().map(|(_, parent)| *parent).collect();
        let mut words = BTreeMap::new();
        for pid in self.parents.iter().map(|(pid, _)| *pid).filter(|pid| parents.contains(pid)) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            for word in line.split(|byte| *byte == 0) {
                words.entry(word.to_owned()).or_insert(pid);
            }
        }
        words
    }

    fn descendants(&self, root: u32) -> Vec<u32> {
        let mut family = vec![root];
        let mut at = 0;
        while let Some(pid) = family.get(at).copied() {
            family.extend(self.parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child));
            at += 1;
        }
        family.split_off(1)
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
