//! Selects the Podman connection that leads to the virtual machine (R7.2) and parses its address.
//! Runs nothing.

use serde::{Deserialize, Serialize};

use crate::error::{Diagnostic, Kind};

/// One entry of `podman system connection list --format json`, with the fields that all versions
/// since 4.0 have in common. Since 5.0, empty and false fields are absent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    name: String,
    #[serde(rename = "URI")]
    uri: String,
    #[serde(default)]
    identity: Option<String>,
    #[serde(default)]
    default: bool,
}

/// A connection whose fields are checked: none can be taken for a flag or interpreted by a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// The container is pinned to this connection.
    pub name: String,
    /// The user in the machine.
    pub user: String,
    pub host: String,
    pub port: u16,
    /// The file of the SSH key; `None` if the agent's keys are used.
    pub identity: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("could not list Podman's connections")]
    NotListed { reason: String },
    #[error("Podman's list of connections cannot be read")]
    Unreadable { source: serde_json::Error },
    #[error("Podman has no connection to a machine")]
    None,
    #[error("env CONTAINER_CONNECTION: Podman has no connection `{name}`, only {known}")]
    Unknown { name: String, known: String },
    #[error("Podman has several connections ({known}) and none is the default")]
    NoDefault { known: String },
    #[error("Podman's connection `{name}` cannot be used: {problem} in `{uri}`")]
    Unusable { name: String, problem: &'static str, uri: String },
    #[error("the key `{key}` of Podman's connection `{name}` does not exist")]
    NoKey { key: String, name: String },
}

impl Diagnostic for ConnectionError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::NotListed { reason } => vec![reason.clone()],
            Self::Unreadable { source } => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        const CHECK: &str = "check that the machine runs (`podman machine list`, `podman machine start`), and its connections (`podman system connection list`)";
        const WITHOUT: &str = "or run without the SSH agent: --ssh-agent off";
        let hints: &[&str] = match self {
            Self::NotListed { .. } | Self::NoKey { .. } => &[CHECK, WITHOUT],
            Self::NoDefault { .. } => {
                &["choose one: `podman system connection default NAME`, or set CONTAINER_CONNECTION=NAME", CHECK]
            }
            Self::Unreadable { .. } | Self::None | Self::Unknown { .. } | Self::Unusable { .. } => &[CHECK],
        };
        hints.iter().map(|hint| (*hint).to_owned()).collect()
    }
}

impl Connection {
    /// Selects by R7.2: the named connection, else the default, else the only one.
    pub fn select(json: &[u8], named: Option<&str>) -> Result<Self, ConnectionError> {
        // Some versions print nothing or `null` instead of an empty list.
        let listed: Option<Vec<Listed>> = if json.iter().all(u8::is_ascii_whitespace) {
            None
        } else {
            serde_json::from_slice(json).map_err(|source| ConnectionError::Unreadable { source })?
        };
        let listed = listed.unwrap_or_default();
        let known = || listed.iter().map(|entry| format!("`{}`", entry.name)).collect::<Vec<_>>().join(", ");
        let chosen = match (named, listed.as_slice()) {
            (_, []) => return Err(ConnectionError::None),
            (Some(name), _) => listed
                .iter()
                .find(|entry| entry.name == name)
                .ok_or_else(|| ConnectionError::Unknown { name: name.to_owned(), known: known() })?,
            (None, [only]) => only,
            (None, several) => several
                .iter()
                .find(|entry| entry.default)
                .ok_or_else(|| ConnectionError::NoDefault { known: known() })?,
        };
        Self::check(chosen)
    }

