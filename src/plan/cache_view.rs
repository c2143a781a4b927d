//! Decides how the host's package caches appear inside: below a layer of the project's own, or not at
//! all. An overlay that the engine cannot mount would stop the launch, so only what is known to work
//! counts.

use super::Draft;
use crate::config::value::EngineKind;
use crate::host::Platform;
use crate::path::HostPath;

/// File systems on which Linux can write an overlay's layer: ext4, XFS, Btrfs, F2FS, bcachefs and
/// tmpfs. Network and FUSE file systems, and overlays themselves, lack what it needs.
const WRITABLE: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x0102_1994];
/// The first kernel that keeps an overlay's notes in attributes of the user (`userxattr`).
const FIRST_KERNEL: (u32, u32) = (5, 11);

/// What a sandbox sees of the host's caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheView {
    /// The host's files, below a layer of the project's own.
    Overlay,
    /// The project's layer alone, for this reason.
    LayerAlone(&'static str),
}

impl Draft<'_> {
    /// Decides it for all caches of this sandbox.
    pub fn cache_view(&self) -> CacheView {
        let facts = self.facts;
        let is_machine = match self.engine {
            EngineKind::Native => return CacheView::Overlay,
            EngineKind::SandboxExec | EngineKind::Kubernetes => true,
            EngineKind::Docker => facts
                .docker
                .as_ref()
                .is_none_or(|docker| docker.remote || docker.is_desktop() || docker.provider().is_some()),
            EngineKind::Podman => facts.podman.as_ref().is_none_or(|podman| podman.remote),
        };
        if self.host.platform != Platform::Linux || is_machine {
            return CacheView::LayerAlone("the engine runs on another machine");
        }
        let Some(overlay) = &facts.overlay else { return CacheView::LayerAlone("overlays were not looked at") };
        if !overlay.file_system.is_some_and(|kind| WRITABLE.contains(&kind)) {
            return CacheView::LayerAlone("the file system of sandpen's state directory cannot be part of an overlay");
        }
        if version(&overlay.release).is_none_or(|version| version < FIRST_KERNEL) {
            return CacheView::LayerAlone("overlays need Linux 5.11");
        }
        CacheView::Overlay
    }

    /// Returns what follows the project's name in the name of the directory of its layers. Engines do
    /// not share layers: they keep their notes in different attributes and as different users.
    pub fn layer_suffix(&self, view: CacheView) -> &'static str {
        let is_rootless = self.facts.docker.as_ref().is_some_and(|docker| docker.rootless);
        match (self.engine, view) {
            (EngineKind::Native | EngineKind::SandboxExec | EngineKind::Kubernetes, _) => "",
            (_, CacheView::LayerAlone(_)) => ".alone",
            (EngineKind::Docker, _) if is_rootless => ".docker-rootless",
            (EngineKind::Docker, _) => ".docker",
            (EngineKind::Podman, _) => ".podman",
        }
    }
}

/// Returns the major and minor number of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Tells whether the engines can name a directory in the options of an overlay.
pub fn is_nameable(path: &HostPath) -> bool {
    path.to_str().is_some_and(|path| !path.contains([':', ',', '\\', '"', '\n', '\r']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_the_first_two_numbers() {
        assert_eq!(version("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(version("5.10-custom"), Some((5, 10)));
        assert_eq!(version("unknown"), None);
        assert!(version("5.9.1").is_some_and(|version| version < FIRST_KERNEL));
    }

    #[test]
    fn option_separators_are_not_nameable() {
        let is_nameable = |path: &str| is_nameable(&HostPath::new(path).expect("absolute"));
        assert!(is_nameable("/home/me/a b/.npm"));
        for path in ["/home/a:b", "/home/a,b", "/home/a\\b", "/home/a\"b"] {
            assert!(!is_nameable(path), "{path}");
        }
    }
}
