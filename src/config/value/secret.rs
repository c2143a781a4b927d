//! A key that is bound to hosts: `NAME@HOST[:PORT][,…]`, or a table in a file. Its value stays outside
//! of the sandbox.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};

use super::{HostName, Port, Reason, Value, VariableName};
use crate::config::layer::OptionValue;
use crate::config::node::{Content, FromNode, Node, Problem, read_as_text, table_value};

const HTTPS: u16 = 443;
/// The limit of a command's words; each is an argument of a program on the host.
const MAX_WORDS: usize = 64;

/// Headers that frame a message or name its target, which no value may replace.
const NOT_CREDENTIALS: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "accept-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "cookie",
];

table_value! {
    /// A key whose value the proxy sets in requests to its hosts.
    #[expected = "a table such as { name = \"MINE_API_KEY\", hosts = [\"api.example.org\"] }"]
    pub struct SecretRequest {
        /// The variable inside, which has a placeholder as its value.
        pub name: VariableName,
        /// The hosts that get the value, on port 443 unless one is named.
        pub hosts: Vec<SecretHost>,
        /// `Bearer`, `Basic` or a header's name; by default what the host expects, otherwise `Bearer`.
        pub header: Option<SecretHeader>,
        /// `env` (default), a path, or a command as a list of words.
        pub from: SecretSource,
    }
}

/// A host that gets a value, and its port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretHost {
    pub name: String,
    pub port: u16,
}

/// Where a request has the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretHeader {
    /// `Authorization: Bearer VALUE`.
    Bearer,
    /// `Authorization: Basic`, with the value as the password.
    Basic,
    /// A header of this name, in lower case.
    Named(String),
}

/// Where the value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecretSource {
    /// The host's variable of the same name.
    #[default]
    Env,
    File(PathBuf),
    /// A program of the host and its arguments, started once.
    Command(Vec<String>),
}

impl SecretHost {
    /// Returns the name as a host of the proxy.
    pub fn host(&self) -> HostName {
        HostName::Name(self.name.clone())
    }
}

impl Value for SecretHost {
    const NAME: &'static str = "a host that gets a secret";
    const FORM: &'static str = "`HOST` or `HOST:PORT`, such as `example.org`";

    fn parse(text: &str) -> Result<Self, Reason> {
        if text.contains("://") || text.contains('/') {
            return Err("write the host only, such as `api.example.org`".into());
        }
        if text.contains('*') {
            return Err("name each host: a pattern could include hosts of other people".into());
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') => (name, Some(port)),
            _ => (text, None),
        };
        let port = match port.map(Port::parse) {
            None => HTTPS,
            Some(Ok(port)) => port.0,
            Some(Err(_)) => return Err("the port is not a number from 1 to 65535".into()),
        };
        match HostName::parse(name)? {
            HostName::Name(name) if name.contains('.') || name == "localhost" => Ok(SecretHost { name, port }),
            HostName::Name(_) => Err("write the complete name, with its domain".into()),
            HostName::Address(_) => Err("write a name: the server proves it with its certificate".into()),
        }
    }
}

impl fmt::Display for SecretHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            HTTPS => f.write_str(&self.name),
            port => write!(f, "{}:{port}", self.name),
        }
    }
}

impl Serialize for SecretHost {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl SecretHeader {
    /// Returns the header that a host is known to expect.
    pub fn of_host(host: &str) -> Self {
        match host {
            "api.anthropic.com" => SecretHeader::Named("x-api-key".to_owned()),
            "generativelanguage.googleapis.com" | "aiplatform.googleapis.com" => {
                SecretHeader::Named("x-goog-api-key".to_owned())
            }
            // Git's smart HTTP takes no other scheme.
            "github.com" | "gitlab.com" | "bitbucket.org" | "codeberg.org" => SecretHeader::Basic,
            _ => SecretHeader::Bearer,
        }
    }
}

impl Value for SecretHeader {
    const NAME: &'static str = "a header for a secret";
    const FORM: &'static str = "`Bearer`, `Basic`, or a header's name such as `x-api-key`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let lower = text.to_ascii_lowercase();
        let is_name = !lower.is_empty() && lower.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match lower.as_str() {
            "bearer" => Ok(SecretHeader::Bearer),
            "basic" => Ok(SecretHeader::Basic),
            "authorization" => Err("write the scheme: `Bearer` or `Basic`".into()),
            name if NOT_CREDENTIALS.contains(&name) => Err(format!("`{name}` does not carry a credential").into()),
            name if is_name && name.len() <= 64 => Ok(SecretHeader::Named(name.to_owned())),
            _ => Err(Reason::Form),
        }
    }
}

impl fmt::Display for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretHeader::Bearer => f.write_str("Bearer"),
            SecretHeader::Basic => f.write_str("Basic"),
            SecretHeader::Named(name) => f.write_str(name),
        }
    }
}

read_as_text!(
    SecretHost: { "type": "string" },
    SecretHeader: { "type": "string" },
);

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env => f.write_str("the host's variable"),
            SecretSource::File(path) => write!(f, "the file `{}`", path.display()),
            // The arguments may name what only the user should know.
            SecretSource::Command(words) => {
                write!(f, "the command `{}`", words.first().map_or("", String::as_str))
            }
        }
    }
}

