//! Makes directories separate mounts, so that the guest cannot rename or replace them.

use crate::config::value::{Access, EngineKind};
use crate::path::HostPath;
use crate::plan::Draft;
use crate::plan::entry::{Mount, Topic, Why};

impl Draft<'_> {
    /// Makes a directory and those above it separate mounts, because a mount cannot be renamed or
    /// replaced (attack 03).
    pub(super) fn pin(&mut self, directory: &HostPath) {
        self.pin_above(directory);
        if self.is_below_root(directory) {
            self.pin_one(directory);
        }
    }

    pub(in crate::plan) fn pin_above(&mut self, directory: &HostPath) {
        let above = directory.as_path().ancestors().skip(1).filter_map(|above| HostPath::new(above).ok());
        for above in above.take_while(|above| self.is_below_root(above)).collect::<Vec<_>>() {
            self.pin_one(&above);
        }
    }

    pub(super) fn is_below_root(&self, path: &HostPath) -> bool {
        // In a copy the guest may change everything: nothing of it is in the directory of the user.
        self.copied.copy.is_none() && self.workspace.writable().any(|root| path.is_within(root) && path != root)
    }

    fn pin_one(&mut self, directory: &HostPath) {
        if self.engine == EngineKind::SandboxExec {
            return;
        }
        let reason = "a separate mount, so that it cannot be renamed or replaced";
        let why = Why::new(reason, self.config.git.origin.clone()).about(Topic::Repository);
        self.mounts.add(Mount::directory(directory.clone(), directory.to_guest(), Access::Rw, why));
    }
}
