//! Decides how package managers find what they have cached when the sandbox has no network. Most have a
//! variable for it. pip has none and asks an index for every name, so a process inside serves its cache
//! as one.

use serde::{Deserialize, Serialize};

use super::Draft;
use super::entry::{Mount, Topic, Why};
use crate::config::value::Access;
use crate::path::GuestPath;

/// The port of the index on the sandbox's loopback, which no other sandbox shares.
pub const PACKAGE_INDEX_PORT: u16 = 8878;

/// Serves pip's cache as a package index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageIndex {
    /// The directory of the cache inside.
    pub directory: String,
}

/// The variables by which tools use what their cache has, without a request for what may be newer. npm
/// and pnpm still ask for what is missing, so that a registry inside works.
const OFFLINE: [(&str, &str, &str); 6] = [
    ("npm", "npm_config_prefer_offline", "true"),
    ("pnpm", "npm_config_prefer_offline", "true"),
    ("yarn-berry", "YARN_ENABLE_NETWORK", "false"),
    ("uv", "UV_OFFLINE", "true"),
    ("cargo-registry", "CARGO_NET_OFFLINE", "true"),
    ("composer", "COMPOSER_DISABLE_NETWORK", "1"),
];

impl Draft<'_> {
    /// Prepares a cache for a sandbox without a network.
    pub(super) fn use_cache_offline(&mut self, cache: &str, directory: &GuestPath) {
        let why = |reason| Why::new(reason, self.config.network.origin.clone()).about(Topic::Network);
        for (_, name, value) in OFFLINE.iter().filter(|(known, ..)| *known == cache) {
            self.env.add_default(name, *value, why("without a network, its packages are those of the cache"));
        }
        let (Some(program), Some(text)) = (&self.facts.helper, directory.to_str()) else { return };
        if cache != "pip" {
            return;
        }
        let index = format!("http://127.0.0.1:{PACKAGE_INDEX_PORT}/simple/");
        let why = why("without a network, pip's packages are those of its cache");
        if !self.env.add_default("PIP_INDEX_URL", index, why.clone()) {
            return;
        }
        // Each further index would be asked five times.
        self.env.add_default("PIP_RETRIES", "0", why.clone());
        if !self.engine.is_container() {
            let inside = self.control_dir().join("sandpen");
            self.mounts.add(Mount::file(program.clone(), inside, Access::Ro, why));
        }
        self.package_index = Some(PackageIndex { directory: text.to_owned() });
    }
}
