//! A destination for which the SSH agent may sign: `[USER@]HOST[:PORT]`, or `remotes`.

use std::fmt;

use serde::{Serialize, Serializer};
use toml::Value as Toml;

use super::{HostName, Port, Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// The word for the hosts of the repository's remotes.
const REMOTES: &str = "remotes";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshHost {
    /// The hosts of this repository's remotes.
    Remotes,
    Destination(SshDestination),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshDestination {
    /// `None` permits every user.
    pub user: Option<String>,
    /// A name or an address without brackets, which ssh's configuration may replace.
    pub host: String,
    /// `None` for the port in ssh's configuration.
    pub port: Option<u16>,
}

fn parse(text: &str) -> Result<SshDestination, Reason> {
    let (user, rest) = match text.rsplit_once('@') {
        Some((user, rest)) => (Some(user), rest),
        None => (None, text),
    };
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let port = match port.map(Port::parse) {
        None => None,
        Some(Ok(port)) => Some(port.0),
        Some(Err(_)) => return Err("the port is not a number from 1 to 65535".into()),
    };
    // ssh must take neither for an option.
    let is_user = |user: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        !user.is_empty() && !user.starts_with('-') && user.chars().all(is_plain)
    };
    if user.is_some_and(|user| !is_user(user)) {
        return Err("the user's name has other characters than letters, digits, `.`, `_`, `-` and `+`".into());
    }
    // An alias in ssh's configuration need not be a host's name.
    let lower = host.to_ascii_lowercase();
    let is_alias = !lower.is_empty()
        && !lower.starts_with('-')
        && lower.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    if !is_alias {
        HostName::parse(&lower)?;
    }
    let host = lower.trim_matches(['[', ']']).to_owned();
    Ok(SshDestination { user: user.map(ToOwned::to_owned), host, port })
}

impl Value for SshHost {
    const NAME: &'static str = "an SSH host";
    const FORM: &'static str = "`HOST`, `USER@HOST`, `HOST:PORT` or `remotes`";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text {
            REMOTES => Ok(SshHost::Remotes),
            _ if text.contains('/') => Err("write the host only, such as `git@github.com`".into()),
            _ => parse(text).map(SshHost::Destination),
        }
    }
}

impl fmt::Display for SshDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (_, None) => f.write_str(&self.host),
        }
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SshHost::Remotes => f.write_str(REMOTES),
            SshHost::Destination(destination) => destination.fmt(f),
        }
    }
}

impl Serialize for SshHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

read_as_text!(SshHost: { "type": "string" });

impl OptionValue for SshHost {
    fn to_toml(&self) -> Toml {
        Toml::String(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn destinations_have_one_meaning() {
        for (text, expected) in [
            ("github.com", (None, "github.com", None)),
            ("git@GitHub.com", (Some("git"), "github.com", None)),
            ("git@example.org:2222", (Some("git"), "example.org", Some(2222))),
            ("my_alias", (None, "my_alias", None)),
            ("[::1]:22", (None, "::1", Some(22))),
        ] {
            let Ok(SshHost::Destination(found)) = SshHost::parse(text) else { panic!("{text}") };
            assert_eq!((found.user.as_deref(), found.host.as_str(), found.port), expected, "{text}");
        }
        assert_eq!(SshHost::parse("remotes"), Ok(SshHost::Remotes));
        for text in
            ["", "@x", "-oProxyCommand=x", "git@-x", "a b", "x:0", "x:y", "ssh://x", "x/y", "-u@x", "$(x)", "a,b"]
        {
            assert!(SshHost::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = SshHost::parse(&text);
        }

        #[test]
        fn no_destination_is_an_option(text in "[-@a-z:.]{1,12}") {
            if let Ok(SshHost::Destination(found)) = SshHost::parse(&text) {
                prop_assert!(!found.host.starts_with('-') && !found.user.is_some_and(|user| user.starts_with('-')));
            }
        }
    }
}
