//! Lists the submodules that the index of a Git directory names. A large index is read in another
//! thread, while other facts are looked up.

use std::collections::BTreeSet;
use std::io;
use std::thread::JoinHandle;

use super::directory::Format;
use super::index::{self, Gitlinks};
use super::repository::Repository;
use crate::path::HostPath;
use crate::process::untrusted;

/// Reading a smaller index takes as long as starting a thread.
const MIN_THREADED: u64 = 1 << 20;

/// The paths of all gitlinks, or the reason for which they are not known.
type Submodules = Result<BTreeSet<Vec<u8>>, String>;

/// The submodules of a Git directory with a large index.
pub struct EarlySubmodules {
    git_dir: HostPath,
    id_len: usize,
    found: Submodules,
}

impl EarlySubmodules {
    /// Begins to read the index of a repository, if it is large. The thread has ended when `finish`
    /// returns.
    pub fn start(repository: Option<&Repository>) -> PendingSubmodules {
        let large = repository.filter(|repository| {
            let index = repository.git_dir.join("index");
            index.as_path().symlink_metadata().is_ok_and(|meta| meta.len() >= MIN_THREADED)
        });
        PendingSubmodules(large.and_then(|Repository { git_dir, common_dir, .. }| {
            let (git_dir, common_dir) = (git_dir.clone(), common_dir.clone());
            let read = move || {
                let id_len = Format::of(&common_dir).id_len();
                EarlySubmodules { found: submodules(&git_dir, id_len), git_dir, id_len }
            };
            // Without a thread it is read later.
            std::thread::Builder::new().spawn(read).ok()
        }))
    }

    /// Returns the submodules of a Git directory, if it is the one that was read.
    pub fn of(&self, git_dir: &HostPath, id_len: usize) -> Option<Submodules> {
        (self.git_dir == *git_dir && self.id_len == id_len).then(|| self.found.clone())
    }
}

/// An index that is being read.
pub struct PendingSubmodules(Option<JoinHandle<EarlySubmodules>>);

impl PendingSubmodules {
    pub fn finish(self) -> Option<EarlySubmodules> {
        self.0.and_then(|thread| thread.join().ok())
    }
}

pub fn submodules(git_dir: &HostPath, id_len: usize) -> Submodules {
    let links = read(git_dir, "index", id_len)?;
    let mut paths: BTreeSet<Vec<u8>> = links.paths.into_iter().collect();
    if links.unnamed > 0 {
        return Err(format!("`{}` is split, and has a submodule in the place of a file", git_dir.join("index")));
    }
    if let Some(shared) = &links.shared {
        // Those that the index no longer has are covered without need.
        paths.extend(read(git_dir, shared, id_len)?.paths);
    }
    Ok(paths)
}

fn read(git_dir: &HostPath, name: &str, id_len: usize) -> Result<Gitlinks, String> {
    let file = git_dir.join(name);
    match untrusted::open(file.as_path(), index::MAX_INDEX) {
        Ok((content, size)) => {
            index::gitlinks(content, size, id_len).map_err(|error| format!("`{file}` cannot be read: {error}"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && name == "index" => Ok(Gitlinks::default()),
        Err(error) => Err(format!("`{file}` cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::git::test_repository::TestRepository;

    #[test]
    fn submodules_of_split_and_broken_indexes() {
        let repository = TestRepository::new(&[]);
        repository.commit("first");
        let head = repository.git(&["rev-parse", "HEAD"]);
        let head = head.trim();
        let add = |path: &str| {
            repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},{path}")]);
        };
        let git_dir = HostPath::new(repository.at(".git")).unwrap();
        let found = || submodules(&git_dir, 20).map(|paths| paths.into_iter().collect::<Vec<_>>());
        for number in 0..10 {
            add(&format!("a{number}"));
        }
        repository.git(&["update-index", "--split-index"]);
        add("b");
        assert_eq!(found().unwrap().len(), 11);
        let index = repository.at(".git/index");
        std::fs::write(&index, "broken").unwrap();
        assert!(found().is_err());
        std::fs::remove_file(index).unwrap();
        assert_eq!(found(), Ok(Vec::new()));
    }
}
