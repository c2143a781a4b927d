//! Attack 27: a guest that reads from the caller's terminal while the user types into the host's
//! shell.

use std::fs;

use crate::for_every_engine;
use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, Running, eventually};

for_every_engine!(attack_27_a_sandbox_in_the_background_reads_no_keys, attack_27_what_exec_leaves_behind_reads_no_keys,);

/// Leaves a process behind that job control does not reach, and that reads from all that the guest
/// has of a terminal.
const READER: &str = "#!/bin/bash
exec 3<&0
for source in /dev/fd/3 /dev/tty /dev/console; do
    setsid bash -c \"cat $source >> stolen 2>/dev/null\" 2>/dev/null &
    bash -c \"trap '' TTIN; cat $source >> stolen 2>/dev/null\" 2>/dev/null &
done
touch reading
echo started-$((40 + 2))
";

fn write_reader(fixture: &Fixture, last: &str) {
    fixture.write_script("project/reader", &format!("{READER}{last}\n"));
}

/// Types some lines into the shell, and asserts that it gets all of them.
fn type_secrets(fixture: &Fixture, pty: &mut Pty) {
    for number in 0..8 {
        pty.send(&format!("echo secret-{number} $((40 + {number}))\r"));
        pty.expect(&format!("secret-{number} {}\r", 40 + number));
    }
    let stolen = fs::read_to_string(fixture.root.join("project/stolen")).unwrap_or_default();
    assert!(!stolen.contains("secret"), "the guest has read {stolen:?}");
}

pub(crate) fn attack_27_a_sandbox_in_the_background_reads_no_keys(fixture: &Fixture) {
    write_reader(fixture, "sleep 300");
    let mut command = fixture.run();
    command.args(["--", "./reader"]);
    let mut pty = Pty::interactive(&command);
    pty.expect("[prompt] ");
    pty.send("$run &\r");
    if fixture.engine().is_container() {
        // The engine's client stops until it is in the foreground.
        pty.expect("[prompt] ");
    } else {
        pty.expect("started-42");
    }
    type_secrets(fixture, &mut pty);
    pty.send("kill %1; wait\r");
    pty.expect("[prompt] ");
}

/// In a container the key stays inside, and the command goes on.
#[test]
fn attack_27_a_stopped_sandbox_reads_no_keys() {
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, |fixture| {
            write_reader(fixture, "sleep 300");
            let mut command = fixture.run();
            command.args(["--", "./reader"]);
            let mut pty = Pty::interactive(&command);
            pty.expect("[prompt] ");
            pty.send("$run\r");
            pty.expect("started-42");
            pty.send("\u{1a}");
            pty.expect("Stopped");
            pty.expect("[prompt] ");
            type_secrets(fixture, &mut pty);
            pty.send("kill %1; fg\r");
            pty.expect("[prompt] ");
        });
    }
}

pub(crate) fn attack_27_what_exec_leaves_behind_reads_no_keys(fixture: &Fixture) {
    write_reader(fixture, "exit 0");
    let mut running = Running::start(fixture.run().args(["--", "bash", "-c", "echo ${SANDBOX#sandpen-}; sleep 300"]));
    let id = running.line();
    let mut command = fixture.sandpen(["exec", &id, "--", "./reader"]);
    let mut pty = Pty::interactive(&command);
    pty.expect("[prompt] ");
    pty.send("$run\r");
    pty.expect("started-42");
    pty.expect("[prompt] ");
    type_secrets(fixture, &mut pty);
    // Nothing of it is left at all.
    command =
        fixture.sandpen(["exec", &id, "--", "bash", "-c", "grep -l '[s]tolen' /proc/[0-9]*/cmdline || echo none"]);
    eventually("the processes are ended", || command.output().is_ok_and(|output| output.stdout == b"none\n"));
}
