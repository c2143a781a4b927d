//! Odd files in copies: each is shown and applied, or named and left.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{copies, in_copy, prepare, sandpen};
use crate::for_docker_and_native;
use crate::support::{Engine, Fixture, RunToEnd};

for_docker_and_native!(
    odd_names_and_kinds_are_shown_and_applied_or_stay,
    many_files_are_shown_quickly_enough,
    kinds_are_exchanged,
);

fn odd_names_and_kinds_are_shown_and_applied_or_stay(fixture: &Fixture) {
    prepare(fixture);
    fixture.write("project/one", "linked\n");
    fs::hard_link(fixture.project.join("one"), fixture.project.join("two")).expect("link");
    let script = "set -e; printf 1 > \"$(printf 'a\\nb')\"; printf 2 > \"$(printf 'c\\377d')\"; printf 3 > ' e '; \
                  mkfifo pipe; echo more >> one; mkdir empty; truncate -s 100M large; printf 'a\\0b' > binary; \
                  perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0) and bind(S, sockaddr_un(q(socket))) and print q(bound)'; \
                  : > nothing; mknod device c 1 3 2>&1 || echo refused";
    let made = in_copy(fixture, "odd", script);
    assert!(made.stdout.starts_with("bound") && made.stdout.trim_end().ends_with("refused"), "{}", made.stdout);
    let names = sandpen(fixture, &["diff", "--name-only"]).success().to_owned();
    for name in ["\"a\\nb\"", " e ", "pipe", "one", "empty", "large", "binary", "nothing", "socket"] {
        assert!(names.lines().any(|line| line == name), "{name:?}: {names}");
    }
    let text = sandpen(fixture, &["diff"]).success().to_owned();
    assert!(text.contains("Binary files /dev/null and b/binary differ"), "{text}");
    assert!(text.contains("Large files differ: 0 and 104857600 bytes"), "{text}");
    for kind in ["pipe", "socket"] {
        assert!(text.contains(&format!("a {kind}, which stays in the copy")), "{text}");
    }
    let applied = sandpen(fixture, &["apply"]);
    applied.success();
    for kind in ["pipe", "socket"] {
        let stays = format!("`{kind}` is a {kind} and stays in the copy");
        assert!(applied.stderr.contains(&stays), "{}", applied.stderr);
    }
    let at = |name: &str| fixture.project.join(name);
    assert_eq!(fs::read_to_string(at("a\nb")).expect("file"), "1");
    assert_eq!(fs::metadata(at("large")).expect("file").size(), 100 << 20);
    assert!(at("empty").is_dir() && !at("pipe").exists() && !at("socket").exists());
    assert_eq!(fs::read_to_string(at("one")).expect("file"), "linked\nmore\n");
    sandpen(fixture, &["undo"]).success();
    assert!(!at("large").exists() && !at("empty").exists());
    assert_eq!(fs::read_to_string(at("one")).expect("file"), "linked\n");
}

fn many_files_are_shown_quickly_enough(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "many", "mkdir many; for i in $(seq 10000); do echo $i > many/$i; done");
    assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success().lines().count(), 10_000);
    sandpen(fixture, &["apply"]).success();
    assert_eq!(fs::read_dir(fixture.project.join("many")).expect("directory").count(), 10_000);
    sandpen(fixture, &["undo"]).success();
    assert!(!fixture.project.join("many").exists());
}

fn kinds_are_exchanged(fixture: &Fixture) {
    prepare(fixture);
    let script = "set -e; rm -r dir; echo now a file > dir; rm file; mkdir file; echo in > file/in; rm gone; ln -s x gone; chmod 711 build";
    in_copy(fixture, "kinds", script);
    sandpen(fixture, &["apply"]).success();
    let at = |name: &str| fixture.project.join(name);
    assert_eq!(fs::read_to_string(at("dir")).expect("file"), "now a file\n");
    assert_eq!(fs::read_to_string(at("file/in")).expect("file"), "in\n");
    assert!(at("gone").is_symlink());
    sandpen(fixture, &["undo"]).success();
    assert_eq!(fs::read_to_string(at("dir/inner")).expect("file"), "inner\n");
    assert!(at("file").is_file() && at("gone").is_file());
}

/// The kernel cannot copy files of a group that does not exist in the sandbox.
#[test]
fn files_of_another_group_are_copied_as_files() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        if std::os::unix::fs::chown(fixture.project.join("file"), None, Some(100)).is_err() {
            return;
        }
        let finished = in_copy(fixture, "group", "echo more >> file && rm gone && mkfifo pipe && mv dir moved");
        assert!(finished.stderr.contains("group"), "it is said beforehand: {}", finished.stderr);
        let names = sandpen(fixture, &["diff", "--name-only"]);
        assert_eq!(names.success(), "file\ngone\nmoved/inner\nmoved/other\npipe");
        sandpen(fixture, &["apply", "group", "file", "gone"]).success();
        assert!(!fixture.project.join("gone").exists());
        let mut command = fixture.run();
        command.args(["--workspace", "group", "--", "tail", "-n", "1", "file"]);
        assert_eq!(command.finish().success(), "more");
        sandpen(fixture, &["discard", "group"]).success();
        assert_eq!(copies(fixture), Vec::<String>::new());
    });
}
