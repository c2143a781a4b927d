//! A configuration file as a tree whose nodes know their position, and the types that are read from
//! it. What is wrong is reported as a [`Problem`] with its place and key.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value as Json, json};

use super::value::{InvalidValue, Value};
use crate::error::Diagnostic;
use crate::ui::suggest::nearest;

/// A value in a file.
#[derive(Debug)]
pub struct Node<'a> {
    /// The byte at which it starts.
    pub offset: usize,
    pub content: Content<'a>,
}

#[derive(Debug)]
pub enum Content<'a> {
    Null,
    Boolean(bool),
    /// Numbers are kept as text: `cpus = 2` and `cpus = "2"` mean the same.
    Number(String),
    Text(Cow<'a, str>),
    /// A date of TOML, which no option takes.
    Date(String),
    List(Vec<Node<'a>>),
    Table(Vec<Entry<'a>>),
}

/// A key and its value.
#[derive(Debug)]
pub struct Entry<'a> {
    pub key: Cow<'a, str>,
    /// The byte at which the key starts.
    pub offset: usize,
    pub node: Node<'a>,
}

/// Something wrong at one place of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    pub offset: usize,
    /// The key at that place, such as `mounts[0].mode`; empty at the top.
    pub key: String,
    pub kind: ProblemKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    /// The parser's own message.
    #[error("{0}")]
    Syntax(String),
    #[error("unknown key `{key}`")]
    UnknownKey { key: String, known: Vec<&'static str> },
    #[error("the key `{0}` is missing")]
    MissingKey(&'static str),
    #[error("the key `{0}` is set twice")]
    DuplicateKey(String),
    #[error("{found} has the wrong type")]
    WrongType { found: String, expected: &'static str },
    #[error(transparent)]
    Invalid(InvalidValue),
}

impl ProblemKind {
    /// Returns the nearest known name, and the expected form.
    pub fn hints(&self) -> Vec<String> {
        match self {
            ProblemKind::UnknownKey { key, known } if key == "guard" && known.contains(&"git") => {
                vec!["`guard` is gone: use `git = \"private\"` (the default) or `git = \"shared\"`".to_owned()]
            }
            ProblemKind::UnknownKey { key, known } => vec![match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("expected one of `{}`", known.join("`, `")),
            }],
            ProblemKind::WrongType { expected, .. } => vec![format!("expected {expected}")],
            ProblemKind::Invalid(invalid) => invalid.hints(),
            ProblemKind::Syntax(_) | ProblemKind::MissingKey(_) | ProblemKind::DuplicateKey(_) => Vec::new(),
        }
    }

    /// Whether the message names the key by itself.
    pub fn names_key(&self) -> bool {
        matches!(self, ProblemKind::UnknownKey { .. } | ProblemKind::DuplicateKey(_))
    }
}

impl Problem {
    pub fn at(offset: usize, kind: ProblemKind) -> Self {
        Problem { offset, key: String::new(), kind }
    }

    /// Adds the key whose value has the problem.
    #[must_use]
    pub fn below_key(mut self, key: &str) -> Self {
        let dot = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        self.key = format!("{key}{dot}{}", self.key);
        self
    }

    fn below_index(mut self, index: usize) -> Self {
        let dot = if self.key.is_empty() || self.key.starts_with('[') { "" } else { "." };
        self.key = format!("[{index}]{dot}{}", self.key);
        self
    }
}

/// A type that a file's value is read as.
pub trait FromNode: Sized {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem>;

    /// Returns the JSON schema of the value, for editors.
    fn schema() -> Json;

    /// Returns the value of a key that is absent; `None` if the key is required.
    fn absent() -> Option<Self> {
        None
    }
}

impl<T: FromNode> FromNode for Option<T> {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        if matches!(node.content, Content::Null) { Ok(None) } else { T::from_node(node).map(Some) }
    }

    fn schema() -> Json {
        nullable(T::schema())
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        let Content::List(nodes) = &node.content else { return Err(node.wrong_type("a list: [ … ]")) };
        nodes
            .iter()
            .enumerate()
            .map(|(index, node)| T::from_node(node).map_err(|problem| problem.below_index(index)))
            .collect()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": T::schema() })
    }

    fn absent() -> Option<Self> {
        Some(Vec::new())
    }
}

/// Adds `null` to what a schema accepts.
pub fn nullable(mut schema: Json) -> Json {
    match (schema.get("type").cloned(), schema.get_mut("oneOf")) {
        (Some(Json::Array(mut types)), _) => {
            types.push("null".into());
            schema["type"] = types.into();
        }
        (Some(one), _) => schema["type"] = json!([one, "null"]),
        (None, Some(Json::Array(choices))) => choices.push(json!({ "type": "null" })),
        (None, _) => {}
    }
    schema
}

impl<'a> Node<'a> {
    /// Reads a value that is written as text or as a number.
    pub fn parse<T: Value>(&self) -> Result<T, Problem> {
        let text = match &self.content {
            Content::Text(text) => text.as_ref(),
            Content::Number(number) => number.as_str(),
            _ => return Err(self.wrong_type(T::FORM)),
        };
        T::from_text(text).map_err(|invalid| self.invalid(invalid))
    }

    pub fn invalid(&self, invalid: InvalidValue) -> Problem {
        Problem::at(self.offset, ProblemKind::Invalid(invalid))
    }

    pub fn wrong_type(&self, expected: &'static str) -> Problem {
        Problem::at(self.offset, ProblemKind::WrongType { found: self.content.to_string(), expected })
    }

    /// Whether the value means "not set".
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Null => true,
            Content::Text(text) => text.is_empty(),
            _ => false,
        }
    }

    /// Returns the entries of a table; `expected` describes it.
    pub fn entries(&self, expected: &'static str) -> Result<&[Entry<'a>], Problem> {
        match &self.content {
            Content::Table(entries) => Ok(entries),
            _ => Err(self.wrong_type(expected)),
        }
    }

    /// Refuses every key that is not among `known`.
    pub fn check_keys(&self, expected: &'static str, known: &[&'static str]) -> Result<(), Problem> {
        match self.entries(expected)?.iter().find(|entry| !known.contains(&entry.key.as_ref())) {
            Some(entry) => Err(entry.unknown(known.to_vec())),
            None => Ok(()),
        }
    }

    /// Reads the value of a table's key.
    pub fn get<T: FromNode>(&self, key: &'static str) -> Result<T, Problem> {
        let Content::Table(entries) = &self.content else { return Err(self.missing(key)) };
        match entries.iter().find(|entry| entry.key == key) {
            Some(entry) => T::from_node(&entry.node).map_err(|problem| problem.below_key(key)),
            None => T::absent().ok_or_else(|| self.missing(key)),
        }
    }

    fn missing(&self, key: &'static str) -> Problem {
        Problem::at(self.offset, ProblemKind::MissingKey(key))
    }
}

