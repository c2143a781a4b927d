//! Applies what the guest staged to the host's index, entry by entry: only where the host's entry is
//! still the one that the guest was given.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::exchange::{GitDirExchange, WorkingTree};
use super::host_git::{GitResult, HostGit};
use super::outgoing::Outgoing;
use super::transfer::Taken;
use crate::facts::git::index::{self, Entry, Index, MAX_INDEX, MODE_GITLINK, MODE_LINK};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

const MODES: &[u32] = &[0o100_644, 0o100_755, MODE_LINK, MODE_GITLINK];

/// All entries of a path, by stage.
type Stages<'a> = BTreeMap<u8, &'a Entry>;

/// Lists the objects that entries of the guest's index need.
pub fn wanted(tree: &WorkingTree, now: Option<&Index>, id_len: usize) -> io::Result<BTreeSet<ObjectId>> {
    let Some(now) = now else { return Ok(BTreeSet::new()) };
    let given = read_given(tree, id_len)?;
    let is_new = |key: &(Vec<u8>, u8), entry: &Entry| {
        entry.mode != MODE_GITLINK && given.entries.get(key).is_none_or(|before| before.id != entry.id)
    };
    Ok(now.entries.iter().filter(|(key, entry)| is_new(key, entry)).map(|(_, entry)| entry.id).collect())
}

/// Reads an index; a missing one is empty.
fn read(git_dir: &Path, id_len: usize) -> io::Result<Index> {
    parse(UntrustedDir::open(git_dir)?.read("index", MAX_INDEX)?, id_len)
}

/// Reads the index that the guest was given, with the earlier entries of paths that are held back.
fn read_given(tree: &WorkingTree, id_len: usize) -> io::Result<Index> {
    let mut given = match fs::read(&tree.given_index) {
        Ok(content) => parse(Some(content), id_len)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Index::default(),
        Err(error) => return Err(error),
    };
    for (path, entries) in read_held(tree)? {
        let stages: Vec<u8> = stages(&given, &path).into_keys().collect();
        for stage in stages {
            given.entries.remove(&(path.clone(), stage));
        }
        for held in entries {
            let id = ObjectId::parse(&held.id).ok_or(io::ErrorKind::InvalidData)?;
            let HeldEntry { mode, is_skip_worktree, is_intent_to_add, is_assumed_valid, .. } = held;
            let entry = Entry { mode, id, is_skip_worktree, is_intent_to_add, is_assumed_valid };
            given.entries.insert((path.clone(), held.stage), entry);
        }
    }
    Ok(given)
}

/// An entry of the index that the host has, for a path whose new entry is held back.
#[derive(Serialize, Deserialize)]
struct HeldEntry {
    stage: u8,
    mode: u32,
    id: String,
    is_skip_worktree: bool,
    is_intent_to_add: bool,
    is_assumed_valid: bool,
}

/// The paths whose new entries are held back, with the entries that the guest was given.
type Held = Vec<(Vec<u8>, Vec<HeldEntry>)>;

fn held_file(tree: &WorkingTree) -> PathBuf {
    tree.given_index.with_extension("held")
}

fn read_held(tree: &WorkingTree) -> io::Result<Held> {
    match fs::read(held_file(tree)) {
        Ok(content) => Ok(serde_json::from_slice(&content)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Held::new()),
        Err(error) => Err(error),
    }
}

/// Tells whether entries of the guest's index are held back until the sandbox has ended.
pub fn has_held(tree: &WorkingTree) -> bool {
    held_file(tree).exists()
}

