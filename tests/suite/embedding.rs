//! Builds the example of docs/embedding.md and runs it as a program that embeds sandpen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, IMAGE, RunToEnd, binary, eventually, install_program, install_script};

for_every_engine!(
    the_example_plans_runs_and_tells_the_outcome,
    exit_code_44_of_the_guest_is_not_a_failed_launch,
    a_planted_program_does_not_launch,
);

/// Builds the example once per test run; cargo skips the build if nothing changed.
fn example() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", "embed", "--message-format", "json"]);
        let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo");
        let finished = Finished::from(output);
        let messages =
            finished.success().lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let is_example = |message: &serde_json::Value| message["target"]["name"] == "embed";
        let message = messages.filter(is_example).find(|message| message["executable"].is_string());
        message.expect("the example")["executable"].as_str().expect("its path").into()
    });
    built.clone()
}

/// Returns a command that runs the example as the fixture's user, with sandpen on PATH.
fn embedding(fixture: &Fixture) -> Command {
    let programs = fixture.root.join("programs");
    install_program(example(), programs.join("embed"));
    install_program(binary(), programs.join("sandpen"));
    let mut command = fixture.host_command(programs.join("embed"));
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()));
    command.env("SANDPEN_ENGINE", fixture.engine().flag());
    if fixture.engine().is_container() {
        command.env("SANDPEN_IMAGE", IMAGE);
    }
    command
}

fn the_example_plans_runs_and_tells_the_outcome(fixture: &Fixture) {
    let finished = embedding(fixture).args(["sh", "-c", "pwd; touch made; exit 3"]).finish();
    let project = fixture.project.display();
    let workspace = format!("rw {project}: the working directory (default)\n");
    let said = finished.success();
    assert!(said.starts_with("rw /tmp: ") && said.contains(&workspace), "{said}");
    assert!(said.ends_with(&format!("\n{project}\nExited(3)")), "{said}");
    assert_eq!(finished.stderr, "", "the library prints nothing");
    assert!(fixture.project.join("made").exists());
    let left = fs::read_dir(fixture.home.join(".local/state/sandpen/outcomes"))
        .expect("the directory of outcome files")
        .count();
    assert_eq!(left, 0, "no outcome file remains");
}

fn exit_code_44_of_the_guest_is_not_a_failed_launch(fixture: &Fixture) {
    assert!(embedding(fixture).args(["sh", "-c", "exit 44"]).finish().success().ends_with("Exited(44)"));
    let finished = embedding(fixture).env("SANDPEN_NETWORK", "on").env("SANDBOX_PORTS", "none").arg("true").finish();
    assert!(finished.stderr.starts_with("Usage: env SANDBOX_PORTS: "), "{}", finished.stderr);
    if fixture.engine().is_container() {
        let finished = embedding(fixture).env("SANDPEN_IMAGE", "localhost/sandpen/none").arg("true").finish();
        // Docker's client may print a line before it.
        let message = "Launch: the sandbox image `localhost/sandpen/none` is missing";
        assert!(finished.stderr.contains(message) && finished.stderr.contains("\nhint: "), "{}", finished.stderr);
        assert!(!finished.stderr.contains("sandpen: error"), "the error is returned, not printed: {}", finished.stderr);
    }
}

/// The guest can write to the workspace, so a program there must not be the launcher.
fn a_planted_program_does_not_launch(fixture: &Fixture) {
    let planted = fixture.project.join("bin/sandpen");
    install_program("/bin/true", &planted);
    let mut command = embedding(fixture);
    let programs = fixture.root.join("programs");
    command.env("PATH", format!("{}:{}:/usr/bin:/bin", planted.parent().expect("bin").display(), programs.display()));
    assert!(command.args(["sh", "-c", "exit 7"]).finish().success().ends_with("Exited(7)"));
    fs::remove_file(programs.join("sandpen")).expect("remove");
    let finished = command.finish();
    let message = "Launch: there is no program `sandpen` on PATH outside of mounted directories\nhint: ";
    assert!(finished.stderr.starts_with(message), "{}", finished.stderr);
}

/// The sandbox that ends first must not remove the outcome file of the other.
#[test]
fn two_concurrent_sandboxes_report_separate_outcomes() {
    Fixture::on(Engine::Native, |fixture| {
        // The script waits for the other sandbox, but gives up after 30 seconds if the test fails.
        let script = "touch started; for i in $(seq 300); do [ -e go ] && exit 5; sleep 0.1; done";
        let (mut slow, mut quick) = (embedding(fixture), embedding(fixture));
        let slow = slow.args(["sh", "-c", script]).stdout(Stdio::piped()).spawn().expect("the slow one");
        eventually("the slow one runs", || fixture.project.join("started").exists());
        assert!(quick.args(["sh", "-c", "exit 6"]).finish().success().ends_with("Exited(6)"));
        fs::write(fixture.project.join("go"), "").expect("go");
        assert!(Finished::from(slow.wait_with_output().expect("its end")).success().ends_with("Exited(5)"));
    });
}

#[test]
fn another_version_does_not_launch() {
    Fixture::on(Engine::Native, |fixture| {
        let mut command = embedding(fixture);
        let other = fixture.root.join("programs/sandpen");
        install_script(&other, "#!/bin/sh\necho sandpen 0.0.1\n");
        let finished = command.arg("true").finish();
        assert!(
            finished.stderr.contains("is not `sandpen ") && finished.stderr.contains("`sandpen 0.0.1`"),
            "{}",
            finished.stderr
        );
    });
}

#[test]
fn the_page_shows_the_example() {
    let read = |name: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file");
    let (page, example) = (read("docs/embedding.md"), read("examples/embed.rs"));
    assert!(page.contains(&format!("```rust\n{example}```\n")), "docs/embedding.md and examples/embed.rs differ");
}
