//! Decides the volumes of a pod: empty directories at the places of the plan's mounts, which the
//! keeper fills before the command starts.

use super::LaunchError;
use crate::config::value::Access;
use crate::path::{GuestPath, HostPath, constant};
use crate::plan::{CONTROL_DIR, Mount, Plan, Source, Topic};

/// The files that every pod gets by annotations, which need no volume that is filled.
const ACCOUNTS: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// An empty directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub name: String,
    pub target: GuestPath,
    /// Whether the guest may write to it. The keeper may write to all.
    pub access: Access,
    pub is_in_memory: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volumes(pub Vec<Volume>);

impl Volumes {
    pub fn of(plan: &Plan) -> Result<Self, LaunchError> {
        let mut volumes = Volumes(Vec::new());
        volumes.add("sandpen", constant!(GuestPath, CONTROL_DIR), Access::Ro, false);
        volumes.add("home", plan.user.home.clone(), Access::Rw, false);
        for mount in &plan.mounts {
            let name = format!("files-{}", volumes.0.len());
            match &mount.source {
                Source::Tmpfs { .. } => volumes.add(&name, mount.target.clone(), Access::Rw, true),
                Source::Host(_) | Source::Overlay { .. } if volumes.covers(&mount.target) || is_account(mount) => {}
                Source::Host(_) | Source::Overlay { .. } if mount.is_directory => {
                    volumes.add(&name, mount.target.clone(), mount.access, false);
                }
                // A file of sandpen's own, such as host keys for all users: the home has them, too.
                Source::Host(_) if mount.why.topic != Topic::Asked => {}
                Source::Host(source) => return Err(no_place(source, mount)),
                Source::Text(_)
                | Source::Link(_)
                | Source::Machine(_)
                | Source::Volume(_)
                | Source::Cache { .. }
                | Source::Overlay { .. } => {
                    let engine = plan.engine.kind;
                    return Err(LaunchError::UnsupportedSource { target: mount.target.to_string(), engine });
                }
            }
        }
        Ok(volumes)
    }

    fn add(&mut self, name: &str, target: GuestPath, access: Access, is_in_memory: bool) {
        self.0.push(Volume { name: name.to_owned(), target, access, is_in_memory });
    }

    /// Tells whether a path is in one of the volumes.
    pub fn covers(&self, path: &GuestPath) -> bool {
        self.0.iter().any(|volume| path.is_within(&volume.target))
    }
}

pub fn is_account(mount: &Mount) -> bool {
    ACCOUNTS.iter().any(|file| mount.target.to_str() == Some(file))
}

fn no_place(source: &HostPath, mount: &Mount) -> LaunchError {
    LaunchError::NoVolume { origin: mount.why.from.clone(), path: source.to_string(), target: mount.target.to_string() }
}
