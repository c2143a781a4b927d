//! `sandpen apply`: takes what a sandbox changed in a copy over to the working directory.

use super::find::{self, Found};
use super::hunk_prompt::{self, Chosen};
use super::pager::DiffFilter;
use super::selection;
use super::{WorkspaceCommandError, diff};
use crate::cli::Apply;
use crate::error::Result;
use crate::event_log::Verdict;
use crate::gate::repository::{BranchMove, BranchMoveError, KeptRepositories};
use crate::gate::workspace::{
    FileReview, RefChange, Reviewer, Selected, State, UndoStore, apply, forget_taken, shown as shown_path,
};
use crate::host::Host;
use crate::process::Outcome;
use crate::session::cleanup;
use crate::ui::{Ui, counted};

/// How many files the record names.
const MAX_RECORDED: usize = 20;

pub fn run(arguments: &Apply, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    cleanup::bring_from_elsewhere(&host, ui);
    if arguments.patch && !(host.terminal.stdin && host.terminal.stdout) {
        return Err(WorkspaceCommandError::NoTerminal.into());
    }
    let (found, paths) = find::by_arguments(&host, &arguments.what)?;
    if arguments.commits.is_some() && !paths.is_empty() {
        return Err(WorkspaceCommandError::CommitsOfFiles.into());
    }
    if let Some(name) = arguments.commits.as_deref().filter(|name| !name.is_empty()) {
        let (moved, count) = branch_move(&found, Some(name))?;
        take_with(&host, &found, &mut selection::reviewer(&found)?, &[], false, Some(&moved))?;
        ui.notice(&format!("{} taken as the branch `{name}`; the files wait as before", counted(count, "commit")));
        return Ok(Outcome::Exited(0));
    }
    let moved = arguments.commits.as_ref().map(|_| branch_move(&found, None)).transpose()?;
    let (mut reviewer, review) = selection::review(&found, &paths)?;
    let is_wanted = |file: &&FileReview| !file.is_ignored || selection::is_named(&paths, file);
    let files: Vec<&FileReview> = review.files.iter().filter(is_wanted).collect();
    let selected = if arguments.patch { chosen(&host, &found, &files, ui)? } else { all(&files) };
    let branch = moved.as_ref().map(|(moved, _)| moved);
    let count = take_with(&host, &found, &mut reviewer, &selected, arguments.markers, branch)?;
    if let Some((_, commits)) = &moved {
        ui.notice(&format!("{} taken", counted(*commits, "commit")));
    }
    if count == 0 && moved.is_none() {
        ui.notice("nothing to apply");
    } else {
        ui.notice(&format!("{} applied; `sandpen undo` takes them back", counted(count, "file")));
    }
    report(&found, &review.files, &files, &selected, arguments.markers, ui);
    Ok(Outcome::Exited(0))
}

/// Takes the objects of the copy's commits over, and prepares the move of a branch to them.
fn branch_move(found: &Found, new: Option<&str>) -> Result<(BranchMove, usize)> {
    let repositories = KeptRepositories::open(&found.directory);
    let repositories = repositories.ok_or(WorkspaceCommandError::BranchMove(BranchMoveError::NoRepository))?;
    Ok(repositories.branch_move(found.copy.root(), new).map_err(WorkspaceCommandError::BranchMove)?)
}

