//! A published port.

use serde::Serialize;
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A TCP port, reachable on the host's loopback under the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Port(pub u16);

read_as_text!(Port: { "type": ["integer", "string"], "minimum": 1, "maximum": u16::MAX });

impl OptionValue for Port {
    fn to_toml(&self) -> Toml {
        Toml::Integer(self.0.into())
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Port {
    const NAME: &'static str = "a port";
    const FORM: &'static str = "a number from 1 to 65535";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text.parse() {
            Ok(port @ 1..) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Port(port)),
            _ if text.contains(':') => Err("a port has the same number on the host and inside".into()),
            _ => Err(Reason::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_are_ports() {
        assert_eq!(Port::parse("3000"), Ok(Port(3000)));
        for text in ["0", "65536", "+80", "80:80", " 80", "", "x"] {
            assert!(Port::parse(text).is_err(), "{text:?}");
        }
    }
}
