//! Tests keys that stay outside: real clients inside, a TLS server outside whose certificate a test
//! authority signed, and the proxy of a company network that leads every name to it.

mod attack;
mod bad_input;
mod clients;
mod logins;
mod rig;
mod sources;

use rig::Rig;

use crate::support::{Finished, Fixture, RunToEnd};

/// The libraries of this machine's curl, for images of the same distribution.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

impl Rig {
    /// Runs a bash script in a sandbox that has the key outside; `curl` is this machine's.
    fn bash(&self, fixture: &Fixture, options: &[&str], script: &str) -> Finished {
        let mut command = fixture.run();
        command.envs(self.host()).args(["--secret", "A_TEST_KEY@api.vendor.example"]).args(options);
        let mut start = String::new();
        if fixture.engine().is_container() {
            command.args(["--mount", "/usr/bin/curl:/usr/local/bin/curl-host"]);
            command.args(["--mount", &format!("{LIBRARIES}:/host-libraries")]);
            start.push_str("curl() { LD_LIBRARY_PATH=/host-libraries /usr/local/bin/curl-host \"$@\"; }\n");
        }
        command.args(["--", "bash", "-c", &(start + script)]).finish()
    }
}
