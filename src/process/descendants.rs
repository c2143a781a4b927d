//! Ends the processes that a command leaves behind, such as daemons that left its session.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// Bounds the fight with processes that start others as fast as they are killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes this process the parent of all descendants whose own parents end.
pub fn adopt() {
    // Any process will do as the argument; it only switches the behaviour on.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process, which has called [`adopt`], and reaps them.
pub fn end() {
    let limit = Instant::now() + END_TIMEOUT;
    while Instant::now() < limit {
        // One that is stopped starts no others, so that after some rounds all are found.
        let mut stopped = BTreeSet::new();
        while let found = all().difference(&stopped).copied().collect::<Vec<_>>()
            && !found.is_empty()
            && Instant::now() < limit
        {
            for process in found.into_iter().filter_map(Pid::from_raw) {
                let _ = kill_process(process, Signal::STOP);
                stopped.insert(process.as_raw_nonzero().get());
            }
        }
        for process in stopped.into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(process, Signal::KILL);
        }
        // The children of one that ends become children of this process.
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        if matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {
            return;
        }
    }
}

/// Lists the descendants of this process.
fn all() -> BTreeSet<i32> {
    let (mut found, mut open) = (BTreeSet::new(), children("self"));
    while let Some(process) = open.pop() {
        let process = process.as_raw_nonzero().get();
        if found.insert(process) {
            open.extend(children(&process.to_string()));
        }
    }
    found
}

/// Lists the children of all threads of a process.
pub fn children(process: &str) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that is tested is a child of the test: the test runner has other children.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "starts processes to end them")]
    fn daemons_are_ended() -> std::io::Result<()> {
        const CHILD: &str = "SANDPEN_TEST_DESCENDANTS";
        if std::env::var_os(CHILD).is_some() {
            adopt();
            let script = "setsid sh -c 'sleep 300 & sleep 300' & setsid setsid sleep 300 & exit 0";
            std::process::Command::new("sh").args(["-c", script]).status()?;
            assert!(!children("self").is_empty(), "the daemons are adopted");
            end();
            assert_eq!(children("self"), []);
            return Ok(());
        }
        let name = "process::descendants::tests::daemons_are_ended";
        let program = std::env::current_exe()?;
        let status = std::process::Command::new(program).args([name, "--exact"]).env(CHILD, "1").status()?;
        assert!(status.success());
        Ok(())
    }
}
