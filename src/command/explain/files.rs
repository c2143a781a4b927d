//! The mounts of a plan in groups that a person asks about: the workspace, the home, what was asked for, the preset, the system.

use std::path::{Path, PathBuf};

use crate::command::explain::text::because;
use crate::plan::{Mount, Plan, Source, Topic};
use crate::ui::Page;
use crate::ui::View;

/// Entries alike are summed up from this many on.
const MANY: usize = 3;

/// A group of mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Workspace,
    Home,
    Asked,
    System,
    Own,
}

impl Group {
    fn title(self, plan: &Plan) -> (&'static str, &'static str) {
        match self {
            Group::Workspace => ("Workspace", "under its own name"),
            Group::Home if plan.seatbelt.is_some() => ("Your home", "what else of it is read, the profile decides"),
            Group::Home => ("Your home", "what is not named on this page stays outside"),
            Group::Asked => ("Asked for", ""),
            Group::System => ("System", "the host's own, read-only"),
            Group::Own => ("The sandbox's own", ""),
        }
    }

    fn of(mount: &Mount, plan: &Plan) -> Option<Self> {
        let is_in_home = mount.target.is_within(&plan.user.home);
        match mount.why.topic {
            Topic::Workspace | Topic::Guard => Some(Group::Workspace),
            Topic::Asked => Some(Group::Asked),
            // It has a section of its own, with its variables.
            Topic::Preset => None,
            Topic::Home => Some(Group::Home),
            Topic::Git | Topic::System | Topic::Network if is_in_home => Some(Group::Home),
            Topic::System | Topic::Git => Some(Group::System),
            Topic::Sandbox | Topic::Temp | Topic::Ssh | Topic::Network => Some(Group::Own),
        }
    }

    /// Whether what is alike may be summed up: whoever asks about the home wants to see each.
    fn may_sum_up(self) -> bool {
        matches!(self, Group::Workspace | Group::System | Group::Own)
    }
}

/// What is the user's.
pub fn yours(page: &mut Page, plan: &Plan) {
    sections(page, plan, &[Group::Workspace, Group::Home, Group::Asked]);
}

/// What is not.
pub fn others(page: &mut Page, plan: &Plan) {
    sections(page, plan, &[Group::System, Group::Own]);
}

fn sections(page: &mut Page, plan: &Plan, groups: &[Group]) {
    for group in groups {
        let (title, note) = group.title(plan);
        page.section(title);
        page.note(note);
        let mounts: Vec<&Mount> = plan.mounts.iter().filter(|mount| Group::of(mount, plan) == Some(*group)).collect();
        rows(page, plan, &mounts, group.may_sum_up());
    }
}

/// One row each, or one for those that are alike.
pub fn rows(page: &mut Page, plan: &Plan, mounts: &[&Mount], may_sum_up: bool) {
    let view = page.view();
    let alike = |a: &Mount, b: &Mount| (a.access, &a.why.reason, &a.why.from) == (b.access, &b.why.reason, &b.why.from);
    for (at, mount) in mounts.iter().enumerate() {
        let same: Vec<&Mount> = mounts.iter().copied().filter(|other| alike(other, mount)).collect();
        if view.detailed || !may_sum_up || same.len() < MANY {
            page.row(mount.access.as_str(), &place(mount, plan, view), &because(&mount.why, view));
        } else if !mounts[..at].iter().any(|earlier| alike(earlier, mount)) {
            page.row(mount.access.as_str(), &summary(&same), &because(&mount.why, view));
        }
    }
}

/// Where something is inside, and what it is outside if that differs.
fn place(mount: &Mount, plan: &Plan, view: View) -> String {
    let target = &mount.target;
    match &mount.source {
        Source::Host(path) if path.as_path() == target.as_path() => target.to_string(),
        Source::Host(path) if path.is_within(&plan.session_dir) && !view.detailed => target.to_string(),
        Source::Host(path) => format!("{target} ← {path}"),
        Source::Machine(path) => format!("{target} ← {path}"),
        Source::Tmpfs { .. } => format!("{target} ← memory"),
        Source::Volume(name) => format!("{target} ← volume {name}"),
        Source::Text(_) => format!("{target} ← generated"),
        Source::Link(to) => format!("{target} → {}", to.display()),
    }
}

/// `/usr, /bin, /lib and 3 more`, or `14 in /etc`.
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
