//! Reviews large workspaces in a background process, whose findings the next call of sandpen prints.

#![allow(clippy::disallowed_methods, reason = "starts sandpen for a review in the background")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Baseline, Review};
use crate::path::HostPath;
use crate::process::lock;
use crate::session_id::random_name;

/// The internal subcommand that runs the pending reviews.
pub const SUBCOMMAND: &str = "review";

/// The directory of baselines whose review is pending.
fn pending(sessions: &HostPath) -> PathBuf {
    sessions.as_path().with_file_name("waiting")
}

/// The directory of reviews that were not printed yet.
fn unread(sessions: &HostPath) -> PathBuf {
    sessions.as_path().with_file_name("unread")
}

/// Starts a background process for a session's review. If that fails, the next call of sandpen runs
/// the review.
pub fn leave(baseline: &Baseline, session: &HostPath, program: Option<&HostPath>) -> io::Result<()> {
    let sessions = session.as_path().parent().and_then(|base| HostPath::new(base).ok());
    let sessions = sessions.ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(pending(&sessions))?;
    let file = pending(&sessions).join(format!("{}.json", random_name()));
    fs::write(file, serde_json::to_vec(baseline)?)?;
    if let Some(program) = program {
        let mut command = Command::new(program.as_path());
        // It must not keep the caller's streams and terminal open. It changes the directory itself,
        // because `current_dir` would make this process fork.
        command.arg(SUBCOMMAND).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    }
    Ok(())
}

/// Runs the pending reviews and returns all that were not printed yet. Skips those that another
/// process is running.
pub fn catch_up(sessions: &HostPath) -> Vec<Review> {
    let mut reviews = Vec::new();
    for file in files(&pending(sessions)) {
        let Ok(_lock) = lock::take(&file) else { continue };
        let baseline = fs::read(&file).ok().and_then(|json| serde_json::from_slice::<Baseline>(&json).ok());
        reviews.extend(baseline.map(|baseline| baseline.catch_up()));
        let _ = fs::remove_file(&file);
    }
    for file in files(&unread(sessions)) {
        let review = fs::read(&file).ok().and_then(|json| serde_json::from_slice(&json).ok());
        if fs::remove_file(&file).is_ok() {
            reviews.extend::<Option<Review>>(review);
        }
    }
    reviews
}

#[cfg(target_os = "linux")]
pub fn is_idle(sessions: &HostPath) -> bool {
    files(&pending(sessions)).next().is_none() && files(&unread(sessions)).next().is_none()
}

/// Saves reviews for the next call of sandpen that has a terminal.
pub fn keep(sessions: &HostPath, reviews: &[Review]) -> io::Result<()> {
    for review in reviews.iter().filter(|review| !review.is_empty()) {
        fs::create_dir_all(unread(sessions))?;
        let name = format!("{}.json", random_name());
        fs::write(unread(sessions).join(name), serde_json::to_vec(review)?)?;
    }
    Ok(())
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
