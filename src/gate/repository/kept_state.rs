//! Reads the private repositories that stay with a copied workspace: what the guest was given, and what
//! it committed since.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::apply_refs::{RefChange, changed_refs};
use super::base::read_base;
use super::exchange::{GitDirExchange, WorkingTree, open_private};
use super::host_git::{GitResult, HostGit};
use super::refs::{self, Head, read_head};
use super::saved::Saved;
use super::transfer::{Transfer, make_import};
use crate::facts::git::index::{MAX_INDEX, SeenFile, seen_files};
use crate::facts::git::object_id::ObjectId;
use crate::path::HostPath;
use crate::plan::RepositoryGate;
use crate::plan::repository::PrivateGitDir;
use crate::process::{untrusted, untrusted_dir::UntrustedDir};

/// More commits than this are not listed.
const MAX_COMMITS: usize = 1000;
const MAX_FILE: u64 = 1 << 20;
/// More refs of one repository are not brought out before `apply`.
const MAX_BROUGHT: usize = 1000;
/// Other refs, such as those of remotes, can be had elsewhere.
const BROUGHT: [&str; 2] = ["refs/heads/", "refs/tags/"];

/// The private repositories of a copy.
pub struct KeptRepositories {
    gate: RepositoryGate,
    pub(super) git: Option<HostGit>,
}

/// The files that a repository tracked when the guest was given it.
pub struct TrackedFiles {
    pub work_tree: PathBuf,
    pub git_dir: PathBuf,
    pub files: BTreeMap<Vec<u8>, SeenFile>,
}

/// What a branch or another ref of a copy has become.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefReview {
    /// The repository's Git directory on the host.
    pub repository: String,
    pub name: String,
    pub old: Option<String>,
    /// `None` if the guest deleted it.
    pub new: Option<String>,
    /// Whether HEAD of the copy is on it.
    pub is_current: bool,
    /// The newest first.
    pub commits: Vec<Commit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    pub id: String,
    pub author: String,
    /// In seconds since 1970.
    pub time: u64,
    pub message: String,
}

impl KeptRepositories {
    /// Reads what a sandbox saved in the directory of a copy.
    pub fn open(directory: &HostPath) -> Option<Self> {
        let saved = Saved::read(directory)?;
        let git = HostGit::new(&saved.gate, directory.as_path().to_owned());
        Some(KeptRepositories { gate: saved.gate, git })
    }

    pub(super) fn full(&self) -> impl Iterator<Item = &PrivateGitDir> {
        self.gate.repositories.iter().flat_map(|repository| &repository.full)
    }

    /// Lists the working trees, linked ones as well, with the directories of their objects.
    pub(super) fn working_trees(&self) -> impl Iterator<Item = (&PrivateGitDir, WorkingTree)> {
        self.gate.repositories.iter().flat_map(|repository| {
            repository.full.iter().enumerate().flat_map(|(number, dir)| {
                let linked = if number == 0 { repository.worktrees.as_slice() } else { &[] };
                GitDirExchange::new(dir, linked, &self.gate.id).trees.into_iter().map(move |tree| (dir, tree))
            })
        })
    }

    /// Lists what each repository tracked.
    pub fn tracked(&self) -> Vec<TrackedFiles> {
        let tracked = self.working_trees().filter_map(|(dir, tree)| {
            let index = untrusted::read_bytes(&tree.given_index, MAX_INDEX).ok()?;
            let files = seen_files(&index, if dir.is_sha256 { 32 } else { 20 }).ok()?;
            Some(TrackedFiles { work_tree: tree.directory?, git_dir: dir.host.clone(), files })
        });
        tracked.collect()
    }

    /// Reads a file that the host's repository has.
    pub fn blob(&self, git_dir: &Path, id: &ObjectId) -> io::Result<Vec<u8>> {
        let git = self.git.as_ref().ok_or(io::ErrorKind::NotFound)?;
        git.call(git_dir, &["cat-file", "blob", &id.to_string()]).run().map_err(io::Error::other)
    }

    /// Returns the patterns of ignored files that are not in the working tree: those of the repository and
    /// of the user.
    pub fn excludes(&self) -> Vec<Vec<u8>> {
        let Some(dir) = self.full().next() else { return Vec::new() };
        let mut texts: Vec<Vec<u8>> = Vec::new();
        let named = self.git.as_ref().and_then(|git| {
            let call = git.call(&dir.host, &["config", "--path", "--get", "core.excludesFile"]);
            let name = String::from_utf8(call.run().ok()?).ok()?;
            Some(PathBuf::from(name.trim_end_matches('\n')))
        });
        let of_user = named.unwrap_or_else(|| self.gate.home.join(".config/git/ignore"));
        for path in [of_user, dir.host.join("info/exclude")] {
            texts.extend(untrusted::read_linked(&path, MAX_FILE).ok().map(String::into_bytes));
        }
        texts
    }

    /// Tells whether refs or HEAD of any repository changed since the guest was given it.
    pub fn has_changed_refs(&self) -> bool {
        self.full().any(|dir| {
            let head = |path: UntrustedDir| read_head(&path).ok();
            let heads = (open_private(dir).ok().and_then(head), UntrustedDir::open(&dir.base).ok().and_then(head));
            let refs = open_private(dir).and_then(|private| refs::read_refs(&private));
            match (refs, read_base(&dir.base)) {
                (Ok(now), Ok(base)) => now.ids != base.ids || heads.0 != heads.1,
                _ => true,
            }
        })
    }