/// Saves the entries of paths that are held back.
fn save_held(tree: &WorkingTree, given: &Index, paths: &[Vec<u8>]) -> io::Result<()> {
    let file = held_file(tree);
    if paths.is_empty() {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let of_path = |path: &Vec<u8>| {
        let entries = stages(given, path).into_iter().map(|(stage, entry)| HeldEntry {
            stage,
            mode: entry.mode,
            id: entry.id.to_string(),
            is_skip_worktree: entry.is_skip_worktree,
            is_intent_to_add: entry.is_intent_to_add,
            is_assumed_valid: entry.is_assumed_valid,
        });
        (path.clone(), entries.collect())
    };
    let held: Held = paths.iter().map(of_path).collect();
    let new = tree.given_index.with_extension("held.new");
    fs::write(&new, serde_json::to_vec(&held)?)?;
    fs::rename(new, file)
}

/// Saves the index that the guest has as the one it was given.
pub fn save_given(tree: &WorkingTree, content: &[u8]) -> io::Result<()> {
    let new = tree.given_index.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(new, &tree.given_index)
}

fn parse(content: Option<Vec<u8>>, id_len: usize) -> io::Result<Index> {
    match content {
        Some(content) => {
            index::parse(&content, id_len).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        }
        None => Ok(Index::default()),
    }
}

/// Applies the differences between the index that the guest was given and the one it has now.
pub fn bring_out(
    out: &mut Outgoing,
    exchange: &GitDirExchange,
    tree: &WorkingTree,
    content: &[u8],
    now: &Index,
) -> GitResult<()> {
    let id_len = exchange.id_len();
    let (given, host) = (read_given(tree, id_len)?, read(&tree.host, id_len)?);
    let Some(work_tree) = &tree.directory else { return Ok(()) };
    let mut changes = Changes::default();
    let mut held = Vec::new();
    for path in changed_paths(&given, now) {
        let (before, wanted, there) = (stages(&given, path), stages(now, path), stages(&host, path));
        if there == wanted {
            continue;
        }
        if there != before || is_in_the_way(path, &wanted, &host, &given) {
            hold_while_running(out, &mut held, path);
            let path = String::from_utf8_lossy(path);
            out.keep_at_end(format!("`{path}` was staged on the host meanwhile: the host's stays"));
            continue;
        }
        match judge(path, &wanted, &before, out.taken, work_tree, exchange) {
            Verdict::Passes => changes.add(path, &wanted, &there),
            // It comes out at the end, when nothing can change the file between two looks at it.
            Verdict::Later if !out.is_last() => held.push(path.to_vec()),
            Verdict::Later => changes.add_intent(path),
            Verdict::Repository => {
                held.push(path.to_vec());
                let path = String::from_utf8_lossy(path);
                out.keep_at_end(format!("`{path}` is not staged outside: it names a repository that did not come out"));
            }
            Verdict::Refused(reason) => {
                hold_while_running(out, &mut held, path);
                let path = String::from_utf8_lossy(path);
                out.problem_at_end(format!("`{path}` is not staged outside: {reason}"));
            }
        }
    }
    changes.apply(out.git, tree, work_tree)?;
    let skipped = changes.skipped.iter().filter(|byte| **byte == 0).count();
    if skipped > 0 {
        out.report.keep(format!("{} hidden from `git status` (skip-worktree) by the sandbox", counted_files(skipped)));
    }
    // Removed last, so that after a kill nothing held back counts as given.
    if !held.is_empty() {
        save_held(tree, &given, &held)?;
    }
    save_given(tree, content)?;
    if held.is_empty() {
        save_held(tree, &given, &held)?;
    }
    Ok(())
}

/// Holds a path back that does not come out, so that it is judged again, and reported, at the end.
fn hold_while_running(out: &Outgoing, held: &mut Vec<Vec<u8>>, path: &[u8]) {
    if !out.is_last() {
        held.push(path.to_vec());
    }
}

fn counted_files(count: usize) -> String {
    if count == 1 { "1 file is".into() } else { format!("{count} files are") }
}

/// Whether entries of the guest come out.
enum Verdict {
    Passes,
    /// Only once the sandbox has ended.
    Later,
    /// Names a repository that was made inside, so it comes out after the repository.
    Repository,
    Refused(String),
}

fn judge(
    path: &[u8],
    wanted: &Stages,
    before: &Stages,
    taken: &Taken,
    work_tree: &Path,
    exchange: &GitDirExchange,
) -> Verdict {
    for (stage, entry) in wanted {
        if !index::is_valid_path(path, entry.mode) {
            return Verdict::Refused("the path is not valid".into());
        }
        if entry.id.is_null() {
            return Verdict::Refused("it names no object".into());
        }
        if !MODES.contains(&entry.mode) {
            return Verdict::Refused(format!("its mode is {:o}", entry.mode));
        }
        if entry.mode == MODE_GITLINK {
            // The host's Git enters the repository that an entry names, so only one with a `.git`
            // that was there before the sandbox may be named while it runs.
            let was_there = before.get(stage).is_some_and(|before| before.mode == MODE_GITLINK);
            let directory = work_tree.join(std::ffi::OsStr::from_bytes(path));
            let pointer = directory.join(".git").symlink_metadata();
            let is_safe = match pointer {
                Ok(meta) => was_there && meta.is_file() || exchange.is_alone && exchange.remade.contains(&directory),
                // Nothing can make a repository there.
                Err(_) => exchange.is_alone,
            };
            if !is_safe {
                return Verdict::Repository;
            }
            continue;
        }
        if let Some(reason) = taken.refused.get(&entry.id) {
            return Verdict::Refused(reason.clone());
        }
        if entry.is_intent_to_add {
            let file = work_tree.join(std::ffi::OsStr::from_bytes(path));
            let is_file = file.symlink_metadata().is_ok_and(|meta| meta.is_file());
            return if is_file { Verdict::Later } else { Verdict::Refused("there is no such file".into()) };
        }
    }
    Verdict::Passes
}

/// The calls of `git update-index` that change the host's index.
#[derive(Default)]
struct Changes {
    /// The input of `--index-info`.
    entries: Vec<u8>,
    skipped: Vec<u8>,
    unskipped: Vec<u8>,
    intents: Vec<u8>,
}

impl Changes {
    fn add(&mut self, path: &[u8], wanted: &Stages, there: &Stages) {
        let content = |stages: &Stages| -> Vec<(u8, u32, ObjectId)> {
            stages.iter().map(|(stage, entry)| (*stage, entry.mode, entry.id)).collect()
        };
        let is_replaced = content(wanted) != content(there);
        if is_replaced {
            if !there.is_empty() {
                let null = "0"
                    .repeat(wanted.values().chain(there.values()).next().map_or(40, |entry| entry.id.as_str().len()));
                line(&mut self.entries, format!("0 {null}\t").as_bytes(), path);
            }
            for (stage, entry) in wanted {
                line(&mut self.entries, format!("{:06o} {} {stage}\t", entry.mode, entry.id).as_bytes(), path);
            }
        }
        let Some(entry) = wanted.get(&0) else { return };
        let before = there.get(&0).filter(|_| !is_replaced);
        let flag = |was: fn(&Entry) -> bool| (was(entry), before.is_some_and(|before| was(before)));
        for (now_and_before, set, unset) in
            [(flag(|entry| entry.is_skip_worktree), &mut self.skipped, &mut self.unskipped)]
        {
            match now_and_before {
                (true, false) => line(set, b"", path),
                (false, true) => line(unset, b"", path),
                _ => {}
            }
        }
    }

    fn add_intent(&mut self, path: &[u8]) {
        line(&mut self.intents, b"", path);
    }

    fn apply(&self, git: &HostGit, tree: &WorkingTree, work_tree: &Path) -> GitResult<()> {
        // In an empty working tree Git compares no files, and so runs no filters.
        let empty = git.scratch().join("empty");
        fs::create_dir_all(&empty)?;
        let call = |arguments: &[&str], input: &[u8], work_tree: &Path| -> GitResult<()> {
            if input.is_empty() {
                return Ok(());
            }
            git.call(&tree.host, arguments).work_tree(work_tree).input(input)?.run().map(|_| ())
        };
        let update = |arguments: &[&str], input: &[u8]| call(arguments, input, &empty);
        update(&["update-index", "-z", "--index-info"], &self.entries)?;
        update(&["update-index", "-z", "--skip-worktree", "--stdin"], &self.skipped)?;
        update(&["update-index", "-z", "--no-skip-worktree", "--stdin"], &self.unskipped)?;
        let add = ["--literal-pathspecs", "add", "-f", "-N", "--pathspec-from-file=-", "--pathspec-file-nul"];
        call(&add, &self.intents, work_tree)?;
        if !self.entries.is_empty() {
            refresh(git, tree, work_tree);
        }
        Ok(())
    }
}

/// Gives new entries the times of their files.
pub fn refresh(git: &HostGit, tree: &WorkingTree, work_tree: &Path) {
    // It fails if a file differs from its entry, which is no error here.
    let refresh = ["update-index", "-q", "--ignore-submodules", "--refresh"];
    let _ = git.call(&tree.host, &refresh).work_tree(work_tree).run();
}

/// Adds an entry of a list that is separated by NUL.
fn line(list: &mut Vec<u8>, start: &[u8], path: &[u8]) {
    list.extend_from_slice(start);
    list.extend_from_slice(path);
    list.push(0);
}

fn stages<'a>(index: &'a Index, path: &[u8]) -> Stages<'a> {
    let all = index.entries.range((path.to_vec(), 0)..=(path.to_vec(), u8::MAX));
    all.map(|((_, stage), entry)| (*stage, entry)).collect()
}

