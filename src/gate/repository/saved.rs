//! Saves what a later command needs to continue the exchange of a launcher that was killed.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

use super::nested_baseline::NestedBaseline;
use super::watched::Stamps;
use crate::path::HostPath;
use crate::plan::RepositoryGate;

/// The name of the saved state in the session's directory.
pub const FILE: &str = "repositories.json";
/// The file's time is that of the last exchange, so a launcher was killed at most so many seconds
/// after it.
const KILL_MARGIN: u64 = 3;

/// The state that a killed launcher leaves.
#[derive(Deserialize)]
pub struct Saved {
    pub gate: RepositoryGate,
    pub stamps: Stamps,
    pub baseline: NestedBaseline,
}

/// The same as `Saved`, to write it.
#[derive(Serialize)]
pub struct SavedRef<'a> {
    pub gate: &'a RepositoryGate,
    pub stamps: &'a Stamps,
    pub baseline: &'a NestedBaseline,
}

impl Saved {
    pub fn read(session: &HostPath) -> Option<Self> {
        serde_json::from_slice(&fs::read(session.join(FILE).as_path()).ok()?).ok()
    }
}

impl SavedRef<'_> {
    pub fn write(&self, session: &HostPath) -> io::Result<()> {
        fs::write(session.join(FILE).as_path(), serde_json::to_vec(self)?)
    }
}

/// Returns the time in seconds at which a launcher was killed, from the time of its saved state.
pub fn time_of_kill(saved: &fs::Metadata) -> Option<i64> {
    let seen = saved.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(seen + KILL_MARGIN).ok()
}
