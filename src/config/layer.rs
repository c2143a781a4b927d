//! The types of an option in the layers and in [`Config`](super::Config), and how layers combine:
//! for a single value the higher layer wins, lists accumulate.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toml::Value as Toml;

use super::error::ConfigError;
use super::node::{FromNode, Node, Problem, nullable};
use super::sourced::{Origin, Sourced};
use super::value::Value;
use crate::secret::Secret;

/// A value that an option can have.
pub trait OptionValue: Value + FromNode + Clone + PartialEq {
    /// Returns the value as a TOML file has it.
    fn to_toml(&self) -> Toml;

    /// Returns the name of an entry in a list by name, in which the highest layer's entry counts.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Returns the value if it must not be shown.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// Resolves a relative path in a project file against the project's directory.
    #[must_use]
    fn relative_to(self, _base: &Path) -> Self {
        self
    }

    /// Reads all values of a list.
    fn list_from_node(node: &Node<'_>) -> Result<Vec<Self>, Problem> {
        Vec::from_node(node)
    }

    /// Returns the JSON schema of a list.
    fn list_schema() -> Json {
        Vec::<Self>::schema()
    }
}

/// The file that a value is read from.
#[derive(Debug, Clone, Copy)]
pub struct FileContext<'a> {
    pub origin: &'a Origin,
    /// The directory that relative paths start at; `None` leaves them relative.
    pub base: Option<&'a Path>,
}

impl FileContext<'_> {
    fn sourced<T: OptionValue>(self, value: T) -> Sourced<T> {
        let value = match self.base {
            Some(base) => value.relative_to(base),
            None => value,
        };
        Sourced::new(value, self.origin.clone())
    }
}

/// The value of an option in one layer.
pub trait Layer: Default {
    /// Whether values accumulate over all layers.
    const IS_LIST: bool;

    /// Combines this layer with a lower one.
    #[must_use]
    fn over(self, lower: Self) -> Self;

    /// Reads a variable that is not empty.
    fn from_variable(text: &str, origin: &Origin) -> Result<Self, ConfigError>;

    /// Reads the value of a key.
    fn read_node(node: &Node<'_>, file: FileContext<'_>) -> Result<Self, Problem>;

    /// Returns the JSON schema of the key.
    fn schema() -> Json;
}

impl<T: OptionValue> Layer for Option<Sourced<T>> {
    const IS_LIST: bool = false;

    fn over(self, lower: Self) -> Self {
        self.or(lower)
    }

    fn from_variable(text: &str, origin: &Origin) -> Result<Self, ConfigError> {
        parse_value(text, origin.clone()).map(Some)
    }

    fn read_node(node: &Node<'_>, file: FileContext<'_>) -> Result<Self, Problem> {
        if node.is_empty() { Ok(None) } else { T::from_node(node).map(|value| Some(file.sourced(value))) }
    }

    fn schema() -> Json {
        nullable(T::schema())
    }
}

impl<T: OptionValue> Layer for Vec<Sourced<T>> {
    const IS_LIST: bool = true;

    fn over(mut self, lower: Self) -> Self {
        self.extend(lower);
        self
    }

    fn from_variable(text: &str, origin: &Origin) -> Result<Self, ConfigError> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items.map(|item| parse_value(item, origin.clone())).collect()
    }

    fn read_node(node: &Node<'_>, file: FileContext<'_>) -> Result<Self, Problem> {
        Ok(T::list_from_node(node)?.into_iter().map(|value| file.sourced(value)).collect())
    }

    fn schema() -> Json {
        T::list_schema()
    }
}

/// An option in [`Config`](super::Config): [`Sourced`] with a default, `Option` without, or `Vec`.
pub trait Setting {
    type Item: OptionValue;
    type Layer: Layer;

    /// Returns the values, the highest layer's first.
    fn values(&self) -> &[Sourced<Self::Item>];
}

impl<T: OptionValue> Setting for Sourced<T> {
    type Item = T;
    type Layer = Option<Sourced<T>>;

    fn values(&self) -> &[Sourced<T>] {
        std::slice::from_ref(self)
    }
}

impl<T: OptionValue> Setting for Option<Sourced<T>> {
    type Item = T;
    type Layer = Self;

    fn values(&self) -> &[Sourced<T>] {
        self.as_slice()
    }
}

impl<T: OptionValue> Setting for Vec<Sourced<T>> {
    type Item = T;
    type Layer = Self;

    fn values(&self) -> &[Sourced<T>] {
        self
    }
}

/// A layer that is read from a field of [`Options`](super::Options); an empty value means "not
/// set".
pub trait FromFlag<Given>: Sized {
    fn from_flag(given: &Given, flag: &'static str) -> Result<Self, ConfigError>;
}

impl<T: Value> FromFlag<Option<String>> for Option<Sourced<T>> {
    fn from_flag(given: &Option<String>, flag: &'static str) -> Result<Self, ConfigError> {
        let text = given.as_deref().filter(|text| !text.is_empty());
        text.map(|text| parse_value(text, Origin::Flag(flag))).transpose()
    }
}

impl FromFlag<bool> for Option<Sourced<bool>> {
    fn from_flag(given: &bool, flag: &'static str) -> Result<Self, ConfigError> {
        Ok(given.then(|| Sourced::new(true, Origin::Flag(flag))))
    }
}

impl<T: Value> FromFlag<Vec<String>> for Vec<Sourced<T>> {
    fn from_flag(given: &Vec<String>, flag: &'static str) -> Result<Self, ConfigError> {
        let texts = given.iter().filter(|text| !text.is_empty());
        texts.map(|text| parse_value(text, Origin::Flag(flag))).collect()
    }
}

/// Paths need not be UTF-8.
impl FromFlag<Vec<PathBuf>> for Vec<Sourced<PathBuf>> {
    fn from_flag(given: &Vec<PathBuf>, flag: &'static str) -> Result<Self, ConfigError> {
        let paths = given.iter().filter(|path| !path.as_os_str().is_empty());
        Ok(paths.map(|path| Sourced::new(path.clone(), Origin::Flag(flag))).collect())
    }
}

/// Parses a value of a flag or variable; the error names it, its origin and the expected form.
pub fn parse_value<T: Value>(text: &str, origin: Origin) -> Result<Sourced<T>, ConfigError> {
    match T::from_text(text) {
        Ok(value) => Ok(Sourced::new(value, origin)),
        Err(invalid) => Err(ConfigError::Value { origin, invalid }),
    }
}
