//! Exit codes: the guest's own, and the launcher's.

use crate::support::{Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    the_exit_code_is_the_guests,
    death_by_signal_is_128_and_its_number,
    a_command_that_cannot_be_executed_is_126,
);
for_every_container_engine!(a_missing_command_is_127_with_a_hint, an_engine_that_refuses_is_44,);

fn the_exit_code_is_the_guests(pen: &Pen) {
    for code in [0, 7, 44, 125, 126, 127, 255] {
        let ran = pen.run().args(["--", "sh", "-c", &format!("exit {code}")]).ran();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "exit {code}");
    }
}

fn death_by_signal_is_128_and_its_number(pen: &Pen) {
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let ran = pen.bash(&format!("ulimit -c 0; kill -{signal} $$; sleep 10"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{signal}");
    }
}

fn a_command_that_cannot_be_executed_is_126(pen: &Pen) {
    pen.write("project/data", "just text");
    for command in ["./data", "/etc", "/etc/passwd"] {
        let ran = pen.run().args(["--", command]).ran();
        assert_eq!(ran.code, Some(126), "{command}: {}", ran.stderr);
        assert!(ran.stderr.contains(&format!("sandpen: `{command}` cannot be executed")), "{}", ran.stderr);
    }
}

fn a_missing_command_is_127_with_a_hint(pen: &Pen) {
    let ran = pen.run().args(["--", "claude", "--version"]).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(127), ""));
    assert!(ran.stderr.contains("`claude` was not found in the image `localhost/sandpen-test"), "{}", ran.stderr);
    assert!(ran.stderr.contains("`sandpen build --agent claude`"), "{}", ran.stderr);
    for command in ["no-such-command", "./no-such-file", "/no/such/path"] {
        let ran = pen.run().args(["--", command]).ran();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(127), ""), "{command}");
        assert!(ran.stderr.contains(&format!("sandpen: `{command}` was not found")), "{}", ran.stderr);
        assert!(ran.stderr.contains("--image") && !ran.stderr.contains("build --agent"), "{}", ran.stderr);
    }
}

fn an_engine_that_refuses_is_44(pen: &Pen) {
    for arguments in [&["--engine-flag", "--no-such-flag"][..], &["--engine-flag", "--name=!"]] {
        let ran = pen.run().args(arguments).args(["--", "echo", "ran"]).ran();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(44), ""), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("sandpen: error: ") && ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
    assert_eq!(pen.sessions(), Vec::<std::path::PathBuf>::new());
    assert_eq!(pen.containers(), Vec::<String>::new());
    // A flag that the engine knows is passed on, also from the variable.
    let ran = pen.run().env("SANDBOX_FLAGS", "--env 'FROM_FLAG=a b'").args(["--", "printenv", "FROM_FLAG"]).ran();
    assert_eq!(ran.ok(), "a b");
}
