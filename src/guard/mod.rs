//! Reviews repositories after a sandbox has exited, and sets aside files and settings that would run
//! code on the host or redirect Git.
//!
//! [`Baseline::record`] saves the state before the launch. [`Baseline::conclude`] compares it when the
//! sandbox has exited, [`Baseline::catch_up`] when a later call finds that its launcher was killed. All
//! input is untrusted: the review follows no links, reads no large files and lets Git parse its files.

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

/// Name of the baseline in the session directory.
const FILE: &str = "guard.json";
/// The summary names at most this many changed files.
const MAX_NAMED: usize = 8;
/// At most this many findings are printed in detail.
const MAX_PRINTED: usize = 20;

/// The state of the repositories before the launch.
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

/// The result of a review.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Review {
    /// `false` if the search for new repositories was left to a background process.
    #[serde(skip)]
    pub is_complete: bool,
    pub set_aside: Vec<Finding>,
    /// Changed files that tools on the host run or read without asking.
    pub changed: Vec<PathBuf>,
    /// Warnings, for example about files that could not be reviewed.
    pub notes: Vec<String>,
}

/// A file that was set aside, or from which settings were removed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    pub file: PathBuf,
    /// The settings that were removed, or why the file was.
    pub what: Vec<String>,
    /// The commands that accept the change.
    pub accept: Vec<Vec<std::ffi::OsString>>,
    /// The copy of the file as the guest left it.
    pub kept: PathBuf,
}

impl Baseline {
    pub fn record(plan: &GuardPlan, session: &HostPath) -> io::Result<Self> {
        let files = plan.git_dirs.iter().flat_map(|dir| decisive_files(dir));
        let watched = plan.watched.iter().flat_map(|path| walk::watched_files(path));
        Ok(Baseline {
            session: session.as_path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
            // The file system's clock, which also stamps the guest's changes, set this time just now.
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

    /// Saves the baseline for the case that the launcher is killed.
    pub fn save(&self, session: &HostPath) -> io::Result<()> {
        fs::write(session.join(FILE).as_path(), serde_json::to_vec(self)?)
    }

    /// Loads the baseline of a killed launcher.
    pub fn of_session(session: &HostPath) -> Option<Self> {
        serde_json::from_slice(&fs::read(session.join(FILE).as_path()).ok()?).ok()
    }

    /// Reviews a session that has just ended. The search for new repositories in a large workspace is
    /// left to the background after a short session, so that quick commands stay quick.
    pub fn conclude(&mut self, session: &HostPath) -> Review {
        let mut review = self.review_known();
        let found = walk::repositories(&self.plan.roots, &self.known(), Budget::after(self.started.elapsed()));
        review.is_complete = found.is_some();
        self.review_found(&found.unwrap_or_default(), &mut review);
        let _ = fs::remove_file(session.join(FILE).as_path());
        // Removing the file has just set this time.
        self.period.until = Moment::of_change(session.as_path()).ok();
        review
    }

    /// Reviews everything if the launcher was killed, otherwise only searches for new repositories.
    pub fn catch_up(&self) -> Review {
        let mut review = if self.period.until.is_none() { self.review_known() } else { Review::default() };
        let found = walk::repositories(&self.plan.roots, &self.known(), Budget::UNLIMITED);
        self.review_found(&found.unwrap_or_default(), &mut review);
        review
    }

    fn known(&self) -> Vec<&Path> {
        self.plan.git_dirs.iter().map(PathBuf::as_path).collect()
    }

    /// Reviews the files and directories of the baseline.
    fn review_known(&self) -> Review {
        let mut review = Review { is_complete: true, ..Review::default() };
        let mut examiner = Examiner::new(&self.plan, self.period, self.quarantine(), &mut review);
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
        let mut examiner = Examiner::new(&self.plan, self.period, self.quarantine(), review);
        for found in found {
            examiner.found(found);
        }
    }

    fn quarantine(&self) -> Quarantine {
        Quarantine::new(self.plan.aside.join(&self.session))
    }
}

/// Lists the files of a Git directory that decide which programs Git runs.
fn decisive_files(git_dir: &Path) -> Vec<PathBuf> {
    CONFIG_FILES.iter().chain(POINTERS).map(|name| git_dir.join(name)).collect()
}

fn rebase_files(git_dir: &Path) -> [PathBuf; 2] {
    ["rebase-merge/git-rebase-todo", "rebase-apply"].map(|name| git_dir.join(name))
}

/// Warns of an unfinished rebase, whose commands `git rebase --continue` executes.
fn unfinished(git_dir: &Path, before: &Stamps) -> Option<String> {
    let left = rebase_files(git_dir).into_iter().find(|path| before.differ_at(path))?;
    Some(format!(
        "the guest left an unfinished rebase in `{}`: `git rebase --continue` runs its commands",
        left.display()
    ))
}

impl Review {
    pub fn is_empty(&self) -> bool {
        self.set_aside.is_empty() && self.changed.is_empty() && self.notes.is_empty()
    }

    /// Prints the review. `-q` does not hide what was set aside.
    pub fn print(&self, ui: Ui) {
        for finding in self.set_aside.iter().take(MAX_PRINTED) {
            ui.alert(&format!(
                "set aside, because it would run code on the host or redirect Git: {}",
                finding.file.display()
            ));
            for line in &finding.what {
                ui.alert(&format!("  {line}"));
            }
            ui.hint(&format!("the original is kept in {}", finding.kept.display()));
            for command in &finding.accept {
                ui.hint(&format!("to accept it: {}", crate::ui::shell::shell_words(command)));
            }
        }
        if let Some(next) = self.set_aside.get(MAX_PRINTED) {
            let (more, place) = (self.set_aside.len() - MAX_PRINTED, next.kept.parent().unwrap_or(&next.kept));
            ui.alert(&format!("{more} more were set aside; all are kept in {}", place.display()));
        }
        for note in &self.notes {
            ui.warn(note);
        }
        if !self.changed.is_empty() {
            let named: Vec<String> =
                self.changed.iter().take(MAX_NAMED).map(|path| path.display().to_string()).collect();
            let more = self.changed.len().saturating_sub(MAX_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            ui.notice(&format!("changed inside, and used by tools on the host: {}{more}", named.join(", ")));
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