    /// Lists the refs that the guest changed, with the commits that are new in them. The objects are
    /// copied to a repository of sandpen's, which has no settings of the guest's.
    pub fn changed_refs(&self) -> GitResult<Vec<RefReview>> {
        let mut reviews = Vec::new();
        for dir in self.full() {
            let Ok(private) = open_private(dir) else { continue };
            let Ok(now) = refs::read_refs(&private) else { continue };
            let base = read_base(&dir.base)?;
            let head = read_head(&private).ok().flatten();
            let names: BTreeSet<&String> = now.ids.keys().chain(base.ids.keys()).collect();
            let mut changed: Vec<(String, Option<ObjectId>, Option<ObjectId>)> = names
                .into_iter()
                .filter(|name| !now.is_broken(name) && now.ids.get(*name) != base.ids.get(*name))
                .map(|name| (name.clone(), base.ids.get(name).copied(), now.ids.get(name).copied()))
                .collect();
            if let Some(Head::Detached(id)) = &head
                && !base.ids.values().any(|known| known == id)
            {
                changed.push(("HEAD".into(), None, Some(*id)));
            }
            // What was taken over does not wait any more.
            let host = self.git.as_ref().and_then(|git| GitDirExchange::new(dir, &[], "").read_host(git).ok());
            let host = host.unwrap_or_default();
            changed.retain(|(name, _, new)| new.is_none() || host.ids.get(name) != new.as_ref());
            // Commits that were brought from another machine are new as well.
            let of_host = host.ids.iter().filter(|(name, _)| !name.starts_with("refs/sandpen/")).map(|(_, id)| id);
            let known: Vec<String> = base.ids.values().chain(of_host).map(ToString::to_string).collect();
            if changed.is_empty() {
                continue;
            }
            let commits = self.git.as_ref().filter(|_| changed.iter().any(|(_, _, new)| new.is_some()));
            if let Some(git) = commits {
                make_import(dir)?;
                Transfer::new(dir).copy_objects(git, dir)?;
            }
            for (name, old, new) in changed {
                let listed = match (commits, new) {
                    (Some(git), Some(new)) => list_commits(git, dir, &new, &known).unwrap_or_default(),
                    _ => Vec::new(),
                };
                let is_current = name == "HEAD" || matches!(&head, Some(Head::Branch(branch)) if *branch == name);
                reviews.push(RefReview {
                    repository: dir.host.display().to_string(),
                    name,
                    old: old.map(|id| id.to_string()),
                    new: new.map(|id| id.to_string()),
                    is_current,
                    commits: listed,
                });
            }
        }
        Ok(reviews)
    }

    /// Brings the commits of changed branches and tags into the user's repositories, below
    /// `refs/sandpen/ID`. No branch of the user's moves. Returns the names of the refs.
    pub fn bring_commits(&self) -> GitResult<Vec<String>> {
        let Some(git) = &self.git else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        for dir in self.full() {
            let Ok(now) = open_private(dir).and_then(|private| refs::read_refs(&private)) else { continue };
            let mut changes = changed_refs(&read_base(&dir.base)?, &now);
            let is_kept = |name: &str| BROUGHT.iter().any(|prefix| name.starts_with(prefix));
            changes.retain(|change| change.now.is_some() && is_kept(&change.name));
            changes.truncate(MAX_BROUGHT);
            if changes.is_empty() {
                continue;
            }
            let mut exchange = GitDirExchange::new(dir, &[], &self.gate.id);
            let host = exchange.read_host(git)?;
            let known: BTreeSet<ObjectId> = host.ids.values().copied().collect();
            let wanted = changes.iter().filter_map(|change| change.now).filter(|id| !known.contains(id)).collect();
            let taken = exchange.transfer.take(git, dir, &wanted, &known)?;
            let is_there = |id: &ObjectId| known.contains(id) || taken.kinds.contains_key(id);
            let moved = changes.iter().filter_map(|change| Some((change, change.now.filter(is_there)?)));
            let moved: Vec<(&RefChange, ObjectId)> = moved.collect();
            names.extend(exchange.keep_refs(git, &moved, &host)?.into_iter().flatten());
        }
        Ok(names)
    }
}

fn list_commits(git: &HostGit, dir: &PrivateGitDir, new: &ObjectId, known: &[String]) -> GitResult<Vec<Commit>> {
    let count = format!("--max-count={MAX_COMMITS}");
    let format = "--format=%H%x00%an%x00%at%x00%B%x00%x01";
    // Git takes no `--not` there before 2.42.
    let mut input = format!("{new}\n");
    input.extend(known.iter().map(|id| format!("^{id}\n")));
    let call = git.call(&dir.import, &["rev-list", &count, format, "--stdin"]).input(input.as_bytes())?;
    let text = call.run()?;
    let text = String::from_utf8_lossy(&text);
    let records = text.split("\0\u{1}\n").filter(|record| !record.trim().is_empty());
    let commits = records.filter_map(|record| {
        // Git writes a line with the id before each record.
        let record =
            record.split_once('\n').filter(|(first, _)| first.starts_with("commit ")).map_or(record, |(_, rest)| rest);
        let mut fields = record.split('\0');
        Some(Commit {
            id: fields.next()?.to_owned(),
            author: fields.next()?.to_owned(),
            time: fields.next()?.parse().ok()?,
            message: fields.next()?.trim_end().to_owned(),
        })
    });
    Ok(commits.collect())
}
