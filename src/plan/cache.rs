//! Decides which package caches of the host are visible inside. A guest reads what the host has, and
//! writes to a layer of the project's own: it changes nothing that the host or another project reads.

use std::path::PathBuf;

use super::cache_view::{CacheView, is_nameable};
use super::entry::{Mount, Topic, Why};
use super::mounts::flat_name;
use super::prepare::Prepare;
use super::{Draft, Source};
use crate::config::Config;
use crate::config::value::{Access, CacheMode, NetworkMode};
use crate::facts::FileKind;
use crate::host::Host;
use crate::path::HostPath;

/// A directory in which a package manager keeps what it has downloaded, and nothing else. The
/// directories above contain credentials and settings.
struct PackageCache {
    name: &'static str,
    /// The path below HOME.
    default: &'static str,
    /// A variable with another path, and the part of the cache below that path.
    variable: Option<(&'static str, &'static str)>,
}

const fn cache(
    name: &'static str,
    default: &'static str,
    variable: Option<(&'static str, &'static str)>,
) -> PackageCache {
    PackageCache { name, default, variable }
}

const CACHES: [PackageCache; 17] = [
    cache("npm", ".npm/_cacache", Some(("npm_config_cache", "_cacache"))),
    cache("npx", ".npm/_npx", Some(("npm_config_cache", "_npx"))),
    cache("pnpm", ".local/share/pnpm/store", None),
    cache("yarn", ".cache/yarn", Some(("YARN_CACHE_FOLDER", ""))),
    cache("yarn-berry", ".yarn/berry/cache", None),
    cache("pip", ".cache/pip", Some(("PIP_CACHE_DIR", ""))),
    cache("uv", ".cache/uv", Some(("UV_CACHE_DIR", ""))),
    cache("cargo-registry", ".cargo/registry", Some(("CARGO_HOME", "registry"))),
    cache("cargo-git", ".cargo/git", Some(("CARGO_HOME", "git"))),
    cache("go-modules", "go/pkg/mod", Some(("GOMODCACHE", ""))),
    cache("go-build", ".cache/go-build", Some(("GOCACHE", ""))),
    cache("maven", ".m2/repository", None),
    cache("gradle", ".gradle/caches", Some(("GRADLE_USER_HOME", "caches"))),
    cache("composer", ".cache/composer", Some(("COMPOSER_CACHE_DIR", ""))),
    cache("gem", ".cache/gem", None),
    cache("gem-specs", ".gem/specs", None),
    cache("bundler", ".bundle/cache", None),
];

impl PackageCache {
    /// Returns the path on the host, and the variable that names it.
    fn place(&self, host: &Host) -> (HostPath, Option<&'static str>) {
        let named = self.variable.and_then(|(variable, below)| {
            let path = HostPath::new(host.env.path(variable)?).ok()?;
            let path = if below.is_empty() { path } else { path.join(below) };
            path.is_within(&host.home).then_some((path, Some(variable)))
        });
        named.unwrap_or_else(|| (host.home.join(self.default), None))
    }
}

/// Lists the paths that the decisions in this file depend on, for the facts to look at.
pub fn paths_of_interest(host: &Host, config: &Config) -> Vec<HostPath> {
    match config.cache.value {
        CacheMode::On => CACHES.iter().map(|cache| cache.place(host).0).collect(),
        CacheMode::Off => Vec::new(),
    }
}

/// Returns the directory of all projects' layers, if caches take part.
pub fn layers(host: &Host, config: &Config) -> Option<HostPath> {
    (config.cache.value == CacheMode::On).then(|| base(host))
}

/// Returns the directory of all projects' layers.
pub fn base(host: &Host) -> HostPath {
    host.state_dir().join("cache")
}

impl Draft<'_> {
    /// Adds the caches that the host has.
    pub fn package_caches(&mut self, network: NetworkMode) {
        if self.config.cache.value == CacheMode::Off || !self.user.is_host_user() {
            return;
        }
        let project = self.workspace.root().as_path().join("cache");
        let view = self.cache_view();
        let layers = base(self.host).join(format!("{}{}", flat_name(&project), self.layer_suffix(view)));
        for cache in &CACHES {
            let (path, variable) = cache.place(self.host);
            let Some(fact) = self.facts.files.get(&path).filter(|fact| fact.kind == FileKind::Directory) else {
                continue;
            };
            let Ok(below) = path.as_path().strip_prefix(self.host.home.as_path()) else { continue };
            // What the guest can write must not choose what is mounted.
            if self.workspace.contains(&path) || self.workspace.contains(&fact.real) {
                continue;
            }
            let layer = layers.join(cache.name);
            let upper = layer.join("upper");
            self.prepare.push(Prepare::Keep { path: upper.clone() });

            let (name, target) = (cache.name, self.user.home.join(below));
            let view = match view {
                // `native` passes directories, the others write their names in options.
                CacheView::Overlay
                    if self.engine.is_container() && !(is_nameable(&fact.real) && is_nameable(&layer)) =>
                {
                    CacheView::LayerAlone("its path contains `:`, `,`, `\"` or `\\`")
                }
                view => view,
            };
            let reason = match view {
                CacheView::Overlay => format!("the cache of {name}; what is added stays in a layer of this project"),
                CacheView::LayerAlone(why) => {
                    format!("a cache of {name} for this project; the host's is not visible: {why}")
                }
            };
            let why = Why::new(reason, self.config.cache.origin.clone()).about(Topic::Home);
            let mount = Mount::directory(upper, target, Access::Rw, why.clone());
            let mount = match view {
                CacheView::Overlay => {
                    self.prepare.push(Prepare::Keep { path: layer.join("work") });
                    Mount { source: Source::Cache { host: fact.real.clone(), layer }, ..mount }
                }
                CacheView::LayerAlone(_) => mount,
            };
            self.cache_layers.get_or_insert_with(|| layers.clone());
            let target = mount.target.clone();
            self.mounts.add(mount);
            if network == NetworkMode::Off {
                self.use_cache_offline(name, &target);
            }
            if let Some(name) = variable
                && let Some(value) = self.host.env.path(name)
            {
                self.env.set_default(name, PathBuf::from(value).display().to_string(), why);
            }
        }
    }
}
