//! Moves a branch of the user to commits of a copied workspace, and back. The commits pass the same check
//! as those of any sandbox, and no commit of the user's is left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::KeptRepositories;
use super::exchange::{GitDirExchange, WorkingTree, open_private};
use super::host_git::{GitError, HostGit};
use super::refs::{self, Head, is_valid_name, read_head};
use crate::facts::git::object_id::ObjectId;
use crate::plan::repository::PrivateGitDir;

#[derive(Debug, thiserror::Error)]
pub enum BranchMoveError {
    #[error("the copy has no repository")]
    NoRepository,
    #[error("no commits wait in the copy")]
    NoCommits,
    #[error("`{0}` is not a name for a branch")]
    Name(String),
    #[error("the branch `{0}` exists already")]
    Exists(String),
    #[error("HEAD is not on a branch with commits here")]
    NoBranch,
    #[error("the branch `{0}` has commits here that the copy does not have")]
    Diverged(String),
    #[error("the branch `{0}` was moved since")]
    Moved(String),
    #[error("the branch `{0}` is in use here")]
    InUse(String),
    #[error("changes are staged here that are not in the commits: {0}")]
    Staged(String),
    #[error("they do not pass the check: {0}")]
    Refused(String),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("the repository cannot be read")]
    Read(#[from] std::io::Error),
}

/// A branch and the commits between which it is moved. The host has the objects of both.
pub struct BranchMove {
    pub git: HostGit,
    pub git_dir: PathBuf,
    /// The full name of the ref.
    pub name: String,
    /// `None` if there is no such branch.
    pub from: Option<String>,
    pub to: Option<String>,
}

impl KeptRepositories {
    /// Finds the repository of a working tree, which may be a linked one.
    fn of_working_tree(&self, root: &Path) -> Option<(&PrivateGitDir, WorkingTree)> {
        self.working_trees().find(|(_, tree)| tree.directory.as_deref() == Some(root))
    }

    /// Takes the objects of the copy's commits over to the repository at `root`, and prepares the move of
    /// its current branch, or of a new one. Returns how many commits are new.
    pub fn branch_move(&self, root: &Path, new: Option<&str>) -> Result<(BranchMove, usize), BranchMoveError> {
        let (Some((dir, tree)), Some(git)) = (self.of_working_tree(root), self.git.as_ref()) else {
            return Err(BranchMoveError::NoRepository);
        };
        let tip = match read_head(&tree.open()?)? {
            Some(Head::Branch(name)) => refs::read_refs(&open_private(dir)?)?.ids.get(&name).copied(),
            Some(Head::Detached(id)) => Some(id),
            None => None,
        };
        let tip = tip.ok_or(BranchMoveError::NoCommits)?;
        let mut exchange = GitDirExchange::new(dir, &[], "apply");
        let host = exchange.read_host(git)?;
        let (name, from) = match new {
            Some(name) => (format!("refs/heads/{name}"), None),
            None => match exchange.host_head(git, &tree)? {
                Some(Head::Branch(name)) => match host.ids.get(&name) {
                    Some(id) => (name, Some(*id)),
                    None => return Err(BranchMoveError::NoBranch),
                },
                _ => return Err(BranchMoveError::NoBranch),
            },
        };
        if let Some(new) = new {
            if !is_valid_name(&name) {
                return Err(BranchMoveError::Name(new.to_owned()));
            }
            if host.ids.contains_key(&name) {
                return Err(BranchMoveError::Exists(new.to_owned()));
            }
        }
        if from == Some(tip) {
            return Err(BranchMoveError::NoCommits);
        }
        let known: BTreeSet<ObjectId> = host.ids.values().copied().collect();
        let wanted: BTreeSet<ObjectId> = [tip].into_iter().filter(|tip| !known.contains(tip)).collect();
        let taken = exchange.transfer.take(git, dir, &wanted, &known)?;
        if let Some(reason) = taken.refused.get(&tip) {
            return Err(BranchMoveError::Refused(reason.clone()));
        }
        if taken.kinds.get(&tip).is_some_and(|kind| kind != "commit") {
            return Err(BranchMoveError::Refused("HEAD is not a commit".into()));
        }
        let list = ["rev-list", "--count", tip.as_str(), "--not", "--all"];
        let count = String::from_utf8_lossy(&git.call(&dir.host, &list).run()?).trim().parse().unwrap_or(0);
        let [from, to] = [from, Some(tip)].map(|id| id.map(|id| id.to_string()));
        let moved = BranchMove { git: git.clone(), git_dir: tree.host, name, from, to };
        if let (Some(from), Some(to)) = (&moved.from, &moved.to)
            && moved.git.call(&moved.git_dir, &["merge-base", "--is-ancestor", from, to]).run().is_err()
        {
            return Err(BranchMoveError::Diverged(moved.short()));
        }
        moved.check()?;
        Ok((moved, count))
    }
}

