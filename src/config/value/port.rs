//! A published port.

use schemars::{Schema, json_schema};
use serde::Serialize;

use super::{Value, deserialize_as_value};

/// A TCP port, reachable on the host's loopback under the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Port(pub u16);

deserialize_as_value!(Port);

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Port {
    const NAME: &'static str = "a port";
    const FORM: &'static str = "a number from 1 to 65535";

    fn schema() -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 1, "maximum": u16::MAX })
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(port @ 1..) if text.bytes().all(|b| b.is_ascii_digit()) => Ok(Port(port)),
            _ => Err(String::new()),
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
