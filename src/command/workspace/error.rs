//! The errors of commands on copied workspaces.

use std::io;
use std::path::PathBuf;

use crate::error::{Diagnostic, Kind};
use crate::gate::repository::BranchMoveError;
use crate::gate::workspace::TransactionError;

/// So many conflicts are named.
const MAX_NAMED: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum WorkspaceCommandError {
    #[error("no copied workspace waits for `{}`", directory.display())]
    NoCopy { directory: PathBuf, others: Vec<String> },
    #[error("no copied workspace has the id `{id}`")]
    Unknown { id: String, nearest: Option<String>, others: Vec<String> },
    #[error("a sandbox is using the copied workspace `{0}`")]
    Used(String),
    #[error("`{0}` is not in the workspace")]
    Outside(PathBuf),
    #[error("nothing that waits in the copy matches `{0}`")]
    NoMatch(PathBuf),
    #[error("the copied workspace `{id}` cannot be read")]
    Read {
        id: String,
        #[source]
        source: io::Error,
    },
    #[error("{} and nothing was changed", count(.0))]
    Conflicts(Vec<(PathBuf, String)>),
    #[error("`{}` cannot be changed, and everything else is as it was", path.display())]
    Change {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("sandpen's own files cannot be written")]
    Own(#[source] io::Error),
    #[error("there is nothing to undo in `{}`", .0.display())]
    NothingToUndo(PathBuf),
    #[error("`-p` needs a terminal to ask on")]
    NoTerminal,
    #[error("no random bytes for a token")]
    NoRandom,
    #[error("the page cannot be served on 127.0.0.1")]
    Serve(#[source] io::Error),
    #[error("the page shows an earlier state; load it again")]
    Stale,
    #[error("there is no such request")]
    NoSuchRequest,
    #[error("`--commits` takes all commits, so no files can be named")]
    CommitsOfFiles,
    #[error("the commits of the copy cannot be read: {0}")]
    Commits(String),
    #[error("the commits cannot be taken, and nothing was changed")]
    BranchMove(#[source] BranchMoveError),
    #[error("the branch cannot be moved back, and nothing was changed")]
    MoveBack(#[source] BranchMoveError),
}

fn count(conflicts: &[(PathBuf, String)]) -> String {
    match conflicts.len() {
        1 => "1 file conflicts,".to_owned(),
        count => format!("{count} files conflict,"),
    }
}

impl Diagnostic for WorkspaceCommandError {
    fn kind(&self) -> Kind {
        match self {
            Self::Outside(_) | Self::NoTerminal | Self::CommitsOfFiles => Kind::Usage,
            // As for a sandbox that does not run.
            Self::Unknown { .. } => Kind::Launch,
            _ => Kind::Failed,
        }
    }

    fn causes(&self) -> Vec<String> {
        match self {
            Self::Conflicts(conflicts) => {
                let mut lines: Vec<String> = conflicts
                    .iter()
                    .take(MAX_NAMED)
                    .map(|(path, reason)| format!("`{}`: {reason}", path.display()))
                    .collect();
                if conflicts.len() > MAX_NAMED {
                    lines.push(format!("and {} more", conflicts.len() - MAX_NAMED));
                }
                lines
            }
            Self::Read { source, .. } | Self::Change { source, .. } | Self::Own(source) | Self::Serve(source) => {
                vec![source.to_string()]
            }
            Self::BranchMove(source) | Self::MoveBack(source) => vec![source.to_string()],
            _ => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let list = |others: &[String]| match others.is_empty() {
            true => "none waits; `sandpen run --workspace copy` makes one".to_owned(),
            false => format!("copied workspaces: {}", others.join(", ")),
        };
        match self {
            Self::NoCopy { others, .. } => vec![list(others)],
            Self::Unknown { nearest, others, .. } => {
                nearest.iter().map(|near| format!("did you mean `{near}`?")).chain([list(others)]).collect()
            }
            Self::Used(id) => vec![format!("stop it first: sandpen stop {id}")],
            Self::NoMatch(_) => vec!["`sandpen diff --name-only` lists what waits".into()],
            Self::Conflicts(_) => vec![
                "name other files, take single changes with `-p`, or write conflict markers with `--markers`".into(),
            ],
            Self::BranchMove(BranchMoveError::Diverged(_) | BranchMoveError::Staged(_) | BranchMoveError::NoBranch) => {
                vec!["take the commits as a branch of their own: sandpen apply --commits=NAME".into()]
            }
            Self::BranchMove(BranchMoveError::Exists(_)) => vec!["choose another name".into()],
            Self::NoTerminal => vec!["name files instead: sandpen apply ID FILE…".into()],
            _ => Vec::new(),
        }
    }
}

impl From<TransactionError> for WorkspaceCommandError {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Conflicts(conflicts) => Self::Conflicts(conflicts),
            TransactionError::Step { path, source } => Self::Change { path, source },
            TransactionError::Record(source) => Self::Own(source),
        }
    }
}
