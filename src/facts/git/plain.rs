//! Reads Git's settings without starting Git. Saves 1.4 ms of a native launch of 6.8 ms in a
//! repository.
//!
//! It is safe because anything that is not plain returns `None`, and then Git is asked: every
//! condition under which Git would read another file or refuse the repository, and all syntax that
//! `syntax.rs` does not cover.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::repository::{Repository, is_git_dir};
use super::{GitQuestion, Scope, Setting, syntax};
use crate::host::{Host, Platform};
use crate::path::HostPath;
use crate::process::untrusted;

/// Git is asked about larger files.
const MAX_FILE: u64 = 64 << 10;
/// Prefixes of variables that change which files Git reads, or how it finds the repository.
const ASK_GIT_PREFIXES: &[&str] = &["GIT_CONFIG", "GIT_DISCOVERY", "GIT_TEST"];
const SYSTEM_FILE: &str = "/etc/gitconfig";
/// The file for all users below the prefix that Git was built for, if that is not `/usr`.
const SYSTEM_FILE_IN_PREFIX: &str = "etc/gitconfig";

/// Returns the settings that `git config --list` would print in the working directory.
pub fn read(host: &Host, program: &HostPath, question: &GitQuestion) -> Option<Vec<Setting>> {
    // Apple's Git reads further files.
    if host.platform != Platform::Linux || is_changed_by_environment(host) || question.is_refused {
        return None;
    }
    let home = host.home.as_path();
    let own = host.env.path("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), Path::to_owned);
    let mut found = Vec::new();
    let system = system_file(program)?;
    add(&mut found, Scope::System, &system, system.clone())?;
    for file in [own.join("git/config"), home.join(".gitconfig")] {
        add(&mut found, Scope::Global, &file, file.clone())?;
    }
    if let Some(repository) = &question.repository {
        let (file, shown) = repository_file(host, repository, &question.directory)?;
        let before = found.len();
        add(&mut found, Scope::Repository, &file, shown)?;
        if found[before..].iter().any(|setting| !is_ordinary(setting)) {
            return None;
        }
    }
    // Conditions of includes are left to Git.
    found.iter().all(|setting| !setting.key.starts_with("include")).then_some(found)
}

fn is_changed_by_environment(host: &Host) -> bool {
    let mut names = host.env.iter().map(|(name, _)| name.as_encoded_bytes());
    names.any(|name| ASK_GIT_PREFIXES.iter().any(|prefix| name.starts_with(prefix.as_bytes())))
}

/// Returns this Git's configuration file for all users. A script or wrapper in the place of Git
/// could use any file, so `None` is returned for it.
fn system_file(program: &HostPath) -> Option<PathBuf> {
    let real = program.as_path().canonicalize().ok()?;
    let mut start = [0; 4];
    File::open(&real).and_then(|mut file| file.read_exact(&mut start)).ok()?;
    if start != *b"\x7fELF" || real.file_name()? != "git" {
        return None;
    }
    let prefix = |program: &Path| program.parent()?.parent().map(Path::to_owned);
    let system = PathBuf::from(SYSTEM_FILE);
    let (prefix, linked) = (prefix(&real)?, prefix(program.as_path())?);
    match prefix.to_str() {
        Some("/usr") => Some(system),
        // A build may use `/etc` all the same. That matters only if the file there can make Git run
        // code.
        Some("/usr/local") if !names_hooks_or_files(&system) => Some(prefix.join(SYSTEM_FILE_IN_PREFIX)),
        _ => {
            let places = [system.clone(), prefix.join(SYSTEM_FILE_IN_PREFIX), linked.join(SYSTEM_FILE_IN_PREFIX)];
            places.iter().all(|file| file.symlink_metadata().is_err()).then_some(system)
        }
    }
}

/// Tells whether a file may set `core.hooksPath` or include other files; `true` if it cannot be
/// read.
fn names_hooks_or_files(file: &Path) -> bool {
    let text = match file.canonicalize().and_then(|real| untrusted::read(&real, MAX_FILE)) {
        Ok(text) => text.to_ascii_lowercase(),
        Err(error) => return error.kind() != ErrorKind::NotFound,
    };
    text.contains("hookspath") || text.contains("include")
}

/// Adds the settings of a file, if it exists.
fn add(found: &mut Vec<Setting>, scope: Scope, file: &Path, shown: PathBuf) -> Option<()> {
    if !file.is_absolute() {
        return None;
    }
    // A user's file may be a link. A link in a repository is untrusted and left to Git.
    let real = match scope {
        Scope::Repository => Ok(file.to_owned()),
        _ => file.canonicalize(),
    };
    let text = match real.and_then(|real| untrusted::read(&real, MAX_FILE)) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Some(()),
        Err(_) => return None,
    };
    let settings = syntax::settings(&text)?;
    found.extend(settings.into_iter().map(|(key, value)| Setting { scope, file: Some(shown.clone()), key, value }));
    Some(())
}

/// Returns the configuration file of a repository, and its name in Git's output. `None` if Git
/// would find another repository, or refuse this one.
fn repository_file(host: &Host, repository: &Repository, workdir: &HostPath) -> Option<(PathBuf, PathBuf)> {
    let Repository { root, git_dir, common_dir } = repository;
    let (dot_git, git_dir, common_dir) = (root.join(".git"), git_dir.as_path(), common_dir.as_path());
    // A submodule or a bare repository between the two directories comes first.
    let is_between = |above: &&Path| *above != root.as_path();
    if workdir
        .as_path()
        .ancestors()
        .take_while(is_between)
        .any(|above| above.join(".git").symlink_metadata().is_ok() || is_git_dir(above))
    {
        return None;
    }
    // Git does not search across file systems, and refuses repositories of other users.
    let device = root.as_path().metadata().ok()?.dev();
    let is_users = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.uid() == host.uid);
    if workdir.as_path().metadata().ok()?.dev() != device
        || ![root.as_path(), dot_git.as_path(), git_dir].iter().all(|path| is_users(path))
    {
        return None;
    }
    if !untrusted::read(&git_dir.join("HEAD"), MAX_FILE).is_ok_and(|text| is_head(&text))
        || !is_searchable_directory(&common_dir.join("objects"))
        || !is_searchable_directory(&common_dir.join("refs"))
    {
        return None;
    }
    let file = common_dir.join("config");
    let shown = if common_dir == dot_git.as_path() { PathBuf::from(".git/config") } else { file.clone() };
    Some((file, shown))
}

fn is_head(text: &str) -> bool {
    let id = text.trim_end();
    text.starts_with("ref: refs/") || id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_searchable_directory(path: &Path) -> bool {
    rustix::fs::access(path, Access::EXEC_OK).is_ok() && path.is_dir()
}

/// Tells whether a setting leaves the repository's format and working tree at their defaults.
fn is_ordinary(setting: &Setting) -> bool {
    match setting.key.as_str() {
        "core.repositoryformatversion" => setting.value == "0",
        "core.bare" => setting.value == "false",
        key => key != "core.worktree" && !key.starts_with("extensions."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_hooks_or_includes_is_recognised() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("gitconfig");
        assert!(!names_hooks_or_files(&file), "no file");
        for (text, expected) in [
            ("[credential]\n\thelper = x\n", false),
            ("[core]\n\tHooksPath = x\n", true),
            ("[includeIf \"gitdir:/\"]\n\tpath = x\n", true),
        ] {
            std::fs::write(&file, text)?;
            assert_eq!(names_hooks_or_files(&file), expected, "{text}");
        }
        // An unreadable file could contain either.
        assert!(names_hooks_or_files(directory.path()));
        Ok(())
    }
}
