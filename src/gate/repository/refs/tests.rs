use super::name::{LONGEST_COMPONENT, LONGEST_NAME};
use super::*;
use crate::facts::git::test_repository::{NotAFile, TestRepository, git};

fn id(text: &str) -> ObjectId {
    ObjectId::parse(text).unwrap()
}

/// Lists refs as Git does, without symbolic ones.
fn ids_by_git(repository: &TestRepository) -> BTreeMap<String, ObjectId> {
    let text = repository.git(&["for-each-ref", "--format=%(objectname) %(symref)%(refname)"]);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(value, name)| (name.to_owned(), id(value))).filter(|(name, _)| !name.contains("HEAD")).collect()
}

#[test]
fn packed_and_loose_refs_are_those_of_git() {
    for format in ["--object-format=sha1", "--object-format=sha256"] {
        let repository = TestRepository::new(&[format]);
        assert_eq!(read_refs(&repository.git_dir()).unwrap(), Refs::default());
        let first = repository.commit("first");
        repository.git(&["branch", "feature/one/two"]);
        repository.git(&["branch", "stays-packed"]);
        repository.git(&["tag", "-a", "-m", "annotated", "v1"]);
        repository.git(&["update-ref", "refs/remotes/origin/main", "HEAD"]);
        repository.git(&["pack-refs", "--all"]);
        let second = repository.commit("second");
        assert_ne!(first, second);
        repository.git(&["tag", "ütf"]);
        repository.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
        repository.write(".git/refs/heads/main.lock", "");
        let refs = read_refs(&repository.git_dir()).unwrap();
        assert_eq!(refs.ids, ids_by_git(&repository));
        assert_eq!(refs.ids["refs/heads/main"], id(&second), "the loose ref counts");
        assert_eq!(refs.ids["refs/heads/stays-packed"], id(&first));
        let symbolic = ("refs/remotes/origin/HEAD".to_owned(), "refs/remotes/origin/main".to_owned());
        assert_eq!(refs.symbolic, BTreeMap::from([symbolic]));
        assert_eq!((refs.odd, refs.broken.len()), (0, 0));

        let packed = std::fs::read_to_string(repository.at(".git/packed-refs")).unwrap();
        let (header, rest) = packed.split_once('\n').unwrap();
        assert!(header.starts_with('#') && rest.contains("\n^"), "{packed}");
        repository.write(".git/packed-refs", rest);
        assert_eq!(read_refs(&repository.git_dir()).unwrap(), refs, "without header");
    }
}

#[test]
fn ten_thousand_refs_are_read() {
    let repository = TestRepository::new(&[]);
    let commit = repository.commit("first");
    let input: String = (0..10_000).map(|n| format!("create refs/heads/b{}/{n} {commit}\n", n % 7)).collect();
    repository.git_with_input(&["update-ref", "--stdin"], input.as_bytes());
    assert_eq!(read_refs(&repository.git_dir()).unwrap().ids, ids_by_git(&repository));
    repository.git(&["pack-refs", "--all"]);
    let refs = read_refs(&repository.git_dir()).unwrap();
    assert_eq!(refs.ids.len(), 10_001);
    assert_eq!(refs.ids, ids_by_git(&repository));
}

#[test]
fn refs_that_are_packed_or_unpacked_meanwhile_are_not_missed() {
    let repository = TestRepository::new(&[]);
    let commit = repository.commit("first");
    let input: String = (0..50).map(|n| format!("update refs/heads/b{n} {commit}\n")).collect();
    repository.git_with_input(&["update-ref", "--stdin"], input.as_bytes());
    std::thread::scope(|scope| {
        let packing = scope.spawn(|| {
            for _ in 0..30 {
                repository.git(&["pack-refs", "--all"]);
                for name in ["heads/main".to_owned()].into_iter().chain((0..50).map(|n| format!("heads/b{n}"))) {
                    let path = format!(".git/refs/{name}");
                    repository.write(&format!("{path}.lock"), &commit);
                    std::fs::rename(repository.at(&format!("{path}.lock")), repository.at(&path)).unwrap();
                }
                std::fs::remove_file(repository.at(".git/packed-refs")).unwrap();
            }
        });
        while !packing.is_finished() {
            match read_refs(&repository.git_dir()) {
                Ok(refs) => assert_eq!(refs.ids.len(), 51),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ResourceBusy),
            }
        }
    });
}

