//! Reads whether a control group ran out of memory. The native launcher asks for the groups it
//! made, the helper for the container's group.

use std::fs;
use std::path::Path;

/// Returns whether the kernel killed a process of the group because memory ran out. Version 2 of
/// control groups counts that in `memory.events`, version 1 in `memory.oom_control`.
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
    fn both_versions_count_kills_in_the_same_line() {
        assert_eq!(kills("low 0\nhigh 0\nmax 31\noom 1\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"), Some(1));
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
