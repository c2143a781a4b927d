//! Corrects what a new sandbox finds in its workspace by what other sandboxes found there before it:
//! a repository that a guest of theirs made or changed is not the user's.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::nested::known;
use super::nested_baseline::NestedBaseline;
use super::saved::{FILE, Saved, time_of_kill};
use crate::path::HostPath;
use crate::process::lock;
use crate::process::lock::OWNER;

/// The saved gates of other sessions. Open files can be read after their sessions are removed.
pub struct OtherSessions(Vec<(PathBuf, File)>);

impl OtherSessions {
    /// Opens the gates of all sessions beside this one, whether their launchers are running or were
    /// killed.
    pub fn beside(session: &HostPath) -> Self {
        let own = session.as_path();
        let all = own.parent().and_then(|base| fs::read_dir(base).ok()).into_iter().flatten().flatten();
        let others = all.map(|entry| entry.path()).filter(|path| path != own);
        OtherSessions(others.filter_map(|path| Some((path.clone(), File::open(path.join(FILE)).ok()?))).collect())
    }

    /// Removes from a baseline what a guest made, and restores what a guest may have changed.
    pub fn correct(self, baseline: &mut NestedBaseline) {
        if baseline.is_empty() {
            return;
        }
        let NestedBaseline { git_dirs, pointers, odd, since } = baseline;
        for other in self.0.into_iter().filter_map(|(path, file)| OtherSession::read(&path, file).ok()) {
            git_dirs.retain_mut(|(path, content)| {
                if other.leaves(path, since) {
                    return true;
                }
                let before = other.saved.baseline.git_dir(path);
                before.is_some_and(|before| {
                    content.clone_from(before);
                    true
                })
            });
            pointers
                .retain(|(path, content)| other.leaves(path, since) || other.saved.baseline.has_pointer(path, content));
            odd.retain(|entry| other.leaves(&entry.0, since) || other.saved.baseline.odd.contains(entry));
        }
    }
}

struct OtherSession {
    saved: Saved,
    known: Vec<PathBuf>,
    /// The time in seconds at which the launcher was killed, if it was.
    killed: Option<i64>,
}

impl OtherSession {
    fn read(directory: &Path, mut file: File) -> io::Result<Self> {
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let saved: Saved = serde_json::from_slice(&content)?;
        let is_live = lock::is_held(&directory.join(OWNER)) == Some(true);
        let killed = if is_live { None } else { time_of_kill(&file.metadata()?) };
        Ok(OtherSession { known: known(&saved.gate), saved, killed })
    }

    /// Tells whether the guest could not write a path, or the user did so after its end.
    fn leaves(&self, path: &Path, since: &BTreeMap<PathBuf, i64>) -> bool {
        let is_within = self.saved.gate.roots.iter().any(|root| path.starts_with(root));
        let is_later = |killed| since.get(path).is_some_and(|since| *since > killed);
        !is_within || self.known.iter().any(|known| known == path) || self.killed.is_some_and(is_later)
    }
}
