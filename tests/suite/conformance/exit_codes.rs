//! Tests the exit codes of the guest and of the launcher.

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_kubernetes, for_native_image};

for_every_engine!(
    the_exit_code_is_the_guests,
    death_by_signal_is_128_and_its_number,
    a_command_that_cannot_be_executed_is_126,
);
for_native_image!(a_command_that_cannot_be_executed_is_126);
for_kubernetes!(a_command_that_cannot_be_executed_is_126, a_missing_command_is_127_with_a_hint,);
for_every_container_engine!(a_missing_command_is_127_with_a_hint, an_engine_that_refuses_is_44,);

fn the_exit_code_is_the_guests(fixture: &Fixture) {
    for code in [0, 7, 44, 125, 126, 127, 255] {
        let finished = fixture.run().args(["--", "sh", "-c", &format!("exit {code}")]).finish();
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(code), ""), "exit {code}");
    }
}

fn death_by_signal_is_128_and_its_number(fixture: &Fixture) {
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let finished = fixture.bash(&format!("ulimit -c 0; kill -{signal} $$; sleep 10"));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(code), ""), "{signal}");
    }
}

fn a_command_that_cannot_be_executed_is_126(fixture: &Fixture) {
    fixture.write("project/data", "just text");
    for command in ["./data", "/etc", "/etc/passwd"] {
        let finished = fixture.run().args(["--", command]).finish();
        assert_eq!(finished.code, Some(126), "{command}: {}", finished.stderr);
        assert!(finished.stderr.contains(&format!("sandpen: `{command}` cannot be executed")), "{}", finished.stderr);
    }
}

fn a_missing_command_is_127_with_a_hint(fixture: &Fixture) {
    let finished = fixture.run().args(["--", "claude", "--version"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(127), ""));
    assert!(
        finished.stderr.contains("`claude` was not found in the image `localhost/sandpen-test"),
        "{}",
        finished.stderr
    );
    assert!(finished.stderr.contains("`sandpen build --agent claude`"), "{}", finished.stderr);
    for command in ["no-such-command", "./no-such-file", "/no/such/path"] {
        let finished = fixture.run().args(["--", command]).finish();
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(127), ""), "{command}");
        assert!(finished.stderr.contains(&format!("sandpen: `{command}` was not found")), "{}", finished.stderr);
        assert!(
            finished.stderr.contains("--image") && !finished.stderr.contains("build --agent"),
            "{}",
            finished.stderr
        );
    }
}

fn an_engine_that_refuses_is_44(fixture: &Fixture) {
    for arguments in [&["--engine-flag", "--no-such-flag"][..], &["--engine-flag", "--name=!"]] {
        let finished = fixture.run().args(arguments).args(["--", "echo", "ran"]).finish();
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(44), ""), "{arguments:?}: {}", finished.stderr);
        assert!(
            finished.stderr.contains("sandpen: error: ") && finished.stderr.contains("hint: "),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
    assert_eq!(fixture.containers(), Vec::<String>::new());
    // Valid flags reach the engine, also from the variable.
    let finished =
        fixture.run().env("SANDBOX_FLAGS", "--env 'FROM_FLAG=a b'").args(["--", "printenv", "FROM_FLAG"]).finish();
    assert_eq!(finished.success(), "a b");
}
