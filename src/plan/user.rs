//! Who the guest is, so that files in the working directory keep their owner and the SSH agent accepts it.

use serde::Serialize;

use super::engine::EnginePlan;
use crate::config::Config;
use crate::config::value::EngineKind;
use crate::config::value::UserMode;
use crate::facts::{Facts, ImageFacts};
use crate::host::{Host, Platform};
use crate::path::GuestPath;

/// How the guest's user is arranged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserHow {
    /// The guest's uid is the host's.
    Host,
    /// Rootless Podman: the host's user is mapped to itself.
    KeepId,
    /// The image's own user.
    Image,
}

/// The guest's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPlan {
    /// Its uid inside; `None` when only the image knows.
    pub uid: Option<u32>,
    /// Its gid inside.
    pub gid: Option<u32>,
    /// Its name, for passwd.
    pub name: String,
    /// Its home inside.
    pub home: GuestPath,
    /// How.
    pub how: UserHow,
    /// Why.
    pub reason: String,
}

impl UserPlan {
    /// Whether sandpen brings passwd, group and a home directory, rather than the image.
    pub fn is_host_user(&self) -> bool {
        self.how != UserHow::Image
    }
}

/// Decides who the guest is.
pub fn plan(host: &Host, config: &Config, facts: &Facts, engine: &EnginePlan, warnings: &mut Vec<String>) -> UserPlan {
    let wanted = match config.user.value {
        UserMode::Auto if host.platform == Platform::Macos && engine.kind.is_container() => UserMode::Image,
        UserMode::Auto => UserMode::Host,
        asked => asked,
    };
    if wanted == UserMode::Image && engine.kind.is_container() {
        return image_user(config, facts, warnings);
    }
    let docker_rootless =
        engine.kind == EngineKind::Docker && facts.docker.as_ref().is_some_and(|docker| docker.rootless);
    // A machine's root has a Podman of its own, which refuses keep-id.
    let rootful_machine = matches!(&facts.connection, Some(Ok(connection)) if connection.user == "root");
    let podman_rootless = engine.kind == EngineKind::Podman
        && !rootful_machine
        && facts.podman.as_ref().is_some_and(|podman| podman.rootless || podman.remote);
    let (uid, gid, name, how, reason) = if docker_rootless {
        (0, 0, "root", UserHow::Host, "rootless Docker: container root is the host's user".to_owned())
    } else if podman_rootless {
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
    if host.uid == 0 && facts.roots.owner != 0 && engine.kind.is_container() {
        warnings.push(format!(
            "the working directory belongs to uid {}, and root inside has no capabilities: it can only write what its permissions allow. Run sandpen as the owner",
            facts.roots.owner
        ));
    }
    UserPlan { uid: Some(uid), gid: Some(gid), name: name.to_owned(), home: host.home.to_guest(), how, reason }
}

fn image_user(config: &Config, facts: &Facts, warnings: &mut Vec<String>) -> UserPlan {
    let image = facts.image.clone().unwrap_or_default();
    let preset_home = facts.preset.as_ref().and_then(|preset| preset.image_home.clone());
    let known = preset_home.clone().or_else(|| image_home(&image).and_then(|home| GuestPath::new(home).ok()));
    if known.is_none() && facts.image.is_none() {
        warnings.push("the image is not here yet, so the home of its own user is not known: /root is assumed".into());
    }
    let reason = match (&preset_home, config.user.is_asked_for()) {
        (Some(_), _) => format!("the image's own user ({}), whose home the preset knows", config.user.origin),
        (None, _) => format!("the image's own user ({})", config.user.origin),
    };
    let (user, group) = match image.user.as_deref() {
        None => (Some(0), Some(0)),
        Some(user) => {
            let (user, group) = user.split_once(':').unwrap_or((user, ""));
            (if user == "root" { Some(0) } else { user.parse().ok() }, group.parse().ok())
        }
    };
    let (uid, gid) = if facts.image.is_some() { (user, group) } else { (None, None) };
    let home = known.unwrap_or_else(|| root_home().clone());
    UserPlan { uid, gid, name: image.user.unwrap_or_else(|| "root".into()), home, how: UserHow::Image, reason }
}

fn root_home() -> &'static GuestPath {
    static HOME: std::sync::LazyLock<GuestPath> = std::sync::LazyLock::new(|| {
        // The text is an absolute path, so the fallback is never taken.
        GuestPath::new("/root").unwrap_or_else(|_| unreachable!("/root is absolute"))
    });
    &HOME
}

/// HOME if the image sets it, else the place where its user's home usually is.
fn image_home(image: &ImageFacts) -> Option<String> {
    if image.home.is_some() {
        return image.home.clone();
    }
    let user = image.user.as_deref()?.split(':').next()?;
    let is_root = user.is_empty() || user == "root" || user == "0";
    Some(if is_root { "/root".to_owned() } else { format!("/home/{user}") })
}
