//! Provides the programs that tests start, and the only way for a test to put a program on disk.
//!
//! The kernel refuses to execute a file that any process has open for writing ("Text file busy").
//! If this process wrote a program, every other test that forks at that moment would hold the
//! descriptor until its child calls exec. So a child process writes the file: its descriptors are
//! never inherited by another test's child.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the program under test: `SANDPEN_TEST_BIN` if it is set, else the one that cargo built.
pub fn binary() -> PathBuf {
    std::env::var_os("SANDPEN_TEST_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_sandpen")), PathBuf::from)
}

/// Copies a program, so that the copy can be executed at once. Replaces a program of that name,
/// even a running one.
#[track_caller]
pub fn install_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let done = install(from.as_ref().as_os_str(), to.as_ref()).stdin(Stdio::null()).status().expect("install");
    assert!(done.success(), "cannot install {}", to.as_ref().display());
}

/// Writes a script that can be executed at once. Replaces a program of that name.
#[track_caller]
pub fn install_script(to: impl AsRef<Path>, text: &str) {
    let mut child = install(OsStr::new("/dev/stdin"), to.as_ref()).stdin(Stdio::piped()).spawn().expect("install");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("the script is written");
    assert!(child.wait().expect("wait").success(), "cannot install {}", to.as_ref().display());
}

fn install(from: &OsStr, to: &Path) -> Command {
    let mut command = Command::new("/usr/bin/install");
    command.args(["-D", "-m", "0755", "--"]).arg(from).arg(to);
    command
}

/// Returns sandpen with an empty environment except for PATH and a HOME that does not exist.
pub fn sandpen_without_home(directory: &Path) -> Command {
    let mut command = Command::new(binary());
    command.env_clear().env("HOME", "/nonexistent").env("PATH", "/usr/bin:/bin");
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// This test fails within a second if this process writes the script itself.
#[test]
fn a_script_can_be_executed_while_other_threads_start_programs() {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let script = directory.path().join("script");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    Command::new("/bin/true").status().expect("true");
                }
            });
        }
        let results: Vec<_> = (0..200)
            .map(|_| {
                install_script(&script, "#!/bin/sh\n");
                Command::new(&script).status().map_err(|error| error.to_string())
            })
            .collect();
        is_done.store(true, Ordering::Relaxed);
        let failed: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed, Vec::<String>::new());
    });
}
