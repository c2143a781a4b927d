//! The values of the options for Kubernetes: names of its objects, labels of nodes, tolerations.

use std::fmt;

use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// The most characters of an object's name, and of a label's name or value.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// The name of an object in a cluster, such as a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName(String);

/// A label that a node must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSelector {
    pub key: String,
    pub value: String,
}

/// A taint that the pod tolerates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    pub key: String,
    /// `None` tolerates every value.
    pub value: Option<String>,
    /// `None` tolerates every effect.
    pub effect: Option<String>,
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl ObjectName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl fmt::Display for Toleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)?;
        self.value.iter().try_for_each(|value| write!(f, "={value}"))?;
        self.effect.iter().try_for_each(|effect| write!(f, ":{effect}"))
    }
}

macro_rules! written_as_text {
    ($($name:ident),+) => {$(
        read_as_text!($name: { "type": "string" });

        impl OptionValue for $name {
            fn to_toml(&self) -> Toml {
                Toml::String(self.to_string())
            }
        }
    )+};
}

written_as_text!(ObjectName, NodeSelector, Toleration);

impl Value for ObjectName {
    const NAME: &'static str = "the name of an object in Kubernetes";
    const FORM: &'static str = "lower-case letters, digits, `-` and `.`, such as `team-a`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_part = |part: &str| {
            let ends = [part.bytes().next(), part.bytes().last()];
            !part.is_empty()
                && part.bytes().all(|byte| is_plain(byte) || byte == b'-')
                && ends.into_iter().flatten().all(is_plain)
        };
        if text.len() <= MAX_NAME && text.split('.').all(is_part) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Reason::Form)
        }
    }
}

impl Value for NodeSelector {
    const NAME: &'static str = "a label of nodes";
    const FORM: &'static str = "KEY=VALUE, such as `disktype=ssd`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let (key, value) = text.split_once('=').ok_or(Reason::Form)?;
        if !is_key(key) || !is_label(value) {
            return Err(Reason::Form);
        }
        Ok(NodeSelector { key: key.to_owned(), value: value.to_owned() })
    }
}

impl Value for Toleration {
    const NAME: &'static str = "a toleration";
    const FORM: &'static str =
        "KEY[=VALUE][:NoSchedule|:PreferNoSchedule|:NoExecute], such as `dedicated=agents:NoSchedule`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let (rest, effect) = match text.split_once(':') {
            Some((rest, effect)) => (rest, Some(effect)),
            None => (text, None),
        };
        let (key, value) = match rest.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (rest, None),
        };
        let is_effect = effect.is_none_or(|effect| EFFECTS.contains(&effect));
        if !is_key(key) || !value.is_none_or(is_label) || !is_effect {
            return Err(Reason::Form);
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Toleration { key: key.to_owned(), value: owned(value), effect: owned(effect) })
    }
}

/// A label's key: a name, after a domain and a slash if there is one.
fn is_key(key: &str) -> bool {
    let (domain, name) = key.rsplit_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    domain.is_none_or(|domain| ObjectName::parse(domain).is_ok()) && !name.is_empty() && is_label(name)
}

/// A label's value, which may be empty.
fn is_label(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().last()];
    text.len() <= MAX_LABEL
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && ends.into_iter().flatten().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_that_a_cluster_takes() {
        for text in ["sandbox", "team-a", "my.class", "0"] {
            assert_eq!(ObjectName::parse(text).map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "A", "-a", "a-", "a..b", "a_b", "a/b", "a b", "--x", &"x".repeat(254)] {
            assert!(ObjectName::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn labels_and_tolerations_are_written_as_they_are_read() {
        for text in ["disktype=ssd", "kubernetes.io/arch=arm64", "a="] {
            assert_eq!(NodeSelector::parse(text).map(|label| label.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "a", "=b", "a=b c", "a=-b", "A/b/c=d"] {
            assert!(NodeSelector::parse(text).is_err(), "{text:?}");
        }
        for text in ["a", "a=b", "a:NoExecute", "example.org/a=b:NoSchedule"] {
            assert_eq!(Toleration::parse(text).map(|one| one.to_string()), Ok(text.to_owned()));
        }
        for text in ["", ":NoSchedule", "a:Never", "a=b:", "a b"] {
            assert!(Toleration::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in ".{0,40}") {
            let _ = (ObjectName::parse(&text), NodeSelector::parse(&text), Toleration::parse(&text));
        }
    }
}
