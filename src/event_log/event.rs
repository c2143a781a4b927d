//! One event of a sandbox's record, as it is written and read.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::timestamp::timestamp;
use crate::ui::escape::escape_json;

/// The most characters of a text in an event.
const MAX_TEXT: usize = 512;

/// The part of sandpen that made the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// The start and the end of the sandbox.
    Sandbox,
    Network,
    Ssh,
    Push,
    Repository,
    Secret,
    /// What was taken over from a copied workspace.
    Workspace,
    /// Written by a newer sandpen.
    #[serde(other)]
    Other,
}

impl Gate {
    pub fn name(self) -> &'static str {
        match self {
            Gate::Sandbox => "sandbox",
            Gate::Network => "network",
            Gate::Push => "push",
            Gate::Ssh => "ssh",
            Gate::Repository => "repository",
            Gate::Secret => "secret",
            Gate::Workspace => "workspace",
            Gate::Other => "other",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Allowed,
    Refused,
    Done,
    Failed,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Allowed => "allowed",
            Verdict::Refused => "refused",
            Verdict::Done => "done",
            Verdict::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// In UTC according to RFC 3339.
    pub time: String,
    /// The sandbox's id.
    pub id: String,
    pub gate: Gate,
    pub verdict: Verdict,
    pub what: String,
    pub reason: String,
    /// The working directory, in the event of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl Event {
    pub fn new(id: &str, gate: Gate, verdict: Verdict, what: &str, reason: &str) -> Self {
        let (what, reason) = (shortened(what), shortened(reason));
        Event { time: timestamp(SystemTime::now()), id: id.to_owned(), gate, verdict, what, reason, directory: None }
    }

    /// Returns the event as one line of JSON.
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{}\n", escape_json(&json))
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
