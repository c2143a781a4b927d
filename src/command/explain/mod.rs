//! `sandpen explain`: prints a plan and its launch as text or JSON, or answers questions about it
//! (`--why`). It decides nothing and starts no sandbox.

mod explanation;
mod files;
mod json;
mod text;
mod why;

pub use explanation::Explanation;
pub use json::json;
pub use text::text;

use why::{Answer, Question};

use crate::cli::{Explain, Format};
use crate::config::value::GitMode;
use crate::error::Result;
use crate::plan::Plan;
use crate::process::Outcome;
use crate::resolve::Resolved;
use crate::ui::{Ui, View};

/// Returns the plan's warnings, and why the engine cannot run now.
pub fn warnings(plan: &Plan) -> Vec<String> {
    let problems = [&plan.engine.problem, &plan.ssh.problem].into_iter().flatten().map(|problem| {
        // An error may have several causes of the same rank, for example one per engine.
        let causes = problem.causes().join("; ");
        if causes.is_empty() { problem.message().to_owned() } else { format!("{}: {causes}", problem.message()) }
    });
    problems.chain(plan.warnings.iter().map(|warning| warning.text.clone())).collect()
}

/// Tells what the Git directory inside is.
fn git_reason(plan: &Plan) -> &'static str {
    match plan.git_mode {
        GitMode::Private => "the sandbox has its own Git directory; commits, refs and the index come out verified",
        GitMode::Shared => "the host's Git directory is writable inside: no protection from code planted in it",
    }
}

pub fn run(arguments: Explain, ui: Ui) -> Result<Outcome> {
    let (host, plan, launch) = Resolved::read(&arguments.options, arguments.guest)?.for_explain(ui)?;
    let explained = Explanation { host, plan, launch };
    if arguments.format == Format::Text {
        for warning in explained.warnings() {
            ui.warn(&warning);
        }
    }
    let (host, view) = (explained.host(), View::of(explained.host(), ui.is_verbose()));
    let questions: Vec<Question> =
        arguments.why.iter().map(|text| Question::read(host, text)).collect::<Result<_>>()?;
    let answers: Vec<Answer> = questions.iter().map(|question| question.answer(host, &explained.plan)).collect();
    let text = match (arguments.format, answers.as_slice()) {
        (Format::Json, []) => explained.json()?,
        (Format::Text, []) => explained.text(view),
        (Format::Json, answers) => why::json(answers)?,
        (Format::Text, answers) => answers.iter().map(|answer| answer.text(view)).collect::<Vec<_>>().join("\n"),
    };
    super::print(ui, &text)
}
