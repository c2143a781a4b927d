//! Examines what was left, and decides what is set aside.

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

/// So many files are taken apart, with several runs of Git for each. Where there are more, somebody wants to keep sandpen busy, and
/// whole repositories are set aside.
const MOST_EXAMINED: usize = 100;

/// Examines one place after the other.
pub struct Examiner<'a> {
    plan: &'a GuardPlan,
    period: Period,
    shelf: Quarantine,
    examined: usize,
    review: &'a mut Review,
}

impl<'a> Examiner<'a> {
    /// For what changed in that time.
    pub fn new(plan: &'a GuardPlan, period: Period, shelf: Quarantine, review: &'a mut Review) -> Self {
        Examiner { plan, period, shelf, examined: 0, review }
    }

    /// A file whose state before is known.
    pub fn file(&mut self, file: &Path, before: &State) {
        let now = State::of(file);
        if now == *before || now == State::Missing {
            return;
        }
        let is_config = file.file_name().is_some_and(|name| CONFIG_FILES.iter().any(|known| name == *known));
        match now {
            State::File(content) if is_config => self.config(file, before, &content),
            _ => self.remove(file, before, "it was put there, or changed, inside"),
        }
    }

    /// Settings that are new and not known to be harmless are taken out of the file; the rest stays.
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
                .push(format!("`{shown}` changed inside, and there is no git here to review it with"));
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
            // Git could not take them out one by one: the file is again what it was.
            None => fs::remove_file(file).and_then(|()| quarantine::put_back(file, before)),
        };
        if let Err(error) = installed {
            return self.cannot(file, &error);
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

    /// The file with the values that these names had before, edited by Git in a copy of its own.
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
        // Believed only if Git, reading it again, agrees.
        let left = settings::list(self.plan, &cleaned)?;
        (is_clean && added(old, &left).iter().all(|(key, value)| is_harmless(key, value))).then_some(cleaned)
    }

    /// A place for hooks that was known before. Where it could be mounted read-only, nothing can have changed.
    pub fn hooks(&mut self, hooks: &Path, before: &State) {
        let now = State::of(hooks);
        match (&now, before) {
            (State::Directory, State::Directory | State::Missing) => self.new_hooks(hooks),
            (now, before) if now == before || *now == State::Missing => {}
            _ => self.remove(hooks, before, "Git would take hooks from it"),
        }
    }

    fn new_hooks(&mut self, hooks: &Path) {
        for entry in fs::read_dir(hooks).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_sample = name.as_encoded_bytes().ends_with(b".sample");
            if !is_sample && self.period.covers(&path) {
                self.remove(&path, &State::Missing, "a hook that was put there, or changed, inside");
            }
        }
    }

    /// A Git directory that was not known before, or not looked at: what changed in it counts as new.
    pub fn unknown(&mut self, git_dir: &Path) {
        if self.examined >= MOST_EXAMINED && decisive_files(git_dir).iter().any(|file| self.period.covers(file)) {
            return self.remove(git_dir, &State::Missing, "one repository of very many that were made inside");
        }
        for file in decisive_files(git_dir) {
            let is_pointer = file.file_name().is_some_and(|name| POINTERS.iter().any(|known| name == *known));
            let is_worktree = git_dir.parent().and_then(Path::file_name).is_some_and(|name| name == "worktrees");
            // `git worktree add` writes both; elsewhere they make a directory mean another repository.
            if self.period.covers(&file) && !(is_pointer && is_worktree && self.stays_here(&file)) {
                self.file(&file, &State::Missing);
            }
        }
        self.hooks(&git_dir.join("hooks"), &State::Missing);
    }

    /// Whether a pointer leads to another place of the workspace.
    fn stays_here(&self, pointer: &Path) -> bool {
        let State::File(content) = State::of(pointer) else { return false };
        let Ok(text) = std::str::from_utf8(&content) else { return false };
        let (Some(base), target) = (pointer.parent(), text.trim().trim_start_matches("gitdir:").trim()) else {
            return false;
        };
        let target = base.join(target);
        // A worktree that was removed again leads nowhere, which harms nobody.
        let real = target.canonicalize().or_else(|_| target.parent().unwrap_or(base).canonicalize());
        real.is_ok_and(|real| self.plan.roots.iter().any(|root| real.starts_with(root)))
    }

    /// Something in a workspace that Git would take for a repository.
    pub fn found(&mut self, found: &Found) {
        match found {
            Found::GitDir(git_dir) => self.unknown(git_dir),
            Found::Pointer(pointer) if self.period.covers(pointer) && !self.stays_here(pointer) => {
                self.remove(pointer, &State::Missing, "it makes Git work on another repository");
            }
            Found::Pointer(_) => {}
        }
    }

    /// Takes something away as a whole, and puts back what was there.
    fn remove(&mut self, path: &Path, before: &State, what: &str) {
        match self.shelf.take(path) {
            Err(error) => self.cannot(path, &error),
            Ok(kept) => {
                if let Err(error) = quarantine::put_back(path, before) {
                    self.cannot(path, &error);
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
        self.shelf.keep(file, content).map_err(|error| self.cannot(file, &error)).ok()
    }

    fn cannot(&mut self, path: &Path, error: &std::io::Error) {
        let shown = path.display();
        self.review.notes.push(format!(
            "`{shown}` was changed inside so that it may run code on the host, and could not be set aside: {error}; look at it before you use Git there"
        ));
    }
}

/// Settings that are there more often than before, or with another value.
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
    fn a_setting_counts_as_new_when_it_is_there_once_more() {
        let setting = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let old = [setting("a.b", "1"), setting("a.b", "1")];
        let now = [setting("a.b", "1"), setting("a.b", "2"), setting("a.b", "1"), setting("a.b", "1")];
        assert_eq!(added(&old, &now), [&now[1], &now[3]]);
    }
}
