//! Copies on file systems that cannot keep an overlay, or that are full: what happens is said beforehand, and
//! nothing that was written is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{git, in_copy, prepare, sandpen, snapshot};
use crate::faults::Full;
use crate::support::{Engine, Fixture, RunToEnd, is_root_or_skip, skip};

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` if the kernel has no such file system.
    fn at(path: &Path, arguments: &[&str]) -> Option<Self> {
        let mounted = Command::new("mount").args(arguments).arg(path).stderr(Stdio::null()).status().expect("mount");
        mounted.success().then(|| Mounted(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Makes the state directory, which `mount` covers.
fn state(fixture: &Fixture) -> PathBuf {
    let state = fixture.home.join(".local/state");
    fs::create_dir_all(&state).expect("directory");
    [&fixture.home.join(".local"), &state].into_iter().for_each(|path| fixture.give_to_user(path));
    state
}

#[test]
fn without_extended_attributes_all_files_are_copied() {
    if !is_root_or_skip("a file system without attributes") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let state = state(fixture);
        let _mounted = Mounted::at(&state, &["-t", "ramfs", "ramfs"]).expect("ramfs");
        fixture.give_to_user(&state);
        let explained = fixture.explain(&["--workspace", "copy", "--", "true"]);
        assert_eq!(explained["workspace"]["how"], "files");
        assert!(explained["workspace"]["reason"].to_string().contains("attributes"), "{}", explained["workspace"]);
        in_copy(fixture, "plain", "rm -r dir; mkdir dir; echo new > dir/new");
        assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "dir/inner\ndir/new\ndir/other");
        sandpen(fixture, &["apply"]).success();
        assert!(!fixture.project.join("dir/inner").exists() && fixture.project.join("dir/new").exists());
        sandpen(fixture, &["discard", "plain"]).success();
    });
}

#[test]
fn a_case_insensitive_directory_is_copied_as_files() {
    if !is_root_or_skip("a case-insensitive file system") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        let image = fixture.outside("image").join("disk");
        fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("file");
        let made = Command::new("mkfs.ext4").args(["-q", "-O", "casefold"]).arg(&image).status();
        let disk = image.to_str().expect("UTF-8");
        let mounted = Mounted::at(&fixture.project, &["-o", "loop", disk]);
        let is_folded = || {
            let folded = fixture.project.join("folded");
            fs::create_dir(&folded).expect("directory");
            Command::new("chattr").arg("+F").arg(&folded).status().is_ok_and(|status| status.success())
        };
        if !made.is_ok_and(|made| made.success()) || mounted.is_none() || !is_folded() {
            skip("a case-insensitive file system", "this kernel has none");
            return;
        }
        let folded = fixture.project.join("folded");
        fs::write(folded.join("File"), "one\n").expect("file");
        [&folded, &folded.join("File")].into_iter().for_each(|path| fixture.give_to_user(path));
        let mut command = fixture.run();
        command.current_dir(&folded).args(["--name", "folded", "--workspace", "copy", "--"]);
        let finished = command.args(["sh", "-c", "echo two >> FILE"]).finish();
        finished.success();
        assert!(finished.stderr.contains("case-insensitive"), "it is said beforehand: {}", finished.stderr);
        let run = |arguments: &[&str]| fixture.sandpen(arguments).current_dir(&folded).finish();
        run(&["apply"]).success();
        assert_eq!(fs::read_to_string(folded.join("File")).expect("file"), "one\ntwo\n");
        run(&["discard", "folded"]).success();
    });
}

/// As in a container, whose root is an overlay.
#[test]
fn a_workspace_on_an_overlay_has_an_overlay_as_its_copy() {
    if !is_root_or_skip("an overlay") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let [upper, work] = ["upper", "work"].map(|name| fixture.outside(name));
        let lower = fixture.project.display();
        let options = format!("lowerdir={lower},upperdir={},workdir={}", upper.display(), work.display());
        let _mounted =
            Mounted::at(&fixture.project, &["-t", "overlay", "-o", &options, "overlay"]).expect("an overlay");
        fixture.give_to_user(&fixture.project);
        let before = snapshot(&fixture.project);
        assert_eq!(fixture.explain(&["--workspace", "copy", "--", "true"])["workspace"]["how"], "overlay");
        in_copy(fixture, "stacked", "echo more >> file; rm -r dir; mkdir dir; echo z > dir/z; git commit -qam more");
        assert_eq!(snapshot(&fixture.project), before);
        sandpen(fixture, &["apply", "--commits"]).success();
        assert_eq!(git(fixture, &["log", "-1", "--format=%s"]), "more");
        assert!(fixture.project.join("dir/z").exists() && !fixture.project.join("dir/inner").exists());
    });
}

/// The guest sees the error, and everything that it could write waits.
#[test]
fn a_disk_that_is_full_while_the_guest_writes_loses_nothing() {
    if !is_root_or_skip("a small file system") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let before = snapshot(&fixture.project);
        let state = state(fixture);
        let _full = Full::at(fixture, state.clone(), "size=4m,mode=755");
        let script = "echo more >> file; rm gone; head -c 8000000 /dev/zero > z; echo $?; echo x > dir/new; cat file | tail -n 1";
        let finished = in_copy(fixture, "full", script);
        assert!(finished.stderr.contains("No space left on device"), "{}", finished.stderr);
        assert_eq!(finished.stdout.lines().next(), Some("1"));
        assert_eq!(snapshot(&fixture.project), before);
        let names = sandpen(fixture, &["diff", "--name-only"]).success().to_owned();
        assert!(["file", "gone", "z"].iter().all(|name| names.lines().any(|line| line == *name)), "{names}");
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&state).status().expect("mount");
        assert!(grown.success());
        in_copy(fixture, "full", "rm z; echo again >> file");
        sandpen(fixture, &["apply"]).success();
        let text = fs::read_to_string(fixture.project.join("file")).expect("file");
        assert!(text.ends_with("more\nagain\n") && !fixture.project.join("gone").exists(), "{text}");
    });
}

/// A device of the user's cannot be used inside, and can be removed there.
#[test]
fn a_device_in_the_workspace_stays_closed() {
    if !is_root_or_skip("a device") {
        return;
    }
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let device = fixture.project.join("device");
        let made = Command::new("mknod").arg(&device).args(["c", "1", "5"]).status().expect("mknod");
        assert!(made.success());
        let script = "head -c 1 device >/dev/null 2>&1 && echo read; ls device; rm -f device; mknod device c 1 5 2>/dev/null || echo refused";
        assert_eq!(in_copy(fixture, "device", script).stdout.trim(), "device\nrefused");
        assert!(device.exists());
        assert_eq!(sandpen(fixture, &["diff", "--name-only"]).success(), "device");
        sandpen(fixture, &["apply"]).success();
        assert!(!device.exists());
    });
}
