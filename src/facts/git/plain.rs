//! Git's settings without Git, where its files are plain: starting a process takes longer than most of a launch.
//!
//! Every condition under which Git would read another file, or refuse, leads to `None`, and then Git is asked. So does every file that
//! is not plain, and the repository's own files are untrusted: what they hold is either read as Git reads it, or not at all.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::facts::git::repository::{Repository, is_git_dir};
use crate::facts::git::syntax;
use crate::facts::git::{GitQuestion, Scope, Setting};
use crate::host::{Host, Platform};
use crate::path::HostPath;
use crate::process::untrusted;

/// A larger file is Git's.
const LARGEST: u64 = 64 << 10;
/// How variables begin by which Git reads other files or settings, or looks for a repository otherwise.
const STEERING: &[&str] = &["GIT_CONFIG", "GIT_DISCOVERY", "GIT_TEST"];
/// The file for all users, and where it is for a Git that was built for another prefix than `/usr`: by the rules of Git's own build.
const SYSTEM: &str = "/etc/gitconfig";
const BESIDE: &str = "etc/gitconfig";

/// What Git would say of the working directory.
pub fn read(host: &Host, program: &HostPath, question: &GitQuestion) -> Option<Vec<Setting>> {
    let is_steered = host
        .env
        .iter()
        .any(|(name, _)| STEERING.iter().any(|steering| name.as_encoded_bytes().starts_with(steering.as_bytes())));
    // Apple's Git has files of its own.
    if host.platform != Platform::Linux || is_steered || question.is_refused {
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
        let (file, shown) = its_file(host, repository, &question.directory)?;
        let before = found.len();
        add(&mut found, Scope::Repository, &file, shown)?;
        if found[before..].iter().any(|setting| !is_ordinary(setting)) {
            return None;
        }
    }
    // Which files are included, Git knows.
    found.iter().all(|setting| !setting.key.starts_with("include")).then_some(found)
}

/// The file for all users of this Git. A script of that name, or a program that chooses one, may do anything.
fn system_file(program: &HostPath) -> Option<PathBuf> {
    let real = program.as_path().canonicalize().ok()?;
    let mut start = [0; 4];
    File::open(&real).and_then(|mut file| file.read_exact(&mut start)).ok()?;
    if start != *b"\x7fELF" || real.file_name()? != "git" {
        return None;
    }
    let prefix = |program: &Path| program.parent()?.parent().map(Path::to_owned);
    let system = PathBuf::from(SYSTEM);
    let (prefix, linked) = (prefix(&real)?, prefix(program.as_path())?);
    match prefix.to_str() {
        Some("/usr") => Some(system),
        // Unless its builder chose otherwise, which only matters where the other file decides what runs.
        Some("/usr/local") if !decides(&system) => Some(prefix.join(BESIDE)),
        _ => {
            let places = [system.clone(), prefix.join(BESIDE), linked.join(BESIDE)];
            places.iter().all(|file| file.symlink_metadata().is_err()).then_some(system)
        }
    }
}

/// Whether a file may name hooks, or other files.
fn decides(file: &Path) -> bool {
    let text = match file.canonicalize().and_then(|real| untrusted::read(&real, LARGEST)) {
        Ok(text) => text.to_ascii_lowercase(),
        Err(error) => return error.kind() != ErrorKind::NotFound,
    };
    text.contains("hookspath") || text.contains("include")
}

/// The settings of a file; none of one that is not there.
fn add(found: &mut Vec<Setting>, scope: Scope, file: &Path, shown: PathBuf) -> Option<()> {
    if !file.is_absolute() {
        return None;
    }
    // A user's file may be a link; a repository's is none.
    let real = match scope {
        Scope::Repository => Ok(file.to_owned()),
        _ => file.canonicalize(),
    };
    let text = match real.and_then(|real| untrusted::read(&real, LARGEST)) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Some(()),
        Err(_) => return None,
    };
    let settings = syntax::settings(&text)?;
    found.extend(settings.into_iter().map(|(key, value)| Setting { scope, file: Some(shown.clone()), key, value }));
    Some(())
}

/// A repository's file, and how Git names it, if Git would find just this repository, and take it for one.
fn its_file(host: &Host, repository: &Repository, workdir: &HostPath) -> Option<(PathBuf, PathBuf)> {
    let Repository { root, git_dir, common_dir } = repository;
    let (dot_git, git_dir, common_dir) = (root.join(".git"), git_dir.as_path(), common_dir.as_path());
    // No other begins on the way: a submodule, or a directory that looks like a bare one.
    let is_between = |above: &&Path| *above != root.as_path();
    if workdir
        .as_path()
        .ancestors()
        .take_while(is_between)
        .any(|above| above.join(".git").symlink_metadata().is_ok() || is_git_dir(above))
    {
        return None;
    }
    // Git goes no further up than the file system reaches, and refuses what belongs to others.
    let device = root.as_path().metadata().ok()?.dev();
    let is_host_user = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.uid() == host.uid);
    if workdir.as_path().metadata().ok()?.dev() != device
        || ![root.as_path(), dot_git.as_path(), git_dir].iter().all(|path| is_host_user(path))
    {
        return None;
    }
    let is_head = |text: String| {
        text.starts_with("ref: refs/")
            || text.trim_end().len() == 40 && text.trim_end().bytes().all(|b| b.is_ascii_hexdigit())
    };
    let is_there =
        |name| rustix::fs::access(common_dir.join(name), Access::EXEC_OK).is_ok() && common_dir.join(name).is_dir();
    if !untrusted::read(&git_dir.join("HEAD"), LARGEST).is_ok_and(is_head) || !is_there("objects") || !is_there("refs")
    {
        return None;
    }
    let file = common_dir.join("config");
    let shown = if common_dir == dot_git.as_path() { PathBuf::from(".git/config") } else { file.clone() };
    Some((file, shown))
}

/// Not one of the settings by which a repository is of another kind, or another place.
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
    fn a_file_that_names_hooks_or_others_decides() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("gitconfig");
        assert!(!decides(&file), "no file");
        for (text, expected) in [
            ("[credential]\n\thelper = x\n", false),
            ("[core]\n\tHooksPath = x\n", true),
            ("[includeIf \"gitdir:/\"]\n\tpath = x\n", true),
        ] {
            std::fs::write(&file, text)?;
            assert_eq!(decides(&file), expected, "{text}");
        }
        // What cannot be read might.
        assert!(decides(directory.path()));
        Ok(())
    }
}
