//! `explain --why`: one path, variable or host – inside or not, by which rule, and the option that would change it.

mod network;
mod path;
mod variable;

use serde_json::{Value, json};

use crate::config::Origin;
use crate::config::value::{EnvRequest, HostName, HostRule, Value as _};
use crate::error::{Error, Result};
use crate::facts::{FileFact, Files};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{Plan, Why};
use crate::ui::Page;
use crate::ui::View;
use crate::ui::escape::escape_json;

/// Answers for programs.
pub fn json(answers: &[Answer]) -> Result<String> {
    let report = json!({"schema": 1, "answers": answers.iter().map(Answer::json).collect::<Vec<_>>()});
    let text = serde_json::to_string_pretty(&report)
        .map_err(|error| Error::failed("the answers cannot be written as JSON").cause(error))?;
    Ok(format!("{}\n", escape_json(&text)))
}

/// What is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// A file or directory, and what it is on the host.
    Path {
        /// Its path.
        path: HostPath,
        /// What is there, if anything.
        fact: Option<FileFact>,
    },
    /// A variable.
    Variable(String),
    /// A host, and the port if one is named.
    Host(HostName, Option<u16>),
}

impl Question {
    /// By its form: what has a slash or exists here is a path; a word without a dot is a variable; the rest is a host.
    pub fn read(host: &Host, text: &str) -> Result<Self> {
        let is_path = text.contains('/') || text.starts_with('~') || text == "." || text == "..";
        let path = HostPath::new(host.expand(text.as_ref())).ok();
        let fact = path.as_ref().and_then(|path| Files::look([path.clone()]).get(path).cloned());
        match path {
            Some(path) if is_path || (fact.is_some() && !text.is_empty()) => return Ok(Question::Path { path, fact }),
            _ => {}
        }
        let is_word = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_word && text != "localhost" && EnvRequest::is_name(text) {
            return Ok(Question::Variable(text.to_owned()));
        }
        match HostRule::parse(text).ok().as_ref().and_then(HostRule::target) {
            Some((host, port)) => Ok(Question::Host(host.clone(), port)),
            None => Err(Error::usage(format!("flag --why: `{text}` is neither a path nor a variable nor a host"))
                .hint(
                    "expected a path such as `~/.ssh`, a variable such as `HOME`, or a host such as `github.com:22`",
                )),
        }
    }

    /// The answer that the plan gives.
    pub fn answer(&self, host: &Host, plan: &Plan) -> Answer {
        match self {
            Question::Path { path, fact } => path::answer(host, plan, path, fact.as_ref()),
            Question::Variable(name) => variable::answer(host, plan, name),
            Question::Host(name, port) => network::answer(plan, name, *port),
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// `path`, `variable` or `host`.
    kind: &'static str,
    asked: String,
    /// Whether it is inside; `None` when that is not sandpen's to know.
    inside: Option<bool>,
    /// How, in a few words.
    how: String,
    reason: String,
    from: Option<Origin>,
    requirement: Option<&'static str>,
    change: Vec<Change>,
}

/// An option that would change it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    option: String,
    effect: &'static str,
}

impl Answer {
    fn new(kind: &'static str, asked: impl ToString, inside: Option<bool>, how: impl Into<String>) -> Self {
        let asked = asked.to_string();
        Answer {
            kind,
            asked,
            inside,
            how: how.into(),
            reason: String::new(),
            from: None,
            requirement: None,
            change: Vec::new(),
        }
    }

    fn because(mut self, why: &Why) -> Self {
        (self.reason, self.from, self.requirement) = (why.reason.clone(), Some(why.from.clone()), why.requirement);
        self
    }

    fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    fn change(mut self, option: impl Into<String>, effect: &'static str) -> Self {
        self.change.push(Change { option: option.into(), effect });
        self
    }

    /// For people.
    pub fn text(&self, view: View) -> String {
        let mut page = Page::new(view);
        page.section(&self.asked);
        page.note(&self.how);
        let origin = match (&self.from, self.requirement) {
            (Some(from), Some(number)) => format!("{from}, {number}"),
            (Some(from), None) => from.to_string(),
            (None, _) => String::new(),
        };
        page.prose("why", &self.reason);
        if !origin.is_empty() {
            page.prose("from", &origin);
        }
        for Change { option, effect } in &self.change {
            page.row("change", option, effect);
        }
        if self.change.is_empty() {
            page.prose("change", "no option changes this");
        }
        page.finish()
    }

    fn json(&self) -> Value {
        let change = |change: &Change| json!({"option": change.option, "effect": change.effect});
        json!({
            "asked": self.asked,
            "kind": self.kind,
            "inside": self.inside,
            "how": self.how,
            "reason": self.reason,
            "from": self.from,
            "requirement": self.requirement,
            "change": self.change.iter().map(change).collect::<Vec<_>>(),
        })
    }
}
