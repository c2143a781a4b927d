//! Reads what decides in a Git directory of the workspace, and so tells whether the guest did more
//! than ordinary work in it: everything apart from objects, refs, reflogs and the index must be as
//! it was.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

use super::refs::stat_hash;
use crate::facts::git::{index, syntax};
use crate::process::bounded_work;
use crate::process::untrusted_dir::{UntrustedDir, permissions};

/// Files that Git writes in ordinary work, and of which it executes nothing.
const DATA_FILES: &[&str] =
    &["HEAD", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "index", "packed-refs", "gc.log", "shallow"];
/// These decide which code Git runs, and are read first, while there is room for them.
const DECISIVE: &[&str] = &["config", "config.worktree", "commondir", "gitdir", "hooks", "info"];
/// The settings that `git init` writes.
const INITIAL_SETTINGS: &[&str] = &[
    "core.bare",
    "core.filemode",
    "core.ignorecase",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.repositoryformatversion",
    "core.symlinks",
    "extensions.objectformat",
];
/// The contents of more files of a Git directory are not kept.
const MAX_TOTAL: u64 = 8 << 20;
/// The contents of more files of all Git directories are not kept.
pub const MAX_TOTAL_OF_ALL: u64 = 16 << 20;
/// Larger files are compared by their size and times only, and are not restored.
const MAX_FILE: u64 = 1 << 20;
/// Larger samples of hooks, which Git never runs, are not those of Git, and do not count.
const MAX_SAMPLE: u64 = 16 << 10;
const MAX_ENTRIES: usize = 100_000;
/// Git makes no directories so deep in a Git directory.
const MAX_DEPTH: usize = 100;
const MAX_INDEX: u64 = 256 << 20;

/// Everything in a Git directory that is not data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitDirContent(#[serde(with = "crate::saved_path")] pub Vec<(PathBuf, Content)>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    File {
        #[serde(with = "crate::saved_path")]
        bytes: Vec<u8>,
        mode: u32,
    },
    Link(#[serde(with = "crate::saved_path")] PathBuf),
    /// A file that is too large, a pipe, or data that is not a regular file of its own. The number
    /// differs after every change.
    Odd(u64),
}

/// How the entries of a directory are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// A Git directory.
    GitDir,
    /// Contains Git directories of worktrees.
    Worktrees,
    /// Contains Git directories of submodules, at any depth.
    Modules,
    /// Contains regular files that Git reads as data.
    Data,
    /// The directory `objects`.
    Objects,
    /// Contains objects, which are many, may have other names by hard links, and are verified by
    /// Git, or large files of Git LFS and git-annex.
    ObjectFiles,
    /// Contains hooks, and samples of them.
    Hooks,
    /// Contains files that count, whatever their names.
    Other,
}

impl Level {
    /// Returns the level of a directory in one of this level.
    fn below(self, name: &str) -> Self {
        match (self, name) {
            (Level::GitDir, "refs" | "logs") | (Level::Data, _) => Level::Data,
            (Level::GitDir, "objects") => Level::Objects,
            (Level::Objects, "info") => Level::Other,
            (Level::GitDir, "lfs" | "annex") | (Level::Objects | Level::ObjectFiles, _) => Level::ObjectFiles,
            (Level::GitDir, "hooks") => Level::Hooks,
            (Level::GitDir, "worktrees") => Level::Worktrees,
            (Level::GitDir, "modules") | (Level::Modules, _) => Level::Modules,
            (Level::Worktrees, _) => Level::GitDir,
            _ => Level::Other,
        }
    }

    /// Returns the level for the files of a directory with these entries. Git takes a directory among
    /// the data for a Git directory as well, if it contains these names.
    fn of_files(self, entries: &[(OsString, FileType)]) -> Self {
        let has = |name: &str| entries.iter().any(|(known, _)| known == name);
        let is_git_dir = has("HEAD") && (has("objects") || has("commondir"));
        let is_data = matches!(self, Level::Data | Level::Objects | Level::ObjectFiles);
        if is_data && is_git_dir { Level::Other } else { self }
    }
}

/// A reading of a Git directory.
struct Reader<'a> {
    content: GitDirContent,
    /// The number of bytes that may still be read.
    left: u64,
    before: BTreeMap<&'a Path, &'a Content>,
}

impl GitDirContent {
    /// Reads a Git directory, and keeps at most `left` bytes of files.
    pub fn record(git_dir: &UntrustedDir, left: &mut u64) -> io::Result<Self> {
        let available = MAX_TOTAL.min(*left);
        let mut reader = Reader { content: GitDirContent::default(), left: available, before: BTreeMap::new() };
        let result = reader.read(git_dir);
        *left -= available - reader.left;
        result.map(|()| reader.content)
    }

