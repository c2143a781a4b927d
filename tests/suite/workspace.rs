//! Tests copied workspaces: what the guest sees and changes, and what `diff`, `apply`, `undo` and
//! `discard` do with it.

mod apply;
mod attacks;
mod commits;
mod disk;
mod faults;
mod file_systems;
mod odd_files;
mod options;
mod web;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::for_every_engine;
use crate::support::{Finished, Fixture, RunToEnd};

for_every_engine!(
    the_guest_sees_everything_and_the_host_stays_the_same,
    changes_are_shown_applied_and_taken_back,
    a_copy_goes_on_with_its_commits,
    included_directories_are_copied_too,
    an_unchanged_copy_is_not_kept,
);

/// Creates a repository with some files, and ignored ones.
fn prepare(fixture: &Fixture) {
    fixture.write(".gitconfig", "[user]\n\tname = Guest\n\temail = guest@example.org\n[safe]\n\tdirectory = *\n");
    let lines: String = (1..=20).map(|number| format!("{number}\n")).collect();
    fixture.write("project/file", &lines);
    fixture.write("project/gone", "gone\n");
    fixture.write("project/dir/inner", "inner\n");
    fixture.write("project/dir/other", "other\n");
    fixture.write("project/.gitignore", "build\n");
    fixture.write("project/build/output", "made before\n");
    git(fixture, &["init", "--quiet", "--initial-branch", "main"]);
    git(fixture, &["add", "."]);
    git(fixture, &["commit", "--quiet", "--message", "one"]);
}

fn git(fixture: &Fixture, arguments: &[&str]) -> String {
    let mut command = fixture.host_command("git");
    command.current_dir(&fixture.project).args(arguments).finish().success().to_owned()
}

/// Runs a script in a copy with this id, and returns what it printed.
#[track_caller]
fn in_copy(fixture: &Fixture, id: &str, script: &str) -> Finished {
    let mut command = fixture.run();
    let first = if copies(fixture).contains(&id.to_owned()) { ["--workspace", id] } else { ["--workspace", "copy"] };
    if first[1] == "copy" {
        command.args(["--name", id]);
    }
    command.args(first).args(["--", "bash", "-c", script]);
    let finished = command.finish();
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    finished
}

fn copies(fixture: &Fixture) -> Vec<String> {
    let entries = fs::read_dir(fixture.home.join(".local/state/sandpen/copies")).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn sandpen(fixture: &Fixture, arguments: &[&str]) -> Finished {
    fixture.sandpen(arguments).finish()
}

/// Everything about the files of a directory: kind, mode, time and content.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("directory").flatten() {
            let (path, meta) = (entry.path(), entry.metadata().expect("metadata"));
            let content = match meta.file_type() {
                kind if kind.is_dir() => {
                    pending.push(path.clone());
                    String::new()
                }
                kind if kind.is_symlink() => fs::read_link(&path).expect("link").display().to_string(),
                kind if kind.is_file() => format!("{} {:?}", meta.mtime_nsec(), fs::read(&path).expect("file")),
                _ => "special".to_owned(),
            };
            found.insert(path, format!("{:o} {content}", meta.mode()));
        }
    }
    found
}

fn the_guest_sees_everything_and_the_host_stays_the_same(fixture: &Fixture) {
    prepare(fixture);
    let before = snapshot(&fixture.project);
    let script = "set -e; pwd; cat build/output dir/inner; git status --short; echo x >> file; echo y > dir/inner; \
                  rm gone; rm -r build; mkdir build; echo new > build/new; chmod 700 dir; mv dir moved; ls; ls moved build";
    let finished = in_copy(fixture, "seen", script);
    let expected = format!(
        "{}\nmade before\ninner\nbuild\nfile\nmoved\nbuild:\nnew\n\nmoved:\ninner\nother",
        fixture.project.display()
    );
    assert_eq!(finished.stdout.trim_end(), expected);
    assert_eq!(snapshot(&fixture.project), before);
    assert!(finished.stderr.contains("sandpen diff seen"), "{}", finished.stderr);
}

