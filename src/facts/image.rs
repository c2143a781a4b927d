//! What an image says of itself. Asked only when planning needs it, or when a launch failed: it costs an engine call.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::config::value::ImageRef;
use crate::engine::Client;

/// An image's own configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ImageFacts {
    /// The user it names, if any.
    pub user: Option<String>,
    /// The HOME it sets, if any.
    pub home: Option<String>,
    /// Its architecture, in the engines' spelling.
    pub arch: Option<String>,
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

/// Asks the engine for an image; `None` when it is not there, or the engine does not say.
pub fn inspect(client: &Client, image: &ImageRef) -> Option<ImageFacts> {
    let output = Command::new(client.program.as_ref()?.as_path())
        .args(client.pin())
        .args(["image", "inspect", image.as_str()])
        .env("PATH", &client.path)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Option<ImageFacts> {
    let inspected: Vec<Inspected> = serde_json::from_slice(json).ok()?;
    let inspected = inspected.into_iter().next()?;
    let config = inspected.config.unwrap_or_default();
    let home = config.env.iter().flatten().find_map(|entry| entry.strip_prefix("HOME=")).map(str::to_owned);
    let user = config.user.or(inspected.user).filter(|user| !user.is_empty());
    Some(ImageFacts { user, home, arch: inspected.architecture })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_docker_and_podman_print() {
        let docker = br#"[{"Architecture":"amd64","Config":{"User":"node","Env":["PATH=/bin","HOME=/home/node"]}}]"#;
        let facts =
            ImageFacts { user: Some("node".into()), home: Some("/home/node".into()), arch: Some("amd64".into()) };
        assert_eq!(parse(docker), Some(facts));
        assert_eq!(parse(b"[]"), None);
        assert_eq!(parse(b"garbage"), None);
        assert_eq!(parse(br#"[{"Config":{"Env":null}}]"#), Some(ImageFacts::default()));
    }
}