    /// Reads a Git directory again, to compare it: files whose contents were kept are read, and those
    /// that were not are not read.
    pub fn again(git_dir: &UntrustedDir, before: &GitDirContent) -> io::Result<Self> {
        let before = before.0.iter().map(|(path, content)| (path.as_path(), content)).collect();
        let mut reader = Reader { content: GitDirContent::default(), left: MAX_TOTAL, before };
        reader.read(git_dir)?;
        Ok(reader.content)
    }

    /// Reads a Git directory that was not there before.
    pub fn of(git_dir: &UntrustedDir) -> io::Result<Self> {
        Self::record(git_dir, &mut { MAX_TOTAL })
    }

    /// Tells whether it is what `git init` makes, so that Git runs nothing because of it.
    pub fn is_harmless(&self) -> bool {
        self.0.iter().all(|(path, content)| match (path.to_str(), content) {
            (Some("description" | "info/exclude"), Content::File { .. }) => true,
            (Some("config"), Content::File { bytes, .. }) => {
                let settings = syntax::settings(&String::from_utf8_lossy(bytes));
                settings
                    .is_some_and(|settings| settings.iter().all(|(key, _)| INITIAL_SETTINGS.contains(&key.as_str())))
            }
            (Some(path), Content::File { .. }) => path.starts_with("hooks/") && path.ends_with(".sample"),
            _ => false,
        })
    }
}

