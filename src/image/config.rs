//! Reads an image's configuration: what it runs on, its layers, and what its processes get.

use serde::{Deserialize, Serialize};

use super::content::Digest;

/// Larger ones do not exist.
pub const LARGEST_CONFIG: u64 = 4 << 20;
/// The limit of overlays is 500, that of Docker 127.
pub const MOST_LAYERS: usize = 200;

/// The configuration of an image, as OCI and Docker write it.
#[derive(Debug, Deserialize)]
pub struct ImageConfig {
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub config: Option<ProcessConfig>,
    pub rootfs: RootFiles,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProcessConfig {
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub env: Option<Vec<String>>,
    #[serde(default)]
    pub stop_signal: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct RootFiles {
    /// The digests of the layers' tar streams, lowest first.
    #[serde(default)]
    pub diff_ids: Vec<Digest>,
}

/// The user that an image names, completed from its `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: String,
}

impl ImageConfig {
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let config: ImageConfig = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        if config.rootfs.diff_ids.len() > MOST_LAYERS {
            return Err(format!("it has more than {MOST_LAYERS} layers"));
        }
        Ok(config)
    }

    pub fn platform(&self) -> String {
        format!("{}/{}", self.os, self.architecture)
    }

    /// Returns the variables with valid names, each once.
    pub fn env(&self) -> Vec<(String, String)> {
        let list = self.config.iter().flat_map(|config| config.env.iter().flatten());
        let pairs = list.filter_map(|entry| entry.split_once('='));
        let valid = pairs.filter(|(name, value)| !name.is_empty() && !name.contains('\0') && !value.contains('\0'));
        valid.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Tells whether the image's own command is an init system, such as systemd.
    pub fn runs_init(&self) -> bool {
        self.config
            .as_ref()
            .and_then(|config| config.stop_signal.as_deref())
            .is_some_and(|signal| signal == "SIGRTMIN+3")
    }

    /// Completes the image's user. `passwd` is the image's file.
    pub fn user(&self, passwd: &str) -> Option<ImageUser> {
        let named = self.config.as_ref().and_then(|config| config.user.as_deref()).unwrap_or_default();
        let (user, group) = named.split_once(':').unwrap_or((named, ""));
        let user = if user.is_empty() { "root" } else { user };
        let accounts = passwd.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
            Some(ImageUser {
                name: (*name).to_owned(),
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                home: (*home).to_owned(),
            })
        });
        let number = user.parse::<u32>().ok();
        let mut accounts = accounts.filter(|account| account.name == user || number == Some(account.uid));
        let fallback = || {
            let uid = if user == "root" { 0 } else { number? };
            let home = if uid == 0 { "/root" } else { "/" };
            Some(ImageUser { name: user.to_owned(), uid, gid: 0, home: home.to_owned() })
        };
        let account = accounts.next().or_else(fallback)?;
        Some(ImageUser { gid: group.parse().unwrap_or(account.gid), ..account })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(user: &str) -> ImageConfig {
        let json = format!(
            r#"{{"architecture":"amd64","os":"linux","config":{{"User":"{user}","Env":["PATH=/bin","=x","A=b=c"]}},"rootfs":{{"type":"layers","diff_ids":[]}}}}"#
        );
        ImageConfig::parse(json.as_bytes()).expect("configuration")
    }

    #[test]
    fn the_user_is_completed_from_passwd() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n";
        let user = |named: &str| {
            let user = config(named).user(passwd)?;
            Some((user.name, user.uid, user.gid, user.home))
        };
        let expected = |name: &str, uid, gid, home: &str| Some((name.to_owned(), uid, gid, home.to_owned()));
        assert_eq!(user(""), expected("root", 0, 0, "/root"));
        assert_eq!(user("node"), expected("node", 1000, 1001, "/home/node"));
        assert_eq!(user("1000:5"), expected("node", 1000, 5, "/home/node"));
        assert_eq!(user("77"), expected("77", 77, 0, "/"));
        assert_eq!(user("nobody"), None);
        assert_eq!(config("x").env(), [("PATH".to_owned(), "/bin".to_owned()), ("A".into(), "b=c".into())]);
    }

    #[test]
    fn what_is_no_configuration_is_refused() {
        for json in
            ["", "{}", "[]", r#"{"rootfs":{"diff_ids":["sha256:../../x"]}}"#, r#"{"rootfs":{"diff_ids":["md5:0"]}}"#]
        {
            assert!(ImageConfig::parse(json.as_bytes()).is_err(), "{json}");
        }
        let many =
            format!(r#"{{"rootfs":{{"diff_ids":[{}]}}}}"#, vec![format!("\"{}\"", Digest::of(b"")); 201].join(","));
        assert!(ImageConfig::parse(many.as_bytes()).is_err());
    }
}