#[test]
fn head_is_a_branch_or_a_commit() {
    let repository = TestRepository::new(&[]);
    let head = || read_head(&repository.git_dir()).unwrap();
    assert_eq!(head(), Some(Head::Branch("refs/heads/main".into())), "unborn");
    let commit = repository.commit("first");
    repository.git(&["checkout", "-q", "--detach"]);
    assert_eq!(head(), Some(Head::Detached(id(&commit))));
    repository.write(".git/HEAD", format!("{commit}\nmore"));
    assert_eq!(head(), Some(Head::Detached(id(&commit))), "as Git reads it");
    let bad = ["", "ref:", "ref: refs/heads/", "ref: refs/heads/../x", "ref: refs/tags/x", "ref: refs/heads/-x", "x"];
    let long = format!("ref: refs/heads/{}", "x".repeat(2000));
    for content in bad.into_iter().chain([long.as_str(), &"0".repeat(40), &commit[1..], &format!("{commit}x")]) {
        repository.write(".git/HEAD", content);
        assert_eq!(head(), None, "{content}");
    }
    for kind in NotAFile::ALL {
        repository.replace_by(".git/HEAD", kind);
        assert_eq!(head(), None, "{kind:?}");
    }
    std::fs::remove_dir_all(repository.at(".git/HEAD"))
        .or_else(|_| std::fs::remove_file(repository.at(".git/HEAD")))
        .unwrap();
    assert_eq!(head(), None, "missing");
}

#[test]
fn a_reftable_is_no_empty_list_of_refs() {
    let repository = TestRepository::new(&["--ref-format=reftable"]);
    assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(read_head(&repository.git_dir()).unwrap(), None);
    repository.git(&["refs", "migrate", "--ref-format=files"]);
    assert_eq!(read_refs(&repository.git_dir()).unwrap(), Refs::default());
    std::fs::remove_dir_all(repository.at(".git/refs")).unwrap();
    assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::NotFound);
    for kind in [NotAFile::Link, NotAFile::Pipe, NotAFile::Socket] {
        repository.replace_by(".git/refs", kind);
        assert!(read_refs(&repository.git_dir()).is_err(), "{kind:?}");
    }
}

#[test]
fn refs_that_cannot_be_read_are_broken_and_not_deleted() {
    let repository = TestRepository::new(&[]);
    let commit = repository.commit("first");
    repository.git(&["branch", "x"]);
    repository.git(&["pack-refs", "--all"]);
    let refs = || read_refs(&repository.git_dir()).unwrap();
    let intact = refs();
    for content in ["", "ref: x", &"0".repeat(40), &commit[1..], &"a".repeat(5000)] {
        repository.write(".git/refs/heads/x", content);
        let refs = refs();
        assert!(refs.is_broken("refs/heads/x") && !refs.is_broken("refs/heads/main"), "{content}: {refs:?}");
        assert_eq!(refs.ids.keys().collect::<Vec<_>>(), ["refs/heads/main"], "{content}");
    }
    for kind in NotAFile::ALL {
        repository.replace_by(".git/refs/heads/x", kind);
        if matches!(kind, NotAFile::Directory) {
            assert_eq!(refs(), intact, "an empty directory does not hide a packed ref");
        } else {
            assert!(refs().is_broken("refs/heads/x") && !refs().ids.contains_key("refs/heads/x"), "{kind:?}");
        }
    }
    for kind in [NotAFile::Link, NotAFile::Pipe, NotAFile::Socket] {
        repository.replace_by(".git/refs/heads", kind);
        assert!(refs().is_broken("refs/heads/x") && refs().ids.is_empty(), "{kind:?}");
    }
    repository.replace_by(".git/refs/heads", NotAFile::Directory);
    std::fs::remove_dir(repository.at(".git/refs/heads")).unwrap();
    repository.write(".git/refs/heads", &commit);
    assert!(refs().is_broken("refs/heads/x") && refs().ids.is_empty(), "a file in place of `refs/heads`");
}

