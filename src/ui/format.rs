//! Formats numbers and JSON for output.

use serde::Serialize;

use super::UiError;
use super::escape::escape_json;
use crate::error::Result;

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

/// Writes a number of bytes with the suffixes of `--memory`: `512k`, `64m`, `2.0g`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..MEBIBYTE => format!("{}k", bytes >> 10),
        MEBIBYTE..GIBIBYTE => format!("{}m", bytes >> 20),
        _ => format!("{:.1}g", bytes as f64 / GIBIBYTE as f64),
    }
}

/// Writes a number with its noun: `1 key`, `2 keys`, `0 sandboxes`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with('x') => "es",
        _ => "s",
    };
    format!("{count} {noun}{plural}")
}

/// Writes a value as indented JSON that is safe to print to a terminal.
pub fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|source| UiError::Json { source })?;
    Ok(format!("{}\n", escape_json(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_largest_fitting_suffix() {
        let sizes = [0, 512 << 10, MEBIBYTE, GIBIBYTE - 1, 3 * GIBIBYTE / 2].map(size);
        assert_eq!(sizes, ["0k", "512k", "1m", "1023m", "1.5g"]);
    }

    #[test]
    fn nouns_are_plural_unless_there_is_one() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "sandbox")), ["0 sandboxes", "1 sandbox", "2 sandboxes"]);
        assert_eq!(counted(3, "CPU"), "3 CPUs");
    }
}
