//! What the kernel says about a control group that ran out of memory. Shared by the native launcher, which owns its groups, and by
//! the guest helper, which sees the container's own.

use std::fs;
use std::path::Path;

/// Whether the kernel killed a process in this group for want of memory: version 2 tells so in one file, version 1 in another.
pub fn ran_out_of_memory(group: &Path) -> bool {
    ["memory.events", "memory.oom_control"].iter().any(|file| {
        let text = fs::read_to_string(group.join(file)).unwrap_or_default();
        kills(&text).is_some_and(|kills| kills > 0)
    })
}

fn kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_count_kills_alike() {
        assert_eq!(kills("low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