#[test]
fn packed_refs_that_git_refuses_are_an_error() {
    let repository = TestRepository::new(&[]);
    let commit = repository.commit("first");
    repository.git(&["pack-refs", "--all"]);
    let good = std::fs::read_to_string(repository.at(".git/packed-refs")).unwrap();
    let lines = [format!("{commit} refs/heads/x"), format!("{commit}\n"), "x refs/heads/x\n".into(), "# x\n".into()];
    for line in lines {
        repository.write(".git/packed-refs", format!("{good}{line}"));
        assert!(read_refs(&repository.git_dir()).is_err(), "{line}");
        assert!(!git(&repository.at(""), &["show-ref"], b"").0, "{line}");
    }
    for kind in NotAFile::ALL {
        repository.replace_by(".git/packed-refs", kind);
        assert!(read_refs(&repository.git_dir()).is_err(), "{kind:?}");
    }
    repository.replace_by(".git/packed-refs", NotAFile::Directory);
    std::fs::remove_dir(repository.at(".git/packed-refs")).unwrap();
    let file = std::fs::File::create(repository.at(".git/packed-refs")).unwrap();
    file.set_len(LARGEST_PACKED_REFS + 1).unwrap();
    assert_eq!(read_refs(&repository.git_dir()).unwrap_err().kind(), ErrorKind::FileTooLarge);
}

#[test]
fn odd_names_are_counted_and_conflicts_broken() {
    let repository = TestRepository::new(&[]);
    let commit = repository.commit("first");
    let (null, invalid) = ("0".repeat(40), [b"\xff" as &[u8], b"a..b", b"-x", b"HEAD/../../x", b".x", b"x.lock"]);
    let mut packed = format!(
        "{commit} refs/heads/a\n{commit} refs/heads/a-b\n{commit} refs/heads/a/b/c\n{commit} refs/heads/main/x\n{null} refs/heads/null\n"
    )
    .into_bytes();
    for name in invalid {
        packed.extend([commit.as_bytes(), b" refs/heads/", name, b"\n"].concat());
    }
    repository.write(".git/packed-refs", packed);
    for name in ["-x", "a b", "HEAD~", ".lock"] {
        repository.write(&format!(".git/refs/heads/{name}"), &commit);
    }
    repository.write(".git/refs/heads/HEAD", &commit);
    let refs = read_refs(&repository.git_dir()).unwrap();
    assert_eq!(refs.ids.keys().collect::<Vec<_>>(), ["refs/heads/a", "refs/heads/a-b", "refs/heads/main"]);
    let broken = ["refs/heads/HEAD", "refs/heads/a/b/c", "refs/heads/main/x", "refs/heads/null"];
    assert_eq!(refs.broken.iter().collect::<Vec<_>>(), broken);
    assert_eq!(refs.odd, invalid.len() + 3, "a file named `.lock` is a lock");
}

#[test]
fn deep_directories_and_many_refs_are_bounded() {
    let repository = TestRepository::new(&[]);
    let deep = format!(".git/refs/heads/{}x", "d/".repeat(DEEPEST_DIRECTORY + 5));
    repository.write(&deep, "1".repeat(40));
    let refs = read_refs(&repository.git_dir()).unwrap();
    assert_eq!((refs.ids.len(), refs.broken.len()), (0, 1));
    assert!(refs.is_broken(&deep[".git/".len()..]));

    let mut loose = LooseRefs { refs: Refs::default(), left: 5 };
    let directory = repository.git_dir().directory(Path::new("refs")).unwrap();
    let error = loose.read_directory(&directory, "refs", 0).unwrap_err();
    assert_eq!(error.to_string(), "more than 1000000 refs");
    let line = format!("{} refs/heads/x\n", "1".repeat(40));
    assert!(add_packed_refs(&mut Refs::default(), line.repeat(3).as_bytes(), 2).is_err());
    assert!(add_packed_refs(&mut Refs::default(), line.repeat(3).as_bytes(), 3).is_ok());
}

