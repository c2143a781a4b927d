//! Selects files by the paths of a command line.

use std::io;
use std::path::Path;

use super::find::{Found, TreePath};
use super::{WorkspaceCommandError, find};
use crate::error::Result;
use crate::gate::workspace::{FileReview, Review, Reviewer};

/// Tells whether a path is one of those that were named, or below one. Without any, all are.
pub fn is_selected(paths: &[TreePath], tree: usize, path: &Path) -> bool {
    paths.is_empty() || paths.iter().any(|(number, above)| *number == tree && path.starts_with(above))
}

/// Tells whether a file was named itself, or a directory above it.
pub fn is_named(paths: &[TreePath], file: &FileReview) -> bool {
    paths
        .iter()
        .any(|(number, above)| *number == file.tree && !above.as_os_str().is_empty() && file.path.starts_with(above))
}

pub fn reviewer(found: &Found) -> Result<Reviewer<'_>> {
    Ok(Reviewer::open(&found.copy, &found.directory).map_err(|source| unreadable(found, source))?)
}

fn unreadable(found: &Found, source: io::Error) -> WorkspaceCommandError {
    WorkspaceCommandError::Read { id: found.copy.id.clone(), source }
}

/// Reviews the copy, and checks that each path that was named selects something.
pub fn review<'a>(found: &'a Found, paths: &[TreePath]) -> Result<(Reviewer<'a>, Review)> {
    let mut reviewer = reviewer(found)?;
    let mut review = reviewer.review(&|_, _| true).map_err(|source| unreadable(found, source))?;
    for (tree, path) in paths {
        let selects = |file: &FileReview| {
            is_selected(&[(*tree, path.clone())], file.tree, &file.path)
                || file.from.as_ref().is_some_and(|from| is_selected(&[(*tree, path.clone())], file.tree, from))
        };
        if !path.as_os_str().is_empty() && !review.files.iter().any(selects) {
            return Err(WorkspaceCommandError::NoMatch(find::shown(&found.copy, *tree, path)).into());
        }
    }
    review.files.retain(|file| {
        is_selected(paths, file.tree, &file.path)
            || file.from.as_ref().is_some_and(|from| is_selected(paths, file.tree, from))
    });
    Ok((reviewer, review))
}
