//! What an image says of itself. Asked only when planning needs it, or when a launch failed: it costs an engine call.

#![allow(clippy::disallowed_methods, reason = "a fact that only the engine's client knows")]

use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
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

/// What came of asking for an image.
pub enum Inspection {
    /// It is there.
    Known(ImageFacts),
    /// It is not, as far as the engine says.
    Missing,
    /// The engine's machine does not answer.
    Silent,
}

impl Inspection {
    /// What is known of the image.
    pub fn facts(self) -> Option<ImageFacts> {
        match self {
            Inspection::Known(facts) => Some(facts),
            Inspection::Missing | Inspection::Silent => None,
        }
    }
}

/// Asks the engine for an image.
pub fn inspect(client: &Client, image: &ImageRef) -> Inspection {
    let Some(program) = &client.program else { return Inspection::Missing };
    let mut command = Command::new(program.as_path());
    command.args(client.pin()).args(["image", "inspect", image.as_str()]).env("PATH", &client.path).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = match &client.machine {
        None => command.output().ok(),
        Some(pin) => match within(&mut command, pin.patience) {
            // What Podman says when it does not get as far as the image.
            Some(output) if !output.status.success() && mentions(&output.stderr, "connect") => {
                return Inspection::Silent;
            }
            None => return Inspection::Silent,
            output => output,
        },
    };
    let output = output.filter(|output| output.status.success());
    output.and_then(|output| parse(&output.stdout)).map_or(Inspection::Missing, Inspection::Known)
}

fn mentions(text: &[u8], word: &str) -> bool {
    String::from_utf8_lossy(text).contains(word)
}

/// The output, unless it takes too long.
fn within(command: &mut Command, patience: Duration) -> Option<Output> {
    let child = command.spawn().ok()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw)?;
    let (sender, answer) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let output = answer.recv_timeout(patience);
    if output.is_err() {
        // The thread has not seen its end, so the id is still this process's own.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    output.ok()?.ok()
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
