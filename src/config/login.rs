//! The form of an agent's login: the file that holds its tokens, the hosts that get them, and where the
//! agent refreshes them. Reads no login; `facts::logins` does.

use std::fmt;

use super::node::{read_as_text, table_value};
use super::value::{HomePath, Reason, SecretHost, Value};

table_value! {
    /// The file with an agent's login, whose tokens stay outside.
    #[expected = "a table such as { file = \"~/.mine/auth.json\", tokens = [{ key = \"access_token\", hosts = [\"api.example.org\"] }] }"]
    pub struct LoginForm {
        /// The file: a JSON object, and one of the `shared` parts of a directory with `own`.
        pub file: HomePath,
        /// Its tokens.
        pub tokens: Vec<LoginToken>,
        /// The URLs at which the agent refreshes its tokens, as `HOST/PATH`.
        pub refresh_at: Vec<RefreshUrl>,
        /// The key with the time at which the access token expires, in milliseconds.
        pub expires: Option<String>,
        /// The key with the time of the last refresh, such as `2026-01-31T12:00:00Z`.
        pub refreshed: Option<String>,
        /// The key with the scopes: a list, or text with blanks.
        pub scopes: Option<String>,
        /// Keys that are not brought in, because they hold tokens for hosts that are not known.
        pub left_out: Vec<String>,
        /// Files in which the agent may keep the login encrypted, so that its tokens cannot be replaced.
        pub encrypted: Vec<HomePath>,
        /// The directory that the agent makes on the host while it refreshes its tokens.
        pub lock: Option<HomePath>,
        /// The version of the agent with which the login outside was seen to work.
        pub outside: Option<String>,
    }
}

table_value! {
    /// A token of a login.
    #[expected = "a table such as { key = \"access_token\", hosts = [\"api.example.org\"] }"]
    pub struct LoginToken {
        /// The key in the file; parts are separated by dots.
        pub key: String,
        /// The hosts that get it as `Authorization: Bearer`.
        pub hosts: Vec<SecretHost>,
        /// The key in the answer to a refresh; `refresh_token` is also the key in the request.
        pub answer: Option<String>,
    }
}

impl LoginForm {
    /// Lists the hosts at which requests are looked at, each once.
    pub fn all_hosts(&self) -> Vec<SecretHost> {
        let tokens = self.tokens.iter().flat_map(|token| token.hosts.iter().cloned());
        let mut hosts: Vec<SecretHost> = tokens.chain(self.refresh_at.iter().map(|url| url.host.clone())).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }
}

/// A URL at which tokens are refreshed, without `https://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshUrl {
    pub host: SecretHost,
    /// Begins with a slash.
    pub path: String,
}

impl Value for RefreshUrl {
    const NAME: &'static str = "a URL to refresh a login";
    const FORM: &'static str = "`HOST[:PORT]/PATH`, such as `auth.example.org/oauth/token`";

    fn parse(text: &str) -> Result<Self, Reason> {
        if text.contains("://") {
            return Err("write it without `https://`".into());
        }
        let (host, path) = text.split_once('/').ok_or(Reason::Form)?;
        let is_path = !path.is_empty() && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        if !is_path {
            return Err(Reason::Form);
        }
        Ok(RefreshUrl { host: SecretHost::parse(host)?, path: format!("/{path}") })
    }
}

impl fmt::Display for RefreshUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.host, self.path)
    }
}

read_as_text!(
    RefreshUrl: { "type": "string" },
);

/// Reads a form on its own.
#[cfg(test)]
pub fn parse_login(text: &str) -> Option<LoginForm> {
    use super::node::FromNode;
    let root = super::syntax::parse(text, super::syntax::Language::Toml).ok()?;
    LoginForm::from_node(&root).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refresh_url_has_a_host_and_a_path() {
        let parsed = |text| RefreshUrl::parse(text).map(|url| url.to_string()).ok();
        assert_eq!(parsed("auth.example.org/oauth/token"), Some("auth.example.org/oauth/token".into()));
        assert_eq!(parsed("auth.example.org:8443/token"), Some("auth.example.org:8443/token".into()));
        for text in ["", "auth.example.org", "auth.example.org/", "https://auth.example.org/token", "*.example.org/t"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
