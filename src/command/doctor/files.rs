//! Configuration files and leftovers.

use crate::command::doctor::report::{Check, Group, State, in_a_line};
use crate::config::check::{Effect, FoundFile};
use crate::session::cleanup::Leftovers;

/// Each file that was found: in effect, waiting, or wrong.
pub fn configuration(files: &[FoundFile]) -> Vec<Check> {
    if files.is_empty() {
        return vec![Check::new(Group::Files, State::Note, "files", "none: defaults, flags and variables only")];
    }
    let judge = |file: &FoundFile| {
        let path = file.path.display();
        let line = |state, text| Check::new(Group::Files, state, &file.what, text);
        match (&file.error, file.effect) {
            // Every run stops with it.
            (Some(error), Effect::Now) => Check { fix: fix(error, file), ..line(State::Problem, in_a_line(error)) },
            (Some(error), _) => Check { fix: fix(error, file), ..line(State::Warning, in_a_line(error)) },
            (None, Effect::Now) => line(State::Ok, format!("{path}: valid")),
            (None, Effect::WhenNamed) => line(State::Ok, format!("{path}: valid, not used now")),
            (None, Effect::WhenTrusted) => {
                line(State::Warning, format!("{path}: valid, without effect until you trust it")).fix("sandpen trust")
            }
        }
    };
    files.iter().map(judge).collect()
}

fn fix(error: &crate::error::Error, file: &FoundFile) -> Option<String> {
    error.hints().first().cloned().or_else(|| Some(format!("put it right: {}", file.path.display())))
}

/// What killed sandboxes left, and what is kept.
pub fn leftovers(leftovers: &Leftovers) -> Vec<Check> {
    let Leftovers { stale, kept, running } = leftovers;
    let line = |state, name: &str, text: String| Check::new(Group::Leftovers, state, name, text);
    let plural = |count: &usize| if *count == 1 { "" } else { "es" };
    let mut checks = vec![match stale {
        0 => line(State::Ok, "stale", "nothing".into()),
        count => line(State::Warning, "stale", format!("{count} sandbox{} whose sandpen was killed", plural(count)))
            .fix("sandpen prune"),
    }];
    if *kept > 0 {
        checks.push(
            line(State::Note, "kept", format!("{kept} sandbox{} that ended (--keep)", plural(kept)))
                .fix("sandpen prune"),
        );
    }
    if *running > 0 {
        checks.push(line(
            State::Note,
            "running",
            format!("{running} sandbox{}; `sandpen ps` lists them", plural(running)),
        ));
    }
    checks
}
