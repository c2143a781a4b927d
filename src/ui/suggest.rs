//! Finds the known name nearest to a misspelt one.

use strsim::osa_distance;

/// Longer texts are not misspelt names; comparing them would only cost time.
const MAX_LENGTH: usize = 64;

/// Returns the nearest name, if at most a third of it has to change.
pub fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if wrong.len() > MAX_LENGTH {
        return None;
    }
    let wrong = wrong.to_lowercase();
    known
        .into_iter()
        .map(|name| (osa_distance(&wrong, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_only_what_is_close() {
        assert_eq!(nearest("netwrok", ["network", "mounts"]), Some("network"));
        assert_eq!(nearest("offlin", ["offline", "safe"]), Some("offline"));
        assert_eq!(nearest("xyz", ["network", "mounts"]), None);
        assert_eq!(nearest("", ["on"]), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), ["x"]), None);
    }
}
