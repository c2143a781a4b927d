//! Asks the engine for the configuration of an image. Each question starts the engine's client, so
//! it is asked only if the plan needs it, or after a launch failed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engines::ask;
use crate::config::value::ImageRef;
use crate::process::Client;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ImageFacts {
    /// The image's `USER`.
    pub user: Option<String>,
    /// The image's `HOME` variable.
    pub home: Option<String>,
    /// Spelled as the engines do: `amd64`, `arm64`.
    pub arch: Option<String>,
    /// The uid and gid of the image's user, if it has a name and was asked for.
    pub user_ids: Option<(u32, u32)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    #[serde(default)]
    architecture: Option<String>,
    #[serde(default)]
    config: Option<InspectedConfig>,
    #[serde(default)]
    user: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct InspectedConfig {
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    env: Option<Vec<String>>,
}

pub enum Inspection {
    Known(ImageFacts),
    /// The engine answers that it has no such image.
    Missing,
    /// The engine's virtual machine does not answer.
    Silent,
}

impl Inspection {
    pub fn facts(self) -> Option<ImageFacts> {
        match self {
            Inspection::Known(facts) => Some(facts),
            Inspection::Missing | Inspection::Silent => None,
        }
    }
}

/// An engine on this machine answers at once unless it is very busy.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Asks with the time limit that is usual for the engine.
pub fn inspect(client: &Client, image: &ImageRef) -> Inspection {
    let timeout = client.machine.as_ref().map_or(INSPECT_TIMEOUT, |pin| pin.timeout);
    inspect_within(client, image, timeout)
}

pub fn inspect_within(client: &Client, image: &ImageRef, timeout: Duration) -> Inspection {
    let Some(mut command) = ask::question(client, &["image", "inspect", image.as_str()]) else {
        return Inspection::Missing;
    };
    let Some(output) = ask::within(&mut command, timeout) else { return Inspection::Silent };
    if output.status.success() {
        return parse(&output.stdout).map_or(Inspection::Missing, Inspection::Known);
    }
    // Clients also fail if they do not reach their engine, with the same exit code.
    match &client.machine {
        Some(_) if is_known_to_be_missing(client, image, timeout) => Inspection::Missing,
        None if answers(client, timeout) => Inspection::Missing,
        _ => Inspection::Silent,
    }
}

/// Asks Podman whether it has an image. Only an answer has the exit code 1; failures have others.
fn is_known_to_be_missing(client: &Client, image: &ImageRef, timeout: Duration) -> bool {
    let question = ask::question(client, &["image", "exists", image.as_str()]);
    let output = question.and_then(|mut command| ask::within(&mut command, timeout));
    output.is_some_and(|output| output.status.code() == Some(1))
}

/// Asks the engine for its version.
fn answers(client: &Client, timeout: Duration) -> bool {
    let question = ask::question(client, &["version"]);
    let output = question.and_then(|mut command| ask::within(&mut command, timeout));
    output.is_some_and(|output| output.status.success())
}

fn parse(json: &[u8]) -> Option<ImageFacts> {
    let inspected: Vec<Inspected> = serde_json::from_slice(json).ok()?;
    let inspected = inspected.into_iter().next()?;
    let config = inspected.config.unwrap_or_default();
    let home = config.env.iter().flatten().find_map(|entry| entry.strip_prefix("HOME=")).map(str::to_owned);
    let user = config.user.or(inspected.user).filter(|user| !user.is_empty());
    Some(ImageFacts { user, home, arch: inspected.architecture, user_ids: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_docker_and_podman_print() {
        let docker = br#"[{"Architecture":"amd64","Config":{"User":"node","Env":["PATH=/bin","HOME=/home/node"]}}]"#;
        let facts = ImageFacts {
            user: Some("node".into()),
            home: Some("/home/node".into()),
            arch: Some("amd64".into()),
            user_ids: None,
        };
        assert_eq!(parse(docker), Some(facts));
        assert_eq!(parse(b"[]"), None);
        assert_eq!(parse(b"garbage"), None);
        assert_eq!(parse(br#"[{"Config":{"Env":null}}]"#), Some(ImageFacts::default()));
    }
}
