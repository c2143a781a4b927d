//! Decides what a native sandbox takes from an image of sandpen's own store: its files as the root,
//! and its variables.

use super::detail::Detail;
use super::engine::ImagePlan;
use super::entry::{Topic, Why};
use super::prepare::Prepare;
use super::{Draft, EnginePlan};
use crate::config::Origin;
use crate::config::value::EngineKind;
use crate::facts::RootImageFacts;
use crate::path::HostPath;
use crate::vars;
use crate::warning::{Warning, WarningTopic};

/// What container engines set if an image does not.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The files of an image, under a layer for what the guest changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    /// Directories that are only read, lowest first. Empty if the store does not have the image yet.
    pub layers: Vec<HostPath>,
    /// The directory for what the guest changes, in the session's; `None` if that is kept in memory.
    pub layer: Option<HostPath>,
    /// The session's directory.
    pub session: HostPath,
}

/// Decides the root; `None` if the sandbox does not run an image on the native engine.
pub fn plan(
    engine: &EnginePlan,
    image: Option<&ImagePlan>,
    facts: Option<&RootImageFacts>,
    session_dir: &HostPath,
) -> Option<ImageRoot> {
    (engine.kind == EngineKind::Native && image.is_some()).then(|| ImageRoot {
        layers: facts.map_or_else(Vec::new, |facts| facts.layers.clone()),
        layer: facts.filter(|facts| !facts.has_memory_layer).map(|_| session_dir.join("image")),
        session: session_dir.clone(),
    })
}

impl Draft<'_> {
    /// Adds the image's layer for changes, and its variables, which every other one replaces.
    pub fn image_root(&mut self) {
        let Some(root) = self.image_root.clone() else { return };
        for (layer, part) in root.layer.iter().flat_map(|layer| ["upper", "work"].map(|part| (layer, part))) {
            self.prepare.push(Prepare::Directory { path: layer.join(part), mode: 0o755 });
        }
        let why = |reason: &str| Why::default(reason).about(Topic::System);
        if let Some(image) = &self.facts.root_image {
            for (name, value) in &image.env {
                self.env.plain(name, value, why("set by the image"));
            }
            if image.runs_init {
                self.warnings.push(Warning::new(
                    WarningTopic::Image,
                    format!("the image `{}` is made for an init system such as systemd, which only a container engine can run", image.reference),
                ));
            }
        }
        self.env.plain(vars::PATH, DEFAULT_PATH, why("the usual one, which the image does not change"));
        if !self.user.is_host_user() {
            let home = self.user.home.to_string();
            self.env.plain(vars::HOME, home, why("the home directory of the image's user"));
        }
    }
}

/// Tells where the image comes from.
pub fn details(root: Option<&ImageRoot>, facts: Option<&RootImageFacts>) -> Vec<Detail> {
    let (Some(root), Some(facts)) = (root, facts) else { return Vec::new() };
    let detail =
        |name, value: String, reason: &str| Detail { name, value, reason: reason.into(), from: Origin::Default };
    let layers = match facts.layers.len() {
        1 => "1 layer".to_owned(),
        number => format!("{number} layers"),
    };
    vec![
        detail("image files", format!("{} ({layers})", facts.digest), &format!("in sandpen's store, {}", facts.origin)),
        match root.layer {
            None => {
                detail("image changes", "in memory".into(), "they share the space of /tmp, and end with the sandbox")
            }
            Some(_) => detail("image changes", "on disk".into(), "they end with the sandbox"),
        },
        detail(
            "image owner",
            "every file belongs to your user".into(),
            "there is one user only: what changes to another one fails, and works with --engine docker or podman",
        ),
    ]
}
