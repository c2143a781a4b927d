//! A variable for the guest as the user writes it: `NAME=VALUE`, or `NAME` to pass the host's
//! value.

use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::{InvalidValue, Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::{Content, Entry, FromNode, Node, Problem};
use crate::secret::Secret;
use crate::vars::{has_user_information, looks_secret};

/// A variable that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvRequest {
    /// The variable's name.
    pub name: String,
    /// The variable's value; `None` passes the host's.
    pub value: Option<String>,
}

impl EnvRequest {
    /// Whether `name` can be a variable's name in every engine's syntax.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.starts_with('-') && name.chars().all(|c| c.is_ascii_graphic() && c != '=')
    }

    /// Whether the name is a pattern for variables of the host, such as `AWS_*`.
    pub fn is_pattern(&self) -> bool {
        self.value.is_none() && self.name.contains('*')
    }

    /// Whether the pattern matches a name; `*` stands for any text.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.name.split('*');
        let Some(mut rest) = parts.next().and_then(|start| name.strip_prefix(start)) else { return false };
        let Some(end) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        rest.ends_with(end)
    }

    /// Describes the variable to a user who decides on it.
    pub fn describe(&self) -> String {
        match &self.value {
            Some(value) if self.secret().is_none() => format!("`{}` is `{value}` inside", self.name),
            _ => format!("`{}` is set to a secret inside", self.name),
        }
    }

    fn from_entry(entry: &Entry<'_>) -> Result<Self, Problem> {
        let name = entry.key.as_ref();
        let value = match &entry.node.content {
            Content::Text(text) => text.clone().into_owned(),
            Content::Number(number) => number.clone(),
            Content::Boolean(value) => value.to_string(),
            _ => return Err(entry.node.wrong_type("a string, a number or a boolean")),
        };
        let text = format!("{name}={value}");
        // A name with `=` in it would be read as another one.
        let parsed = if name.contains('=') { Err(not_a_name(name)) } else { Self::parse(&text) };
        parsed.map_err(|reason| {
            let form = "NAME = \"value\"";
            entry.node.invalid(InvalidValue { form, ..InvalidValue::new::<Self>(&text, reason) })
        })
    }
}

fn not_a_name(name: &str) -> Reason {
    format!("`{name}` is not a variable's name").into()
}

impl Value for EnvRequest {
    const NAME: &'static str = "a variable";
    const FORM: &'static str = "`NAME=VALUE`, or `NAME` or a pattern such as `AWS_*` to pass the host's values";

    fn redacted(text: &str) -> String {
        text.split_once('=').map_or(text.to_owned(), |(name, _)| format!("{name}=…"))
    }

    fn parse(text: &str) -> Result<Self, Reason> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err("there is no name before the `=`".into());
        }
        if !Self::is_name(name) {
            return Err(not_a_name(name));
        }
        if value.is_none() && !name.contains(|c| c != '*') {
            return Err("the whole environment is never passed".into());
        }
        if value.is_some_and(|value| value.contains('\0')) {
            return Err("the value contains a NUL byte".into());
        }
        Ok(EnvRequest { name: name.to_owned(), value: value.map(str::to_owned) })
    }
}

/// In a file all variables are one table, `{ NAME = "value" }`. A file cannot pass the host's
/// values.
impl FromNode for EnvRequest {
    fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
        node.parse()
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl OptionValue for EnvRequest {
    fn to_toml(&self) -> Toml {
        Toml::String(self.value.clone().unwrap_or_default())
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    /// The host's value is a secret, and so is a value whose name or login says so.
    fn secret(&self) -> Option<Secret> {
        let Some(value) = &self.value else { return Some(Secret::new("")) };
        (looks_secret(&self.name) || has_user_information(value)).then(|| Secret::new(value.clone()))
    }

    fn list_from_node(node: &Node<'_>) -> Result<Vec<Self>, Problem> {
        let entries = node.entries("a table such as { NAME = \"value\" }")?;
        entries.iter().map(|entry| Self::from_entry(entry).map_err(|problem| problem.below_key(&entry.key))).collect()
    }

    fn list_schema() -> Json {
        json!({
            "type": "object",
            "propertyNames": { "pattern": "^[!-,.-<>-~][!-<>-~]*$" },
            "additionalProperties": Self::schema(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_not_shown() {
        for text in ["GH_TOKEN=xyz", "A=http://me:xyz@proxy", "HOME"] {
            let request = EnvRequest::parse(text).expect("a variable");
            assert!(request.secret().is_some() && !request.describe().contains("xyz"), "{text}");
        }
        assert_eq!(EnvRequest::parse("A=b").map(|request| request.secret()), Ok(None));
    }

    #[test]
    fn the_value_is_everything_after_the_first_equals_sign() {
        let parsed = EnvRequest::parse("A=b=c, d");
        assert_eq!(parsed, Ok(EnvRequest { name: "A".into(), value: Some("b=c, d".into()) }));
        assert_eq!(EnvRequest::parse("A"), Ok(EnvRequest { name: "A".into(), value: None }));
        assert!(EnvRequest::parse("=x").is_err());
        assert!(EnvRequest::parse("--privileged").is_err());
        assert!(EnvRequest::parse("A B=c").is_err());
    }

    #[test]
    fn a_pattern_matches_names() {
        let matches = |pattern: &str, name: &str| EnvRequest::parse(pattern).is_ok_and(|one| one.matches(name));
        for (pattern, name) in
            [("AWS_*", "AWS_REGION"), ("AWS_*", "AWS_"), ("*_KEY", "A_KEY"), ("A*B*C", "AxBxxC"), ("A*A", "AA")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("AWS_*", "XAWS_A"), ("A*A", "A"), ("A*B*C", "ACB"), ("AWS_*", "aws_a"), ("A", "AB")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        for text in ["*", "**"] {
            assert!(EnvRequest::parse(text).is_err(), "{text}");
        }
        assert!(EnvRequest::parse("A*=x").is_ok_and(|request| !request.is_pattern()));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = EnvRequest::parse(&text);
        }
    }
}