impl BranchMove {
    fn short(&self) -> String {
        self.name.strip_prefix("refs/heads/").unwrap_or(&self.name).to_owned()
    }

    /// Returns the commit of the branch.
    fn present(&self) -> Option<String> {
        let output = self.git.call(&self.git_dir, &["rev-parse", "--verify", "--quiet", &self.name]).run().ok()?;
        Some(String::from_utf8_lossy(&output).trim_end().to_owned())
    }

    /// Tells whether the branch is where the move ends.
    pub fn is_done(&self) -> bool {
        self.present() == self.to
    }

    fn is_checked_out(&self) -> bool {
        let head = self.git.call(&self.git_dir, &["symbolic-ref", "--quiet", "HEAD"]).run();
        head.is_ok_and(|head| String::from_utf8_lossy(&head).trim_end() == self.name)
    }

    /// Fails if the branch is elsewhere, or if its index cannot follow it.
    pub fn check(&self) -> Result<(), BranchMoveError> {
        if self.present() != self.from {
            return Err(BranchMoveError::Moved(self.short()));
        }
        match (self.is_checked_out(), &self.from, &self.to) {
            (false, ..) => Ok(()),
            (true, Some(from), Some(to)) => self.move_index(from, to, &["--dry-run"]),
            (true, ..) => Err(BranchMoveError::InUse(self.short())),
        }
    }

    /// Moves the branch, and the index with it if the branch is checked out. The files of the working tree
    /// are not touched.
    pub fn carry_out(&self) -> Result<(), BranchMoveError> {
        self.check()?;
        let is_checked_out = self.is_checked_out();
        self.update(self.from.as_deref(), self.to.as_deref())?;
        if let (true, Some(from), Some(to)) = (is_checked_out, &self.from, &self.to)
            && let Err(error) = self.move_index(from, to, &[])
        {
            self.update(Some(to), Some(from))?;
            return Err(error);
        }
        Ok(())
    }

    fn update(&self, from: Option<&str>, to: Option<&str>) -> Result<(), GitError> {
        let line = match (from, to) {
            (Some(from), Some(to)) => format!("update {}\0{to}\0{from}\0", self.name),
            (None, Some(to)) => format!("create {}\0{to}\0", self.name),
            (Some(from), None) => format!("delete {}\0{from}\0", self.name),
            (None, None) => return Ok(()),
        };
        let call = self.git.call(&self.git_dir, &["update-ref", "-m", "sandpen apply", "--stdin", "-z"]);
        call.input(line.as_bytes())?.run().map(drop)
    }

    /// Lets the entries of the index follow from one commit to the other. Git refuses if what is staged is
    /// in neither.
    fn move_index(&self, from: &str, to: &str, options: &[&str]) -> Result<(), BranchMoveError> {
        let arguments = [&["read-tree", "-i", "-m"], options, &[from, to]].concat();
        match self.git.call(&self.git_dir, &arguments).run() {
            Ok(_) => Ok(()),
            Err(GitError::Failed { message, .. }) => Err(BranchMoveError::Staged(message)),
            Err(error) => Err(error.into()),
        }
    }
}
