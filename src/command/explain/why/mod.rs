//! `explain --why`: tells for one path, program, variable or host whether it is available inside, by which rule,
//! and which option would change that.

mod network;
mod path;
mod program;
mod variable;

use serde_json::{Value, json};

use crate::config::Origin;
use crate::config::value::{EnvRequest, HostName, HostRule, Value as _};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{self, FileFact, Files};
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{Plan, Why};
use crate::ui::{self, Page, View};

#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    #[error("flag --why: `{text}` is neither a path nor a program, a variable or a host")]
    Unrecognized { text: String },
}

impl Diagnostic for WhyError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        vec!["expected a path such as `~/.ssh`, a program such as `cargo`, a variable such as `HOME`, or a host such as `github.com:22`".into()]
    }
}

pub fn json(answers: &[Answer]) -> Result<String> {
    ui::json(&json!({"schema": 1, "answers": answers.iter().map(Answer::json).collect::<Vec<_>>()}))
}

/// The subject of one `--why`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    Path {
        path: HostPath,
        /// `None` if the path does not exist on the host.
        fact: Option<FileFact>,
    },
    Program {
        name: String,
        candidates: program::Candidates,
    },
    Variable(String),
    Host(HostName, Option<u16>),
}

impl Question {
    /// Recognizes a path by a slash or because it exists, a variable because it is set, a program
    /// because it is on PATH, another variable by its characters, and takes anything else for a host.
    pub fn read(host: &Host, text: &str) -> Result<Self> {
        let is_path = text.contains('/') || text.starts_with('~') || text == "." || text == "..";
        let path = HostPath::new(host.expand(text.as_ref())).ok();
        let fact = path.as_ref().and_then(|path| Files::look([path.clone()]).get(path).cloned());
        match path {
            Some(path) if is_path || (fact.is_some() && !text.is_empty()) => return Ok(Question::Path { path, fact }),
            _ => {}
        }
        let is_word = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_set = is_word && host.env.raw(text).is_some();
        let candidates = if is_set { Vec::new() } else { programs(host, text) };
        if !candidates.is_empty() {
            return Ok(Question::Program { name: text.to_owned(), candidates });
        }
        if is_word && text != "localhost" && EnvRequest::is_name(text) {
            return Ok(Question::Variable(text.to_owned()));
        }
        match HostRule::parse(text).ok().as_ref().and_then(HostRule::target) {
            Some((host, port)) => Ok(Question::Host(host.clone(), port)),
            None => Err(WhyError::Unrecognized { text: text.to_owned() }.into()),
        }
    }

    pub fn answer(&self, host: &Host, plan: &Plan) -> Answer {
        match self {
            Question::Path { path, fact } => path::answer(host, plan, path, fact.as_ref()),
            Question::Program { name, candidates } => program::answer(host, plan, name, candidates),
            Question::Variable(name) => variable::answer(host, plan, name),
            Question::Host(name, port) => network::answer(plan, name, *port),
        }
    }
}

/// Finds the programs of a name in the directories of the host's PATH.
fn programs(host: &Host, name: &str) -> program::Candidates {
    let files = facts::search_path(host).all.into_iter().map(|directory| directory.join(name));
    let mut candidates = program::Candidates::new();
    for file in files.filter(|file| facts::is_program(file.as_path())) {
        if let Some(fact) = Files::look([file.clone()]).get(&file).cloned() {
            candidates.push((file, fact));
        }
    }
    candidates
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// `path`, `program`, `variable` or `host`.
    kind: &'static str,
    asked: String,
    /// `None` if a profile or proxy of the user decides.
    inside: Option<bool>,
    /// Follows the subject in the title.
    how: String,
    reason: String,
    from: Option<Origin>,
    requirement: Option<&'static str>,
    change: Vec<Change>,
}

/// An option that would change the answer.
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
