//! Enforces limits with control groups where the caller may create them, and reports the limits it
//! cannot enforce. Never changes a group that it has not created.

use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::identity::Caller;
use crate::launch::native::step::NativeLimits;
use crate::process::cgroup_events;

/// Limits that are not enforced, because no control group could be created.
#[derive(Debug)]
pub struct UnenforcedLimits {
    pub limits: NativeLimits,
    pub error: Error,
}

/// The mechanisms that enforce the limits of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct LimitEnforcement {
    pub cgroups: Option<Cgroups>,
    /// The child sets it as a resource limit.
    pub process_limit: Option<u64>,
    /// Whether the guest has a control group of version 2 that contains no process of the host, or
    /// may not write to the one that it shares.
    pub is_separate: bool,
    pub unenforced: Option<UnenforcedLimits>,
}

const PREFIX: &str = "sandpen-";
/// The group below the one with the limits.
const GUEST: &str = "guest";
/// A nested guest can create groups in its own.
const NESTED_BOUNDS: [(&str, usize); 2] = [("cgroup.max.descendants", 256), ("cgroup.max.depth", MAX_DEPTH)];
const MAX_DEPTH: usize = 16;
const MOUNTED_AT: &str = "/sys/fs/cgroup";

/// Creates the control groups. The process limit of an ordinary user needs none and costs nothing:
/// the kernel counts per user namespace (checked on 6.18; since 5.14).
///
/// A `nested` guest can mount the control group that it is in, as root of a namespace of its own. It
/// could end or stop every process in a group of the caller's, and change its own limits. It gets a
/// group below the one with the limits, so that the latter is out of sight.
pub(crate) fn enforce(limits: NativeLimits, caller: Caller, nested: bool) -> LimitEnforcement {
    let mut result =
        LimitEnforcement { is_separate: nested && !is_own_group_writable(), ..LimitEnforcement::default() };
    let mut wanted = limits;
    if caller == Caller::User {
        result.process_limit = wanted.pids.take();
    }
    let is_limited = wanted != NativeLimits::default();
    if !is_limited && (!nested || result.is_separate) {
        return result;
    }
    match Cgroups::create(wanted, nested) {
        Ok(cgroups) => {
            result.is_separate |= cgroups.v2_directory.is_some();
            result.cgroups = Some(cgroups);
        }
        Err(error) if is_limited => result.unenforced = Some(UnenforcedLimits { limits: wanted, error }),
        Err(_) => {}
    }
    result
}

/// Whether the caller may write to the group of version 2 that it is in.
pub(crate) fn is_own_group_writable() -> bool {
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = group_of(&membership, "");
    own.is_some_and(|own| rustix::fs::access(own.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).is_ok())
}

/// The control groups of one sandbox. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct Cgroups {
    directories: Vec<PathBuf>,
    /// Version 2: `clone3` creates the child in it.
    v2_directory: Option<OwnedFd>,
    /// Version 1: the child writes itself into each `cgroup.procs`.
    v1_procs: Vec<OwnedFd>,
}

