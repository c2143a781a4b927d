//! Decides the guest's user, so that files in the workspace keep their owner and the SSH agent
//! accepts the guest.

use serde::Serialize;

use super::Inputs;
use super::engine::{self, EnginePlan};
use crate::config::value::{EngineKind, UserMode};
use crate::facts::{ImageFacts, RootImageUser};
use crate::host::{Host, Platform};
use crate::path::{GuestPath, constant};
use crate::warning::{Warning, WarningTopic};

/// The user on another machine if the host's is not possible there.
const OTHER_USER: u32 = 1000;
const OTHER_USER_NAME: &str = "sandpen";

/// The mechanism by which the guest gets its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserHow {
    /// The guest has the host's uid, or is root if a rootless daemon maps root to the host's user.
    Host,
    /// Rootless Podman maps the host's user to itself.
    KeepId,
    /// The image decides.
    Image,
}

/// The user that the command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPlan {
    /// The uid inside; `None` if only the image knows it.
    pub uid: Option<u32>,
    /// The gid inside; `None` if only the image knows it.
    pub gid: Option<u32>,
    /// The name for passwd.
    pub name: String,
    /// The home directory inside.
    pub home: GuestPath,
    /// Selects the mechanism.
    pub how: UserHow,
    /// Whether rootless Podman maps the host's user to the image's, so that it can write to the
    /// workspace.
    pub is_mapped: bool,
    /// Tells the user why.
    pub reason: String,
}

impl UserPlan {
    /// Tells whether sandpen provides passwd, group and a home directory, and not the image.
    pub fn is_host_user(&self) -> bool {
        self.how != UserHow::Image
    }
}

/// Tells whether the guest is the image's user, whose home directory only the image knows.
pub fn needs_image_facts(inputs: Inputs) -> bool {
    let is_image_user = match inputs.config.user.value {
        UserMode::Image => true,
        UserMode::Auto => inputs.host.platform == Platform::Macos,
        UserMode::Host => false,
    };
    is_image_user
        && (inputs.preset.is_none_or(|preset| preset.image_home.is_none())
            || engine::choose(inputs).is_ok_and(|(engine, _)| can_map_image_user(inputs, engine.kind)))
}

/// Returns the name of the image's user if its ids must be known.
pub fn asks_for_ids<'a>(inputs: Inputs<'a>, engine: EngineKind) -> Option<&'a str> {
    let user = inputs.facts.image.as_ref()?.user.as_deref()?.split(':').next()?;
    (can_map_image_user(inputs, engine) && user != "root" && user.parse::<u32>().is_err()).then_some(user)
}

/// Tells whether Podman is known to be rootless. Of a virtual machine only its connection tells, which is
/// asked for with the SSH agent.
fn can_map_image_user(inputs: Inputs, engine: EngineKind) -> bool {
    let podman = inputs.facts.podman.as_ref();
    let is_known = podman.is_some_and(|podman| !podman.remote) || inputs.facts.connection.is_some();
    is_known && is_rootless_podman(inputs, engine)
}

fn is_rootless_podman(inputs: Inputs, engine: EngineKind) -> bool {
    let facts = inputs.facts;
    // A connection as root leads to a rootful Podman, which refuses keep-id.
    let rootful_machine = matches!(&facts.connection, Some(Ok(connection)) if connection.user == "root");
    engine == EngineKind::Podman
        && !rootful_machine
        && facts.podman.as_ref().is_some_and(|podman| podman.rootless || podman.remote)
}

pub fn plan(inputs: Inputs, engine: &EnginePlan, warnings: &mut Vec<Warning>) -> UserPlan {
    let Inputs { host, config, facts, workspace, .. } = inputs;
    let wanted = match config.user.value {
        UserMode::Auto if engine.abilities.copies_files => UserMode::Host,
        UserMode::Auto if host.platform == Platform::Macos && engine.kind.is_container() => UserMode::Image,
        UserMode::Auto => UserMode::Host,
        asked => asked,
    };
    if wanted == UserMode::Image && engine.kind.is_container() {
        return image_user(inputs, engine.kind, warnings);
    }
    if engine.abilities.copies_files {
        return user_elsewhere(host);
    }
    if wanted == UserMode::Image && engine.kind == EngineKind::Native && config.image.is_some() {
        return stored_image_user(inputs, warnings);
    }
    let docker_rootless =
        engine.kind == EngineKind::Docker && facts.docker.as_ref().is_some_and(|docker| docker.rootless);
    let (uid, gid, name, how, reason) = if docker_rootless {
        (0, 0, "root", UserHow::Host, "rootless Docker: root in the container is the host's user".to_owned())
    } else if is_rootless_podman(inputs, engine.kind) {
        (
            host.uid,
            host.gid,
            host.user.as_str(),
            UserHow::KeepId,
            format!("rootless Podman: uid {} is kept inside", host.uid),
        )
    } else {
        (
            host.uid,
            host.gid,
            host.user.as_str(),
            UserHow::Host,
            format!("files keep their owner: uid {} inside and outside", host.uid),
        )
    };
    if host.uid == 0 && workspace.owner != 0 && engine.kind.is_container() {
        warnings.push(Warning::new(WarningTopic::User, format!(
            "the working directory belongs to uid {}, and root inside has no capabilities: it can only write where file permissions allow it. Run sandpen as the owner",
            workspace.owner
        )));
    }
    let (name, home) = (name.to_owned(), host.home.to_guest());
    UserPlan { uid: Some(uid), gid: Some(gid), name, home, how, is_mapped: false, reason }
}