/// Tells whether an entry would replace one of the host: a file in the place of a directory, or a
/// directory in the place of a file.
fn is_in_the_way(path: &[u8], wanted: &Stages, host: &Index, given: &Index) -> bool {
    let is_new = |key: &(Vec<u8>, u8)| !given.entries.contains_key(key);
    let below = [path, b"/"].concat();
    let mut entries = host.entries.range((below.clone(), 0)..).map(|(key, _)| key);
    let has_below = entries.by_ref().take_while(|(other, _)| other.starts_with(&below)).any(is_new);
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| path[..at].to_vec());
    let has_above = slashes.into_iter().any(|above| {
        let key = (above, 0);
        host.entries.contains_key(&key) && is_new(&key)
    });
    !wanted.is_empty() && (has_below || has_above)
}

fn changed_paths<'a>(before: &'a Index, now: &'a Index) -> BTreeSet<&'a [u8]> {
    let differs = |one: &'a Index, other: &'a Index| {
        let entries = one.entries.iter().filter(|(key, entry)| other.entries.get(key) != Some(entry));
        entries.map(|((path, _), _)| path.as_slice()).collect::<Vec<_>>()
    };
    differs(before, now).into_iter().chain(differs(now, before)).collect()
}

/// Tells whether two indexes have the same entries.
pub fn is_same(one: &Index, other: &Index) -> bool {
    one.entries == other.entries
}
