//! Tests what `--nested` does where it cannot work, and what a project file with it opens.

use crate::support::{Fixture, RunToEnd};

/// A guest who may be root makes no sandboxes in a container.
const IMAGE: [&str; 4] = ["--image", "localhost/any", "--user", "image"];

fn stderr(fixture: &Fixture, options: &[&str], command: &[&str]) -> String {
    let mut run = fixture.sandpen(["run"]);
    run.args(IMAGE).args(options).arg("--").args(command).finish().stderr
}

#[test]
fn an_agent_whose_sandbox_cannot_work_is_told_how_to_turn_it_off() {
    let fixture = Fixture::new().with_recording_docker();
    let said = stderr(&fixture, &[], &["codex"]);
    assert_eq!(said.matches("codex's own sandbox does not work here (").count(), 1, "{said}");
    assert!(said.contains("; turn it off with `--sandbox danger-full-access`"), "{said}");
    for off in
        [&["codex", "-s", "danger-full-access"][..], &["codex", "--sandbox=danger-full-access"], &["codex", "--yolo"]]
    {
        let said = stderr(&fixture, &[], off);
        assert!(!said.contains("own sandbox"), "{off:?}: {said}");
    }
    let said = stderr(&fixture, &["--nested", "off"], &["codex"]);
    assert!(!said.contains("own sandbox"), "{said}");
    // Its sandbox is off unless the user turns it on.
    let said = stderr(&fixture, &[], &["claude"]);
    assert!(!said.contains("own sandbox"), "{said}");
    let said = stderr(&fixture, &[], &["chromium"]);
    assert!(said.contains("turn it off with `--no-sandbox`"), "{said}");
}

#[test]
fn nested_on_is_a_downgrade_where_it_cannot_work() {
    let fixture = Fixture::new().with_recording_docker();
    let said = stderr(&fixture, &["--nested", "on"], &["true"]);
    assert!(said.contains("warning: sandboxes within the sandbox (flag --nested): denied"), "{said}");
    let mut strict = fixture.sandpen(["run", "--strict", "--nested", "on"]);
    strict.args(IMAGE).args(["--", "true"]).finish().failure(44);
    let wrong = fixture.usage_error(fixture.sandpen(["run", "--nested", "of"]).args(["--", "true"]));
    assert!(wrong.contains("did you mean `off`?"), "{wrong}");
}

#[test]
fn a_project_file_that_allows_nesting_opens_the_sandbox() {
    let fixture = Fixture::new();
    fixture.write("project/.sandpen/config.toml", "nested = \"on\"\n");
    let shown = fixture.sandpen(["trust", "--dry-run"]).finish();
    let text = format!("{}{}", shown.stdout, shown.stderr);
    assert!(text.contains("more of the kernel can be reached"), "{text}");
}
