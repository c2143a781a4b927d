//! sandpen as a library: the example of docs/embedding.md is built, and run as a program of the host that is not sandpen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::for_every_engine;
use crate::support::{Engine, IMAGE, Pen, Ran, RunToEnd, binary, eventually};

for_every_engine!(
    the_example_plans_runs_and_tells_the_outcome,
    a_guests_own_44_is_not_a_failed_launch,
    a_planted_program_does_not_launch,
);

/// The example, built once; cargo finds out whether there is anything to do.
fn example() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", "embed", "--message-format", "json"]);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
        let ran = Ran::from(output);
        let messages = ran.ok().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let is_example = |message: &serde_json::Value| message["target"]["name"] == "embed";
        let message = messages.filter(is_example).find(|message| message["executable"].is_string());
        message.expect("the example")["executable"].as_str().expect("its path").into()
    });
    built.clone()
}

fn install(file: &Path, at: &Path) {
    fs::create_dir_all(at.parent().expect("a directory")).expect("mkdir");
    fs::copy(file, at).expect("copy");
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// The example, as the pen's user, with sandpen on PATH.
fn embedding(pen: &Pen) -> Command {
    let programs = pen.root().join("programs");
    install(&example(), &programs.join("embed"));
    install(&binary(), &programs.join("sandpen"));
    let mut command = pen.host_command(programs.join("embed"));
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()));
    command.env("SANDPEN_ENGINE", pen.engine.flag());
    if pen.engine.is_container() {
        command.env("SANDPEN_IMAGE", IMAGE);
    }
    command
}

fn the_example_plans_runs_and_tells_the_outcome(pen: &Pen) {
    let ran = embedding(pen).args(["sh", "-c", "pwd; touch made; exit 3"]).ran();
    let project = pen.project.display();
    let workspace = format!("rw {project}: the working directory (default)\n");
    let said = ran.ok();
    assert!(said.starts_with("rw /tmp: ") && said.contains(&workspace), "{said}");
    assert!(said.ends_with(&format!("\n{project}\nExited(3)")), "{said}");
    assert_eq!(ran.stderr, "", "nothing is said that nobody asked for");
    assert!(pen.project.join("made").exists());
    let left = fs::read_dir(pen.home.join(".local/state/sandpen/outcomes")).expect("where it was told").count();
    assert_eq!(left, 0, "nothing is left");
}

fn a_guests_own_44_is_not_a_failed_launch(pen: &Pen) {
    assert!(embedding(pen).args(["sh", "-c", "exit 44"]).ran().ok().ends_with("Exited(44)"));
    let ran = embedding(pen).env("SANDPEN_NETWORK", "on").env("SANDBOX_PORTS", "none").arg("true").ran();
    assert!(ran.stderr.starts_with("Usage: env SANDBOX_PORTS: "), "{}", ran.stderr);
    if pen.engine.is_container() {
        let ran = embedding(pen).env("SANDPEN_IMAGE", "localhost/sandpen/none").arg("true").ran();
        // Docker's client may speak first.
        let words = "Launch: the sandbox image `localhost/sandpen/none` is missing";
        assert!(ran.stderr.contains(words) && ran.stderr.contains("\nhint: "), "{}", ran.stderr);
        assert!(!ran.stderr.contains("sandpen: error"), "told once, as a value: {}", ran.stderr);
    }
}

/// What the guest may write to does not provide the launcher.
fn a_planted_program_does_not_launch(pen: &Pen) {
    let planted = pen.project.join("bin/sandpen");
    install(Path::new("/bin/true"), &planted);
    let mut command = embedding(pen);
    let programs = pen.root().join("programs");
    command.env("PATH", format!("{}:{}:/usr/bin:/bin", planted.parent().expect("bin").display(), programs.display()));
    assert!(command.args(["sh", "-c", "exit 7"]).ran().ok().ends_with("Exited(7)"));
    fs::remove_file(programs.join("sandpen")).expect("remove");
    let ran = command.ran();
    let words = "Launch: there is no program `sandpen` on PATH outside of mounted directories\nhint: ";
    assert!(ran.stderr.starts_with(words), "{}", ran.stderr);
}

/// The one that ends first takes nothing of the other's along.
#[test]
fn two_at_once_are_told_apart() {
    Pen::on(Engine::Native, |pen| {
        // Long enough for the other to end first, and not for ever if this test fails.
        let script = "touch started; for i in $(seq 300); do [ -e go ] && exit 5; sleep 0.1; done";
        // Both before either runs: the file of a running program cannot be written.
        let (mut slow, mut quick) = (embedding(pen), embedding(pen));
        let slow = slow.args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("the slow one");
        eventually("the slow one runs", || pen.project.join("started").exists());
        assert!(quick.args(["sh", "-c", "exit 6"]).ran().ok().ends_with("Exited(6)"));
        fs::write(pen.project.join("go"), "").expect("go");
        assert!(Ran::from(slow.wait_with_output().expect("its end")).ok().ends_with("Exited(5)"));
    });
}

#[test]
fn another_version_does_not_launch() {
    Pen::on(Engine::Native, |pen| {
        let mut command = embedding(pen);
        let other = pen.root().join("programs/sandpen");
        fs::write(&other, "#!/bin/sh\necho sandpen 0.0.1\n").expect("another");
        let ran = command.arg("true").ran();
        assert!(ran.stderr.contains("is not `sandpen ") && ran.stderr.contains("`sandpen 0.0.1`"), "{}", ran.stderr);
    });
}

#[test]
fn the_page_shows_the_example() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file");
    let (page, example) = (read("docs/embedding.md"), read("examples/embed.rs"));
    assert!(page.contains(&format!("```rust\n{example}```\n")), "docs/embedding.md and examples/embed.rs differ");
}
