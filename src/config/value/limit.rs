//! Resource limits: CPUs, memory, processes.

use std::fmt;

use serde::{Serialize, Serializer};
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A number of CPUs, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpus(u32);

impl Cpus {
    /// Returns the number in thousandths of a CPU.
    pub fn millis(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Value for Cpus {
    const NAME: &'static str = "a number of CPUs";
    const FORM: &'static str = "a positive number such as `2` or `0.5`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 3 || whole.len() > 5 {
            return Err(Reason::Form);
        }
        let millis = whole.parse::<u32>().ok().zip(format!("{part:0<3}").parse::<u32>().ok());
        match millis.map(|(whole, part)| whole * 1000 + part) {
            Some(millis) if millis > 0 => Ok(Cpus(millis)),
            _ => Err(Reason::Form),
        }
    }
}

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory(u64);

/// The least that Docker and Podman accept.
const MIN_MEMORY: u64 = 6 << 20;

impl Memory {
    /// Returns the amount in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "g"), (20, "m"), (10, "k")] {
            if self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}b", self.0)
    }
}

impl Value for Memory {
    const NAME: &'static str = "an amount of memory";
    const FORM: &'static str = "a size of at least 6m, such as `512m` or `4g`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(Reason::Form),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        match bytes {
            Some(bytes) if (MIN_MEMORY..=i64::MAX as u64).contains(&bytes) => Ok(Memory(bytes)),
            _ => Err(Reason::Form),
        }
    }
}

/// The kernel's limit on 64-bit machines.
const MAX_PIDS: u32 = 4_194_304;

/// A number of processes and threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pids(pub u32);

impl fmt::Display for Pids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Value for Pids {
    const NAME: &'static str = "a number of processes";
    const FORM: &'static str = "a whole number from 1 to 4194304";

    fn parse(text: &str) -> Result<Self, Reason> {
        match text.parse() {
            Ok(number @ 1..=MAX_PIDS) if !text.starts_with('+') => Ok(Pids(number)),
            _ => Err(Reason::Form),
        }
    }
}

read_as_text!(
    Cpus: { "type": ["number", "string"], "exclusiveMinimum": 0 },
    Memory: { "type": ["string", "integer"], "minimum": MIN_MEMORY },
    Pids: { "type": ["integer", "string"], "minimum": 1, "maximum": MAX_PIDS },
);

impl OptionValue for Cpus {
    fn to_toml(&self) -> Toml {
        if self.0.is_multiple_of(1000) {
            Toml::Integer((self.0 / 1000).into())
        } else {
            Toml::Float(f64::from(self.0) / 1000.0)
        }
    }
}

impl OptionValue for Memory {
    fn to_toml(&self) -> Toml {
        Toml::String(self.to_string())
    }
}

impl OptionValue for Pids {
    fn to_toml(&self) -> Toml {
        Toml::Integer(self.0.into())
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Memory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Pids {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown<T: Value + fmt::Display>(text: &str) -> Option<String> {
        T::parse(text).ok().map(|value| value.to_string())
    }

    #[test]
    fn limits_are_read_and_shown_the_same() {
        assert_eq!(shown::<Cpus>("2").as_deref(), Some("2"));
        assert_eq!(shown::<Cpus>("0.50").as_deref(), Some("0.5"));
        assert_eq!(shown::<Memory>("4g").as_deref(), Some("4g"));
        assert_eq!(shown::<Memory>("1536M").as_deref(), Some("1536m"));
        assert_eq!(shown::<Memory>("8388608").as_deref(), Some("8m"));
        assert_eq!(shown::<Pids>("64").as_deref(), Some("64"));
    }

    #[test]
    fn limits_that_limit_nothing_are_refused() {
        for text in ["0", "0.0", "-1", "", "two", "1e3", ".5", "nan", "inf"] {
            assert_eq!(shown::<Cpus>(text), None, "{text}");
        }
        for text in ["0", "1m", "-4g", "4x", "g", "", "99999999999g", "4 g"] {
            assert_eq!(shown::<Memory>(text), None, "{text}");
        }
        for text in ["0", "-1", "+3", "", "x", "4194305"] {
            assert_eq!(shown::<Pids>(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(millis in 1u32..9_999_999, bytes in MIN_MEMORY..1u64 << 50) {
            prop_assert_eq!(Cpus::parse(&Cpus(millis).to_string()), Ok(Cpus(millis)));
            prop_assert_eq!(Memory::parse(&Memory(bytes).to_string()), Ok(Memory(bytes)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = (Cpus::parse(&text), Memory::parse(&text), Pids::parse(&text));
        }
    }
}
