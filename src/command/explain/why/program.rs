//! Answers whether a program of the host's PATH can be run inside, and from where.

use std::path::Path;

use super::{Answer, path};
use crate::facts::FileFact;
use crate::host::Host;
use crate::path::HostPath;
use crate::plan::{Plan, VariableValue};
use crate::vars;

/// Files of this name in the directories of PATH, in their order.
pub type Candidates = Vec<(HostPath, FileFact)>;

pub fn answer(host: &Host, plan: &Plan, name: &str, candidates: &Candidates) -> Answer {
    if plan.engine.kind.is_container() {
        let places: Vec<String> = candidates.iter().map(|(file, _)| file.to_string()).collect();
        return Answer::new("program", name, None, "the image decides")
            .reason(format!("a container has the programs of its image; on the host it is {}", places.join(", ")))
            .change("--engine native", "runs the host's programs");
    }
    let path = plan.env.iter().find(|variable| variable.name == vars::PATH);
    let path = path.and_then(|path| match &path.value {
        VariableValue::Plain(value) => Some(value.as_str()),
        VariableValue::Secret(_) => None,
    });
    // Seatbelt leaves PATH as it is.
    let is_on_path = |file: &HostPath| {
        path.is_none_or(|path| {
            std::env::split_paths(path).any(|entry| file.as_path().parent() == Some(entry.as_path()))
        })
    };
    let answers = || candidates.iter().map(|(file, fact)| (file, path::answer(host, plan, file, Some(fact))));
    if let Some((file, found)) = answers().find(|(file, found)| found.inside != Some(false) && is_on_path(file)) {
        let first = candidates.first().map(|(first, _)| first).filter(|first| *first != file);
        let other = first.map_or(String::new(), |first| format!("; the host's first one, {first}, is not inside"));
        return Answer { kind: "program", asked: name.into(), how: format!("inside at {file}{other}"), ..found };
    }
    let (file, found) = match answers().next() {
        Some(first) => first,
        None => return Answer::new("program", name, Some(false), "not on PATH"),
    };
    let directory = file.as_path().parent().unwrap_or(Path::new("/"));
    let how = format!("on the host at {file}, not inside");
    let reason = match found.inside {
        Some(false) => found.reason.clone(),
        _ => format!("PATH inside does not contain `{}`", directory.display()),
    };
    Answer { kind: "program", asked: name.into(), how, inside: Some(false), reason, ..found }
}
