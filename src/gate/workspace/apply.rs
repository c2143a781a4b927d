//! Takes changes of a copy over to the directory of the user, by a three-way merge with what the user
//! changed meanwhile.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use super::bases::{Base, TakenVersion};
use super::changes::Change;
use super::copy_files::times;
use super::host_tree::HostTree;
use super::node::{Node, Stamp};
use super::review::{Content, FileReview, Reviewer, State, Versions};
use super::text::{self, MAX_TEXT, Merge};
use super::transaction::{Action, RefChange, Step, StepContent, TransactionError, UndoRecord, UndoStore};
use crate::kept_copy::KeptCopy;

/// A file and what of it is taken over.
pub struct Selected<'a> {
    pub file: &'a FileReview,
    /// The numbers of hunks; `None` takes everything, with kind and mode.
    pub hunks: Option<Vec<usize>>,
}

/// Takes the selected changes over, all or none. With `has_markers`, texts that conflict are written with
/// conflict markers.
pub fn apply(
    copy: &KeptCopy,
    reviewer: &mut Reviewer<'_>,
    selected: &[Selected<'_>],
    has_markers: bool,
    refs: Vec<RefChange>,
    store: &UndoStore,
) -> Result<UndoRecord, TransactionError> {
    let mut steps = Vec::new();
    let mut conflicts = Vec::new();
    let mut planned = Planned { copy, steps: &mut steps, made: HashSet::new() };
    for selected in selected {
        match planned.file(reviewer, selected, has_markers)? {
            None => {}
            Some(reason) => conflicts.push((selected.file.path.clone(), reason)),
        }
    }
    if !conflicts.is_empty() {
        return Err(TransactionError::Conflicts(conflicts));
    }
    steps.sort_by_key(order);
    let record = store.carry_out(&copy.id, refs, steps)?;
    for selected in selected {
        let file = selected.file;
        let taken = selected.hunks.is_none().then_some(TakenVersion { stamp: file.guest });
        for (path, taken) in [(Some(&file.path), taken), (file.from.as_ref(), Some(TakenVersion { stamp: None }))] {
            let Some(path) = path else { continue };
            reviewer.bases.note_applied(copy, file.tree, path, taken, file.state == State::Clean)?;
        }
    }
    reviewer.bases.save()?;
    Ok(record)
}

/// Removals come first, the deepest before those above; then directories before their files.
fn order(step: &Step) -> (u8, std::cmp::Reverse<usize>, usize, PathBuf) {
    let depth = step.path.iter().count();
    let (phase, down, up) = match step.action {
        Action::Remove => (0, 0, 0),
        Action::RemoveDirectory => (1, depth, 0),
        Action::MakeDirectory { .. } => (2, 0, depth),
        Action::Write { .. } | Action::Link { .. } => (3, 0, 0),
        Action::DirectoryMode { .. } => (4, depth, 0),
    };
    (phase, std::cmp::Reverse(down), up, step.path.clone())
}

struct Planned<'a> {
    copy: &'a KeptCopy,
    steps: &'a mut Vec<Step>,
    /// The directories that a step makes.
    made: HashSet<(usize, PathBuf)>,
}