/// Takes files of a review over, or none of them, and returns how many. With `commits`, the current branch
/// moves to those of the copy.
pub fn take(host: &Host, found: &Found, selected: &[Selected<'_>], markers: bool, commits: bool) -> Result<usize> {
    let moved = commits.then(|| branch_move(found, None)).transpose()?;
    let branch = moved.as_ref().map(|(moved, _)| moved);
    take_with(host, found, &mut selection::reviewer(found)?, selected, markers, branch)
}

fn take_with(
    host: &Host,
    found: &Found,
    reviewer: &mut Reviewer<'_>,
    selected: &[Selected<'_>],
    markers: bool,
    branch: Option<&BranchMove>,
) -> Result<usize> {
    let taken = carry_out(host, found, reviewer, selected, markers, branch);
    match &taken {
        Ok(0) if branch.is_none() => {}
        Ok(count) => {
            let to = branch.map(|branch| branch.name.strip_prefix("refs/heads/").unwrap_or(&branch.name));
            let to = to.map(|branch| format!(", commits on `{branch}`")).unwrap_or_default();
            let paths = selected.iter().map(|one| shown_path(&find::shown(&found.copy, one.file.tree, &one.file.path)));
            let names = paths.take(MAX_RECORDED).collect::<Vec<_>>().join(", ");
            let reason = format!("{}{to}: {names}", counted(*count, "file"));
            find::record(host, &found.copy.id, Verdict::Done, "apply", reason.trim_end_matches(": "));
        }
        Err(error) => find::record(host, &found.copy.id, Verdict::Refused, "apply", error.message()),
    }
    taken
}

fn carry_out(
    host: &Host,
    found: &Found,
    reviewer: &mut Reviewer<'_>,
    selected: &[Selected<'_>],
    markers: bool,
    branch: Option<&BranchMove>,
) -> Result<usize> {
    let store = UndoStore::open(&host.state_dir(), found.copy.root()).map_err(WorkspaceCommandError::Own)?;
    let refs = branch.into_iter().map(|branch| RefChange {
        git_dir: branch.git_dir.clone(),
        name: branch.name.clone(),
        before: branch.from.clone(),
        after: branch.to.clone(),
    });
    let record = apply(&found.copy, reviewer, selected, markers, refs.collect(), &store);
    let record = record.map_err(WorkspaceCommandError::from)?;
    if let Some(Err(error)) = branch.map(BranchMove::carry_out) {
        store.undo(&record).map_err(WorkspaceCommandError::from)?;
        forget_taken(&found.copy, &found.directory, &record).map_err(WorkspaceCommandError::Own)?;
        return Err(WorkspaceCommandError::BranchMove(error).into());
    }
    let is_taken = |selected: &&Selected<'_>| selected.file.state != State::Stays;
    Ok(if record.done.is_empty() { 0 } else { selected.iter().filter(is_taken).count() })
}

fn all<'a>(files: &[&'a FileReview]) -> Vec<Selected<'a>> {
    files.iter().map(|file| Selected { file, hunks: None }).collect()
}

fn chosen<'a>(host: &Host, found: &Found, files: &[&'a FileReview], ui: Ui) -> Result<Vec<Selected<'a>>> {
    let colours = host.env.text("NO_COLOR").is_none_or(str::is_empty);
    // As in Git, only where there are colours.
    let filter = colours.then(|| DiffFilter::of_user(host)).flatten();
    let mut selected = Vec::new();
    for file in files.iter().filter(|file| file.state != State::Stays) {
        match hunk_prompt::choose(found, file, colours, filter.as_ref(), ui)? {
            None => break,
            Some(Chosen::None) => {}
            Some(Chosen::All) => selected.push(Selected { file, hunks: None }),
            Some(Chosen::Hunks(hunks)) => selected.push(Selected { file, hunks: Some(hunks) }),
        }
    }
    Ok(selected)
}

/// Says what was not taken, and what needs a look.
fn report(found: &Found, all: &[FileReview], files: &[&FileReview], selected: &[Selected<'_>], markers: bool, ui: Ui) {
    let ignored = all.len() - files.len();
    if ignored > 0 {
        ui.notice(&format!("{} that Git ignores stay in the copy; name them to take them", counted(ignored, "file")));
    }
    for selected in selected {
        let path = shown_path(&find::shown(&found.copy, selected.file.tree, &selected.file.path));
        match &selected.file.state {
            State::Stays => {
                let word = selected.file.new.as_ref().map_or("file", |node| node.word());
                ui.notice(&format!("`{path}` is a {word} and stays in the copy"));
            }
            State::Conflict(_) if markers => ui.warn(&format!("`{path}` has conflict markers now")),
            _ => {}
        }
    }
    let commits: usize = diff::refs(found).map_or(0, |refs| refs.iter().map(|change| change.commits.len()).sum());
    if commits > 0 {
        ui.notice(&format!("{} made in the copy stay there", counted(commits, "commit")));
    }
}
