//! Copies the object files that a guest made to a bare repository on the host. Their content is not
//! examined; Git does that when it packs or indexes the copies.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Stat};

use super::refs::stat_hash;
use crate::process::untrusted_dir::{UntrustedDir, is_host_failure};

/// Git packs loose objects when a directory has more than about 27.
const MOST_LOOSE_PER_DIRECTORY: usize = 100_000;
/// Git keeps at most some thousand packs, with up to five files for each.
const MOST_PACK_FILES: usize = 100_000;
/// Each copy counts as whole blocks, so that the budget also bounds the number of empty files.
const BLOCK_SIZE: u64 = 4096;
/// Within this many seconds after a directory changed, another change may leave its times as they
/// are: file systems store them in steps of up to two seconds.
const TIMES_SETTLE_AFTER: i64 = 2;
/// `git repack` may replace all packs while they are copied.
const PACK_LIST_ATTEMPTS: usize = 3;

/// Git's name for objects that are being written; `git gc` removes those that were left behind.
const TEMPORARY_OBJECT: &str = "tmp_obj_incoming";
const INCOMING_PACK: &str = "incoming.pack";
const SEEN_PACKS: &str = "seen-packs";

/// The bytes that may still be copied in a session.
#[derive(Debug)]
pub struct Budget {
    pub bytes: u64,
}

/// Copies loose objects and packs. Only one process may do this for an import directory at a time.
#[derive(Debug)]
pub struct ObjectCopy {
    import_objects: PathBuf,
    id_len: usize,
    /// The `stat_hash` of each directory of loose objects whose files have all been copied.
    finished_directories: HashMap<u8, u64>,
    /// `None` until the list has been read.
    seen_packs: Option<HashSet<String>>,
    /// The `stat_hash` of packs that Git refused. They are tried again once they change.
    refused_packs: HashMap<String, u64>,
}

impl ObjectCopy {
    /// Copies to `import_objects`, the directory `objects` of a bare repository that the guest does
    /// not see. Object ids have `id_len` bytes, 20 or 32.
    pub fn new(import_objects: PathBuf, id_len: usize) -> Self {
        let finished_directories = HashMap::new();
        ObjectCopy { import_objects, id_len, finished_directories, seen_packs: None, refused_packs: HashMap::new() }
    }

