//! Limits by control groups, where the caller may make them, and the honest list of what could
//! not be had. Never touches a group it has not made.

use std::io::{Error, ErrorKind, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::launch::native::step::Limits;
use crate::native::identity::Power;

/// Something asked for that is not enforced as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downgrade {
    pub asked: String,
    pub got: String,
    pub reason: String,
}

/// How the limits will be enforced.
#[derive(Debug, Default)]
pub(crate) struct Arrangement {
    pub cgroups: Option<Cgroups>,
    /// To be set as a resource limit by the child.
    pub process_limit: Option<u64>,
    pub downgrades: Vec<Downgrade>,
}

const PREFIX: &str = "sandpen-";
const MOUNTED_AT: &str = "/sys/fs/cgroup";

/// Makes the control groups. An ordinary user's count of processes needs none: the kernel counts
/// per user namespace (checked here on 6.18; so since 5.14), at no cost.
pub(crate) fn arrange(limits: Limits, power: Power) -> Arrangement {
    let mut result = Arrangement::default();
    let mut wanted = limits;
    if power == Power::User {
        result.process_limit = wanted.pids.take();
    }
    if wanted == Limits::default() {
        return result;
    }
    match Cgroups::make(wanted) {
        Ok(cgroups) => result.cgroups = Some(cgroups),
        Err(error) => {
            let mut missed = |asked: Option<String>| {
                result.downgrades.extend(asked.map(|asked| Downgrade {
                    asked,
                    got: "no limit".into(),
                    reason: format!("no control group could be made: {error}"),
                }));
            };
            missed(wanted.pids.map(|pids| format!("{pids} processes")));
            missed(wanted.memory.map(|memory| format!("{memory} bytes of memory")));
            missed(wanted.cpus.map(|cpus| format!("{cpus} processors")));
        }
    }
    result
}

/// Control groups of one sandbox, removed when dropped.
#[derive(Debug)]
pub(crate) struct Cgroups {
    directories: Vec<PathBuf>,
    /// Version 2: the child is born into it.
    unified: Option<OwnedFd>,
    /// Version 1: the child writes itself into each.
    joins: Vec<OwnedFd>,
}

