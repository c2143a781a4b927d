//! Reads the files of `--env-file`, in the format of docker's: lines of `NAME=VALUE`, or `NAME` to
//! pass the host's value. Quotes and `$` have no meaning; a line that starts with `#` is a comment.

use std::path::PathBuf;

use super::error::ConfigError;
use super::sourced::{Origin, Sourced};
use super::value::{EnvRequest, Value};
use crate::host::Host;

/// Reads one file. A wrong line is named by its number, because its text may be a secret.
pub fn read(host: &Host, file: &Sourced<PathBuf>) -> Result<Vec<Sourced<EnvRequest>>, ConfigError> {
    let path = host.expand(&file.value);
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read {
        what: "file of variables",
        path: path.clone(),
        source,
    })?;
    let mut requests = Vec::new();
    for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let request =
            EnvRequest::parse(line).map_err(|_| ConfigError::EnvLine { path: path.clone(), line: number + 1 })?;
        requests.push(Sourced::new(request, Origin::Flag("--env-file")));
    }
    Ok(requests)
}
