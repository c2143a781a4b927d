//! Reviews that nobody waits for: large workspaces are walked by a process of their own, and what it finds is told by the next
//! sandpen.

#![allow(clippy::disallowed_methods, reason = "starts sandpen itself, for a review that nobody waits for")]

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Baseline, Review};
use crate::path::HostPath;
use crate::process::lock;
use crate::session_id::SessionId;

/// The subcommand that makes the reviews that wait. Hidden.
pub const SUBCOMMAND: &str = "review";

/// Where reviews wait to be made, beside the sessions.
fn waiting(sessions: &HostPath) -> PathBuf {
    sessions.as_path().with_file_name("waiting")
}

/// Where reviews wait to be read.
fn unread(sessions: &HostPath) -> PathBuf {
    sessions.as_path().with_file_name("unread")
}

/// Leaves a session's review to a process of its own. If that cannot be started, the next sandpen makes it.
pub fn leave(baseline: &Baseline, session: &HostPath, program: Option<&HostPath>) -> io::Result<()> {
    let sessions = session.as_path().parent().and_then(|base| HostPath::new(base).ok());
    let sessions = sessions.ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(waiting(&sessions))?;
    let file = waiting(&sessions).join(format!("{}.json", SessionId::random()));
    fs::write(file, serde_json::to_vec(baseline)?)?;
    if let Some(program) = program {
        let mut command = Command::new(program.as_path());
        // Away from every stream and terminal of the caller's. It leaves the directory itself: to be started in another one would
        // take a fork of this process.
        command.arg(SUBCOMMAND).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    }
    Ok(())
}

/// Makes the reviews that wait, and returns those that wait to be read. What another process is at is left to it.
pub fn catch_up(sessions: &HostPath) -> Vec<Review> {
    let mut reviews = Vec::new();
    for file in files(&waiting(sessions)) {
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

/// Whether nothing waits to be made or to be read.
#[cfg(target_os = "linux")]
pub fn is_idle(sessions: &HostPath) -> bool {
    files(&waiting(sessions)).next().is_none() && files(&unread(sessions)).next().is_none()
}

/// Keeps reviews until somebody can be told: who made them has no terminal.
pub fn keep(sessions: &HostPath, reviews: &[Review]) -> io::Result<()> {
    for review in reviews.iter().filter(|review| !review.is_empty()) {
        fs::create_dir_all(unread(sessions))?;
        let name = format!("{}.json", SessionId::random());
        fs::write(unread(sessions).join(name), serde_json::to_vec(review)?)?;
    }
    Ok(())
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