fn changes_are_shown_applied_and_taken_back(fixture: &Fixture) {
    prepare(fixture);
    let before = snapshot(&fixture.project);
    let script = "set -e; sed -i s/^5$/five/ file; rm gone; rm -r dir; mkdir dir; echo z > dir/z; \
                  ln -s file link; chmod 755 file; touch -d @1000000000.5 dir/z; echo ignored > build/more";
    in_copy(fixture, "shown", script);
    let diff = sandpen(fixture, &["diff"]);
    let text = diff.success();
    for part in [
        "diff --git a/file b/file\nold mode 100644\nnew mode 100755\n",
        "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n",
        "diff --git a/gone b/gone\ndeleted file mode 100644\n",
        "diff --git a/dir/inner b/dir/inner\ndeleted",
        "diff --git a/dir/z b/dir/z\nnew file",
        "diff --git a/link b/link\nnew file mode 120000\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("build"), "{text}");
    assert!(diff.stderr.contains("1 file that Git ignores"), "{}", diff.stderr);
    let names = sandpen(fixture, &["diff", "shown", "--name-only", "--ignored"]);
    assert_eq!(names.success(), "build/more\ndir/inner\ndir/other\ndir/z\nfile\ngone\nlink");
    sandpen(fixture, &["diff", "--exit-code"]).failure(1);
    assert_eq!(snapshot(&fixture.project), before, "a look changes nothing");

    sandpen(fixture, &["apply", "shown"]).success();
    let at = |name: &str| fixture.project.join(name);
    let content = fs::read_to_string(at("file")).expect("file");
    assert!(content.contains("\nfive\n") && !content.contains("\n5\n"), "{content}");
    assert!(!at("gone").exists() && !at("dir/inner").exists() && !at("build/more").exists());
    assert_eq!(fs::read_link(at("link")).expect("link"), Path::new("file"));
    assert_eq!(fs::metadata(at("file")).expect("file").permissions().mode() & 0o777, 0o755);
    let meta = fs::metadata(at("dir/z")).expect("file");
    assert_eq!((meta.mtime(), meta.mtime_nsec(), meta.uid()), (1_000_000_000, 500_000_000, fixture.uid));
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "");

    sandpen(fixture, &["undo"]).success();
    let after = snapshot(&fixture.project);
    assert_eq!(after, before);
    assert!(sandpen(fixture, &["undo"]).failure(1).contains("nothing to undo"));
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "dir/inner\ndir/other\ndir/z\nfile\ngone\nlink");
    sandpen(fixture, &["discard", "shown"]).success();
    assert_eq!(copies(fixture), Vec::<String>::new());
}

fn a_copy_goes_on_with_its_commits(fixture: &Fixture) {
    prepare(fixture);
    let before = git(fixture, &["rev-parse", "--all"]);
    in_copy(
        fixture,
        "work",
        "set -e; echo a > a; git add a; git commit --quiet --message 'add a'; git checkout --quiet -b topic",
    );
    assert_eq!(git(fixture, &["rev-parse", "--all"]), before, "no commit comes out before it is applied");
    let finished =
        in_copy(fixture, "work", "git log --format=%s; git branch --show-current; git status --short; cat a");
    assert_eq!(finished.stdout.trim_end(), "add a\none\ntopic\na");
    let diff = sandpen(fixture, &["diff", "work"]);
    assert!(diff.success().contains("1 commit on `main`\n"), "{}", diff.stdout);
    assert!(diff.stdout.contains(" add a (Guest)\n"), "{}", diff.stdout);
    let listed = sandpen(fixture, &["ps", "--format", "json"]).json();
    assert_eq!(
        (&listed[0]["id"], &listed[0]["state"], &listed[0]["changes"]),
        (&"work".into(), &"kept".into(), &true.into())
    );
    assert!(sandpen(fixture, &["ps"]).success().contains("work"));
    sandpen(fixture, &["discard", "work"]).success();
    assert_eq!(git(fixture, &["rev-parse", "--all"]), before);
}

fn included_directories_are_copied_too(fixture: &Fixture) {
    prepare(fixture);
    let library = fixture.outside("library");
    fs::write(library.join("lib"), "old\n").expect("file");
    fixture.give_to_user(library.join("lib"));
    let mut command = fixture.run();
    command.args(["--name", "two", "--workspace", "copy", "--include-dir"]).arg(&library);
    let script = format!("echo new > {}/lib", library.display());
    command.args(["--", "bash", "-c", &script]).finish().success();
    assert_eq!(fs::read_to_string(library.join("lib")).expect("file"), "old\n");
    let path = library.join("lib").display().to_string();
    assert_eq!(sandpen(fixture, &["diff", "two", "--name-only"]).success(), path);
    sandpen(fixture, &["apply", "two", &path]).success();
    assert_eq!(fs::read_to_string(library.join("lib")).expect("file"), "new\n");
}

fn an_unchanged_copy_is_not_kept(fixture: &Fixture) {
    prepare(fixture);
    let finished = in_copy(fixture, "same", "git status --short; cat file > /dev/null");
    assert_eq!(finished.stderr, "");
    assert_eq!(copies(fixture), Vec::<String>::new());
}
