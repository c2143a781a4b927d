//! The values options take, each parsed once into a type that cannot hold anything wrong.

mod env;
mod host_rule;
mod image;
mod limit;
mod mode;
mod mount;
mod port;

pub use env::EnvRequest;
pub use host_rule::HostRule;
pub use image::ImageRef;
pub use limit::{Cpus, Memory, Pids};
pub use mode::{AgentMode, EngineSetting, Guard, NetworkMode, TmpMode, UserMode};
pub use mount::{Access, MountRequest};
pub use port::Port;

/// A type that is written as text in flags, variables and files.
pub trait Value: Sized {
    /// What the value is called in a message.
    const NAME: &'static str;
    /// The form expected, with an example.
    const FORM: &'static str;

    /// Parses it; the error is the reason, or empty when the form says it all.
    fn parse(text: &str) -> Result<Self, String>;

    /// The text as a message may show it.
    fn shown(text: &str) -> String {
        text.to_owned()
    }
}

/// `serde` reads these types through [`Value::parse`], so that files and flags agree on every value.
macro_rules! deserialize_as_value {
    ($($name:ty),+) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <super::Scalar as serde::Deserialize>::deserialize(deserializer)?.0;
                <$name as super::Value>::parse(&text).map_err(|reason| {
                    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                    serde::de::Error::custom(format!(
                        "`{text}` is not {}{reason}; expected {}",
                        <$name as super::Value>::NAME, <$name as super::Value>::FORM,
                    ))
                })
            }
        }
    )+};
}
use deserialize_as_value;

/// A string or a number, as text: `cpus = 2` and `cpus = "2"` mean the same.
struct Scalar(String);

impl<'de> serde::Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a number")
            }
            fn visit_str<E>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar(v.to_owned()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