/// One file to be written in a new group.
type Setting = (&'static str, String);

const PERIOD: u64 = 100_000;

fn quota(cpus: f64) -> u64 {
    // The kernel's smallest quota is 1 ms.
    ((cpus * PERIOD as f64) as u64).max(1000)
}

impl Cgroups {
    fn make(limits: Limits) -> Result<Self> {
        let membership = std::fs::read_to_string("/proc/self/cgroup")?;
        let mut made = Self { directories: vec![], unified: None, joins: vec![] };
        let unified = made.unified_group(&membership, limits);
        if unified.is_err() {
            made.remove();
            made.classic_groups(&membership, limits)?;
        }
        Ok(made)
    }

    /// Version 2: a group beside our own, the only place where processes and limits can both be.
    /// Further up if need be, as far as the user may write.
    fn unified_group(&mut self, membership: &str, limits: Limits) -> Result<()> {
        let own = group_of(membership, "").ok_or(ErrorKind::Unsupported)?;
        let settings = unified_settings(limits);
        let mut last = Error::from(ErrorKind::Unsupported);
        for parent in own.ancestors().skip(1) {
            if !parent.starts_with(MOUNTED_AT) {
                break;
            }
            match self.unified_below(parent, &settings) {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
            self.remove();
        }
        Err(last)
    }

    fn unified_below(&mut self, parent: &Path, settings: &[Setting]) -> Result<()> {
        let enabled = std::fs::read_to_string(parent.join("cgroup.subtree_control"))?;
        for (name, _) in settings {
            let controller = name.split('.').next().unwrap_or_default();
            if !enabled.split_whitespace().any(|word| word == controller) {
                write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"))?;
            }
        }
        let directory = self.create(parent)?;
        apply(&directory, settings)?;
        self.unified = Some(std::fs::File::open(&directory)?.into());
        Ok(())
    }

    /// Version 1: one group per controller, below our own.
    fn classic_groups(&mut self, membership: &str, limits: Limits) -> Result<()> {
        for (controller, settings) in classic_settings(limits) {
            let own = group_of(membership, controller).ok_or(ErrorKind::Unsupported)?;
            let directory = self.create(&own)?;
            apply(&directory, &settings)?;
            self.joins.push(door(&directory)?);
        }
        Ok(())
    }

    /// The name carries the launcher's pid, by which a stale group is known.
    fn create(&mut self, parent: &Path) -> Result<PathBuf> {
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

    pub fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.unified.as_ref().map(AsFd::as_fd)
    }

    /// Moves the calling process into the groups it was not born into.
    pub fn join(&self) -> rustix::io::Result<()> {
        for procs in &self.joins {
            rustix::io::write(procs, b"0")?;
        }
        Ok(())
    }

    /// Whether the kernel killed a process in them for want of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        self.directories.iter().any(|group| crate::process::cgroup_events::ran_out_of_memory(group))
    }

    fn remove(&mut self) {
        for directory in self.directories.drain(..) {
            remove(&directory);
        }
        self.unified = None;
        self.joins.clear();
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The kernel lets go of the last process a moment after it was reaped.
fn remove(directory: &Path) {
    for wait in [0, 1, 2, 5, 10, 20, 50, 100] {
        std::thread::sleep(Duration::from_millis(wait));
        match std::fs::remove_dir(directory) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            _ => return,
        }
    }
}

/// Groups that launchers killed by SIGKILL have left behind, empty by now; for `prune`.
pub fn stale() -> Vec<PathBuf> {
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut found = groups_near(&membership, PREFIX);
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

/// Removes them; the result says how many.
pub fn remove_stale() -> usize {
    let removed = |path: &&PathBuf| std::fs::remove_dir(path).is_ok();
    stale().iter().filter(removed).count()
}

/// The doors to the groups that `launcher` has made, for a process that enters its sandbox.
pub(crate) fn of_launcher(launcher: u32) -> Result<Vec<OwnedFd>> {
    let membership = std::fs::read_to_string(format!("/proc/{launcher}/cgroup"))?;
    groups_near(&membership, &format!("{PREFIX}{launcher}-")).iter().map(|directory| door(directory)).collect()
}

fn door(directory: &Path) -> Result<OwnedFd> {
    let mut options = std::fs::OpenOptions::new();
    let procs = options.write(true).open(directory.join("cgroup.procs"))?;
    Ok(procs.into())
}

/// Where a process with this membership would have made groups: those whose names begin so.
fn groups_near(membership: &str, prefix: &str) -> Vec<PathBuf> {
    let mut parents: Vec<PathBuf> =
        ["pids", "memory", "cpu"].into_iter().filter_map(|controller| group_of(membership, controller)).collect();
    if let Some(own) = group_of(membership, "") {
        parents.extend(own.ancestors().skip(1).map(Path::to_owned));
    }
    parents.retain(|parent| parent.starts_with(MOUNTED_AT));
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    };
    parents
        .iter()
        .flat_map(|parent| std::fs::read_dir(parent).into_iter().flatten())
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(named)
        .collect()
}

/// Our own group: for a controller of version 1, or (with an empty name) of version 2.
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

fn unified_settings(limits: Limits) -> Vec<Setting> {
    let mut settings = vec![];
    if let Some(pids) = limits.pids {
        settings.push(("pids.max", pids.to_string()));
    }
    if let Some(memory) = limits.memory {
        settings.push(("memory.max", memory.to_string()));
        settings.push(("memory.swap.max", "0".into()));
    }
    if let Some(cpus) = limits.cpus {
        settings.push(("cpu.max", format!("{} {PERIOD}", quota(cpus))));
    }
    settings
}

fn classic_settings(limits: Limits) -> Vec<(&'static str, Vec<Setting>)> {
    let mut groups = vec![];
    if let Some(pids) = limits.pids {
        groups.push(("pids", vec![("pids.max", pids.to_string())]));
    }
    if let Some(memory) = limits.memory {
        let limit = memory.to_string();
        let with_swap = ("memory.memsw.limit_in_bytes", limit.clone());
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
            // Kernels without swap accounting have no such file.
            Err(error) if error.kind() == ErrorKind::NotFound && name.contains("sw") => {}
            result => result?,
        }
    }
    Ok(())
}

/// Never creates: a missing file means a missing controller.
fn write(path: &Path, value: &str) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}