/// The name and the new content of a file in a control group.
type Setting = (&'static str, String);

/// Files that kernels without swap accounting do not have.
const SWAP_FILES: [&str; 2] = [SWAP_V1, SWAP_V2];
const SWAP_V1: &str = "memory.memsw.limit_in_bytes";
const SWAP_V2: &str = "memory.swap.max";

/// The period of the processor quota, in microseconds.
const PERIOD: u64 = 100_000;

fn quota(cpus: f64) -> u64 {
    // The kernel's smallest quota is 1 ms.
    ((cpus * PERIOD as f64) as u64).max(1000)
}

impl Cgroups {
    fn create(limits: NativeLimits, nested: bool) -> Result<Self> {
        let membership = std::fs::read_to_string("/proc/self/cgroup")?;
        let mut cgroups = Self { directories: vec![], v2_directory: None, v1_procs: vec![] };
        if let Err(error) = cgroups.create_v2(&membership, limits, nested) {
            cgroups.remove();
            if limits == NativeLimits::default() {
                return Err(error);
            }
            cgroups.create_v1(&membership, limits)?;
        }
        Ok(cgroups)
    }

    /// Creates a group next to the caller's, because a group may have either processes or children
    /// with limits. Tries further up if need be, as far as the user may write.
    fn create_v2(&mut self, membership: &str, limits: NativeLimits, nested: bool) -> Result<()> {
        let own = group_of(membership, "").ok_or(ErrorKind::Unsupported)?;
        let settings = v2_settings(limits);
        let mut last = Error::from(ErrorKind::Unsupported);
        for parent in own.ancestors().skip(1) {
            if !parent.starts_with(MOUNTED_AT) {
                break;
            }
            match self.create_v2_below(parent, &settings, nested) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
            self.remove();
        }
        Err(last)
    }

    fn create_v2_below(&mut self, parent: &Path, settings: &[Setting], nested: bool) -> Result<()> {
        let enabled = std::fs::read_to_string(parent.join("cgroup.subtree_control"))?;
        for (name, _) in settings {
            let controller = name.split('.').next().unwrap_or_default();
            if !enabled.split_whitespace().any(|word| word == controller) {
                write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"))?;
            }
        }
        let mut directory = self.create_directory(parent)?;
        apply(&directory, settings)?;
        if nested {
            apply(&directory, &NESTED_BOUNDS.map(|(name, bound)| (name, bound.to_string())))?;
            directory.push(GUEST);
            std::fs::create_dir(&directory)?;
        }
        self.v2_directory = Some(std::fs::File::open(&directory)?.into());
        Ok(())
    }

    /// Creates one group per controller, below the caller's.
    fn create_v1(&mut self, membership: &str, limits: NativeLimits) -> Result<()> {
        for (controller, settings) in v1_settings(limits) {
            let own = group_of(membership, controller).ok_or(ErrorKind::Unsupported)?;
            let directory = self.create_directory(&own)?;
            apply(&directory, &settings)?;
            self.v1_procs.push(open_procs(&directory)?);
        }
        Ok(())
    }

    /// Puts the launcher's pid into the name, by which a stale group is recognised.
    fn create_directory(&mut self, parent: &Path) -> Result<PathBuf> {
        let pid = std::process::id();
        for attempt in 0..1000 {
            let directory = parent.join(format!("{PREFIX}{pid}-{attempt}"));
            match std::fs::create_dir(&directory) {
                Ok(()) => {
                    self.directories.push(directory.clone());
                    return Ok(directory);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub fn v2_directory(&self) -> Option<BorrowedFd<'_>> {
        self.v2_directory.as_ref().map(AsFd::as_fd)
    }

    /// Moves the calling process into the groups of version 1.
    pub fn join_v1(&self) -> rustix::io::Result<()> {
        join(&self.v1_procs)
    }

    /// Whether the kernel killed a process in them because memory ran out.
    pub fn ran_out_of_memory(&self) -> bool {
        self.directories.iter().any(|group| cgroup_events::ran_out_of_memory(group))
    }

    fn remove(&mut self) {
        for directory in self.directories.drain(..) {
            remove(&directory);
        }
        self.v2_directory = None;
        self.v1_procs.clear();
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Tries again for a while: the kernel releases the last process a moment after it was reaped.
fn remove(directory: &Path) {
    for wait in [0, 1, 2, 5, 10, 20, 50, 100] {
        std::thread::sleep(Duration::from_millis(wait));
        match remove_tree(directory, MAX_DEPTH) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            _ => return,
        }
    }
}

/// Removes a group and those in it, which a nested guest may have created.
fn remove_tree(directory: &Path, depth: usize) -> Result<()> {
    match std::fs::remove_dir(directory) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy && depth > 0 => {}
        removed => return removed,
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path(), depth - 1)?;
        }
    }
    std::fs::remove_dir(directory)
}

/// Lists the empty groups of launchers that were killed by SIGKILL, for `prune`.
pub fn stale() -> Vec<PathBuf> {
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = groups_with_prefix(&membership, PREFIX);
    found.retain(|path| is_stale(path));
    found
}

fn is_stale(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    let launcher = rest.split('-').next().unwrap_or_default();
    let members = std::fs::read_to_string(path.join("cgroup.procs"));
    !Path::new("/proc").join(launcher).exists() && members.is_ok_and(|list| list.is_empty())
}

/// Removes the stale groups and returns how many there were.
pub fn remove_stale() -> usize {
    let removed = |path: &&PathBuf| remove_tree(path, MAX_DEPTH).is_ok();
    stale().iter().filter(removed).count()
}

/// Opens `cgroup.procs` of every group that `launcher` has created, for a process that enters its
/// sandbox.
pub(crate) fn procs_of_launcher(launcher: u32) -> Result<Vec<OwnedFd>> {
    let membership = std::fs::read_to_string(format!("/proc/{launcher}/cgroup"))?;
    let groups = groups_with_prefix(&membership, &format!("{PREFIX}{launcher}-"));
    let procs = |directory: &PathBuf| {
        let guest = directory.join(GUEST);
        open_procs(if guest.is_dir() { &guest } else { directory })
    };
    groups.iter().map(procs).collect()
}

fn open_procs(directory: &Path) -> Result<OwnedFd> {
    let mut options = std::fs::OpenOptions::new();
    let procs = options.write(true).open(directory.join("cgroup.procs"))?;
    Ok(procs.into())
}

/// Moves the calling process into groups whose `cgroup.procs` are open.
pub(crate) fn join(procs: &[OwnedFd]) -> rustix::io::Result<()> {
    for procs in procs {
        rustix::io::write(procs, b"0")?;
    }
    Ok(())
}

/// Lists the groups whose names start with `prefix`, in the directories where a process with this
/// membership creates them.
fn groups_with_prefix(membership: &str, prefix: &str) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> =
        ["pids", "memory", "cpu"].into_iter().filter_map(|controller| group_of(membership, controller)).collect();
    if let Some(own) = group_of(membership, "") {
        parents.extend(own.ancestors().skip(1).map(Path::to_owned));
    }
    parents.retain(|parent| parent.starts_with(MOUNTED_AT));
    let has_prefix = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    };
    parents
        .iter()
        .flat_map(|parent| std::fs::read_dir(parent).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(has_prefix)
        .collect()
}

/// Finds the group of a process in its membership: of a controller of version 1, or, with an empty
/// name, of version 2.
fn group_of(membership: &str, controller: &str) -> Option<PathBuf> {
    let line = membership.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let mut controllers = parts.next()?.split(',');
        controllers.any(|name| name == controller).then_some(())?;
        parts.next()
    })?;
    let mut base = PathBuf::from(MOUNTED_AT);
    if !controller.is_empty() {
        base.push(controller);
    } else if base.join("unified").exists() {
        base.push("unified");
    }
    base.push(line.trim_start_matches('/'));
    Some(base)
}

