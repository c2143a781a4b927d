//! Tests what becomes of a sandbox on another machine when the connection breaks.

use super::machine::Machine;
use crate::support::{Engine, RunToEnd, Running};

#[test]
fn a_cut_network_is_an_error_and_never_an_exit_code() {
    Machine::alone(Engine::Docker, |machine, fixture| {
        let mut command = fixture.run();
        command.args(["--", "sh", "-c", "echo up; sleep 1000"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        machine.disconnect();
        let finished = running.finish();
        let stderr = finished.failure(44);
        assert!(stderr.contains("the connection to the sandbox at `ssh://"), "{stderr}");
        assert!(stderr.contains("hint: see what is left with `docker --host "), "{stderr}");
        // Nobody knows what became of it: the record stays for `prune`.
        assert_eq!(fixture.sessions().len(), 1);
        let again = fixture.run().args(["--", "true"]).finish();
        let stderr = again.failure(44);
        assert!(stderr.contains("does not answer") && !stderr.contains("image"), "{stderr}");
    });
}
