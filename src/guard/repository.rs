//! Examines changed files and repositories, and decides what is set aside.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::harmless::is_harmless;
use super::quarantine::{self, Quarantine};
use super::settings::{self, Setting};
use super::state::{Period, State};
use super::walk::Found;
use super::{Finding, Review, decisive_files};
use crate::facts::{CONFIG_FILES, POINTERS};
use crate::plan::GuardPlan;

/// Each file takes several runs of Git. After this many, whole repositories are set aside, so that the
/// guest cannot delay sandpen without limit.
const MAX_EXAMINED: usize = 100;

pub struct Examiner<'a> {
    plan: &'a GuardPlan,
    period: Period,
    quarantine: Quarantine,
    examined: usize,
    review: &'a mut Review,
}

impl<'a> Examiner<'a> {
    pub fn new(plan: &'a GuardPlan, period: Period, quarantine: Quarantine, review: &'a mut Review) -> Self {
        Examiner { plan, period, quarantine, examined: 0, review }
    }

    /// Examines a file whose previous state is known.
    pub fn file(&mut self, file: &Path, before: &State) {
        let now = State::of(file);
        if now == *before || now == State::Missing {
            return;
        }
        let is_config = file.file_name().is_some_and(|name| CONFIG_FILES.iter().any(|known| name == *known));
        match now {
            State::File(content) if is_config => self.config(file, before, &content),
            _ => self.remove(file, before, "created or changed inside"),
        }
    }

    /// Removes new settings that are not known to be harmless from the file.
    fn config(&mut self, file: &Path, before: &State, content: &[u8]) {
        self.examined += 1;
        let Some(now) = settings::list(self.plan, content) else {
            if self.plan.git.is_some() {
                return self.remove(file, before, "Git cannot read it");
            }
            let shown = file.display();
            return self
                .review
                .notes
                .push(format!("`{shown}` changed inside, and without git on the host it cannot be reviewed"));
        };
        let old = match before {
            State::File(content) => settings::list(self.plan, content).unwrap_or_default(),
            _ => Vec::new(),
        };
        let new = added(&old, &now);
        let bad: Vec<&Setting> = new.into_iter().filter(|(key, value)| !is_harmless(key, value)).collect();
        if bad.is_empty() {
            return;
        }
        let Some(kept) = self.keep(file, content) else { return };
        let cleaned = self.without(file, content, &old, &bad);
        let installed = match &cleaned {
            Some(cleaned) => quarantine::install(file, cleaned),
            // Git could not remove the settings, so the previous file is restored.
            None => fs::remove_file(file).and_then(|()| quarantine::put_back(file, before)),
        };
        if let Err(error) = installed {
            return self.report_failure(file, &error);
        }
        let accept = bad.iter().map(|(key, value)| {
            let words = ["git", "config", "--file"].map(OsString::from).into_iter().chain([file.into()]);
            words.chain(["--add", key, value].map(OsString::from)).collect()
        });
        self.review.set_aside.push(Finding {
            file: file.to_owned(),
            what: bad.iter().map(|(key, value)| format!("{key} = {value}")).collect(),
            accept: accept.collect(),
            kept,
        });
    }

    /// Returns the file with the previous values of the bad settings, edited by Git in a private copy.
    fn without(&mut self, file: &Path, content: &[u8], old: &[Setting], bad: &[&Setting]) -> Option<Vec<u8>> {
        let copy = self.keep(file, content)?;
        let mut keys: Vec<&str> = bad.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let is_clean = keys.iter().all(|key| {
            let values: Vec<&str> =
                old.iter().filter(|(known, _)| known == key).map(|(_, value)| value.as_str()).collect();
            settings::replace(self.plan, &copy, key, &values)
        });
        let State::File(cleaned) = State::of(&copy) else { return None };
        let _ = fs::remove_file(&copy);
        // Check the result with Git.
        let left = settings::list(self.plan, &cleaned)?;
        (is_clean && added(old, &left).iter().all(|(key, value)| is_harmless(key, value))).then_some(cleaned)
    }

    /// Examines a directory of hooks whose previous state is known.
    pub fn hooks(&mut self, hooks: &Path, before: &State) {
        let now = State::of(hooks);
        match (&now, before) {
            (State::Directory, State::Directory | State::Missing) => self.new_hooks(hooks),
            (now, before) if now == before || *now == State::Missing => {}
            _ => self.remove(hooks, before, "Git would run hooks from it"),
        }
    }

