//! Tests what a copy takes on disk: little more than what changed, however large the repository is.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{git, in_copy, prepare, sandpen};
use crate::support::{Engine, Fixture};

const FILES: usize = 8_000;
const CHANGED: usize = 1_000;

/// Returns the space of all files of some directories in kilobytes. Files with several names count once.
fn used(directories: &[&Path]) -> u64 {
    let mut seen = BTreeSet::new();
    let mut blocks = 0;
    let mut pending: Vec<_> = directories.iter().map(|path| path.to_path_buf()).collect();
    while let Some(path) = pending.pop() {
        let meta = path.symlink_metadata().expect("metadata");
        if seen.insert((meta.dev(), meta.ino())) {
            blocks += meta.blocks();
        }
        if meta.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|entry| entry.path()));
        }
    }
    blocks / 2
}

#[test]
fn a_copy_takes_little_more_than_what_changed() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        for number in 0..FILES {
            fixture.write(format!("project/d{}/f{number}", number / 200), &format!("{number}\nsecond\nthird\n"));
        }
        // Otherwise Git packs the objects meanwhile.
        git(fixture, &["config", "gc.auto", "0"]);
        git(fixture, &["add", "."]);
        git(fixture, &["commit", "--quiet", "--message", "many"]);
        for number in 0..CHANGED / 10 {
            fixture.write(format!("project/u{number}"), &format!("{number}\nsecond\nthird\n"));
        }
        let index = fs::metadata(fixture.project.join(".git/index")).expect("index").len();
        assert!(index > 512 << 10, "it is large enough to be emptied: {index}");
        let copies = fixture.home.join(".local/state/sandpen/copies");
        let script = format!(
            "for i in $(seq 0 {}); do echo fourth >> d$((i / 200))/f$i; done; for i in u*; do echo fourth >> $i; done",
            CHANGED - 1
        );
        let before = used(&[&fixture.project]);
        in_copy(fixture, "disk", &script);
        let more = used(&[&fixture.project, &copies]) - before;
        let changed = 4 * (CHANGED + CHANGED / 10) as u64;
        assert!((changed..changed + 1_000).contains(&more), "{more} kB for {changed} kB");
        // What both changed is merged, whether Git has the former version or not.
        for name in ["d0/f7", "u7"] {
            fixture.write(format!("project/{name}"), "first\nsecond\nthird\n");
        }
        sandpen(fixture, &["apply", "disk", "d0/f7", "u7"]).success();
        for name in ["d0/f7", "u7"] {
            let merged = fs::read_to_string(fixture.project.join(name)).expect("file");
            assert_eq!(merged, "first\nsecond\nthird\nfourth\n", "{name}");
        }
        // The index is complete in the next sandbox.
        let status = in_copy(fixture, "disk", "git status --short --untracked-files=no | wc -l; git ls-files | wc -l");
        assert_eq!(status.stdout.split_whitespace().collect::<Vec<_>>(), ["1000", "8005"]);
    });
}
