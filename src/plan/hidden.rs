//! Decides how the files of `--hide` are covered: an empty, read-only file or directory is mounted
//! over each, wherever the workspace is visible. Searches no files; `facts::hidden` does.

use std::path::PathBuf;

use super::Draft;
use super::detail::Detail;
use super::entry::{Mount, Topic, Why};
use super::prepare::Prepare;
use crate::config::value::{Access, EngineKind};
use crate::config::{Config, Origin};
use crate::error::{Diagnostic, Kind, Result};
use crate::facts::{HiddenFile, HideProblem, HideQuestion};
use crate::path::HostPath;
use crate::warning::{Warning, WarningTopic};

#[derive(Debug, thiserror::Error)]
pub enum HideError {
    #[error("{origin}: `{pattern}` matches `{}`, which Git tracks, so it cannot be hidden", file.display())]
    Tracked { origin: Origin, pattern: String, file: PathBuf },
    #[error("a hidden file has another name, `{}`, which Git tracks", file.display())]
    TrackedLink { file: PathBuf },
    #[error("{origin}: the workspace has too many files to search them for `{pattern}`")]
    TooManyEntries { origin: Origin, pattern: String },
    #[error("{origin}: `{pattern}` and other patterns match more than 1000 files")]
    TooManyHidden { origin: Origin, pattern: String },
    #[error("`{}` cannot be read, so sandpen cannot tell which files Git tracks", file.display())]
    Index { file: PathBuf },
}

impl Diagnostic for HideError {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn hints(&self) -> Vec<String> {
        let hint = match self {
            Self::Tracked { .. } | Self::TrackedLink { .. } => {
                "its content is in Git's objects; `git rm --cached FILE` stops tracking it, or name a narrower pattern"
            }
            Self::TooManyEntries { .. } => "a pattern that starts at the root, such as `/.env`, needs no search",
            Self::TooManyHidden { .. } => "a pattern for the directory, such as `secrets/`, hides all files in it",
            Self::Index { .. } => "check the repository with `git status`",
        };
        vec![hint.to_owned()]
    }
}

impl Draft<'_> {
    /// Covers hidden files. Called after all other mounts, because each of them may show a hidden
    /// file.
    pub fn hide(&mut self) -> Result<Vec<HostPath>> {
        let facts = &self.facts.hidden;
        if let Some(problem) = &facts.problem {
            return Err(self.hide_problem(problem).into());
        }
        for file in &facts.files {
            if let Some(tracked) = &file.tracked {
                return Err(self.tracked(file, tracked.clone()).into());
            }
        }
        for file in &facts.linked_elsewhere {
            self.warnings.push(Warning::new(
                WarningTopic::Files,
                format!("`{file}` is hidden, but it has other names (hard links) outside of the workspace"),
            ));
        }
        let hidden: Vec<HostPath> = facts.files.iter().map(|file| file.path.clone()).collect();
        // Seatbelt denies them by rules of its profile.
        if self.engine == EngineKind::SandboxExec || hidden.is_empty() {
            return Ok(hidden);
        }
        let (empty_file, empty_directory) = (self.session_dir.join("hidden"), self.session_dir.join("hidden.d"));
        self.prepare.push(Prepare::File { path: empty_file.clone(), content: String::new() });
        self.prepare.push(Prepare::Directory { path: empty_directory.clone(), mode: 0o755 });
        for file in &facts.files {
            // Renamed, a directory above would no longer match a pattern at the next launch.
            self.pin_above(&file.path);
            let why = Why::new("hidden: reads as empty", self.hide_origin(file.glob)).about(Topic::Workspace);
            let covers: Vec<Mount> = self
                .mounts
                .iter()
                .filter_map(|mount| {
                    let source = self.shown_directory(mount)?;
                    // A mount of the file itself was requested explicitly.
                    let below = file.path.as_path().strip_prefix(source.as_path()).ok()?;
                    let target = mount.target.join(below);
                    let is_itself = source == file.path;
                    (!is_itself).then(|| match file.is_directory {
                        true => Mount::directory(empty_directory.clone(), target, Access::Ro, why.clone()),
                        false => Mount::file(empty_file.clone(), target, Access::Ro, why.clone()),
                    })
                })
                .collect();
            covers.into_iter().for_each(|cover| self.mounts.add(cover));
        }
        Ok(hidden)
    }

    fn hide_origin(&self, glob: Option<usize>) -> Origin {
        let asked = self.config.hide.get(glob.unwrap_or_default()).or(self.config.hide.first());
        asked.map_or(Origin::Default, |asked| asked.origin.clone())
    }

    fn tracked(&self, file: &HiddenFile, tracked: PathBuf) -> HideError {
        match file.glob.and_then(|glob| self.config.hide.get(glob)) {
            Some(asked) => {
                HideError::Tracked { origin: asked.origin.clone(), pattern: asked.value.to_string(), file: tracked }
            }
            None => HideError::TrackedLink { file: tracked },
        }
    }

    fn hide_problem(&self, problem: &HideProblem) -> HideError {
        let origin = self.hide_origin(None);
        let pattern = self.config.hide.first().map_or(String::new(), |asked| asked.value.to_string());
        match problem {
            HideProblem::TooManyEntries => HideError::TooManyEntries { origin, pattern },
            HideProblem::TooManyHidden => HideError::TooManyHidden { origin, pattern },
            HideProblem::Index(file) => HideError::Index { file: file.clone() },
        }
    }

    /// Lists the patterns for `explain`.
    pub fn hide_details(&self) -> Vec<Detail> {
        let patterns = self.config.hide.iter().enumerate();
        let detail = patterns.map(|(number, asked)| {
            let count = self.facts.hidden.files.iter().filter(|file| file.glob == Some(number)).count();
            let reason = format!("files that it matches now: {count}; files that appear later are not hidden");
            Detail { name: "hide", value: asked.value.to_string(), reason, from: asked.origin.clone() }
        });
        detail.collect()
    }
}

/// Asks for the files that the patterns match.
pub fn question(config: &Config, trees: Vec<HostPath>) -> HideQuestion {
    HideQuestion { globs: config.hide.iter().map(|asked| asked.value.clone()).collect(), trees }
}
