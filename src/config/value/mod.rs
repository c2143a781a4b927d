//! The values options take, each parsed once into a type that cannot hold anything wrong.

mod engine;
mod env;
mod host_name;
mod host_rule;
mod image;
mod limit;
mod mode;
mod mount;
mod name;
mod port;
mod preset;
mod seatbelt_profile;

use std::fmt;
use std::marker::PhantomData;

pub use engine::EngineKind;
pub use env::{EnvRequest, Variables};
pub use host_name::HostName;
pub use host_rule::HostRule;
pub use image::ImageRef;
pub use limit::{Cpus, Memory, Pids};
pub use mode::{AgentMode, EngineSetting, Guard, NetworkMode, TmpMode, UserMode};
pub use mount::{Access, MountRequest};
pub use name::Name;
pub use port::Port;
pub use preset::{HomePath, VariableName};
pub use seatbelt_profile::{BuiltIn, Stance};

use schemars::{Schema, json_schema};

use crate::error::Error;

/// A type that is written as text in flags, variables and files.
pub trait Value: Sized {
    /// What the value is called in a message.
    const NAME: &'static str;
    /// The form expected, with an example.
    const FORM: &'static str;

    /// Parses it; the error is the reason, or empty when the form says it all.
    fn parse(text: &str) -> Result<Self, String>;

    /// What an editor can check of it in a file.
    fn schema() -> Schema {
        json_schema!({ "type": "string" })
    }

    /// The text as a message may show it.
    fn shown(text: &str) -> String {
        text.to_owned()
    }
}

/// A text that is no such value: flags and variables say so with their name, files with the place and the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// What is wrong, the text included.
    pub message: String,
    /// Why, or what may have been meant; empty when the form says it all.
    pub reason: String,
    /// The form expected.
    pub form: String,
}

impl Mismatch {
    /// What is wrong with `text`, which is no `T`.
    pub fn of<T: Value>(text: &str, reason: String) -> Self {
        Mismatch { message: format!("`{}` is not {}", T::shown(text), T::NAME), reason, form: T::FORM.to_owned() }
    }

    /// As the user reads it; `origin` is a flag, a variable, or a place in a file.
    pub fn error(&self, origin: impl fmt::Display) -> Error {
        let error = Error::usage(format!("{origin}: {}", self.message));
        let error = match self.reason.as_str() {
            "" => error,
            suggestion if suggestion.starts_with("did you mean") => error.hint(suggestion),
            reason => error.cause(reason),
        };
        match self.form.as_str() {
            "" => error,
            form => error.hint(format!("expected {form}")),
        }
    }
}

/// `serde` carries errors as text only; this character is no part of any form, and hardly of a value.
const SEPARATOR: char = '\u{1f}';

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}{SEPARATOR}{}", self.message, self.reason, self.form)
    }
}

impl std::str::FromStr for Mismatch {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        // From the right: only the message and the reason hold what the user wrote.
        let mut parts = text.rsplitn(3, SEPARATOR).map(str::to_owned);
        match (parts.next(), parts.next(), parts.next()) {
            (Some(form), Some(reason), Some(message)) => Ok(Mismatch { message, reason, form }),
            _ => Err(()),
        }
    }
}

/// Reads a value from a file: text or a number, so that `cpus = 2` and `cpus = "2"` mean the same; empty text and `null` are
/// `None`, as an empty value means "not set" everywhere.
pub struct Reader<T>(pub PhantomData<T>);

impl<T: Value> serde::de::Visitor<'_> for Reader<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<T>, E> {
        match text {
            "" => Ok(None),
            // Parsed here, while the reader still stands at the value: the error's position is taken from it.
            text => T::parse(text).map(Some).map_err(|reason| E::custom(Mismatch::of::<T>(text, reason))),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Option<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }
}

/// `serde` reads these types through [`Value::parse`], so that files and flags agree on every value; editors check them by
/// [`Value::schema`].
macro_rules! deserialize_as_value {
    ($($name:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let value = deserializer.deserialize_any(super::Reader(std::marker::PhantomData))?;
                value.ok_or_else(|| serde::de::Error::custom(super::Mismatch::of::<$name>("", String::new())))
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$name as super::Value>::schema()
            }
        }
    )+};
}
use deserialize_as_value;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_mismatch_survives_as_text(text in any::<String>(), reason in "[^\u{1f}]*") {
            let mismatch = Mismatch::of::<Port>(&text, reason);
            prop_assert_eq!(mismatch.to_string().parse(), Ok(mismatch));
        }
    }
}
