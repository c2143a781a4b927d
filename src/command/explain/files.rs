//! Writes the mounts of a plan in sections: workspace, home, requested mounts, system, private files.

use std::path::{Path, PathBuf};

use super::text::because;
use crate::path::HostPath;
use crate::plan::{Mount, Plan, Source, Topic};
use crate::ui::{Page, View};

/// As many mounts with the same reason become one row.
const MANY: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Workspace,
    Home,
    Requested,
    System,
    Private,
}

impl Group {
    fn title(self, plan: &Plan) -> (&'static str, &'static str) {
        match self {
            Group::Workspace => ("Workspace", "at the same path as on the host"),
            Group::Home if plan.seatbelt.is_some() => {
                ("Your home", "the profile decides which other files can be read")
            }
            Group::Home => ("Your home", "only the files listed here are visible"),
            Group::Requested => ("Requested mounts", ""),
            Group::System => ("System", "of the host, read-only"),
            Group::Private => ("Private to the sandbox", ""),
        }
    }

    fn of(mount: &Mount, plan: &Plan) -> Option<Self> {
        let is_in_home = mount.target.is_within(&plan.user.home);
        match mount.why.topic {
            Topic::Workspace | Topic::Repository => Some(Group::Workspace),
            Topic::Asked => Some(Group::Requested),
            // The section of the preset lists it with the variables.
            Topic::Preset => None,
            Topic::Home => Some(Group::Home),
            Topic::Git | Topic::System | Topic::Network if is_in_home => Some(Group::Home),
            Topic::System | Topic::Git => Some(Group::System),
            Topic::Sandbox | Topic::Temp | Topic::Ssh | Topic::Network => Some(Group::Private),
        }
    }

    /// Tells whether mounts with the same reason may become one row. Those in the home and those of the
    /// user are always listed.
    fn may_summarize(self) -> bool {
        matches!(self, Group::Workspace | Group::System | Group::Private)
    }
}

/// Adds the sections of the user's files.
pub fn user_sections(page: &mut Page, plan: &Plan) {
    sections(page, plan, &[Group::Workspace, Group::Home, Group::Requested]);
}

/// Adds the sections of the system's and the sandbox's files.
pub fn system_sections(page: &mut Page, plan: &Plan) {
    sections(page, plan, &[Group::System, Group::Private]);
}

fn sections(page: &mut Page, plan: &Plan, groups: &[Group]) {
    for group in groups {
        let (title, note) = group.title(plan);
        page.section(title);
        page.note(note);
        let mounts: Vec<&Mount> = plan.mounts.iter().filter(|mount| Group::of(mount, plan) == Some(*group)).collect();
        rows(page, plan, &mounts, group.may_summarize());
    }
}

/// Adds one row for each mount, or one row for many mounts with the same reason.
pub fn rows(page: &mut Page, plan: &Plan, mounts: &[&Mount], may_summarize: bool) {
    let view = page.view();
    let alike = |a: &Mount, b: &Mount| (a.access, &a.why.reason, &a.why.from) == (b.access, &b.why.reason, &b.why.from);
    for (at, mount) in mounts.iter().enumerate() {
        let same: Vec<&Mount> = mounts.iter().copied().filter(|other| alike(other, mount)).collect();
        if view.detailed || !may_summarize || same.len() < MANY {
            page.row(mount.access.as_str(), &place(mount, plan, view), &because(&mount.why, view));
        } else if !mounts[..at].iter().any(|earlier| alike(earlier, mount)) {
            page.row(mount.access.as_str(), &summary(&same), &because(&mount.why, view));
        }
    }
}

/// Writes the path inside, and the source if that is another path.
fn place(mount: &Mount, plan: &Plan, view: View) -> String {
    let target = &mount.target;
    match &mount.source {
        Source::Host(path) if path.as_path() == target.as_path() => target.to_string(),
        Source::Host(path) if is_of_session(plan, path) && !view.detailed => target.to_string(),
        Source::Host(path) => format!("{target} ← {path}"),
        Source::Machine(path) => format!("{target} ← {path}"),
        Source::Tmpfs { .. } => format!("{target} ← tmpfs"),
        Source::Volume(name) => format!("{target} ← volume {name}"),
        Source::Cache { host, .. } if host.as_path() == target.as_path() && !view.detailed => target.to_string(),
        Source::Cache { host, layer } => format!("{target} ← {host}, changes in {layer}"),
        Source::Overlay { layer, .. } if view.detailed => format!("{target}, changes in {layer}"),
        Source::Overlay { .. } => target.to_string(),
        Source::Text(_) => format!("{target} ← generated"),
        Source::Link(to) => format!("{target} → {}", to.display()),
    }
}

/// Writes `/usr, /bin, /lib and 3 more`, or `14 in /etc`.
fn summary(mounts: &[&Mount]) -> String {
    let count = mounts.len();
    let common = mounts.iter().skip(1).fold(parent(mounts[0]), |common, mount| {
        let inside = parent(mount);
        common.ancestors().find(|above| inside.starts_with(above)).map(Path::to_owned).unwrap_or_default()
    });
    if common.parent().is_some() {
        return format!("{count} in {}", common.display());
    }
    let first: Vec<String> = mounts.iter().take(MANY).map(|mount| mount.target.to_string()).collect();
    match count - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn parent(mount: &Mount) -> PathBuf {
    mount.target.as_path().parent().map(Path::to_owned).unwrap_or_default()
}

/// Tells whether a path is in a directory that is removed with the session.
fn is_of_session(plan: &Plan, path: &HostPath) -> bool {
    let memory = plan.repository_gate.memory_dir.as_ref();
    path.is_within(&plan.session_dir) || memory.is_some_and(|memory| path.as_path().starts_with(memory))
}
