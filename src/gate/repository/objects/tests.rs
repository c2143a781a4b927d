use std::fs;

use super::loose::{TEMPORARY_OBJECT, TIMES_SETTLE_AFTER};
use super::packs::SEEN_PACKS;
use super::*;
use crate::facts::git::test_repository::{NotAFile, TestRepository, git};

const SHA1: usize = 20;

/// A guest's repository, and a bare one that takes its objects.
struct Import {
    guest: TestRepository,
    bare: TestRepository,
    indexed: usize,
}

impl Import {
    fn new(format: &str) -> Self {
        let format = format!("--object-format={format}");
        let guest = TestRepository::new(&[&format]);
        guest.git(&["config", "gc.auto", "0"]);
        Import { guest, bare: TestRepository::new(&["--bare", &format]), indexed: 0 }
    }

    fn copy(&self, id_len: usize) -> ObjectCopy {
        ObjectCopy::new(self.bare.at("objects"), id_len)
    }

    fn update(&mut self, copy: &mut ObjectCopy, budget: &mut Budget) -> io::Result<()> {
        let directory = self.bare.at("");
        let indexed = &mut self.indexed;
        copy.update(&self.guest.git_dir().directory(Path::new("objects"))?, budget, &mut |pack| {
            *indexed += 1;
            let content = fs::read(pack)?;
            Ok(git(&directory, &["index-pack", "--stdin", "--strict"], &content).0)
        })
    }

    fn objects(repository: &TestRepository) -> String {
        repository.git(&["cat-file", "--batch-all-objects", "--batch-check", "--unordered"])
    }

