//! The name a user gives a sandbox.

use std::fmt;

use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A name for a sandbox. It becomes a directory, a container's name and a host name, so it contains
/// only what all three allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(String);

/// With `sandpen-` in front the name must fit into a host name, which has at most 64 bytes on
/// Linux.
const MAX_LENGTH: usize = 40;

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

read_as_text!(Name: { "type": "string" });

impl OptionValue for Name {
    fn to_toml(&self) -> Toml {
        Toml::String(self.0.clone())
    }
}

impl Value for Name {
    const NAME: &'static str = "a name for a sandbox";
    const FORM: &'static str =
        "up to 40 lower-case letters, digits and `-`, beginning and ending with a letter or digit, such as `review-2`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = [text.bytes().next(), text.bytes().last()];
        let fits = (1..=MAX_LENGTH).contains(&text.len());
        let known = text.bytes().all(|byte| is_plain(byte) || byte == b'-');
        if fits && known && ends.into_iter().flatten().all(is_plain) {
            Ok(Name(text.to_owned()))
        } else {
            Err(Reason::Form)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_directories_containers_and_hosts_may_be_called_is_a_name() {
        for text in ["a", "review-2", "0", &"x".repeat(40)] {
            assert_eq!(Name::parse(text).map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "-a", "a-", "A", "a_b", "a.b", "..", "a/b", "a b", "ä", "a\n", &"x".repeat(41)] {
            assert!(Name::parse(text).is_err(), "{text:?}");
        }
    }
}