    /// Copies the objects that are new since the last call. A pack is copied to a temporary file, for
    /// which `index_pack` runs Git and returns whether Git accepted it. Alternates are not followed.
    ///
    /// Loose objects are copied before packs: Git deletes a loose object after it has packed it, so
    /// that the opposite order could miss it in both places.
    pub fn update(
        &mut self,
        objects: &UntrustedDir,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<()> {
        for number in 0..=u8::MAX {
            self.copy_loose_directory(objects, number, budget)?;
        }
        for _ in 0..PACK_LIST_ATTEMPTS {
            if self.copy_packs(objects, budget, index_pack)? {
                break;
            }
        }
        Ok(())
    }

    /// Copies the loose objects whose ids start with the byte `number`.
    fn copy_loose_directory(&mut self, objects: &UntrustedDir, number: u8, budget: &mut Budget) -> io::Result<()> {
        let name = format!("{number:02x}");
        let Some(stat) = stat_of_kind(objects, &name, FileType::Directory)? else { return Ok(()) };
        if self.finished_directories.get(&number) == Some(&stat_hash(&stat)) {
            return Ok(());
        }
        let Some(directory) = unless_guest_failure(objects.directory(Path::new(&name)))? else { return Ok(()) };
        // The guest may have put another directory there. The times must be older than the list.
        let stat = rustix::fs::fstat(directory.as_fd())?;
        let entries = directory.entries(MOST_LOOSE_PER_DIRECTORY)?;
        let target = self.import_objects.join(&name);
        let mut is_finished = is_settled(&stat);
        for (file_name, kind) in entries {
            let Some(file_name) = file_name.to_str().filter(|name| self.is_loose_name(name)) else { continue };
            is_finished &= kind == FileType::RegularFile && self.copy_loose(&directory, file_name, &target, budget)?;
        }
        if is_finished {
            self.finished_directories.insert(number, stat_hash(&stat));
        }
        Ok(())
    }

    fn is_loose_name(&self, name: &str) -> bool {
        name.len() == (self.id_len * 2).saturating_sub(2)
            && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// Copies a loose object unless a copy of the same size exists. A copy of another size was made
    /// of an unfinished file. Returns whether the object need not be examined again.
    fn copy_loose(&self, directory: &UntrustedDir, name: &str, target: &Path, budget: &mut Budget) -> io::Result<bool> {
        let Some(stat) = stat_of_kind(directory, name, FileType::RegularFile)? else { return Ok(false) };
        if stat.st_size == 0 {
            // A crash can leave an empty file; Git reports it as corrupt.
            return Ok(false);
        }
        let target_file = target.join(name);
        match fs::symlink_metadata(&target_file) {
            Ok(copy) if u64::try_from(stat.st_size) == Ok(copy.len()) => return Ok(true),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let Some(Some(source)) = unless_guest_failure(directory.file(Path::new(name)))? else { return Ok(false) };
        fs::create_dir_all(target)?;
        let temporary = self.import_objects.join(TEMPORARY_OBJECT);
        copy(&source, &temporary, budget).and_then(|()| fs::rename(&temporary, &target_file)).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
        Ok(true)
    }

    /// Copies the packs that were not copied before. Returns `false` if one vanished meanwhile, so
    /// that there may be a new one with the same objects.
    fn copy_packs(
        &mut self,
        objects: &UntrustedDir,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<bool> {
        if stat_of_kind(objects, "pack", FileType::Directory)?.is_none() {
            return Ok(true);
        }
        let Some(directory) = unless_guest_failure(objects.directory(Path::new("pack")))? else { return Ok(true) };
        let mut is_complete = true;
        for (name, kind) in directory.entries(MOST_PACK_FILES)? {
            let Some(name) = pack_name(&name).filter(|_| kind == FileType::RegularFile) else { continue };
            if self.seen_packs()?.contains(name) {
                continue;
            }
            let Some(source) = unless_guest_failure(directory.file(Path::new(name)))? else { continue };
            let Some(source) = source else {
                is_complete = false;
                continue;
            };
            let stat = rustix::fs::fstat(&source)?;
            let hash = stat_hash(&stat);
            if self.refused_packs.get(name) == Some(&hash) {
                continue;
            }
            if is_sparse(&stat) || stat.st_size.unsigned_abs() > budget.bytes {
                self.refused_packs.insert(name.to_owned(), hash);
                continue;
            }
            if self.copy_pack(&source, budget, index_pack)? {
                self.remember_pack(name)?;
            } else {
                self.refused_packs.insert(name.to_owned(), hash);
            }
        }
        Ok(is_complete)
    }

    /// Copies a pack and lets Git index it. A pack that Git refused, perhaps because it was not
    /// complete, is deleted and does not count.
    fn copy_pack(
        &self,
        source: &File,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let incoming = self.beside(INCOMING_PACK);
        let before = budget.bytes;
        let indexed = copy(source, &incoming, budget).and_then(|()| index_pack(&incoming));
        if !matches!(indexed, Ok(true)) {
            budget.bytes = before;
        }
        match fs::remove_file(&incoming) {
            Err(error) if error.kind() != ErrorKind::NotFound => indexed.and(Err(error)),
            _ => indexed,
        }
    }

    fn seen_packs(&mut self) -> io::Result<&mut HashSet<String>> {
        if self.seen_packs.is_none() {
            let text = match fs::read_to_string(self.beside(SEEN_PACKS)) {
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                text => text?,
            };
            self.seen_packs = Some(text.lines().map(str::to_owned).collect());
        }
        Ok(self.seen_packs.get_or_insert_default())
    }

    fn remember_pack(&mut self, name: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(self.beside(SEEN_PACKS))?;
        // A kill may have cut the last line; the empty line between them has no meaning.
        file.write_all(format!("\n{name}\n").as_bytes())?;
        self.seen_packs()?.insert(name.to_owned());
        Ok(())
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.import_objects.parent().unwrap_or(&self.import_objects).join(name)
    }
}

/// Tells whether most of a file has no place on the disk: Git writes no such packs, and a copy would
/// fill the disk.
pub fn is_sparse(stat: &Stat) -> bool {
    const MIN_SIZE: u64 = 1 << 20;
    const BLOCK: u64 = 512;
    let size = stat.st_size.unsigned_abs();
    size > MIN_SIZE && (stat.st_blocks.unsigned_abs()).saturating_mul(BLOCK) < size / 2
}

/// Returns the name if it is that of a pack, without characters that have a meaning in a list of
/// lines.
fn pack_name(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let middle = name.strip_prefix("pack-")?.strip_suffix(".pack")?;
    middle.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)).then_some(name)
}

/// Copies a file of the guest to a new file of the host, and subtracts its size from the budget. The
/// guest may write to the file meanwhile, or make it longer.
fn copy(source: &File, target: &Path, budget: &mut Budget) -> io::Result<()> {
    let size = source.metadata()?.len();
    if size > budget.bytes {
        return Err(exceeded(budget));
    }
    let mut target = File::create(target)?;
    let copied = io::copy(&mut source.take(budget.bytes.saturating_add(1)), &mut target)?;
    let cost = copied.max(1).checked_next_multiple_of(BLOCK_SIZE).filter(|cost| *cost <= budget.bytes);
    budget.bytes -= cost.ok_or_else(|| exceeded(budget))?;
    Ok(())
}

fn exceeded(budget: &Budget) -> io::Error {
    let message = format!("new Git objects exceed the size limit ({} bytes left)", budget.bytes);
    io::Error::new(ErrorKind::QuotaExceeded, message)
}

/// Examines an entry; `None` if it is missing or of another kind.
fn stat_of_kind(directory: &UntrustedDir, name: &str, kind: FileType) -> io::Result<Option<Stat>> {
    let stat = unless_guest_failure(directory.stat(name))?;
    Ok(stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == kind))
}

/// Returns `None` for an error that the guest can cause.
fn unless_guest_failure<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_host_failure(&error) => Err(error),
        result => Ok(result.ok()),
    }
}

/// Returns whether a later change of a directory will change its times. The time of the last status
/// change is used because the guest cannot set it.
fn is_settled(stat: &Stat) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    i64::try_from(now).is_ok_and(|now| now.saturating_sub(stat.st_ctime) > TIMES_SETTLE_AFTER)
}

#[cfg(test)]
mod tests {
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
        let wrong =
            ["x".repeat(38), "a".repeat(37), "a".repeat(39), "A".repeat(38), "a".repeat(62), "tmp_obj_x".into()];
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
}