impl Entry<'_> {
    pub fn unknown(&self, known: Vec<&'static str>) -> Problem {
        Problem::at(self.offset, ProblemKind::UnknownKey { key: self.key.clone().into_owned(), known })
    }
}

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Null => f.write_str("`null`"),
            Content::Boolean(value) => write!(f, "`{value}`"),
            Content::Number(text) | Content::Date(text) => write!(f, "`{text}`"),
            Content::Text(text) => write!(f, "`\"{text}\"`"),
            Content::List(_) => f.write_str("a list"),
            Content::Table(_) => f.write_str("a table"),
        }
    }
}

/// Reads types that a file writes as text or as a number; editors check them by the schema.
macro_rules! read_as_text {
    ($($type:ty: $schema:tt),+ $(,)?) => {$(
        impl crate::config::node::FromNode for $type {
            fn from_node(node: &crate::config::node::Node<'_>) -> Result<Self, crate::config::node::Problem> {
                node.parse()
            }

            fn schema() -> serde_json::Value {
                serde_json::json!($schema)
            }
        }
    )+};
}

/// Defines a struct that a file writes as a table, each field a key of the same name. The doc
/// comments are the descriptions in the JSON schema.
macro_rules! table_value {
    (
        #[doc = $description:literal]
        #[expected = $expected:literal]
        pub struct $name:ident {
            $(#[doc = $field_description:literal] pub $field:ident: $type:ty,)+
        }
    ) => {
        #[doc = $description]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $field_description] pub $field: $type,)+
        }

        impl crate::config::node::FromNode for $name {
            fn from_node(node: &crate::config::node::Node<'_>) -> Result<Self, crate::config::node::Problem> {
                node.check_keys($expected, &[$(stringify!($field)),+])?;
                Ok($name { $($field: node.get(stringify!($field))?,)+ })
            }

            fn schema() -> serde_json::Value {
                crate::config::node::table_schema(
                    $description,
                    &[$((
                        stringify!($field),
                        $field_description,
                        <$type as crate::config::node::FromNode>::schema(),
                        <$type as crate::config::node::FromNode>::absent().is_none(),
                    )),+],
                )
            }
        }
    };
}

pub(crate) use {read_as_text, table_value};

/// Returns the schema of a table from the name, description and schema of each key, and whether it
/// is required.
pub fn table_schema(description: &str, keys: &[(&str, &str, Json, bool)]) -> Json {
    let mut properties = serde_json::Map::new();
    for (name, description, schema, _) in keys {
        let mut property = json!({ "description": description.trim() });
        if let (Json::Object(property), Json::Object(members)) = (&mut property, schema) {
            property.extend(members.clone());
        }
        properties.insert((*name).to_owned(), property);
    }
    let required: Vec<&str> = keys.iter().filter(|(.., is_required)| *is_required).map(|(name, ..)| *name).collect();
    json!({
        "description": description.trim(),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "required": required,
    })
}
