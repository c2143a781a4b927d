//! The guard's review: what a sandbox left in a repository that would run code on the host, or redirect Git, is set aside.
//!
//! [`Baseline::record`] notes what there was before the launch; [`Baseline::review`] compares when the sandbox has ended, or when
//! a later sandpen finds that its launcher was killed. Everything it reads is untrusted: links are never followed, nothing large
//! is read, and only Git itself parses Git's files.

pub mod background_review;
mod harmless;
mod quarantine;
mod repository;
mod settings;
mod state;
mod walk;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::facts::{CONFIG_FILES, POINTERS};
use crate::path::HostPath;
use crate::plan::GuardPlan;
use crate::ui::Ui;
use quarantine::Quarantine;
use repository::Examiner;
use state::{Moment, Period, Stamps, State};
use walk::{Budget, Found};

/// The baseline's file in the session's directory.
const FILE: &str = "guard.json";
/// How many changed files the closing summary names.
const MOST_NAMED: usize = 8;
/// How many things that were set aside are told one by one.
const MOST_TOLD: usize = 20;

/// What there was before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Baseline {
    plan: GuardPlan,
    session: String,
    period: Period,
    files: Vec<(PathBuf, State)>,
    hooks: Vec<(PathBuf, State)>,
    stamps: Stamps,
    #[serde(skip, default = "Instant::now")]
    started: Instant,
}

/// What the review did, in words.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Review {
    /// Whether everything was looked at.
    #[serde(skip)]
    pub is_complete: bool,
    /// What was set aside.
    pub set_aside: Vec<Finding>,
    /// Files that changed and that tools on the host run or obey unasked.
    pub changed: Vec<PathBuf>,
    /// What could not be reviewed, and what else the user should know.
    pub notes: Vec<String>,
}

/// Something that was set aside.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The file it was in, or that it was.
    pub file: PathBuf,
    /// What it would have done.
    pub what: Vec<String>,
    /// The commands that would accept it.
    pub accept: Vec<Vec<std::ffi::OsString>>,
    /// Where the file is kept as it was left.
    pub kept: PathBuf,
}

impl Baseline {
    /// Notes what there is.
    pub fn record(plan: &GuardPlan, session: &HostPath) -> io::Result<Self> {
        let files = plan.git_dirs.iter().flat_map(|dir| decisive_files(dir));
        let watched = plan.watched.iter().flat_map(|path| walk::watched_files(path));
        Ok(Baseline {
            session: session.as_path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
            // Of a file made just now, by the clock that also stamps the guest's changes.
            period: Period {
                since: Moment::of_change(session.join(crate::process::lock::OWNER).as_path())?,
                until: None,
            },
            files: files.map(|file| (file.clone(), State::of(&file))).collect(),
            hooks: plan.hooks.iter().map(|hooks| (hooks.clone(), State::of(hooks))).collect(),
            stamps: Stamps::of(watched.chain(plan.git_dirs.iter().flat_map(|dir| rebase_files(dir)))),
            plan: plan.clone(),
            started: Instant::now(),
        })
    }

    /// Keeps it in the session's directory: a launcher that is killed leaves it for the next.
    pub fn save(&self, session: &HostPath) -> io::Result<()> {
        fs::write(session.join(FILE).as_path(), serde_json::to_vec(self)?)
    }

    /// What a killed launcher noted.
    pub fn of_session(session: &HostPath) -> Option<Self> {
        serde_json::from_slice(&fs::read(session.join(FILE).as_path()).ok()?).ok()
    }

    /// Reviews a session that has just ended. A large workspace is left to a later look, unless the session was long: whoever ran
    /// a quick command in it does not wait for a walk through all of its directories.
    pub fn conclude(&mut self, session: &HostPath) -> Review {
        let mut review = self.review_known();
        let found = walk::repositories(&self.plan.roots, &self.known(), Budget::after(self.started.elapsed()));
        review.is_complete = found.is_some();
        self.review_found(&found.unwrap_or_default(), &mut review);
        let _ = fs::remove_file(session.join(FILE).as_path());
        // The directory has just changed, by the clock that stamped the guest's changes.
        self.period.until = Moment::of_change(session.as_path()).ok();
        review
    }

    /// Reviews what was left: all of it after a kill, new repositories after an end that could not wait for them.
    pub fn catch_up(&self) -> Review {
        let mut review = if self.period.until.is_none() { self.review_known() } else { Review::default() };
        let found = walk::repositories(&self.plan.roots, &self.known(), Budget::UNLIMITED);
        self.review_found(&found.unwrap_or_default(), &mut review);
        review
    }

    fn known(&self) -> Vec<&Path> {
        self.plan.git_dirs.iter().map(PathBuf::as_path).collect()
    }