    fn check(entry: &Listed) -> Result<Self, ConnectionError> {
        let bad = |problem| ConnectionError::Unusable { name: entry.name.clone(), problem, uri: entry.uri.clone() };
        let address = entry.uri.strip_prefix("ssh://").ok_or_else(|| bad("it is not an SSH address"))?;
        let authority = address.split('/').next().unwrap_or(address);
        let (user, place) = authority.rsplit_once('@').ok_or_else(|| bad("no user is named"))?;
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            _ => (place, "22"),
        };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(|| bad("the port is not a number"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if !is_word(user) || !(is_word(host) || host.parse::<std::net::Ipv6Addr>().is_ok()) {
            return Err(bad("the user or the host is not a plain name"));
        }
        if entry.name.is_empty() || entry.name.starts_with('-') || entry.name.contains('\0') {
            return Err(bad("its name would be taken for a flag"));
        }
        Ok(Connection {
            name: entry.name.clone(),
            user: user.to_owned(),
            host: host.to_owned(),
            port,
            identity: entry.identity.clone().filter(|identity| !identity.is_empty() && !identity.contains('\0')),
        })
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STOCK: &str = r#"[
        {"Name":"podman-machine-default","URI":"ssh://core@127.0.0.1:53812/run/user/501/podman/podman.sock","Identity":"/k","Default":true,"IsMachine":true},
        {"Name":"podman-machine-default-root","URI":"ssh://root@127.0.0.1:53812/run/podman/podman.sock","Identity":"/k","Default":false,"IsMachine":true}]"#;

    fn name(json: &str, named: Option<&str>) -> std::result::Result<String, String> {
        Connection::select(json.as_bytes(), named)
            .map(|c| format!("{} {}@{}:{}", c.name, c.user, c.host, c.port))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn r7_2_the_default_connection_is_used() {
        assert_eq!(name(STOCK, None), Ok("podman-machine-default core@127.0.0.1:53812".into()));
    }

    #[test]
    fn r7_2_single_connection_without_default_is_used() {
        let v40 = r#"[{"Name":"m","URI":"ssh://core@localhost:1/x","Identity":"/k","Default":false}]"#;
        assert_eq!(name(v40, None), Ok("m core@localhost:1".into()));
        let v5 = r#"[{"Name":"m","URI":"ssh://core@[::1]/x","Future":{"a":1}}]"#;
        assert_eq!(name(v5, None), Ok("m core@::1:22".into()));
    }

    #[test]
    fn r7_2_no_or_several_connections_are_fatal_with_a_remedy() {
        for json in ["[]", "null", "", STOCK.replace("\"Default\":true", "\"Default\":false").as_str()] {
            let error = Connection::select(json.as_bytes(), None).err();
            assert!(
                error.as_ref().is_some_and(
                    |e| e.kind().exit_code() == 44 && e.hints().iter().any(|h| h.contains("podman machine"))
                ),
                "{json}"
            );
        }
    }

    #[test]
    fn the_named_connection_wins() {
        assert_eq!(
            name(STOCK, Some("podman-machine-default-root")),
            Ok("podman-machine-default-root root@127.0.0.1:53812".into())
        );
        assert!(name(STOCK, Some("other")).is_err_and(|e| e.contains("no connection `other`")));
    }

    #[test]
    fn r7_6_malformed_answers_are_fatal() {
        for json in [
            "garbage",
            "{}",
            "[{}]",
            "[{\"Name\":1}]",
            r#"[{"Name":"m","URI":"unix:///x"}]"#,
            r#"[{"Name":"m","URI":"ssh://-oProxyCommand=x@h/"}]"#,
            r#"[{"Name":"m","URI":"ssh://u@-h/"}]"#,
            r#"[{"Name":"m","URI":"ssh://u@h:x/"}]"#,
            r#"[{"Name":"--url=x","URI":"ssh://u@h/"}]"#,
            r#"[{"Name":"m","URI":"ssh://u@h;id/"}]"#,
        ] {
            let error = Connection::select(json.as_bytes(), None).err();
            assert!(
                error.as_ref().is_some_and(|e| e.kind().exit_code() == 44 && !e.hints().is_empty()),
                "{json}: {error:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn nothing_parsed_can_be_a_flag_or_a_shell_word(uri in any::<String>(), name in any::<String>()) {
            let json = serde_json::to_vec(&serde_json::json!([{"Name": name, "URI": format!("ssh://{uri}")}])).unwrap_or_default();
            if let Ok(connection) = Connection::select(&json, None) {
                for text in [&connection.user, &connection.host] {
                    prop_assert!(!text.starts_with('-'));
                    prop_assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:".contains(c)));
                }
                prop_assert!(!connection.name.starts_with('-'));
            }
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(json in any::<Vec<u8>>()) {
            let _ = Connection::select(&json, None);
        }
    }
}
