//! Tests the option `--hide`: wrong patterns, tracked files, and what `explain` lists.

use crate::support::{Engine, Fixture, RunToEnd};

fn git(fixture: &Fixture, arguments: &[&str]) {
    fixture.host_command("git").args(arguments).finish().success();
}

#[test]
fn a_tracked_file_cannot_be_hidden() {
    let fixture = Fixture::new();
    git(&fixture, &["init", "--quiet", "."]);
    fixture.write("project/config/app.env", "x");
    git(&fixture, &["add", "config/app.env"]);
    for pattern in ["*.env", "config/", "/config/app.env"] {
        let finished = fixture.sandpen(["explain", "--hide", pattern, "--", "true"]).finish();
        let stderr = finished.failure(2);
        assert!(stderr.contains("config/app.env`, which Git tracks, so it cannot be hidden"), "{pattern}: {stderr}");
    }
    git(&fixture, &["rm", "--quiet", "--cached", "config/app.env"]);
    fixture.sandpen(["explain", "--hide", "*.env", "--", "true"]).finish().success();
}

#[test]
fn a_hidden_file_with_a_tracked_name_is_refused() {
    let fixture = Fixture::new();
    git(&fixture, &["init", "--quiet", "."]);
    fixture.write("project/tracked", "x");
    git(&fixture, &["add", "tracked"]);
    std::fs::hard_link(fixture.project.join("tracked"), fixture.project.join(".env")).expect("hard link");
    let stderr = fixture.sandpen(["explain", "--hide", ".env", "--", "true"]).finish().failure(2).to_owned();
    assert!(stderr.contains("has another name") && stderr.contains("tracked"), "{stderr}");
}

#[test]
fn wrong_patterns_are_refused() {
    let fixture = Fixture::new();
    for pattern in ["*", "../x", "!x", "~/x"] {
        let stderr = fixture.sandpen(["run", "--hide", pattern, "--", "true"]).finish().failure(2).to_owned();
        assert!(stderr.contains("is not a pattern of files to hide"), "{pattern}: {stderr}");
    }
}

#[test]
fn explain_lists_hidden_files_and_names_outside_of_the_workspace() {
    Fixture::on(Engine::Native, |fixture| {
        let file = fixture.write("project/.env", "secret");
        std::fs::hard_link(file, fixture.outside("elsewhere").join("copy")).expect("hard link");
        let mut explain = fixture.command("explain");
        let finished = explain.args(["--hide", ".env*", "--hide", "missing", "--", "true"]).finish();
        // Without the line breaks of the table.
        let text = finished.success().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("project/.env") && text.contains("hidden: reads as empty (flag --hide)"), "{text}");
        assert!(
            finished.stderr.contains("it has other names (hard links) outside of the workspace"),
            "{}",
            finished.stderr
        );
        let mut why = fixture.command("explain");
        let why = why.args(["--hide", ".env*", "--why", ".env"]).finish();
        assert!(why.success().contains("hidden: reads as empty"), "{}", why.stdout);
    });
}
