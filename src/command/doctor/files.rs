//! Checks configuration files, and counts the sandboxes that were left behind.

use super::check::{Check, Group, one_line};
use crate::command::report::State;
use crate::config::check::{Effect, FoundFile};
use crate::session::cleanup::Leftovers;
use crate::ui::counted;

pub fn configuration(files: &[FoundFile]) -> Vec<Check> {
    if files.is_empty() {
        return vec![Check::new(Group::Files, State::Note, "files", "none: defaults, flags and variables only")];
    }
    files.iter().map(configuration_file).collect()
}

fn configuration_file(file: &FoundFile) -> Check {
    let line = |state, text| Check::new(Group::Files, state, &file.what, text);
    let path = file.path.display();
    if let Some(error) = &file.error {
        // A file in effect stops every run; another one only if it is used.
        let state = if file.effect == Effect::Now { State::Problem } else { State::Warning };
        let fix = error.hints().first().cloned().unwrap_or_else(|| format!("edit {path}"));
        return line(state, one_line(error)).fix(fix);
    }
    match file.effect {
        Effect::Now => line(State::Ok, format!("{path}: valid")),
        Effect::WhenNamed => line(State::Ok, format!("{path}: valid, not in use")),
        Effect::WhenTrusted => {
            line(State::Warning, format!("{path}: valid, no effect until you trust it")).fix("sandpen trust")
        }
    }
}

pub fn leftovers(leftovers: &Leftovers) -> Vec<Check> {
    let Leftovers { stale, kept, running } = *leftovers;
    let line = |state, name: &str, text: String| Check::new(Group::Leftovers, state, name, text);
    let mut checks = vec![match stale {
        0 => line(State::Ok, "stale", "none".into()),
        count => {
            let text = format!("{} whose launcher was killed", counted(count, "sandbox"));
            line(State::Warning, "stale", text).fix("sandpen prune")
        }
    }];
    if kept > 0 {
        let text = format!("{}, ended (--keep)", counted(kept, "sandbox"));
        checks.push(line(State::Note, "kept", text).fix("sandpen prune"));
    }
    if running > 0 {
        let text = format!("{}; `sandpen ps` lists them", counted(running, "sandbox"));
        checks.push(line(State::Note, "running", text));
    }
    checks
}