fn v2_settings(limits: NativeLimits) -> Vec<Setting> {
    let mut settings = vec![];
    if let Some(pids) = limits.pids {
        settings.push(("pids.max", pids.to_string()));
    }
    if let Some(memory) = limits.memory {
        settings.push(("memory.max", memory.to_string()));
        settings.push((SWAP_V2, "0".into()));
    }
    if let Some(cpus) = limits.cpus {
        settings.push(("cpu.max", format!("{} {PERIOD}", quota(cpus))));
    }
    settings
}

fn v1_settings(limits: NativeLimits) -> Vec<(&'static str, Vec<Setting>)> {
    let mut groups = vec![];
    if let Some(pids) = limits.pids {
        groups.push(("pids", vec![("pids.max", pids.to_string())]));
    }
    if let Some(memory) = limits.memory {
        let limit = memory.to_string();
        let with_swap = (SWAP_V1, limit.clone());
        groups.push(("memory", vec![("memory.limit_in_bytes", limit), with_swap]));
    }
    if let Some(cpus) = limits.cpus {
        let period = ("cpu.cfs_period_us", PERIOD.to_string());
        let quota = ("cpu.cfs_quota_us", quota(cpus).to_string());
        groups.push(("cpu", vec![period, quota]));
    }
    groups
}

fn apply(directory: &Path, settings: &[Setting]) -> Result<()> {
    for (name, value) in settings {
        match write(&directory.join(name), value) {
            Err(error) if error.kind() == ErrorKind::NotFound && SWAP_FILES.contains(name) => {}
            result => result?,
        }
    }
    Ok(())
}

/// Never creates the file: a missing file means a missing controller.
fn write(path: &Path, value: &str) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}
