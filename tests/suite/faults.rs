//! Tests faults outside of a sandbox, with the messages and the state that follow. Every row ends
//! within the timeout of `Running`.

mod clock;
mod daemon;
mod silent_engine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, Running, eventually, is_root_or_skip};

for_every_engine!(every_fault_ends_with_its_exit_code);

enum Sees {
    /// The guest runs as if nothing were wrong.
    Works,
    /// sandpen exits with this code, and stderr contains these texts.
    Says(i32, &'static [&'static str]),
}

/// Every row also asserts that no session and no container remains.
struct Row {
    fault: &'static str,
    /// Selects the engines; a comment beside the row explains why others are excluded.
    on: fn(Engine) -> bool,
    sees: fn(Engine) -> Sees,
    play: fn(&Fixture) -> Finished,
}

const EVERYWHERE: fn(Engine) -> bool = |_| true;
const WORKS: fn(Engine) -> Sees = |_| Sees::Works;

const TABLE: &[Row] = &[
    Row {
        fault: "no space for the session's files",
        on: EVERYWHERE,
        sees: |engine| match engine.is_container() {
            true => Sees::Says(44, &["cannot create", "No space left", "hint: check free space"]),
            // The native engine needs no files outside of a repository; but `ps` does not list the
            // sandbox.
            false => Sees::Works,
        },
        play: |fixture| {
            let full = Full::new(fixture, "size=4k,nr_inodes=40");
            fs::write(full.0.join("filler"), [0; 4096]).expect("the filler fits");
            run(fixture.run().env("XDG_STATE_HOME", &full.0))
        },
    },
    Row {
        fault: "no inode for the session's directory",
        on: EVERYWHERE,
        sees: |_| Sees::Says(44, &["cannot create", "No space left", "hint: check free space"]),
        play: |fixture| {
            let full = Full::new(fixture, "size=64k,nr_inodes=2");
            fs::write(full.0.join("filler"), []).expect("the filler fits");
            run(fixture.run().env("XDG_STATE_HOME", &full.0))
        },
    },
    Row {
        fault: "HOME is read-only: the temp directory holds the session",
        on: EVERYWHERE,
        sees: WORKS,
        play: |fixture| {
            let home = Full::new(fixture, "size=64k");
            home.remount_read_only();
            let temp = fixture.outside("temp");
            let finished = run(fixture.run().env("HOME", &home.0).env("TMPDIR", &temp));
            assert_eq!(sessions_below(&temp), 0);
            finished
        },
    },
    Row {
        fault: "HOME is unset: the account's own is taken",
        on: EVERYWHERE,
        sees: WORKS,
        play: |fixture| run(fixture.run().env_remove("HOME").env("XDG_STATE_HOME", fixture.home.join(".local/state"))),
    },
    Row {
        fault: "XDG_RUNTIME_DIR is missing",
        // Rootless Podman itself would use its fallback directory and assume that the machine was
        // rebooted.
        on: |engine| engine != Engine::PodmanRootless,
        sees: WORKS,
        play: |fixture| run(fixture.run().env_remove("XDG_RUNTIME_DIR")),
    },
    Row {
        fault: "XDG_RUNTIME_DIR leads nowhere",
        on: |engine| engine != Engine::PodmanRootless,
        sees: WORKS,
        play: |fixture| run(fixture.run().env("XDG_RUNTIME_DIR", "/nonexistent/runtime")),
    },
    Row {
        fault: "the current directory was deleted",
        on: EVERYWHERE,
        sees: |_| Sees::Says(2, &["the current directory cannot be determined", "hint: it may have been deleted"]),
        play: |fixture| shell(fixture, r#"mkdir gone; cd gone; rmdir ../gone; exec "$@""#),
    },
    Row { fault: "stdin is closed", on: EVERYWHERE, sees: WORKS, play: |fixture| shell(fixture, r#"exec "$@" <&-"#) },
    Row { fault: "stderr is closed", on: EVERYWHERE, sees: WORKS, play: |fixture| shell(fixture, r#"exec "$@" 2>&-"#) },
    Row {
        fault: "there is no controlling terminal",
        on: EVERYWHERE,
        sees: WORKS,
        play: |fixture| shell(fixture, r#"exec setsid --wait "$@""#),
    },
    Row {
        fault: "the parent process ignored signals",
        on: EVERYWHERE,
        sees: WORKS,
        play: |fixture| shell(fixture, r#"trap '' INT QUIT HUP PIPE CHLD; exec "$@""#),
    },
    Row {
        fault: "a file where the sessions should be",
        on: EVERYWHERE,
        sees: |_| Sees::Says(44, &["cannot create", "hint: "]),
        play: |fixture| {
            fixture.write(".other/sandpen/sessions", "");
            run(fixture.run().env("XDG_STATE_HOME", fixture.home.join(".other")))
        },
    },
    Row {
        fault: "a record that is no record",
        on: EVERYWHERE,
        sees: WORKS,
        play: |fixture| {
            fixture.write(".local/state/sandpen/sessions/0123456789ab/session.json", "{\"id\": 7");
            fixture.write(".local/state/sandpen/sessions/0123456789ab/owner", "");
            run_script(fixture.run(), "echo ran")
        },
    },
];

fn every_fault_ends_with_its_exit_code(fixture: &Fixture) {
    if !is_root_or_skip("mounts that only root can make") {
        return;
    }
    let mut failures = Vec::new();
    for row in TABLE.iter().filter(|row| (row.on)(fixture.engine())) {
        let finished = (row.play)(fixture);
        let holds = match (row.sees)(fixture.engine()) {
            Sees::Works => finished.code == Some(0) && finished.stdout == "ran" && !finished.stderr.contains("error"),
            Sees::Says(code, words) => {
                finished.code == Some(code)
                    && finished.stdout.is_empty()
                    && words.iter().all(|word| finished.stderr.contains(word))
            }
        };
        if !holds {
            failures.push(format!("{}: {finished:?}", row.fault));
        }
        let left = || fixture.sessions().len() + fixture.containers().len();
        if left() > 0 {
            failures.push(format!("{}: {:?} and {:?} remain", row.fault, fixture.sessions(), fixture.containers()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn run(command: &mut Command) -> Finished {
    Running::start(command.args(["--", "echo", "ran"])).finish()
}

fn run_script(mut command: Command, script: &str) -> Finished {
    Running::start(command.args(["--", "sh", "-c", script])).finish()
}

/// Starts sandpen from a shell script, which receives the command line as `"$@"`.
fn shell(fixture: &Fixture, script: &str) -> Finished {
    let mut run = fixture.run();
    run.args(["--", "echo", "ran"]);
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(&fixture.project).stdin(Stdio::null()).args(["-c", script, "sh"]);
    Running::start(shell.arg(run.get_program()).args(run.get_args())).finish()
}

fn sessions_below(directory: &Path) -> usize {
    let bases = fs::read_dir(directory).expect("readable").flatten().map(|entry| entry.path().join("sessions"));
    bases.filter_map(|base| Some(fs::read_dir(base).ok()?.count())).sum()
}

/// Mounts a file system of the given size that belongs to the user.
pub struct Full(PathBuf);

impl Full {
    fn new(fixture: &Fixture, options: &str) -> Self {
        Self::at(fixture, fixture.outside("full"), options)
    }

    pub fn at(fixture: &Fixture, path: PathBuf, options: &str) -> Self {
        let options = format!("{options},uid={},gid={}", fixture.uid, fixture.gid);
        mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], &path);
        Full(path)
    }

    fn remount_read_only(&self) {
        mount(&["-o", "remount,ro"], &self.0);
    }
}

fn mount(arguments: &[&str], path: &Path) {
    let mounted = Command::new("mount").args(arguments).arg(path).status().expect("mount");
    assert!(mounted.success(), "mount failed; this test must run as root");
}

impl Drop for Full {
    fn drop(&mut self) {
        // A container that has just ended may keep it busy for a moment.
        eventually("it can be unmounted", || {
            Command::new("umount").arg(&self.0).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        });
    }
}
