//! Remembers what was said, so that each launch does not repeat it. Decides nothing about the text.

use std::fs;

use sha2::{Digest, Sha256};

use crate::host::Host;

/// The directory with a file per subject, below the state directory.
const DIRECTORY: &str = "said";
/// How many texts of a subject are remembered: engines and networks have texts of their own.
const MAX_TEXTS: usize = 32;

/// Tells whether something is said about these lines for the first time, and remembers it. Where that
/// cannot be written, it is said again.
pub fn is_new(host: &Host, subject: &str, lines: &[String]) -> bool {
    let digest: String = Sha256::digest(lines.join("\n")).iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = host.state_dir().join(DIRECTORY);
    let path = directory.join(subject);
    let known = fs::read_to_string(path.as_path()).unwrap_or_default();
    let mut known: Vec<&str> = known.lines().collect();
    if known.contains(&digest.as_str()) {
        return false;
    }
    known.push(&digest);
    let kept = known[known.len().saturating_sub(MAX_TEXTS)..].join("\n");
    let _ = fs::create_dir_all(directory.as_path()).and_then(|()| fs::write(path.as_path(), kept));
    true
}