    /// Compares what was noted, and sets aside.
    fn review_known(&self) -> Review {
        let mut review = Review { is_complete: true, ..Review::default() };
        let mut examiner = Examiner::new(&self.plan, self.period, self.shelf(), &mut review);
        for (file, before) in &self.files {
            examiner.file(file, before);
        }
        for (hooks, before) in &self.hooks {
            examiner.hooks(hooks, before);
        }
        for git_dir in walk::git_dirs_below(&self.known()) {
            examiner.unknown(&git_dir);
        }
        review.notes.extend(self.known().iter().filter_map(|dir| unfinished(dir, &self.stamps)));
        let changed = |path: &PathBuf| walk::watched_files(path).into_iter().find(|file| self.stamps.differ_at(file));
        review.changed = self.plan.watched.iter().filter_map(changed).collect();
        review
    }

    fn review_found(&self, found: &[Found], review: &mut Review) {
        let mut examiner = Examiner::new(&self.plan, self.period, self.shelf(), review);
        for found in found {
            examiner.found(found);
        }
    }

    fn shelf(&self) -> Quarantine {
        Quarantine::new(self.plan.aside.join(&self.session))
    }
}

/// The files of a Git directory that decide what Git runs.
fn decisive_files(git_dir: &Path) -> Vec<PathBuf> {
    CONFIG_FILES.iter().chain(POINTERS).map(|name| git_dir.join(name)).collect()
}

fn rebase_files(git_dir: &Path) -> [PathBuf; 2] {
    ["rebase-merge/git-rebase-todo", "rebase-apply"].map(|name| git_dir.join(name))
}

/// An unfinished rebase carries commands that `git rebase --continue` executes.
fn unfinished(git_dir: &Path, before: &Stamps) -> Option<String> {
    let left = rebase_files(git_dir).into_iter().find(|path| before.differ_at(path))?;
    Some(format!("an unfinished rebase was left in `{}`: `git rebase --continue` runs what it lists", left.display()))
}

impl Review {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.set_aside.is_empty() && self.changed.is_empty() && self.notes.is_empty()
    }

    /// Tells the user. What was set aside is never silenced.
    pub fn tell(&self, ui: Ui) {
        for finding in self.set_aside.iter().take(MOST_TOLD) {
            ui.alert(&format!(
                "set aside, because it would run code on the host or redirect Git: {}",
                finding.file.display()
            ));
            for line in &finding.what {
                ui.alert(&format!("  {line}"));
            }
            ui.hint(&format!("it is kept as it was left: {}", finding.kept.display()));
            for command in &finding.accept {
                ui.hint(&format!("to accept it: {}", crate::ui::shell::shell_words(command)));
            }
        }
        if let Some(next) = self.set_aside.get(MOST_TOLD) {
            let (more, place) = (self.set_aside.len() - MOST_TOLD, next.kept.parent().unwrap_or(&next.kept));
            ui.alert(&format!("{more} more were set aside; all are kept in {}", place.display()));
        }
        for note in &self.notes {
            ui.warn(note);
        }
        if !self.changed.is_empty() {
            let named: Vec<String> =
                self.changed.iter().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
            let more = self.changed.len().saturating_sub(MOST_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            ui.notice(&format!("changed inside, and run or obeyed by tools on the host: {}{more}", named.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watching(root: &Path) -> GuardPlan {
        GuardPlan { watched: vec![root.join(".envrc"), root.join(".vscode")], ..GuardPlan::default() }
    }

    /// The clock of a file system advances by some milliseconds at once, so a file that was written
    /// just before the launch often has the time of the launch.
    #[test]
    fn a_file_written_at_the_time_of_the_launch_is_not_reported() -> io::Result<()> {
        for _ in 0..50 {
            let directory = tempfile::tempdir()?;
            let root = directory.path().canonicalize()?;
            fs::create_dir(root.join(".vscode"))?;
            fs::write(root.join(".vscode/tasks.json"), "{}")?;
            fs::write(root.join(".envrc"), "")?;
            fs::write(root.join(crate::process::lock::OWNER), "")?;
            let session = HostPath::new(&root).map_err(|_| io::ErrorKind::InvalidInput)?;
            let baseline = Baseline::record(&watching(&root), &session)?;
            assert_eq!(baseline.review_known().changed, Vec::<PathBuf>::new());
            // A killed launcher leaves the stamps in a file.
            baseline.save(&session)?;
            let saved = Baseline::of_session(&session).ok_or(io::ErrorKind::NotFound)?;
            assert_eq!(saved.review_known().changed, Vec::<PathBuf>::new());
            fs::write(root.join(".vscode/new.json"), "{}")?;
            fs::write(root.join(".envrc"), "changed")?;
            assert_eq!(saved.review_known().changed, [root.join(".envrc"), root.join(".vscode/new.json")]);
        }
        Ok(())
    }
}
