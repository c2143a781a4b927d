//! Shows a plan and its launch: as text for people, as JSON for programs, and for one thing at a time. Decides nothing and starts
//! nothing.

mod explanation;
mod files;
mod json;
mod page;
mod text;
mod view;
mod why;

use std::ffi::OsString;

pub use explanation::Explanation;
pub use json::json;
pub use page::Page;
pub use text::text;
pub use view::View;
pub use why::{Answer, Question, json as answers_json};

use crate::escape::escape;
use crate::plan::Plan;

/// The plan's warnings, and why the engine cannot run now.
pub fn warnings(plan: &Plan) -> Vec<String> {
    let problems = [&plan.engine.problem, &plan.ssh.problem].into_iter().flatten().map(|problem| {
        // Causes stand side by side here: "no engine answers: this one …; that one …".
        let causes = problem.causes().join("; ");
        if causes.is_empty() { problem.message().to_owned() } else { format!("{}: {causes}", problem.message()) }
    });
    problems.chain(plan.warnings.iter().cloned()).collect()
}

/// A command line as a shell would read it, escaped for the terminal.
pub fn shell_words(argv: &[OsString]) -> String {
    argv.iter().map(shell_word).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &OsString) -> String {
    match word.to_str().map(shlex::try_quote) {
        Some(Ok(quoted)) => escape(&quoted).into_owned(),
        // Bytes that are not text, in the form bash and zsh read back.
        _ => format!("$'{}'", word.as_encoded_bytes().escape_ascii()),
    }
}
