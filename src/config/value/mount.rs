//! A mount as the user writes it: `FROM[:TO[:ro|rw]]`.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value as Json, json};
use toml::{Table, Value as Toml};

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::{Content, FromNode, Node, Problem, table_value};

/// Directories with sockets of root, or with the keys and start-up files of an account.
const CONTROL_PLACES: &[&str] = &["/", "/run", "/var/run", "/var", "/dev", "/etc", "/root", "/home", "~"];

/// Whether the guest may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read-only.
    #[default]
    Ro,
    /// Read and write.
    Rw,
}

impl Access {
    /// Returns `ro` or `rw`.
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Ro => "ro",
            Access::Rw => "rw",
        }
    }
}

impl Value for Access {
    const NAME: &'static str = "a mode";
    const FORM: &'static str = "`ro` or `rw`";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text {
            "ro" => Ok(Access::Ro),
            "rw" => Ok(Access::Rw),
            _ => Err(Reason::Form),
        }
    }
}

impl FromNode for Access {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        node.parse()
    }

    fn schema() -> Json {
        json!({ "enum": [Access::Ro.as_str(), Access::Rw.as_str()], "default": Access::default().as_str() })
    }

    fn absent() -> Option<Self> {
        Some(Access::default())
    }
}

table_value! {
    /// A mount: `to` defaults to `from`, the mode to read-only.
    #[expected = "a mount such as { from = \"…\", to = \"…\", mode = \"ro\" }"]
    pub struct MountRequest {
        /// The path on the host; may be relative or start with `~`.
        pub from: PathBuf,
        /// The path inside; absolute.
        pub to: Option<PathBuf>,
        /// `ro` (default) or `rw`.
        pub mode: Access,
    }
}

impl MountRequest {
    /// Tells whether the source contains what controls the machine or the user's account.
    pub fn controls_the_host(&self) -> bool {
        let from = self.from.components().as_path();
        CONTROL_PLACES.iter().any(|place| from == Path::new(place))
            || ["/proc", "/sys"].iter().any(|place| from.starts_with(place))
            || from.extension().is_some_and(|extension| extension == "sock")
    }

    /// Describes the mount to a user who decides on it.
    pub fn describe(&self) -> String {
        let from = self.from.display();
        let access = if self.mode == Access::Rw { "writable" } else { "read-only" };
        match &self.to {
            Some(to) if *to != self.from => format!("`{from}` is mounted at `{}`, {access}", to.display()),
            _ => format!("`{from}` is mounted, {access}"),
        }
    }
}

impl OptionValue for MountRequest {
    fn to_toml(&self) -> Toml {
        let path = |path: &Path| Toml::String(path.display().to_string());
        let mut table = Table::new();
        table.insert("from".to_owned(), path(&self.from));
        if let Some(to) = &self.to {
            table.insert("to".to_owned(), path(to));
        }
        table.insert("mode".to_owned(), Toml::String(self.mode.as_str().to_owned()));
        Toml::Table(table)
    }

    /// Accepts `FROM[:TO[:ro|rw]]`, the form of the flag, beside tables.
    fn list_from_node(node: &Node<'_>) -> Result<Vec<Self>, Problem> {
        Ok(Vec::<MountEntry>::from_node(node)?.into_iter().map(|entry| entry.0).collect())
    }

    fn list_schema() -> Json {
        Vec::<MountEntry>::schema()
    }

    fn relative_to(self, base: &Path) -> Self {
        MountRequest { from: self.from.relative_to(base), ..self }
    }
}

/// A mount in a file: a table, or text as the flag has it.
struct MountEntry(MountRequest);

impl FromNode for MountEntry {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        match &node.content {
            Content::Text(_) => node.parse().map(MountEntry),
            _ => MountRequest::from_node(node).map(MountEntry),
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "type": "string" }, MountRequest::schema()] })
    }
}

impl Value for MountRequest {
    const NAME: &'static str = "a mount";
    const FORM: &'static str = "`FROM[:TO[:ro|rw]]`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let mut parts: Vec<&str> = text.split(':').collect();
        let mode = parts.last().filter(|_| parts.len() > 1).and_then(|mode| Access::parse(mode).ok());
        if mode.is_some() {
            parts.pop();
        }
        let (from, to) = match parts.as_slice() {
            [from] => (*from, None),
            [from, to] => (*from, Some(*to)),
            [_, _, mode] => return Err(format!("`{mode}` is neither `ro` nor `rw`").into()),
            _ => {
                return Err(
                    "a path with a colon can be mounted from a config file only: mounts = [{ from = …, to = … }]"
                        .into(),
                );
            }
        };
        if from.is_empty() {
            return Err("the path before the colon is missing".into());
        }
        if to.is_some_and(|to| !to.starts_with('/') && !to.starts_with("~/")) {
            return Err(format!("`{}` is not an absolute path", to.unwrap_or_default()).into());
        }
        Ok(MountRequest { from: from.into(), to: to.map(PathBuf::from), mode: mode.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<(String, Option<String>, &'static str)> {
        let mount = MountRequest::parse(text).ok()?;
        let show = |path: PathBuf| path.display().to_string();
        Some((show(mount.from), mount.to.map(show), mount.mode.as_str()))
    }

    #[test]
    fn the_target_defaults_to_the_source_and_the_mode_to_ro() {
        assert_eq!(parsed("/a"), Some(("/a".into(), None, "ro")));
        assert_eq!(parsed("/a:rw"), Some(("/a".into(), None, "rw")));
        assert_eq!(parsed("/a:/b"), Some(("/a".into(), Some("/b".into()), "ro")));
        assert_eq!(parsed("~/a:/b:rw"), Some(("~/a".into(), Some("/b".into()), "rw")));
    }

    #[test]
    fn refuses_what_is_not_a_mount() {
        for text in ["", ":/b", "/a:b", "/a:/b:x", "/a:/b:/c:ro", "/a::rw"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = MountRequest::parse(&text);
        }
    }
}