/// Returns the user on another machine: clusters refuse root, which is the helper in a container of a remote
/// engine, and a user namespace has no ids above 65535.
fn user_elsewhere(host: &Host) -> UserPlan {
    let is_possible = |id: &u32| (1..=u32::from(u16::MAX)).contains(id);
    let uid = Some(host.uid).filter(is_possible).unwrap_or(OTHER_USER);
    let gid = Some(host.gid).filter(is_possible).unwrap_or(uid);
    let (name, reason) = match uid == host.uid {
        true => (host.user.as_str(), format!("as on the host: uid {uid}")),
        false => (
            OTHER_USER_NAME,
            format!("on another machine it is not root and no id above 65535: uid {uid} instead of {}", host.uid),
        ),
    };
    UserPlan {
        uid: Some(uid),
        gid: Some(gid),
        name: name.to_owned(),
        home: host.home.to_guest(),
        how: UserHow::Host,
        is_mapped: false,
        reason,
    }
}

fn image_user(inputs: Inputs, engine: EngineKind, warnings: &mut Vec<Warning>) -> UserPlan {
    let Inputs { config, facts, preset, .. } = inputs;
    let image = facts.image.clone().unwrap_or_default();
    let preset_home = preset.and_then(|preset| preset.image_home.clone());
    let known = preset_home.clone().or_else(|| image_home(&image).and_then(|home| GuestPath::new(home).ok()));
    if known.is_none() && facts.image.is_none() {
        warnings.push(Warning::new(
            WarningTopic::User,
            "the image has not been pulled yet, so the home directory of its user is unknown: /root is assumed",
        ));
    }
    let mut reason = match &preset_home {
        Some(_) => format!("the image's user ({}), with the home directory from the preset", config.user.origin),
        None => format!("the image's user ({})", config.user.origin),
    };
    let (user, group) = match image.user.as_deref() {
        None => (Some(0), Some(0)),
        Some(user) => {
            let (user, group) = user.split_once(':').unwrap_or((user, ""));
            (if user == "root" { Some(0) } else { user.parse().ok() }, group.parse().ok())
        }
    };
    let (uid, gid) = if facts.image.is_some() {
        (user.or(image.user_ids.map(|(uid, _)| uid)), group.or(image.user_ids.map(|(_, gid)| gid)))
    } else {
        (None, None)
    };
    // Root of a rootless Podman's container is the host's user already.
    let is_mapped = can_map_image_user(inputs, engine) && uid.is_some_and(|uid| uid != 0);
    if let (true, Some(uid)) = (is_mapped, uid) {
        reason.push_str(&format!("; the host's user is uid {uid} inside, so that it can write to the workspace"));
    }
    let home = known.unwrap_or_else(|| constant!(GuestPath, "/root"));
    let name = image.user.unwrap_or_else(|| "root".into());
    UserPlan { uid, gid, name, home, how: UserHow::Image, is_mapped, reason }
}

/// Returns the user of an image of the store. The host's user has its ids inside.
fn stored_image_user(inputs: Inputs, warnings: &mut Vec<Warning>) -> UserPlan {
    let Inputs { config, facts, .. } = inputs;
    let named = facts.root_image.as_ref().and_then(|image| image.user.clone());
    if named.is_none() && facts.root_image.is_some() {
        warnings.push(Warning::new(
            WarningTopic::User,
            "the image has no entry for the user that it names: root is used in its place",
        ));
    }
    let root = || RootImageUser { name: "root".into(), uid: 0, gid: 0, home: "/root".into() };
    let user = named.unwrap_or_else(root);
    UserPlan {
        uid: Some(user.uid),
        gid: Some(user.gid),
        name: user.name,
        home: GuestPath::new(&user.home).unwrap_or_else(|_| constant!(GuestPath, "/root")),
        how: UserHow::Image,
        is_mapped: false,
        reason: format!("the image's user ({}), which is your user outside", config.user.origin),
    }
}

/// Returns the image's HOME, else the usual home directory of its user.
fn image_home(image: &ImageFacts) -> Option<String> {
    if image.home.is_some() {
        return image.home.clone();
    }
    let user = image.user.as_deref()?.split(':').next()?;
    let is_root = user.is_empty() || user == "root" || user == "0";
    Some(if is_root { "/root".to_owned() } else { format!("/home/{user}") })
}
