//! Values from files and commands, and where keys stay inside.

use super::rig::{Rig, VALUE};
use crate::support::{Engine, Fixture, RunToEnd};

fn with_config(fixture: &Fixture, rig: &Rig, from: &str) -> crate::support::Finished {
    let config = format!(
        "[[secrets]]\nname = \"MINE_TOKEN\"\nhosts = [\"api.vendor.example\"]\nheader = \"X-Mine\"\nfrom = {from}\n"
    );
    fixture.write(".config/sandpen/config.toml", &config);
    let mut command = fixture.run();
    command.envs(rig.host());
    command.args(["--", "bash", "-c", "echo $MINE_TOKEN; curl -sS -o /dev/null https://api.vendor.example/"]).finish()
}

#[test]
fn a_file_or_a_command_has_the_value() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        fixture.write("token", &format!("{VALUE}\n"));
        let counter = fixture.home.join("calls");
        fixture.write_script(
            "bin/print-token",
            &format!("#!/bin/sh\necho called >>{}\necho {VALUE}\n", counter.display()),
        );
        let command = format!("[\"{}\"]", fixture.home.join("bin/print-token").display());
        for from in ["\"~/token\"", &command] {
            let finished = with_config(fixture, &rig, from);
            assert!(finished.success().starts_with("sk-test-") && !finished.stdout.contains(VALUE), "{finished:?}");
            let requests = rig.requests();
            assert!(
                requests.last().is_some_and(|request| request.contains(&format!("x-mine: {VALUE}\r\n"))),
                "{requests:?}"
            );
        }
        assert_eq!(std::fs::read_to_string(&counter).expect("calls"), "called\n", "it is run once");
        // `explain` runs no command.
        fixture.command("explain").envs(rig.host()).args(["--", "true"]).finish().success();
        assert_eq!(std::fs::read_to_string(&counter).expect("calls"), "called\n");
    });
}

#[test]
fn a_source_that_yields_nothing_is_an_error() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        fixture.write("empty", "");
        fixture.write("two", "two words of text\n");
        fixture.write("project/planted", VALUE);
        for (from, problem) in [
            ("[\"true\"]", "the command `true` printed nothing"),
            ("[\"false\"]", "the command `false` failed: exit status: 1"),
            ("[\"no-such-program\"]", "the command `no-such-program` does not exist on PATH"),
            ("\"~/empty\"", "is empty"),
            ("\"~/missing\"", "does not exist"),
            ("\"~/two\"", "not one line of printable ASCII"),
            ("\"~/project/planted\"", "is in a directory that is mounted"),
        ] {
            let finished = with_config(fixture, &rig, from);
            let stderr = finished.failure(44);
            assert!(stderr.contains("no value for `MINE_TOKEN`") && stderr.contains(problem), "{from}: {stderr}");
        }
        assert!(rig.requests().is_empty());
    });
}

#[test]
fn inside_means_inside_and_says_so() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let inside = rig.bash(fixture, &["--keys", "inside"], "echo $A_TEST_KEY $HTTPS_PROXY");
        assert_eq!(inside.success(), format!("{VALUE} {}", rig.proxy));
        let variables = [("A_TEST_KEY", VALUE)];
        let place = |keys: &str| {
            let explained =
                fixture.explain_with(&["--keys", keys, "--secret", "A_TEST_KEY@a.example", "--", "true"], &variables);
            explained["secrets"].clone()
        };
        let expected = |place: &str, reason: &str| serde_json::json!([{"name": "A_TEST_KEY", "where": place, "hosts": ["a.example"], "reason": reason, "from": "flag --secret"}]);
        assert_eq!(place("auto"), expected("outside", "the proxy sets the value in requests to its hosts"));
        assert_eq!(place("inside"), expected("inside", "flag --keys is `inside`"));
    });
}
