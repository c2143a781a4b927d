//! A long wait is never silent, and never on stdout.

use crate::cli::world::World;
use crate::support::RunToEnd;
use crate::support::pty::Pty;

const WAITING: &str = "sandpen: waiting for docker to start the sandbox\n";

fn slow(image: &str) -> World {
    let world = World::new();
    world.program("docker", &format!("#!/bin/sh\ncase $1 in image) {image};; run) /bin/sleep 5;; esac\n"));
    world
}

#[test]
fn a_container_that_is_long_in_coming() {
    let world = slow("echo '[{}]'");
    let ran = world.sandpen(["run", "--", "true"]).ran();
    assert_eq!((ran.code, ran.stdout.as_str(), ran.waits.as_str()), (Some(0), "", WAITING));
    let ran = world.sandpen(["run", "--quiet", "--", "true"]).ran();
    assert_eq!((ran.stdout.as_str(), ran.waits.as_str()), ("", ""));
}

/// The engine shows how it pulls.
#[test]
fn an_image_that_is_long_in_coming() {
    let ran = slow("exit 1").sandpen(["run", "--", "true"]).ran();
    assert_eq!((ran.code, ran.waits.as_str()), (Some(0), ""));
}

#[test]
fn engines_that_are_long_in_answering() {
    let world = World::new();
    world.program("docker", "#!/bin/sh\n[ \"$1\" = info ] && exec /bin/sleep 3\nexit 1\n");
    let ran = world.sandpen(["doctor"]).ran();
    assert_eq!((ran.code, ran.waits.as_str()), (Some(1), "sandpen: waiting for the engines to answer\n"));
    let ran = world.sandpen(["doctor", "-q"]).ran();
    assert_eq!((ran.code, ran.waits.as_str()), (Some(1), ""));
    // At a terminal it counts, in one line that goes.
    let mut terminal = Pty::start(&world.sandpen(["doctor"]));
    terminal.expect("Not ready");
    let said = terminal.said();
    for second in ["(0 s)", "(1 s)", "(2 s)"] {
        assert!(said.contains(&format!("\r\u{1b}[Ksandpen: waiting for the engines to answer {second}")), "{said:?}");
    }
    assert!(said.contains("\r\u{1b}[KSandbox\r\n"), "{said:?}");
}
