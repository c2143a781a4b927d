//! Lists the submodules that the index of a Git directory names.

use std::collections::BTreeSet;
use std::io;

use super::index::{self, Gitlinks};
use crate::path::HostPath;
use crate::process::untrusted;

/// Returns the paths of all gitlinks, or the reason for which they are not known.
pub fn submodules(git_dir: &HostPath, id_len: usize) -> Result<BTreeSet<Vec<u8>>, String> {
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
