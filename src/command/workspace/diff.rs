//! `sandpen diff`: shows what a sandbox with a copied workspace changed.

use std::collections::BTreeSet;
use std::path::Path;

use super::find::{self, Found, shown};
use super::json;
use super::patch::{Look, Patch, stat};
use super::selection;
use super::{WorkspaceCommandError, pager, web};
use crate::cli::{Diff, Format};
use crate::error::Result;
use crate::gate::repository::{KeptRepositories, RefReview};
use crate::gate::workspace::{FileReview, Review, State, shown as shown_path};
use crate::host::Host;
use crate::process::Outcome;
use crate::session::cleanup;
use crate::ui::{self, Ui, counted, size};

pub fn run(arguments: &Diff, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    cleanup::bring_from_elsewhere(&host, ui);
    let (found, paths) = find::by_arguments(&host, &arguments.what)?;
    if arguments.web {
        return web::run(host, found, paths, arguments.ignored, ui);
    }
    let (_, review) = selection::review(&found, &paths)?;
    let refs = if paths.is_empty() { refs(&found)? } else { Vec::new() };
    let is_shown = |file: &&FileReview| arguments.ignored || !file.is_ignored || selection::is_named(&paths, file);
    let files: Vec<&FileReview> = review.files.iter().filter(is_shown).collect();
    if arguments.format == Format::Json {
        let is_listed = |file: &FileReview| is_shown(&file);
        ui.data(&ui::json(&json::review_with_hunks(&found, &review, &refs, &is_listed))?)?;
    } else if arguments.name_only {
        let names = without_directories(&files);
        let names = names.iter().flat_map(|file| {
            let mut name = super::patch::quoted("", &shown(&found.copy, file.tree, &file.path));
            name.push(b'\n');
            name
        });
        ui.bytes(&names.collect::<Vec<u8>>())?;
    } else {
        show(&host, &found, arguments, &without_directories(&files), &refs, ui)?;
    }
    report(&review, &files, ui);
    let has_changes = !files.is_empty() || !refs.is_empty();
    Ok(Outcome::Exited(u8::from(arguments.exit_code && has_changes)))
}

/// Leaves out directories that were made or removed with files that are listed, as Git does.
fn without_directories<'a>(files: &[&'a FileReview]) -> Vec<&'a FileReview> {
    let above = |file: &'a FileReview| {
        let paths = [Some(&file.path), file.from.as_ref()].into_iter().flatten();
        paths.flat_map(move |path| path.ancestors().skip(1).map(move |above| (file.tree, above)))
    };
    let known: BTreeSet<(usize, &Path)> = files.iter().flat_map(|file| above(file)).collect();
    let is_directory = |file: &FileReview| match (&file.old, &file.new) {
        (None, Some(node)) | (Some(node), None) => node.is_directory(),
        _ => false,
    };
    let is_shown = |file: &&FileReview| !(is_directory(file) && known.contains(&(file.tree, file.path.as_path())));
    files.iter().copied().filter(is_shown).collect()
}

/// Lists the commits that were made in the copy.
pub fn refs(found: &Found) -> Result<Vec<RefReview>> {
    let repositories = KeptRepositories::open(&found.directory);
    let refs = repositories.map_or(Ok(Vec::new()), |repositories| repositories.changed_refs());
    let fail = |error: crate::gate::repository::host_git::GitError| WorkspaceCommandError::Commits(error.to_string());
    Ok(refs.map_err(fail)?)
}

fn show(host: &Host, found: &Found, arguments: &Diff, files: &[&FileReview], refs: &[RefReview], ui: Ui) -> Result<()> {
    let colours = host.terminal.stdout && host.env.text("NO_COLOR").is_none_or(str::is_empty);
    let look = if host.terminal.stdout { Look::Terminal { colours } } else { Look::Plain };
    let mut patch = Patch::new(look);
    for change in refs {
        let name = change.name.strip_prefix("refs/heads/").unwrap_or(&change.name);
        match (&change.new, change.commits.len()) {
            (None, _) => patch.note(&format!("`{name}` was deleted in the copy")),
            (Some(_), 0) => patch.note(&format!("`{name}` was moved in the copy")),
            (Some(_), count) => patch.note(&format!("{} on `{name}`", counted(count, "commit"))),
        }
        for commit in &change.commits {
            let subject = commit.message.lines().next().unwrap_or_default();
            let id: String = commit.id.chars().take(10).collect();
            patch.note(&format!("  {id} {subject} ({})", commit.author));
            if !arguments.stat {
                commit.message.lines().skip(1).for_each(|line| patch.note(&format!("    {line}")));
            }
        }
    }
    if !refs.is_empty() {
        patch.note("");
    }
    if arguments.stat {
        patch.text.extend(stat(&found.copy, files));
    } else {
        files.iter().for_each(|file| patch.file(&found.copy, file));
    }
    if patch.text.is_empty() { Ok(()) } else { pager::show(host, &patch.text, ui) }
}

/// Says what is not shown, and what cannot be applied.
fn report(review: &Review, files: &[&FileReview], ui: Ui) {
    let hidden = review.files.len() - files.len();
    if hidden > 0 {
        let is_hidden = |file: &&FileReview| !files.iter().any(|shown| std::ptr::eq(*shown, *file));
        let bytes: u64 = review.files.iter().filter(is_hidden).map(json::bytes_of).sum();
        ui.notice(&format!(
            "{} that Git ignores ({}) not shown; `--ignored` lists them",
            counted(hidden, "file"),
            size(bytes)
        ));
    }
    for directory in &review.git_dirs {
        ui.notice(&format!("`{}` was made in the sandbox and stays in the copy", shown_path(directory)));
    }
    let conflicts = files.iter().filter(|file| matches!(file.state, State::Conflict(_))).count();
    if conflicts > 0 {
        ui.warn(&format!(
            "{} changed here meanwhile as well and cannot be applied as they are",
            counted(conflicts, "file")
        ));
    }
}
