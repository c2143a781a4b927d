//! A variable for the guest as the user writes it: `NAME=VALUE`, or `NAME` to take the host's.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{Mismatch, Value};

/// A variable that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvRequest {
    /// Its name.
    pub name: String,
    /// Its value; `None` takes the host's.
    pub value: Option<String>,
}

impl EnvRequest {
    /// Whether `name` can be a variable's name in every engine's syntax.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.starts_with('-') && name.chars().all(|c| c.is_ascii_graphic() && c != '=')
    }
}

impl Value for EnvRequest {
    const NAME: &'static str = "a variable";
    const FORM: &'static str = "`NAME=VALUE`, or `NAME` to pass the host's value";

    fn shown(text: &str) -> String {
        // The value may be a secret.
        text.split_once('=').map_or(text.to_owned(), |(name, _)| format!("{name}=…"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if !Self::is_name(name) {
            return Err(if name.is_empty() {
                "there is no name before the `=`".into()
            } else {
                format!("`{name}` is not a variable's name")
            });
        }
        if value.is_some_and(|value| value.contains('\0')) {
            return Err("the value contains a NUL byte".into());
        }
        Ok(EnvRequest { name: name.to_owned(), value: value.map(str::to_owned) })
    }
}

/// The variables of a file: `{ NAME = "value" }`. A file names values only; it never takes them from the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variables(pub Vec<EnvRequest>);

impl JsonSchema for Variables {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Variables".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": "^[!-,.-<>-~][!-<>-~]*$" },
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        })
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;
        impl<'de> Visitor<'de> for Table {
            type Value = Variables;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table such as { NAME = \"value\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Variables, A::Error> {
                let mut variables = Vec::new();
                while let Some(name) = table.next_key()? {
                    variables.push(table.next_value_seed(Named(name))?);
                }
                Ok(Variables(variables))
            }
        }
        deserializer.deserialize_map(Table)
    }
}

/// The value of a variable whose name is known, so that whatever is wrong is said of that key.
struct Named(String);

impl Named {
    fn with<E: serde::de::Error>(self, value: &str) -> Result<EnvRequest, E> {
        let text = format!("{}={value}", self.0);
        // A name with `=` in it would be read as another one.
        let reason = if self.0.contains('=') { Some(format!("`{}` is not a variable's name", self.0)) } else { None };
        let request = reason.map_or_else(|| EnvRequest::parse(&text), Err);
        request.map_err(|reason| {
            let form = "NAME = \"value\"".to_owned();
            E::custom(Mismatch { form, ..Mismatch::of::<EnvRequest>(&text, reason) })
        })
    }
}

impl<'de> DeserializeSeed<'de> for Named {
    type Value = EnvRequest;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<EnvRequest, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Named {
    type Value = EnvRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number or a truth value")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<EnvRequest, E> {
        self.with(value)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<EnvRequest, E> {
        self.with(&value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<EnvRequest, E> {
        self.with(&value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<EnvRequest, E> {
        self.with(&value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<EnvRequest, E> {
        self.with(&value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_value_is_everything_after_the_first_equals_sign() {
        let parsed = EnvRequest::parse("A=b=c, d");
        assert_eq!(parsed, Ok(EnvRequest { name: "A".into(), value: Some("b=c, d".into()) }));
        assert_eq!(EnvRequest::parse("A"), Ok(EnvRequest { name: "A".into(), value: None }));
        assert!(EnvRequest::parse("=x").is_err());
        assert!(EnvRequest::parse("--privileged").is_err());
        assert!(EnvRequest::parse("A B=c").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = EnvRequest::parse(&text);
        }
    }
}