impl Reader<'_> {
    fn read(&mut self, git_dir: &UntrustedDir) -> io::Result<()> {
        self.collect(git_dir, Path::new(""), Level::GitDir)?;
        self.content.0.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(())
    }

    fn collect(&mut self, directory: &UntrustedDir, path: &Path, level: Level) -> io::Result<()> {
        if path.iter().count() > MAX_DEPTH {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too many levels of directories"));
        }
        let mut entries = directory.entries(MAX_ENTRIES)?;
        let has_head = entries.iter().any(|(name, _)| name == "HEAD");
        let level = if level == Level::Modules && has_head { Level::GitDir } else { level };
        let level_of_files = level.of_files(&entries);
        entries.sort_by_key(|(name, _)| !DECISIVE.iter().any(|decisive| name == decisive));
        for (name, kind) in entries {
            bounded_work::check()?;
            let below = path.join(&name);
            let text = name.to_str().unwrap_or_default();
            if kind == FileType::Directory {
                let inner = directory.open_granted(Path::new(&name))?;
                self.collect(&inner, &below, level.below(text))?;
            } else if level_of_files != Level::ObjectFiles || kind != FileType::RegularFile {
                self.add(directory, &name, below, level_of_files, kind)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        directory: &UntrustedDir,
        name: &OsStr,
        path: PathBuf,
        level: Level,
        kind: FileType,
    ) -> io::Result<()> {
        let text = name.to_str().unwrap_or_default();
        let stat = directory.stat(name)?;
        let is_plain = kind == FileType::RegularFile && stat.st_nlink == 1;
        let is_data = match level {
            Level::Data => true,
            Level::GitDir => DATA_FILES.contains(&text) || text.ends_with(".lock"),
            Level::Objects => text.ends_with(".lock") || text.starts_with("tmp_"),
            Level::Hooks => text.ends_with(".sample") && stat.st_size.unsigned_abs() > MAX_SAMPLE,
            _ => false,
        };
        if is_data && is_plain && (level != Level::GitDir || text != "index" || has_valid_index(directory)) {
            return Ok(());
        }
        let size = stat.st_size.unsigned_abs();
        let is_read = match self.before.get(path.as_path()) {
            Some(Content::Odd(_)) => false,
            Some(_) => true,
            None => size <= self.left,
        };
        let content = if is_read || kind == FileType::Symlink {
            Content::of(directory, Path::new(name), kind, &stat)
        } else {
            Content::Odd(stat_hash(&stat))
        };
        if let Content::File { bytes, .. } = &content {
            self.left = self.left.saturating_sub(bytes.len() as u64);
        }
        self.content.0.push((path, content));
        Ok(())
    }
}

impl Content {
    pub fn of(directory: &UntrustedDir, name: &Path, kind: FileType, stat: &Stat) -> Self {
        let odd = || Content::Odd(stat_hash(stat));
        match kind {
            FileType::Symlink => rustix::fs::readlinkat(directory, name, Vec::new())
                .map_or_else(|_| odd(), |target| Content::Link(OsString::from_vec(target.into_bytes()).into())),
            FileType::RegularFile => match directory.read(name, MAX_FILE) {
                Ok(Some(bytes)) => Content::File { bytes, mode: permissions(stat) },
                _ => odd(),
            },
            _ => odd(),
        }
    }
}

/// Tells whether Git can check the paths of an index out: it does not verify them itself.
fn has_valid_index(git_dir: &UntrustedDir) -> bool {
    let Ok(Some(content)) = git_dir.read("index", MAX_INDEX) else { return false };
    let parsed = index::parse(&content, 20).or_else(|_| index::parse(&content, 32));
    parsed.is_ok_and(|index| index.entries.iter().all(|((path, _), entry)| index::is_valid_path(path, entry.mode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::test_repository::TestRepository;

    #[test]
    fn ordinary_work_changes_nothing_that_counts() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        let content = || GitDirContent::of(&repository.git_dir()).unwrap();
        let before = content();
        repository.commit("second");
        repository.git(&["branch", "other"]);
        repository.git(&["status"]);
        assert_eq!(content(), before);
        for (path, text) in
            [(".git/commondir", "x"), (".git/hooks/pre-commit", "x"), (".git/objects/info/alternates", "x")]
        {
            repository.write(path, text);
            assert_ne!(content(), before, "{path}");
            std::fs::remove_file(repository.at(path)).unwrap();
        }
        let log = repository.at(".git/logs/HEAD");
        std::fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &log).unwrap();
        assert_ne!(content(), before, "a link in the place of a reflog");
        std::fs::remove_file(&log).unwrap();
        repository.git(&["config", "core.fsmonitor", "x"]);
        assert_ne!(content(), before, "a setting");
    }

    #[test]
    fn links_among_objects_and_hidden_git_directories_count() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        let content = || GitDirContent::of(&repository.git_dir()).unwrap();
        let before = content();
        for place in ["refs", "refs/heads/x", "logs/x", "objects", "objects/aa", "objects/pack", "lfs/x", "annex"] {
            let at = |name: &str| format!(".git/{place}/{name}");
            repository.write(&at("HEAD"), "ref: refs/heads/main\n");
            repository.write(&at("objects/x"), "");
            let now = content();
            assert!(now.0.iter().any(|(path, _)| *path == Path::new(place).join("HEAD")), "{place}");
            assert!(
                !now.0.iter().any(|(path, _)| path.starts_with("refs/heads/main")),
                "{place}: a branch is no setting"
            );
            std::fs::remove_file(repository.at(&at("HEAD"))).unwrap();
            std::fs::remove_dir_all(repository.at(&at("objects"))).unwrap();
        }
        assert_eq!(content(), before);
        for path in ["objects/pack", "objects/pack/x.pack", "objects/aa", "objects/info", "lfs", "annex/x"] {
            let at = repository.at(&format!(".git/{path}"));
            let _ = std::fs::remove_dir_all(&at);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("/tmp", &at).unwrap();
            assert!(content().0.contains(&(path.into(), Content::Link("/tmp".into()))), "{path}");
            std::fs::remove_file(at).unwrap();
        }
    }

    #[test]
    fn contents_past_the_limit_are_compared_by_their_times() {
        let repository = TestRepository::new(&[]);
        let large = vec![b'x'; usize::try_from(MAX_FILE).unwrap()];
        for number in 0..=MAX_TOTAL / MAX_FILE {
            repository.write(&format!(".git/a{number}"), &large);
            repository.write(&format!(".git/lfs/objects/{number}"), &large);
            repository.write(&format!(".git/hooks/{number}.sample"), &large);
        }
        let git_dir = repository.git_dir();
        let mut left = MAX_TOTAL_OF_ALL;
        let before = GitDirContent::record(&git_dir, &mut left).unwrap();
        assert!(left >= MAX_TOTAL_OF_ALL - MAX_TOTAL);
        let is_kept = |content: &GitDirContent, name: &str| {
            content.0.iter().any(|(path, content)| path == Path::new(name) && matches!(content, Content::File { .. }))
        };
        assert!(is_kept(&before, "config"));
        assert_eq!(before.0.iter().filter(|(_, content)| matches!(content, Content::Odd(_))).count(), 2);
        assert!(!before.0.iter().any(|(path, _)| path.starts_with("lfs") || path.starts_with("hooks/1.sample")));
        assert_eq!(GitDirContent::again(&git_dir, &before).unwrap(), before);
        // As many bytes in the same file.
        for (path, _) in before.0.iter().filter(|(_, content)| matches!(content, Content::Odd(_))) {
            let at = repository.at(".git").join(path);
            std::fs::write(&at, vec![b'y'; large.len()]).unwrap();
            assert_ne!(GitDirContent::again(&git_dir, &before).unwrap(), before, "{}", path.display());
        }
        // Without room nothing is kept, but everything is compared.
        let none = GitDirContent::record(&git_dir, &mut 0).unwrap();
        assert!(!is_kept(&none, "config"));
        assert_eq!(GitDirContent::again(&git_dir, &none).unwrap(), none);
    }
}