    fn is_complete(&self) -> bool {
        let sorted = |repository| {
            let mut lines: Vec<String> = Self::objects(repository).lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        sorted(&self.guest) == sorted(&self.bare)
    }

    /// Returns the path of a loose object of the guest.
    fn loose(&self, id: &str) -> String {
        format!(".git/objects/{}/{}", &id[..2], &id[2..])
    }
}

fn plenty() -> Budget {
    Budget { bytes: 1 << 30 }
}

#[test]
fn loose_objects_and_packs_are_copied_once() {
    for (format, id_len) in [("sha1", SHA1), ("sha256", 32)] {
        let mut import = Import::new(format);
        let mut copy = import.copy(id_len);
        let mut budget = plenty();
        for n in 0..20 {
            import.guest.commit(&format!("loose {n}"));
        }
        import.update(&mut copy, &mut budget).unwrap();
        assert!(import.is_complete());
        assert_eq!(budget.bytes, (1 << 30) - 60 * BLOCK_SIZE);
        import.guest.git(&["repack", "-q", "-d"]);
        import.guest.commit("later");
        import.update(&mut copy, &mut budget).unwrap();
        assert!(import.is_complete());
        assert_eq!(import.indexed, 1);
        let left = budget.bytes;
        import.update(&mut copy, &mut budget).unwrap();
        // The state of a new process is what is on the disk.
        import.update(&mut import.copy(id_len), &mut budget).unwrap();
        assert_eq!((import.indexed, budget.bytes), (1, left));
        import.guest.commit("last");
        import.update(&mut copy, &mut budget).unwrap();
        assert!(import.is_complete());
        assert_eq!(import.bare.git(&["fsck", "--full", "--no-dangling"]), "");
        for name in [TEMPORARY_OBJECT, "../incoming.pack"] {
            assert!(!import.bare.at("objects").join(name).exists());
        }
    }
}

#[test]
fn an_object_packed_meanwhile_is_not_missed() {
    let import = Import::new("sha1");
    import.guest.commit("first");
    import.guest.git(&["repack", "-q", "-d"]);
    import.guest.commit("second");
    import.guest.git(&["repack", "-q", "-d"]);
    let (guest, directory) = (&import.guest, import.bare.at(""));
    let mut calls = 0;
    let index_pack = &mut |pack: &Path| {
        calls += 1;
        if calls == 1 {
            // Both packs become one, so that the second one on the list vanishes.
            guest.git(&["repack", "-q", "-a", "-d"]);
        }
        Ok(git(&directory, &["index-pack", "--stdin"], &fs::read(pack)?).0)
    };
    import
        .copy(SHA1)
        .update(&guest.git_dir().directory(Path::new("objects")).unwrap(), &mut plenty(), index_pack)
        .unwrap();
    assert_eq!(calls, 2);
    assert!(import.is_complete());
}

#[test]
fn settled_directories_are_not_listed_again() {
    let mut import = Import::new("sha1");
    let commit = import.guest.commit("first");
    let mut copy = import.copy(SHA1);
    import.update(&mut copy, &mut plenty()).unwrap();
    assert!(copy.finished_directories.is_empty(), "they are too new");
    std::thread::sleep(std::time::Duration::from_secs(TIMES_SETTLE_AFTER as u64 + 2));
    import.update(&mut copy, &mut plenty()).unwrap();
    assert_eq!(copy.finished_directories.len(), 3);
    // Without a change of the directory, a copy that was removed is not noticed.
    let copied = import.bare.at("objects").join(&commit[..2]).join(&commit[2..]);
    fs::remove_file(&copied).unwrap();
    import.update(&mut copy, &mut plenty()).unwrap();
    assert!(!copied.exists());
    import.guest.write(&format!("{}x", import.loose(&commit)), "a new name in the directory");
    import.update(&mut copy, &mut plenty()).unwrap();
    assert!(copied.exists());
}

#[test]
fn only_regular_files_with_exact_names_are_copied() {
    let mut import = Import::new("sha1");
    let id = "ab".repeat(20);
    let wrong = ["x".repeat(38), "a".repeat(37), "a".repeat(39), "A".repeat(38), "a".repeat(62), "tmp_obj_x".into()];
    for name in &wrong {
        import.guest.write(&format!(".git/objects/ab/{name}"), "x");
    }
    import.guest.write(&format!(".git/objects/AB/{}", "a".repeat(38)), "x");
    import.guest.write(&import.loose(&"cd".repeat(20)), "");
    import.guest.write(".git/objects/info/alternates", "/nonexistent\n");
    for name in
        ["pack-1.idx", "pack-1.rev", "pack-1.bitmap", "multi-pack-index", "tmp_pack_1", "x.pack", "pack-\n.pack"]
    {
        import.guest.write(&format!(".git/objects/pack/{name}"), "x");
    }
    for kind in NotAFile::ALL {
        import.guest.replace_by(&import.loose(&id), kind);
        import.guest.replace_by(".git/objects/pack/pack-2.pack", kind);
        import.update(&mut import.copy(SHA1), &mut plenty()).unwrap();
    }
    for kind in [NotAFile::Link, NotAFile::Pipe, NotAFile::Socket] {
        for path in [".git/objects/ab", ".git/objects/pack"] {
            import.guest.replace_by(path, kind);
            import.update(&mut import.copy(SHA1), &mut plenty()).unwrap();
        }
    }
    import.guest.replace_by(".git/objects/pack", NotAFile::Directory);
    assert_eq!((import.indexed, import.bare.at("seen-packs").exists()), (0, false));
    let copied: Vec<_> =
        fs::read_dir(import.bare.at("objects")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(copied.len(), 2, "only `info` and `pack`: {copied:?}");
}

#[test]
fn an_unfinished_object_is_copied_again() {
    let mut import = Import::new("sha1");
    let commit = import.guest.commit("first");
    let path = import.guest.at(&import.loose(&commit));
    let content = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &content[..10]).unwrap();
    let mut copy = import.copy(SHA1);
    import.update(&mut copy, &mut plenty()).unwrap();
    fs::write(&path, &content).unwrap();
    import.update(&mut copy, &mut plenty()).unwrap();
    assert!(import.is_complete());
}

#[test]
fn a_refused_pack_is_tried_again_when_it_changes() {
    let mut import = Import::new("sha1");
    import.guest.commit("first");
    import.guest.git(&["repack", "-q", "-d"]);
    let directory = import.guest.at(".git/objects/pack");
    let is_pack = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "pack");
    let path = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).find(is_pack).unwrap();
    let content = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &content[..content.len() - 30]).unwrap();
    let (mut copy, mut budget) = (import.copy(SHA1), plenty());
    for _ in 0..3 {
        import.update(&mut copy, &mut budget).unwrap();
    }
    assert_eq!((import.indexed, budget.bytes), (1, plenty().bytes));
    fs::write(&path, content).unwrap();
    import.update(&mut copy, &mut budget).unwrap();
    assert_eq!(import.indexed, 2);
    assert!(import.is_complete() && budget.bytes < plenty().bytes && !import.bare.at("incoming.pack").exists());

    let failure = &mut |_: &Path| Err(io::Error::other("git could not be run"));
    fs::remove_file(import.bare.at("seen-packs")).unwrap();
    let left = budget.bytes;
    assert!(
        import
            .copy(SHA1)
            .update(&import.guest.git_dir().directory(Path::new("objects")).unwrap(), &mut budget, failure)
            .is_err()
    );
    assert!(budget.bytes == left && !import.bare.at("seen-packs").exists());
    assert!(!import.bare.at("incoming.pack").exists());
}