#[test]
fn names_are_valid_if_git_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    let parts = [
        "", "x", ".", "..", "a.b", "a..b", ".a", "a.", "a.lock", ".lock", "lock", "a.lockx", "@", "@{", "a@{b", "a@b",
        "{", "a b", "a~", "a^", "a:", "a?", "a*", "a[", "a]", "a\\b", "a\tb", "a\x7f", "a\x01", "é", "\u{200c}", "a-",
        "HEAD", "a'\"$;",
    ];
    for part in parts {
        for name in ["refs/PART", "refs/heads/PART", "refs/heads/PART/x", "refs/PART/x", "PART", "PART/refs/x"] {
            names.push(name.replace("PART", part));
        }
    }
    for name in names {
        let git_accepts = git(directory.path(), &["check-ref-format", &name], b"").0;
        let is_expected = git_accepts && name.starts_with("refs/") && name != "refs/heads/HEAD";
        assert_eq!(is_valid_name(&name), is_expected, "{name:?}");
    }
    for name in ["refs/heads/-x", "refs/-/x", "refs/heads/HEAD", "refs/heads", "refs/tags"] {
        assert!(!is_valid_name(name), "{name}");
    }
    for name in ["refs/stash", "refs/heads/HEAD/x", "refs/remotes/origin/HEAD"] {
        assert!(is_valid_name(name), "{name}");
    }
    assert!(is_valid_name(&format!("refs/{}", "x".repeat(LONGEST_COMPONENT))));
    assert!(!is_valid_name(&format!("refs/{}", "x".repeat(LONGEST_COMPONENT + 1))));
    assert!(!is_valid_name(&format!("refs/{}x", "x/".repeat(LONGEST_NAME / 2))));
}

#[test]
fn the_reflog_of_the_stash_is_read() {
    let repository = TestRepository::new(&[]);
    repository.commit("first");
    for text in ["one", "two\tthree"] {
        repository.write("file", text);
        repository.git(&["stash", "push", "-m", text]);
    }
    let entries = read_reflog(&repository.git_dir(), "refs/stash").unwrap();
    let newest_first = repository.git(&["log", "-g", "--format=%H %gs", "refs/stash"]);
    let found: Vec<String> = entries.iter().rev().map(|entry| format!("{} {}", entry.new, entry.message)).collect();
    assert_eq!(found, newest_first.lines().collect::<Vec<_>>());
    assert!(entries[0].old.is_null() && entries[1].old == entries[0].new);
    assert!(entries[0].who.starts_with("C <c@example.com> "), "{entries:?}");
    assert!(entries[0].message.ends_with(": one"));

    let line = format!("{0} {0} a\x1b\0b <x> 1 +0\tm\0n\n", "1".repeat(40));
    repository.write(".git/logs/refs/stash", format!("bad\n\n{line}\t\n{}", line.trim_end()));
    let entries = read_reflog(&repository.git_dir(), "refs/stash").unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!((entries[0].who.as_str(), entries[0].message.as_str()), ("a  b <x> 1 +0", "m n"));
    assert_eq!(read_reflog(&repository.git_dir(), "refs/heads/none").unwrap(), []);
    assert!(read_reflog(&repository.git_dir(), "../config").is_err());
    for kind in NotAFile::ALL {
        repository.replace_by(".git/logs/refs/stash", kind);
        assert!(read_reflog(&repository.git_dir(), "refs/stash").is_err(), "{kind:?}");
    }
}

#[test]
fn the_fingerprint_changes_with_every_change() {
    let repository = TestRepository::new(&[]);
    repository.commit("first");
    let mut last = fingerprint(&repository.git_dir(), None);
    assert_eq!(fingerprint(&repository.git_dir(), None), last);
    let commands: [&[&str]; 8] = [
        &["branch", "x/y"],
        &["branch", "-D", "x/y"],
        &["checkout", "-q", "--detach"],
        &["update-index", "--assume-unchanged", "file"],
        &["tag", "v1"],
        &["pack-refs", "--all"],
        &["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main"],
        &["update-index", "--no-assume-unchanged", "file"],
    ];
    for command in commands {
        repository.git(command);
        let now = fingerprint(&repository.git_dir(), None);
        assert_ne!(now, last, "{command:?}");
        last = now;
    }
    for text in ["one", "two"] {
        repository.write("file", text);
        repository.git(&["stash", "push", "-m", text]);
    }
    let stash = repository.git(&["rev-parse", "refs/stash"]);
    last = fingerprint(&repository.git_dir(), None);
    repository.git(&["reflog", "delete", "refs/stash@{1}"]);
    assert_eq!(repository.git(&["rev-parse", "refs/stash"]), stash);
    assert_ne!(fingerprint(&repository.git_dir(), None), last, "an older stash is dropped");
}
