//! Tests `--workspace` itself: wrong values, what `explain` shows, and what a project file may say.

use super::{git, in_copy, prepare, sandpen};
use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, SYSTEM_PATH, install_script};

#[test]
fn wrong_values_say_what_is_expected() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        for (value, expected) in [
            ("Live", "expected `live`, `copy`, or the id of a copy that `sandpen ps` lists"),
            ("../x", "expected `live`"),
            ("missing", "no copied workspace has the id `missing`"),
        ] {
            let mut command = fixture.run();
            let finished = command.args(["--workspace", value, "--", "true"]).finish();
            assert!(finished.failure(2).contains(expected), "{value}: {}", finished.stderr);
        }
        let mut command = fixture.run();
        let finished = command.args(["--workspace", "copy", "--git", "shared", "--", "true"]).finish();
        assert!(finished.failure(2).contains("needs a private Git directory"), "{}", finished.stderr);
        in_copy(fixture, "there", "echo x > x");
        let listed = sandpen(fixture, &["ps"]);
        assert!(listed.success().lines().any(|line| line.starts_with("there  native  kept")), "{}", listed.stdout);
        let listed = sandpen(fixture, &["ps", "--format", "json"]).json();
        assert_eq!((&listed[0]["state"], &listed[0]["changes"]), (&"kept".into(), &true.into()));
        let mut command = fixture.run();
        let finished = command.args(["--workspace", "ther", "--", "true"]).finish();
        assert!(finished.failure(2).contains("did you mean `there`?"), "{}", finished.stderr);
        let other = fixture.home.join("other");
        fixture.write("other/file", "");
        let mut command = fixture.run();
        let finished = command.current_dir(&other).args(["--workspace", "there", "--", "true"]).finish();
        assert!(finished.failure(2).contains("`there` is a copy of"), "{}", finished.stderr);
        let mut command = fixture.run();
        let finished = command.args(["--name", "there", "--workspace", "copy", "--", "true"]).finish();
        assert!(finished.failure(44).contains("exists already"), "{}", finished.stderr);
        assert!(sandpen(fixture, &["discard", "ther"]).failure(44).contains("did you mean `there`?"));
        assert!(sandpen(fixture, &["diff", "ther"]).failure(44).contains("did you mean `there`?"));
        let piped = sandpen(fixture, &["apply", "-p"]);
        assert!(piped.failure(2).contains("needs a terminal"), "{}", piped.stderr);
    });
}

#[test]
fn explain_shows_the_copy_and_its_reason() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        let live = fixture.explain(&["--", "true"]);
        assert_eq!((&live["workspace"]["mode"], &live["workspace"]["how"]), (&"live".into(), &"mount".into()));
        let copy = fixture.explain(&["--workspace", "copy", "--", "true"]);
        assert_eq!((&copy["workspace"]["mode"], &copy["workspace"]["how"]), (&"copy".into(), &"overlay".into()));
        let project = fixture.project.display().to_string();
        for mount in copy["mounts"].as_array().expect("mounts") {
            let (source, mode) = (mount["source"].as_str().unwrap_or_default(), &mount["mode"]);
            let is_overlay = source.contains(", changes in ");
            assert!(is_overlay || mode != "rw" || !source.starts_with(&project), "{mount}");
        }
        let mut command = fixture.sandpen(["explain", "--format", "json", "--engine", "native", "--", "true"]);
        let explained = command.env("SANDPEN_WORKSPACE", "copy").finish().json();
        assert_eq!(explained["workspace"]["mode"], "copy");
        assert!(!fixture.home.join(".local/state/sandpen/copies").exists(), "explain makes nothing");
    });
}

#[test]
fn a_file_chooses_a_copy_but_not_which() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        fixture.write_config("workspace = \"copy\"\n");
        assert_eq!(fixture.explain(&["--", "true"])["workspace"]["mode"], "copy");
        assert_eq!(fixture.explain(&["--workspace", "live", "--", "true"])["workspace"]["mode"], "live");
        fixture.write_config("workspace = \"some-id\"\n");
        let mut command = fixture.run();
        let finished = command.args(["--", "true"]).finish();
        assert!(finished.failure(2).contains("`live` or `copy`"), "{}", finished.stderr);
    });
}

#[test]
fn a_pager_such_as_delta_shows_the_changes() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        in_copy(fixture, "paged", "echo more >> file");
        let programs = fixture.outside("programs");
        install_script(programs.join("delta"), "#!/bin/sh\necho \"delta $*\"\ncat\n");
        git(fixture, &["config", "--global", "core.pager", "delta --dark"]);
        let mut command = fixture.sandpen(["diff"]);
        command.env("PATH", format!("{}:{SYSTEM_PATH}", programs.display())).env("TERM", "xterm");
        let mut terminal = Pty::start(&command);
        terminal.expect("delta --dark");
        terminal.expect("+more");
    });
}

#[test]
fn the_filter_of_interactive_commands_shows_hunks() {
    Fixture::on(Engine::Native, |fixture| {
        prepare(fixture);
        in_copy(fixture, "filtered", "sed -i -e s/^2$/two/ -e s/^18$/eighteen/ file");
        let programs = fixture.outside("programs");
        install_script(programs.join("delta"), "#!/bin/sh\nexec sed \"s/^/$1 /\"\n");
        let start = |filter: &str| {
            git(fixture, &["config", "--global", "interactive.diffFilter", filter]);
            let mut command = fixture.sandpen(["apply", "-p"]);
            command.env("PATH", format!("{}:{SYSTEM_PATH}", programs.display())).env("TERM", "xterm");
            Pty::start(&command)
        };
        let mut terminal = start("delta DARK");
        terminal.expect("DARK \u{1b}[36m@@ -1,5 +1,5 @@");
        terminal.expect("two");
        terminal.expect("(1/2) take this hunk?");
        terminal.send("y\n");
        terminal.expect("DARK \u{1b}[36m@@ -15,6 +15,6 @@");
        terminal.expect("(2/2) take this hunk?");
        terminal.send("q\n");
        terminal.expect("1 file applied");
        // One that does not keep the lines is not used.
        let mut terminal = start("head -n 1");
        terminal.expect("shown without it");
        terminal.expect("+eighteen");
        terminal.send("q\n");
        terminal.expect("nothing to apply");
    });
}