    fn new_hooks(&mut self, hooks: &Path) {
        for entry in fs::read_dir(hooks).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_sample = name.as_encoded_bytes().ends_with(b".sample");
            if !is_sample && self.period.covers(&path) {
                self.remove(&path, &State::Missing, "a hook that was created or changed inside");
            }
        }
    }

    /// Examines a Git directory without a baseline: what changed in it counts as new.
    pub fn unknown(&mut self, git_dir: &Path) {
        if self.examined >= MAX_EXAMINED && decisive_files(git_dir).iter().any(|file| self.period.covers(file)) {
            return self.remove(git_dir, &State::Missing, "one of many repositories that were created inside");
        }
        for file in decisive_files(git_dir) {
            let is_pointer = file.file_name().is_some_and(|name| POINTERS.iter().any(|known| name == *known));
            let is_worktree = git_dir.parent().and_then(Path::file_name).is_some_and(|name| name == "worktrees");
            // `git worktree add` writes both pointers; elsewhere they redirect Git to another repository.
            if self.period.covers(&file) && !(is_pointer && is_worktree && self.points_into_workspace(&file)) {
                self.file(&file, &State::Missing);
            }
        }
        self.hooks(&git_dir.join("hooks"), &State::Missing);
    }

    /// Tells whether a pointer leads to a path in the workspace.
    fn points_into_workspace(&self, pointer: &Path) -> bool {
        let State::File(content) = State::of(pointer) else { return false };
        let Ok(text) = std::str::from_utf8(&content) else { return false };
        let (Some(base), target) = (pointer.parent(), text.trim().trim_start_matches("gitdir:").trim()) else {
            return false;
        };
        let target = base.join(target);
        // The pointer of a removed worktree leads to a missing directory, which is harmless.
        let real = target.canonicalize().or_else(|_| target.parent().unwrap_or(base).canonicalize());
        real.is_ok_and(|real| self.plan.roots.iter().any(|root| real.starts_with(root)))
    }

    /// Examines a repository that was found in the workspace.
    pub fn found(&mut self, found: &Found) {
        match found {
            Found::GitDir(git_dir) => self.unknown(git_dir),
            Found::Pointer(pointer) if self.period.covers(pointer) && !self.points_into_workspace(pointer) => {
                self.remove(pointer, &State::Missing, "redirects Git to another repository");
            }
            Found::Pointer(_) => {}
        }
    }

    /// Sets a path aside and restores its previous state.
    fn remove(&mut self, path: &Path, before: &State, what: &str) {
        match self.quarantine.take(path) {
            Err(error) => self.report_failure(path, &error),
            Ok(kept) => {
                if let Err(error) = quarantine::put_back(path, before) {
                    self.report_failure(path, &error);
                }
                let accept = vec![["mv".into(), kept.clone().into_os_string(), path.as_os_str().to_owned()].to_vec()];
                self.review.set_aside.push(Finding {
                    file: path.to_owned(),
                    what: vec![what.to_owned()],
                    accept,
                    kept,
                });
            }
        }
    }

    fn keep(&mut self, file: &Path, content: &[u8]) -> Option<PathBuf> {
        self.quarantine.keep(file, content).map_err(|error| self.report_failure(file, &error)).ok()
    }

    fn report_failure(&mut self, path: &Path, error: &std::io::Error) {
        let shown = path.display();
        self.review.notes.push(format!(
            "`{shown}` was changed inside, may run code on the host and could not be set aside: {error}; check it before you use Git there"
        ));
    }
}

/// Returns the settings that occur more often than before.
fn added<'a>(old: &[Setting], now: &'a [Setting]) -> Vec<&'a Setting> {
    let mut known: BTreeMap<&Setting, usize> = BTreeMap::new();
    for setting in old {
        *known.entry(setting).or_default() += 1;
    }
    let is_new = |setting: &&Setting| match known.get_mut(*setting) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    now.iter().filter(is_new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_counts_as_new_when_it_occurs_once_more() {
        let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let old = [setting("a.b", "1"), setting("a.b", "1")];
        let now = [setting("a.b", "1"), setting("a.b", "2"), setting("a.b", "1"), setting("a.b", "1")];
        assert_eq!(added(&old, &now), [&now[1], &now[3]]);
    }
}
