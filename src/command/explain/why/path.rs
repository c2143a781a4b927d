//! Answers whether a path of the host is visible inside, where, and by which mount.

use super::{Answer, Change};
use crate::config::Origin;
use crate::config::value::{Access, Stance};
use crate::facts::{FileFact, FileKind};
use crate::host::Host;
use crate::path::{GuestPath, HostPath};
use crate::plan::seatbelt::Base;
use crate::plan::{EngineKind, Mount, Plan, Source, SshState, Topic};
use crate::ui::shell::shell_word;
use crate::vars;

pub fn answer(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>) -> Answer {
    let exists = fact.is_some();
    let same_path = path.to_guest();
    let covering = covering(plan, &same_path);
    // The question is about the file on the host, so follow its links.
    let real = fact.map_or(path, |fact| &fact.real);
    let visible_at = plan.mounts.iter().filter_map(|mount| Some((mount, place(plan, mount, real)?)));
    if let Some((mount, inside)) = visible_at.min_by_key(|(_, inside)| *inside != same_path) {
        let access = if mount.access == Access::Rw { "writable" } else { "read-only" };
        let place = if inside == same_path { String::new() } else { format!(" as {inside}") };
        let missing = if exists { "" } else { "; it does not exist on the host" };
        return visible(path, mount, format!("inside{place}, {access}{missing}"), true);
    }
    match covering {
        // sandpen creates this file inside.
        Some(mount) if mount.target == same_path && !exists => visible(path, mount, "inside only".into(), true),
        Some(mount) if matches!(mount.source, Source::Link(_)) => {
            visible(path, mount, "inside, as a link".into(), true)
        }
        Some(mount) => {
            let how = if mount.target == same_path { "not inside: another file is at this path" } else { "not inside" };
            let answer = Answer::new("path", path, Some(false), how).because(&mount.why);
            offers(host, plan, path, fact, answer)
        }
        None => unmounted(host, plan, path, fact),
    }
}

/// Returns the mount that decides what is at a path inside.
fn covering<'a>(plan: &'a Plan, inside: &GuestPath) -> Option<&'a Mount> {
    let above = plan.mounts.iter().filter(|mount| inside.is_within(&mount.target));
    above.max_by_key(|mount| mount.target.as_os_str().len())
}

/// Returns the path at which a mount shows a file of the host, unless another mount covers it.
fn place(plan: &Plan, mount: &Mount, real: &HostPath) -> Option<GuestPath> {
    let Source::Host(source) = &mount.source else { return None };
    let below = real.as_path().strip_prefix(source.as_path()).ok()?;
    let inside = mount.target.join(below);
    covering(plan, &inside).is_some_and(|top| top == mount).then_some(inside)
}

/// Answers for a visible path, with the options that would hide it or change its access.
fn visible(path: &HostPath, mount: &Mount, how: String, inside: bool) -> Answer {
    let answer = Answer::new("path", path, Some(inside), how).because(&mount.why);
    let text = quoted(path);
    match (mount.why.topic, mount.access) {
        (Topic::Workspace, Access::Rw) => answer.change(format!("--mount {text}:ro"), "makes it read-only"),
        (Topic::Asked, Access::Ro) => answer.change(format!("--mount {text}:rw"), "makes it writable"),
        (Topic::Asked, Access::Rw) => answer.change(format!("--mount {text}:ro"), "makes it read-only"),
        (Topic::Repository, _) => {
            answer.change("--git shared", "uses the host's Git directory, which is no protection")
        }
        (Topic::Preset, _) => answer.change("--agent none", "disables the preset"),
        (Topic::Ssh, _) => answer.change("--ssh-agent off", "disables agent forwarding"),
        (Topic::Temp, _) => answer.change("--tmp private", "uses a private directory"),
        (Topic::System, _) => answer.change("--image IMAGE", "uses the system of an image"),
        (Topic::Network, _) => answer.change("--network off", "disables the network"),
        _ => answer,
    }
}

/// Answers for a path to which no mount applies.
fn unmounted(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>) -> Answer {
    let answer = match (&plan.seatbelt, plan.engine.kind) {
        (Some(seatbelt), _) => match &seatbelt.base {
            Base::BuiltIn(profile) if profile.stance == Stance::Restrictive => {
                Answer::new("path", path, Some(false), "not inside, unless it is part of the system")
                    .reason(format!("the profile {} permits mounts and the system", profile.name()))
            }
            Base::BuiltIn(profile) => {
                Answer::new("path", path, None, "readable unless it is a credential; not writable")
                    .reason(format!("the profile {} permits reading everything but credentials", profile.name()))
            }
            Base::Own(profile) => {
                Answer::new("path", path, None, "your profile decides").reason(format!("it is `{}`", profile.path))
            }
        },
        (None, EngineKind::Docker | EngineKind::Podman | EngineKind::Kubernetes) => {
            Answer::new("path", path, Some(false), "not inside")
                .reason("it is not mounted; the image may have another file at this path")
        }
        (None, _) => Answer::new("path", path, Some(false), "not inside").reason("it is not mounted"),
    };
    offers(host, plan, path, fact, answer)
}

/// Adds the options that would make a path visible.
fn offers(host: &Host, plan: &Plan, path: &HostPath, fact: Option<&FileFact>, mut answer: Answer) -> Answer {
    let mut offer = |option: String, effect| answer.change.push(Change { option, effect });
    let text = quoted(path);
    let is_agent = host.env.path(vars::SSH_AUTH_SOCK) == Some(path.as_path());
    if is_agent && plan.ssh.state != SshState::Forwarded {
        offer("--ssh-agent on".into(), "forwards the agent");
        return answer;
    }
    if path.is_within(&host.temp_dir()) && plan.mounts.iter().any(|mount| mount.why.topic == Topic::Temp) {
        offer("--tmp host".into(), "mounts the host's temp directory, including the sockets of other programs");
    }
    if path.is_within(&host.home.join(".ssh")) && plan.ssh.state != SshState::Forwarded {
        offer("--ssh-agent on".into(), "lets ssh use the keys without mounting them");
    }
    let Some(fact) = fact else {
        answer.how.push_str("; it does not exist on the host");
        return answer;
    };
    offer(format!("--mount {text}"), "mounts it read-only");
    if !host.keeps_files_in(&fact.real) {
        offer(format!("--mount {text}:rw"), "mounts it writable");
        if fact.kind == FileKind::Directory {
            offer(format!("--include-dir {text}"), "adds it to the workspace");
        }
    }
    if answer.from.is_none() {
        answer.from = Some(Origin::Default);
    }
    answer
}

fn quoted(path: &HostPath) -> String {
    shell_word(&path.as_os_str().to_owned())
}
