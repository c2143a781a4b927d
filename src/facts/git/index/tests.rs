use super::entries::{FLAG_EXTENDED, LENGTH_MASK, LONGEST_PATH, MODE_OFFSET, SIGNATURE, STAT_SIZE};
use super::number::read_u32;
use super::*;
use crate::facts::git::test_repository::TestRepository;

const SHA1: usize = 20;

fn content(repository: &TestRepository) -> Vec<u8> {
    std::fs::read(repository.at(".git/index")).unwrap()
}

fn version(content: &[u8]) -> u32 {
    read_u32(content, 4).unwrap()
}

/// Lists entries in the format of `git ls-files --stage`.
fn listed(index: &Index) -> Vec<String> {
    let line = |((path, stage), entry): (&(Vec<u8>, u8), &Entry)| {
        format!("{:06o} {} {stage}\t{}", entry.mode, entry.id, String::from_utf8_lossy(path))
    };
    index.entries.iter().map(line).collect()
}

fn listed_by_git(repository: &TestRepository) -> Vec<String> {
    let text = repository.git(&["ls-files", "--stage", "-z", "--sparse"]);
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn gitlinks(content: &[u8], id_len: usize) -> Result<Vec<Vec<u8>>, IndexError> {
    super::gitlinks(content, content.len() as u64, id_len).map(|links| links.paths)
}

/// Makes an index with conflicts, gitlinks, links, long and odd names, and all flags.
fn varied(options: &[&str], version: &str) -> TestRepository {
    let repository = TestRepository::new(options);
    let blob = repository.git_with_input(&["hash-object", "-w", "--stdin"], b"text");
    let commit = repository.commit("first");
    let mut lines = String::new();
    for n in 0..300 {
        lines += &format!("100644 {blob} 0\tdirectory/{n:0width$}\n", width = n % 40);
    }
    for stage in 1..=3 {
        lines += &format!("100755 {blob} {stage}\tconflict/{stage}\n100644 {blob} {stage}\tconflict/all\n");
    }
    for length in [4000, 4094, 4095, 4096] {
        lines += &format!("100644 {blob} 0\tlong/{}\n", "x".repeat(length - 5));
    }
    lines += &format!("120000 {blob} 0\tlink\n160000 {commit} 0\tsub/module\n160000 {commit} 0\tzz\n");
    lines += &format!("100644 {blob} 0\tz\\b é\n");
    repository.git_with_input(&["update-index", "--index-info"], lines.as_bytes());
    if version != "2" {
        repository.write("new", "new");
        repository.git(&["add", "--intent-to-add", "new"]);
        repository.git(&["update-index", "--skip-worktree", "directory/1"]);
    }
    repository.git(&["update-index", "--assume-unchanged", "directory/0"]);
    repository.git(&["update-index", "--index-version", version]);
    repository
}

#[test]
fn entries_are_those_of_git() {
    for (format, id_len) in [("--object-format=sha1", SHA1), ("--object-format=sha256", 32)] {
        for expected in ["2", "3", "4"] {
            let repository = varied(&[format], expected);
            let content = content(&repository);
            assert_eq!(version(&content).to_string(), expected);
            let index = parse(&content, id_len).unwrap();
            assert_eq!(listed(&index), listed_by_git(&repository), "version {expected}");
            assert!(!index.is_split && !index.is_sparse);
            assert_eq!(gitlinks(&content, id_len).unwrap(), [b"sub/module".to_vec(), b"zz".to_vec()]);
            for ((path, _), entry) in &index.entries {
                let is_extended = expected != "2";
                assert_eq!(entry.is_intent_to_add, is_extended && path == b"new");
                assert_eq!(entry.is_skip_worktree, is_extended && path == b"directory/1");
                assert_eq!(entry.is_assumed_valid, path == b"directory/0");
            }
            assert!(parse(&content, if id_len == SHA1 { 32 } else { SHA1 }).is_err());
        }
    }
}

#[test]
fn split_and_sparse_indexes_are_recognised() {
    let repository = varied(&[], "3");
    repository.git(&["update-index", "--split-index"]);
    repository.write("added", "x");
    repository.write("file", "changed");
    repository.git(&["add", "added", "file"]);
    let index = parse(&content(&repository), SHA1).unwrap();
    assert!(index.is_split);
    assert!(index.entries.contains_key(&(b"added".to_vec(), 0)) && index.entries.len() == 1, "{index:?}");
    let links = super::gitlinks(content(&repository).as_slice(), content(&repository).len() as u64, SHA1).unwrap();
    let shared = std::fs::read(repository.at(".git").join(links.shared.unwrap())).unwrap();
    assert_eq!((links.paths.len(), links.unnamed), (0, 0));
    assert_eq!(gitlinks(&shared, SHA1).unwrap(), [b"sub/module".to_vec(), b"zz".to_vec()]);

    let repository = TestRepository::new(&[]);
    for path in ["a/1", "a/2", "b/1"] {
        repository.write(path, "x");
    }
    repository.git(&["add", "."]);
    repository.commit("first");
    repository.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "a"]);
    let index = parse(&content(&repository), SHA1).unwrap();
    assert!(index.is_sparse && !index.is_split);
    assert_eq!(listed(&index), listed_by_git(&repository));
    assert_eq!(index.entries[&(b"b/".to_vec(), 0)].mode, MODE_DIRECTORY);
    assert_eq!(gitlinks(&content(&repository), SHA1).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn extensions_of_git_are_accepted_and_unknown_ones_refused() {
    let repository = varied(&[], "2");
    repository.git(&["update-index", "--force-untracked-cache"]);
    repository.git(&[
        "-c",
        "index.threads=2",
        "-c",
        "index.recordEndOfIndexEntries=true",
        "update-index",
        "--force-write-index",
    ]);
    let content = content(&repository);
    let has = |name: &[u8]| content.windows(4).any(|bytes| bytes == name);
    assert!(has(b"UNTR") && has(b"EOIE"));
    let index = parse(&content, SHA1).unwrap();
    let (start, checksum) = content.split_at(content.len() - SHA1);
    let with = |extension: &[u8]| [start, extension, checksum].concat();
    assert_eq!(parse(&with(b"ABCD\0\0\0\x01x"), SHA1).as_ref(), Ok(&index));
    assert!(parse(&with(b"link\0\0\0\0"), SHA1).unwrap().is_split);
    assert!(parse(&with(b"sdir\0\0\0\0"), SHA1).unwrap().is_sparse);
    for name in [b"abcd", b"\0\0\0\0", b"lonk"] {
        let content = with(&[name.as_slice(), b"\0\0\0\0"].concat());
        assert_eq!(parse(&content, SHA1), Err(IndexError::Extension(name.escape_ascii().to_string())));
        assert!(gitlinks(&content, SHA1).is_err());
    }
    for extension in [b"A" as &[u8], b"ABCD\0\0\0\x02x", b"ABCD\xff\xff\xff\xff"] {
        assert_eq!(parse(&with(extension), SHA1), Err(IndexError::Truncated), "{extension:?}");
    }
}

/// Makes one entry of version 2 or, if it has a number for the removed bytes, of version 4.
fn entry(flags: u16, name: &[u8]) -> Vec<u8> {
    let mut entry = vec![0; STAT_SIZE + SHA1];
    entry[MODE_OFFSET..MODE_OFFSET + 4].copy_from_slice(&MODE_GITLINK.to_be_bytes());
    entry.extend(flags.to_be_bytes());
    entry.extend(name);
    entry
}

fn index(version: u32, count: u32, entries: &[Vec<u8>]) -> Vec<u8> {
    let header = [SIGNATURE.as_slice(), &version.to_be_bytes(), &count.to_be_bytes()].concat();
    [header, entries.concat(), vec![0; SHA1]].concat()
}

#[test]
fn malformed_entries_are_refused() {
    let good = |path: u8| entry(1, &[path, 0]);
    assert_eq!(parse(&index(2, 2, &[good(b'a'), good(b'b')]), SHA1).unwrap().entries.len(), 2);
    let staged = |stage: u16, path: u8| entry(stage << STAGE_SHIFT | 1, &[path, 0]);
    assert_eq!(parse(&index(2, 2, &[staged(1, b'a'), staged(3, b'a')]), SHA1).unwrap().entries.len(), 2);
    let cases = [
        (vec![], IndexError::Truncated),
        (b"DIRX".to_vec(), IndexError::Signature),
        (index(1, 0, &[]), IndexError::Version(1)),
        (index(5, 0, &[]), IndexError::Version(5)),
        (index(2, 1, &[]), IndexError::Truncated),
        (index(2, u32::MAX, &[good(b'a')]), IndexError::Truncated),
        (index(4, u32::MAX, &[good(b'a')]), IndexError::Truncated),
        (index(2, 1, &[entry(2, b"a\0")]), IndexError::Truncated),
        (index(2, 1, &[entry(1, b"ab\0\0\0\0\0\0\0\0")]), IndexError::Path),
        (index(2, 1, &[entry(3, b"a\0b\0\0\0\0\0\0\0")]), IndexError::Path),
        (index(2, 1, &[entry(0, b"\0\0")]), IndexError::Path),
        (index(2, 1, &[entry(LENGTH_MASK, b"a\0")]), IndexError::Path),
        (index(2, 1, &[entry(LENGTH_MASK, &[b'a'; 5000])]), IndexError::TooLong),
        (index(2, 1, &[entry(LENGTH_MASK, &[b'a'; 500])]), IndexError::Truncated),
        (index(3, 1, &[entry(FLAG_EXTENDED | 1, b"\x80\0a\0\0\0\0\0\0\0")]), IndexError::Entry),
        (index(3, 1, &[entry(FLAG_EXTENDED | 1, b"\0\x01a\0\0\0\0\0\0\0")]), IndexError::Entry),
        (index(2, 2, &[good(b'b'), good(b'a')]), IndexError::Order),
        (index(2, 2, &[good(b'a'), good(b'a')]), IndexError::Order),
        (index(2, 2, &[staged(0, b'a'), staged(1, b'a')]), IndexError::Order),
        (index(2, 2, &[staged(2, b'a'), staged(1, b'a')]), IndexError::Order),
        (index(4, 1, &[entry(1, b"\x01a\0")]), IndexError::Path),
        (index(4, 1, &[entry(1, b"\0ab\0")]), IndexError::Path),
        (index(4, 2, &[entry(2, b"\0ab\0"), entry(1, b"\0\0")]), IndexError::Path),
        (index(4, 1, &[entry(1, &[0xff; 30])]), IndexError::Path),
        (index(4, 1, &[entry(1, &[0x80; 5])]), IndexError::Truncated),
    ];
    for (number, (content, error)) in cases.into_iter().enumerate() {
        assert_eq!(parse(&content, SHA1).err(), Some(error), "case {number}");
    }
    assert_eq!(parse(&index(2, 0, &[]), 16), Err(IndexError::IdLength(16)));
    let zero = index(2, 1, &[entry(3, b"a\0b\0\0\0\0\0\0\0")]);
    assert_eq!(gitlinks(&zero, SHA1), Err(IndexError::Path));
}

#[test]
fn prefix_compression_cannot_fill_the_memory() {
    let long = [b"\0".as_slice(), &[b'a'; LONGEST_PATH - 4], b"0000\0"].concat();
    let mut entries = vec![entry(LENGTH_MASK, &long)];
    for number in 1..=(MOST_PATH_BYTES / LONGEST_PATH) as u32 {
        let changed = char::from_u32(0x10000 + number).unwrap().to_string();
        assert_eq!(changed.len(), 4);
        entries.push(entry(LENGTH_MASK, &[b"\x04", changed.as_bytes(), b"\0"].concat()));
    }
    let content = index(4, entries.len() as u32, &entries);
    assert!(content.len() < 6 << 20);
    for result in [parse(&content, SHA1).err(), gitlinks(&content, SHA1).err()] {
        assert_eq!(result, Some(IndexError::TooLong));
    }
    let longer = entry(LENGTH_MASK, &[b"\0".as_slice(), b"x", b"\0"].concat());
    assert_eq!(parse(&index(4, 2, &[entry(LENGTH_MASK, &long), longer]), SHA1).err(), Some(IndexError::TooLong));
}

#[test]
fn an_index_of_a_hundred_thousand_entries_is_parsed() {
    let repository = TestRepository::new(&[]);
    let blob = repository.git_with_input(&["hash-object", "-w", "--stdin"], b"text");
    let line = |n: u32| {
        let (mode, path) = if n.is_multiple_of(10_000) { (160_000, "module") } else { (100_644, "source/component") };
        format!("{mode} {blob} 0\t{path}-{}/file-{n:06}.rs\n", n / 100)
    };
    let lines: String = (0..100_000).map(line).collect();
    repository.git_with_input(&["update-index", "--index-info"], lines.as_bytes());
    for version in ["2", "4"] {
        repository.git(&["update-index", "--index-version", version]);
        let content = content(&repository);
        let index = parse(&content, SHA1).unwrap();
        let links = gitlinks(&content, SHA1).unwrap();
        assert_eq!((index.entries.len(), links.len()), (100_000, 10));
        assert!(listed(&index) == listed_by_git(&repository), "version {version}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    #[test]
    fn random_bytes_are_parsed_without_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
        version in 0u32..6,
        count in 0u32..4,
        sha256 in proptest::prelude::any::<bool>(),
    ) {
        let id_len = if sha256 { 32 } else { SHA1 };
        let _ = parse(&bytes, id_len);
        let content = index(version, count, &[bytes]);
        let _ = (parse(&content, id_len), gitlinks(&content, id_len));
    }
}

#[test]
fn changed_indexes_are_parsed_without_panic() {
    use proptest::prelude::any;
    use proptest::test_runner::{Config, TestRunner};

    for (version, format, id_len) in
        [("2", "sha1", SHA1), ("3", "sha256", 32), ("4", "sha1", SHA1), ("4", "sha256", 32)]
    {
        let original = content(&varied(&[&format!("--object-format={format}")], version));
        let change = (any::<proptest::sample::Index>(), any::<u8>());
        let changes = proptest::collection::vec(change, 1..8);
        let cut = proptest::option::weighted(0.2, any::<proptest::sample::Index>());
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(1000) });
        let tested = runner.run(&(changes, cut), |(changes, cut)| {
            let mut content = original.clone();
            for (at, value) in changes {
                content[at.index(original.len())] = value;
            }
            if let Some(cut) = cut {
                content.truncate(cut.index(original.len()));
            }
            if let (Ok(index), Ok(links)) = (parse(&content, id_len), gitlinks(&content, id_len)) {
                let is_link = |path: &Vec<u8>| (0..4).any(|stage| index.entries.contains_key(&(path.clone(), stage)));
                proptest::prop_assert!(links.iter().all(is_link));
            }
            Ok(())
        });
        tested.unwrap();
    }
}
