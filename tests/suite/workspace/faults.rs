//! Faults around copies: a full disk, a state directory on an overlay, huge files. Nothing is lost, and
//! nothing is half applied.

use std::fs;
use std::process::Command;

use super::{in_copy, prepare, sandpen, snapshot};
use crate::faults::Full;
use crate::support::{Engine, Fixture, RunToEnd, is_root_or_skip};

/// The workspace and sandpen's state are on different file systems here.
#[test]
fn a_full_disk_leaves_all_files_as_they_were() {
    if !is_root_or_skip("a small file system") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        let small = fixture.home.join("small");
        fs::create_dir(&small).expect("directory");
        let _full = Full::at(fixture, small.clone(), "size=1m");
        for name in ["file", "other"] {
            fs::write(small.join(name), format!("{name}\n")).expect("file");
            fixture.give_to_user(small.join(name));
        }
        let run = |arguments: &[&str]| fixture.sandpen(arguments).current_dir(&small).finish();
        let mut command = fixture.run();
        let script = "echo more >> file; rm other; echo new > a; head -c 4000000 /dev/zero > z";
        command.current_dir(&small).args(["--name", "full", "--workspace", "copy", "--", "sh", "-c", script]);
        command.finish().success();
        let before = snapshot(&small);
        let refused = run(&["apply"]);
        assert!(refused.failure(1).contains("No space left on device"), "{}", refused.stderr);
        assert_eq!(snapshot(&small), before);
        run(&["apply", "full", "file", "other", "a"]).success();
        assert!(small.join("a").exists() && !small.join("other").exists());
        run(&["undo"]).success();
        assert_eq!(snapshot(&small), before, "with the times of the files");
    });
}

#[test]
fn a_state_directory_on_an_overlay_means_a_copy_of_all_files() {
    if !is_root_or_skip("an overlay") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let state = fixture.home.join(".local/state");
        fs::create_dir_all(&state).expect("directory");
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| fixture.outside(name));
        let made = [&lower, &upper, &work, &fixture.home.join(".local"), &state];
        made.into_iter().for_each(|path| fixture.give_to_user(path));
        let directories =
            format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        let mounted = Command::new("mount").args(["-t", "overlay", "-o", &directories, "overlay"]).arg(&state).status();
        assert!(mounted.expect("mount").success());
        let explained = fixture.explain(&["--workspace", "copy", "--", "true"]);
        assert_eq!(explained["workspace"]["how"], "files");
        assert!(explained["workspace"]["reason"].to_string().contains("overlay"), "{}", explained["workspace"]);
        in_copy(fixture, "stacked", "echo more >> file; rm gone");
        assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "file\ngone");
        sandpen(fixture, &["apply"]).success();
        sandpen(fixture, &["discard", "stacked"]).success();
        assert!(Command::new("umount").arg(&state).status().expect("umount").success());
        assert!(!fixture.project.join("gone").exists());
    });
}

#[test]
fn a_file_of_5_gb_is_named_without_being_read() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        in_copy(fixture, "huge", "truncate -s 5G huge");
        assert!(sandpen(fixture, &["diff"]).success().contains("Large files differ: 0 and 5368709120 bytes"));
        sandpen(fixture, &["discard", "huge"]).success();
    });
}
