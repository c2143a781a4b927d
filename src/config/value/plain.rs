//! Values that are plain Rust types: text, paths and switches.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::{Content, FromNode, Node, Problem};

impl Value for String {
    const NAME: &'static str = "text";
    const FORM: &'static str = "";

    fn parse(text: &str) -> Result<Self, Reason> {
        Ok(text.to_owned())
    }
}

impl FromNode for String {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        match &node.content {
            Content::Text(text) => Ok(text.clone().into_owned()),
            _ => Err(node.wrong_type("a string")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl OptionValue for String {
    fn to_toml(&self) -> Toml {
        Toml::String(self.clone())
    }
}

impl Value for PathBuf {
    const NAME: &'static str = "a path";
    const FORM: &'static str = "";

    fn parse(text: &str) -> Result<Self, Reason> {
        Ok(text.into())
    }
}

impl FromNode for PathBuf {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        match &node.content {
            Content::Text(text) => Ok(PathBuf::from(text.as_ref())),
            _ => Err(node.wrong_type("a path as a string")),
        }
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

impl OptionValue for PathBuf {
    fn to_toml(&self) -> Toml {
        Toml::String(self.display().to_string())
    }

    fn relative_to(self, base: &Path) -> Self {
        if self.starts_with("~") { self } else { base.join(self) }
    }
}

impl Value for bool {
    const NAME: &'static str = "a boolean";
    const FORM: &'static str = "`true` or `false`";

    fn parse(text: &str) -> Result<Self, Reason> {
        text.parse().map_err(|_| Reason::Form)
    }
}

impl FromNode for bool {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        match &node.content {
            Content::Boolean(value) => Ok(*value),
            _ => Err(node.wrong_type(Self::FORM)),
        }
    }

    fn absent() -> Option<Self> {
        Some(false)
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl OptionValue for bool {
    fn to_toml(&self) -> Toml {
        Toml::Boolean(*self)
    }
}
