//! Whether a path of the host is visible inside, where, and by which mount.

use crate::command::explain::why::{Answer, Change};
use crate::config::Origin;
use crate::config::value::Access;
use crate::config::value::Stance;
use crate::facts::{FileFact, FileKind};
use crate::host::Host;
use crate::path::{GuestPath, HostPath};
use crate::plan::seatbelt::Base;
use crate::plan::{EngineKind, Mount, Plan, Source, SshState, Topic};
use crate::vars;

/// The answer about a path.
pub fn answer(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>) -> Answer {
    let is_there = fact.is_some();
    let own = path.to_guest();
    let covering = covering(plan, &own);
    // What is meant is the host's file, wherever links lead.
    let real = fact.map_or(path, |fact| &fact.real);
    let seen = plan.mounts.iter().filter_map(|mount| Some((mount, place(plan, mount, real)?)));
    if let Some((mount, inside)) = seen.min_by_key(|(_, inside)| *inside != own) {
        let access = if mount.access == Access::Rw { "read and written" } else { "read-only" };
        let place = if inside == own { String::new() } else { format!(" as {inside}") };
        let missing = if is_there { "" } else { "; it does not exist on the host now" };
        return visible(path, mount, format!("inside{place}, {access}{missing}"), true);
    }
    match covering {
        // What sandpen itself puts there is asked about by the name it has inside.
        Some(mount) if mount.target == own && !is_there => visible(path, mount, "inside only".into(), true),
        Some(mount) if matches!(mount.source, Source::Link(_)) => visible(path, mount, "inside, a link".into(), true),
        Some(mount) => {
            let how = if mount.target == own { "not inside: something else is in its place" } else { "not inside" };
            let answer = Answer::new("path", path, Some(false), how).because(&mount.why);
            offers(host, plan, path, fact, answer)
        }
        None => nothing(host, plan, path, fact),
    }
}

/// The mount that decides what is at a place inside.
fn covering<'a>(plan: &'a Plan, inside: &GuestPath) -> Option<&'a Mount> {
    let above = plan.mounts.iter().filter(|mount| inside.is_within(&mount.target));
    above.max_by_key(|mount| mount.target.as_os_str().len())
}

/// Where a mount shows this file of the host, if no other mount covers that.
fn place(plan: &Plan, mount: &Mount, real: &HostPath) -> Option<GuestPath> {
    let Source::Host(source) = &mount.source else { return None };
    let below = real.as_path().strip_prefix(source.as_path()).ok()?;
    let inside = mount.target.join(below);
    covering(plan, &inside).is_some_and(|top| top == mount).then_some(inside)
}

/// It is there: what would take it away, or open it.
fn visible(path: &HostPath, mount: &Mount, how: String, inside: bool) -> Answer {
    let answer = Answer::new("path", path, Some(inside), how).because(&mount.why);
    let text = quoted(path);
    match (mount.why.topic, mount.access) {
        (Topic::Workspace, Access::Rw) => answer.change(format!("--mount {text}:ro"), "lets it be read only"),
        (Topic::Asked, Access::Ro) => answer.change(format!("--mount {text}:rw"), "lets it be written"),
        (Topic::Asked, Access::Rw) => answer.change(format!("--mount {text}:ro"), "lets it be read only"),
        (Topic::Guard, _) => answer.change("--guard off", "lets Git's files be changed, and run code on the host"),
        (Topic::Preset, _) => answer.change("--agent none", "leaves the preset out"),
        (Topic::Ssh, _) => answer.change("--ssh-agent off", "keeps the agent out of reach"),
        (Topic::Temp, _) => answer.change("--tmp private", "uses a directory of the sandbox's own"),
        (Topic::System, _) => answer.change("--image IMAGE", "shows an image's system instead of the host's"),
        (Topic::Network, _) => answer.change("--network off", "takes the way out away"),
        _ => answer,
    }
}

/// No mount has to do with it.
fn nothing(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>) -> Answer {
    let answer = match (&plan.seatbelt, plan.engine.kind) {
        (Some(seatbelt), _) => match &seatbelt.base {
            Base::BuiltIn(profile) if profile.stance == Stance::Restrictive => {
                Answer::new("path", path, Some(false), "not inside, unless it is the system's")
                    .reason(format!("the profile {} opens what is named, and the system", profile.name()))
            }
            Base::BuiltIn(profile) => {
                Answer::new("path", path, None, "read, unless it is a secret of the home; not written")
                    .reason(format!("the profile {} opens everything to readers but secrets", profile.name()))
            }
            Base::Own(profile) => Answer::new("path", path, None, "as your own profile says")
                .reason(format!("your profile `{}` decides", profile.path)),
        },
        (None, EngineKind::Docker | EngineKind::Podman) => Answer::new("path", path, Some(false), "not inside")
            .reason("no mount shows it; what the image has at that place, if anything, is the image's own"),
        (None, _) => Answer::new("path", path, Some(false), "not inside").reason("nobody asked for it"),
    };
    offers(host, plan, path, fact, answer)
}

/// It is not there: what would show it.
fn offers(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>, mut answer: Answer) -> Answer {
    let mut offer = |option: String, effect| answer.change.push(Change { option, effect });
    let text = quoted(path);
    let is_agent = host.env.path(vars::SSH_AUTH_SOCK) == Some(path.as_path());
    if is_agent && plan.ssh.state != SshState::Forwarded {
        offer("--ssh-agent on".into(), "forwards the agent");
        return answer;
    }
    if path.is_within(&host.temp_dir()) && plan.mounts.iter().any(|mount| mount.why.topic == Topic::Temp) {
        offer("--tmp host".into(), "shows the host's temporary files, other programs' sockets among them");
    }
    if path.is_within(&host.home.join(".ssh")) && plan.ssh.state != SshState::Forwarded {
        offer("--ssh-agent on".into(), "lets ssh use the keys without showing them");
    }
    let Some(fact) = fact else {
        answer.how.push_str("; it does not exist on the host");
        return answer;
    };
    offer(format!("--mount {text}"), "shows it, read-only");
    if !host.keeps_files_in(&fact.real) {
        offer(format!("--mount {text}:rw"), "lets it be written, too");
        if fact.kind == FileKind::Directory {
            offer(format!("--include-dir {text}"), "makes it a further workspace");
        }
    }
    if answer.from.is_none() {
        answer.from = Some(Origin::Default);
    }
    answer
}

fn quoted(path: &HostPath) -> String {
    crate::ui::shell::shell_word(&path.as_os_str().to_owned())
}