#[test]
fn the_budget_bounds_bytes_and_files() {
    let mut import = Import::new("sha1");
    let big = import.guest.at(&import.loose(&"ab".repeat(20)));
    fs::create_dir_all(big.parent().unwrap()).unwrap();
    File::create(&big).unwrap().set_len(1 << 42).unwrap();
    let mut budget = plenty();
    let error = import.update(&mut import.copy(SHA1), &mut budget).unwrap_err();
    assert_eq!(error.to_string(), "new Git objects exceed the size limit (1073741824 bytes left)");
    fs::remove_file(big).unwrap();

    for n in 10..15 {
        import.guest.write(&import.loose(&n.to_string().repeat(20)), "x");
    }
    let mut budget = Budget { bytes: 4 * BLOCK_SIZE };
    assert_eq!(import.update(&mut import.copy(SHA1), &mut budget).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(budget.bytes, 0);
    assert!(!import.bare.at("objects").join(TEMPORARY_OBJECT).exists());
    let mut budget = Budget { bytes: BLOCK_SIZE };
    import.update(&mut import.copy(SHA1), &mut budget).unwrap();
    assert_eq!(budget.bytes, 0, "four were copied before");
}

#[test]
fn a_growing_file_is_not_copied_past_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let (source, target) = (directory.path().join("source"), directory.path().join("target"));
    fs::write(&source, vec![b'x'; 1 << 20]).unwrap();
    // `/proc` shows a size of zero for this file, as if it had grown after it was examined.
    let growing = File::open("/proc/self/smaps").unwrap();
    assert_eq!(growing.metadata().unwrap().len(), 0);
    assert!(copy(&growing, &target, &mut Budget { bytes: 100 }).is_err());
    assert!(fs::metadata(&target).unwrap().len() <= 101);
    fs::remove_file(&target).unwrap();
    let sparse = directory.path().join("sparse");
    File::create(&sparse).unwrap().set_len(1 << 42).unwrap();
    assert!(copy(&File::open(&sparse).unwrap(), &target, &mut Budget { bytes: 1 << 20 }).is_err());
    assert!(!target.exists(), "nothing is copied if it is too much");
    let mut budget = Budget { bytes: 2 << 20 };
    copy(&File::open(&source).unwrap(), &target, &mut budget).unwrap();
    assert_eq!((fs::read(&target).unwrap().len(), budget.bytes), (1 << 20, 1 << 20));
}

#[test]
fn a_list_of_packs_that_was_cut_is_read() {
    let import = Import::new("sha1");
    fs::write(import.bare.at(SEEN_PACKS), "pack-1.pack\npack-2.pa").unwrap();
    import.copy(SHA1).remember_pack("pack-3.pack").unwrap();
    let mut copy = import.copy(SHA1);
    let seen = copy.seen_packs().unwrap();
    assert!(seen.contains("pack-1.pack") && seen.contains("pack-3.pack") && !seen.contains("pack-2.pack"));
}