impl Planned<'_> {
    fn add(&mut self, tree: usize, path: &Path, before: Option<(Node, Stamp)>, action: Action) {
        if matches!(action, Action::MakeDirectory { .. }) {
            self.made.insert((tree, path.to_owned()));
        }
        let root = self.copy.trees[tree].host.clone();
        self.steps.push(Step { tree, root, path: path.to_owned(), before, action });
    }

    /// Plans the steps for one file. Returns the reason if it conflicts.
    fn file(
        &mut self,
        reviewer: &mut Reviewer<'_>,
        selected: &Selected<'_>,
        has_markers: bool,
    ) -> io::Result<Option<String>> {
        let file = selected.file;
        let tree = HostTree::open(&self.copy.trees[file.tree].host)?;
        let Some(node) = &file.new else {
            if let State::Conflict(reason) = &file.state {
                return Ok(Some(reason.clone()));
            }
            let before = tree.look(&file.path)?;
            let action = match before {
                Some((Node::Directory { .. }, _)) => Action::RemoveDirectory,
                _ => Action::Remove,
            };
            self.add(file.tree, &file.path, before, action);
            return Ok(None);
        };
        let is_text_conflict = matches!(&file.state, State::Conflict(_))
            && has_markers
            && matches!((&file.new, &file.content), (Some(Node::File { .. }), Content::Text(_)));
        if let (State::Conflict(reason), false) = (&file.state, is_text_conflict) {
            return Ok(Some(reason.clone()));
        }
        if file.state == State::Stays {
            return Ok(None);
        }
        if let Some(from) = &file.from {
            let before = tree.look(from)?;
            self.add(file.tree, from, before, Action::Remove);
        }
        let before = match tree.look(&file.path) {
            Ok(before) => before,
            Err(error) => return Ok(Some(error.to_string())),
        };
        if before.as_ref().map(|(_, stamp)| *stamp) != file.host
            && !before.as_ref().is_some_and(|(node, _)| node.is_directory())
        {
            return Ok(Some("changed here just now".into()));
        }
        self.directories_above(&tree, file, reviewer)?;
        let before = match before {
            // The files in it are removed by steps of their own.
            Some((Node::Directory { .. }, _)) if !node.is_directory() => {
                self.add(file.tree, &file.path, before, Action::RemoveDirectory);
                None
            }
            before => before,
        };
        let action = match node {
            Node::Directory { mode } => match &before {
                Some((Node::Directory { .. }, _)) => Action::DirectoryMode { mode: *mode },
                Some(_) => {
                    self.add(file.tree, &file.path, before, Action::Remove);
                    self.add(file.tree, &file.path, None, Action::MakeDirectory { mode: *mode });
                    return Ok(None);
                }
                None => Action::MakeDirectory { mode: *mode },
            },
            Node::Link { target } => Action::Link { target: target.clone() },
            Node::File { mode, .. } => match self.content(reviewer, selected, &before, *mode, is_text_conflict)? {
                Ok(action) => action,
                Err(reason) => return Ok(Some(reason)),
            },
            Node::Fifo | Node::Socket | Node::Device => return Ok(None),
        };
        self.add(file.tree, &file.path, before, action);
        Ok(None)
    }

    /// Plans the directories above a file that were made in the copy and are not selected themselves.
    fn directories_above(&mut self, tree: &HostTree, file: &FileReview, reviewer: &Reviewer<'_>) -> io::Result<()> {
        let above: Vec<&Path> = file.path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        for above in above.into_iter().rev() {
            let is_planned = self.made.contains(&(file.tree, above.to_owned()));
            if !is_planned && tree.look(above)?.is_none() {
                let mode = reviewer.directory_mode(file.tree, above).unwrap_or(0o755);
                self.add(file.tree, above, None, Action::MakeDirectory { mode });
            }
        }
        Ok(())
    }

    /// Returns how a file is written, or why it conflicts.
    fn content(
        &self,
        reviewer: &mut Reviewer<'_>,
        selected: &Selected<'_>,
        before: &Option<(Node, Stamp)>,
        mode: u32,
        has_markers: bool,
    ) -> io::Result<Result<Action, String>> {
        let file = selected.file;
        let host_mode = match before {
            Some((Node::File { mode, .. }, _)) => *mode,
            _ => mode,
        };
        if file.state == State::Clean && selected.hunks.is_none() {
            let Some(source) = reviewer.new_file(file.tree, &file.path)? else {
                return Ok(Err("it was removed in the copy just now".into()));
            };
            let meta = rustix::fs::fstat(&source)?;
            if Some(Stamp::of(&meta)) != file.guest {
                return Ok(Err("it was changed in the copy just now".into()));
            }
            return Ok(Ok(Action::Write { content: StepContent::File(source), mode, times: Some(times(&meta)) }));
        }
        let change = Change {
            tree: file.tree,
            path: file.path.clone(),
            new: file.new.clone(),
            new_stamp: file.guest,
            host: before.clone(),
        };
        let base = match &file.from {
            Some(_) => Base::Missing,
            None => reviewer.bases.find(self.copy, &change),
        };
        let Versions { old, new, host, .. } = reviewer.versions(&change, &base)?;
        let old = match &file.from {
            Some(from) => read_host(reviewer, file.tree, from)?,
            None => old.unwrap_or_default(),
        };
        let new = match (&selected.hunks, &file.content) {
            (Some(numbers), Content::Text(hunks)) => {
                text::with_hunks(&old, numbers.iter().filter_map(|number| hunks.get(*number)))
            }
            _ => match new {
                Some(new) => new,
                None => return Ok(Err("it is too large to be merged".into())),
            },
        };
        let host = match (&host, &file.from) {
            (Some(host), None) => host.clone(),
            _ => old.clone(),
        };
        let old = if base == Base::Unknown { Vec::new() } else { old };
        Ok(match text::merge(&old, &host, &new) {
            Merge::Clean(text) => {
                let mode = if selected.hunks.is_some() { host_mode } else { mode };
                Ok(Action::Write { content: StepContent::Bytes(text), mode, times: None })
            }
            Merge::Conflict(text) if has_markers => {
                Ok(Action::Write { content: StepContent::Bytes(text), mode: host_mode, times: None })
            }
            Merge::Conflict(_) => Err("the same lines were changed here meanwhile".into()),
            Merge::Impossible => Err("changed here meanwhile, and it cannot be merged".into()),
        })
    }
}

fn read_host(reviewer: &Reviewer<'_>, tree: usize, path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = Vec::new();
    if let Some(file) = reviewer.host_file(tree, path)? {
        file.take(MAX_TEXT).read_to_end(&mut content)?;
    }
    Ok(content)
}