impl FromNode for SecretSource {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        const FORM: &str = "`env`, a path, or a command as a list of words such as [\"gh\", \"auth\", \"token\"]";
        match &node.content {
            Content::Text(text) if text == "env" => Ok(SecretSource::Env),
            Content::Text(text) if text.contains('/') => Ok(SecretSource::File(text.as_ref().into())),
            Content::List(words) if !words.is_empty() && words.len() <= MAX_WORDS => {
                let words = words.iter().map(|word| match &word.content {
                    Content::Text(text) if !text.contains('\0') => Ok(text.clone().into_owned()),
                    _ => Err(word.wrong_type("a word: text in quotes")),
                });
                let words = words.collect::<Result<Vec<_>, _>>()?;
                match words.first() {
                    Some(program) if !program.is_empty() => Ok(SecretSource::Command(words)),
                    _ => Err(node.wrong_type(FORM)),
                }
            }
            _ => Err(node.wrong_type(FORM)),
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }] })
    }

    fn absent() -> Option<Self> {
        Some(SecretSource::Env)
    }
}

impl SecretRequest {
    /// Returns the header that carries the value to a host.
    pub fn header_for(&self, host: &SecretHost) -> SecretHeader {
        self.header.clone().unwrap_or_else(|| SecretHeader::of_host(&host.name))
    }

    /// Describes the request to a user who decides on it.
    pub fn describe(&self) -> String {
        format!("the value of `{}`, from {}, is sent to {}", self.name.as_str(), self.from, list(&self.hosts))
    }
}

/// Writes `a, b and c`.
fn list(hosts: &[SecretHost]) -> String {
    hosts.iter().map(|host| format!("`{host}`")).collect::<Vec<_>>().join(", ")
}

impl Value for SecretRequest {
    const NAME: &'static str = "a secret with its hosts";
    const FORM: &'static str = "`NAME@HOST[:PORT][,HOST…]`, such as `MINE_API_KEY@example.org`";

    fn redacted(text: &str) -> String {
        // A value that was written here by mistake is a secret.
        match text.split_once('=') {
            Some((name, _)) => format!("{name}=…"),
            None => text.to_owned(),
        }
    }

    fn parse(text: &str) -> Result<Self, Reason> {
        if text.contains('=') {
            return Err("write the name only: the value is the host's".into());
        }
        let Some((name, hosts)) = text.split_once('@') else {
            return Err("the host that gets the value is missing".into());
        };
        let name = VariableName::parse(name)?;
        let hosts = hosts.split(',').map(SecretHost::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(SecretRequest { name, hosts, header: None, from: SecretSource::Env })
    }
}

impl OptionValue for SecretRequest {
    fn to_toml(&self) -> Toml {
        let text = |text: String| Toml::String(text);
        let mut table = Table::new();
        table.insert("name".to_owned(), text(self.name.as_str().to_owned()));
        let hosts = self.hosts.iter().map(|host| text(host.to_string()));
        table.insert("hosts".to_owned(), Toml::Array(hosts.collect()));
        if let Some(header) = &self.header {
            table.insert("header".to_owned(), text(header.to_string()));
        }
        let from = match &self.from {
            SecretSource::Env => text("env".to_owned()),
            SecretSource::File(path) => text(path.display().to_string()),
            SecretSource::Command(words) => Toml::Array(words.iter().cloned().map(text).collect()),
        };
        table.insert("from".to_owned(), from);
        Toml::Table(table)
    }

    fn list_from_node(node: &Node<'_>) -> Result<Vec<Self>, Problem> {
        Ok(Vec::<SecretEntry>::from_node(node)?.into_iter().map(|entry| entry.0).collect())
    }

    fn list_schema() -> Json {
        Vec::<SecretEntry>::schema()
    }

    fn relative_to(self, base: &Path) -> Self {
        let from = match self.from {
            SecretSource::File(path) => SecretSource::File(path.relative_to(base)),
            from => from,
        };
        SecretRequest { from, ..self }
    }
}

/// A secret in a file: a table with at least one host, or text as the flag has it.
struct SecretEntry(SecretRequest);

impl FromNode for SecretEntry {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        if let Content::Text(_) = &node.content {
            return node.parse().map(SecretEntry);
        }
        let request = SecretRequest::from_node(node)?;
        if request.hosts.is_empty() {
            return Err(node.wrong_type("at least one host: hosts = [\"api.example.org\"]"));
        }
        Ok(SecretEntry(request))
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "type": "string" }, SecretRequest::schema()] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<(String, Vec<String>)> {
        let request = SecretRequest::parse(text).ok()?;
        Some((request.name.as_str().to_owned(), request.hosts.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn a_secret_names_its_hosts() {
        let one = |hosts: &[&str]| Some(("A_KEY".to_owned(), hosts.iter().map(|host| (*host).to_owned()).collect()));
        assert_eq!(parsed("A_KEY@API.vendor.example"), one(&["api.vendor.example"]));
        assert_eq!(parsed("A_KEY@a.example:443,b.example:8443"), one(&["a.example", "b.example:8443"]));
        assert_eq!(parsed("A_KEY@localhost:1"), one(&["localhost:1"]));
        for text in [
            "",
            "A_KEY",
            "A_KEY@",
            "A_KEY@,",
            "A_KEY=x@a.example",
            "@a.example",
            "A_KEY@https://a.example",
            "A_KEY@a.example/x",
            "A_KEY@*.example",
            "A_KEY@*.co.uk",
            "A_KEY@*",
            "A_KEY@com",
            "A_KEY@10.0.0.1",
            "A_KEY@[::1]",
            "A_KEY@a.example:0",
            "A_KEY@a.example:x",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_header_carries_a_credential() {
        assert_eq!(SecretHeader::parse("bearer"), Ok(SecretHeader::Bearer));
        assert_eq!(SecretHeader::parse("X-Api-Key"), Ok(SecretHeader::Named("x-api-key".into())));
        for text in ["", "a b", "a:b", "Host", "content-length", "Authorization", "x\r\ny", "Cookie"] {
            assert!(SecretHeader::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = (SecretRequest::parse(&text), SecretHeader::parse(&text));
        }
    }
}
