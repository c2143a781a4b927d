//! Tests keys that stay outside: real clients inside, a TLS server outside whose certificate a test
//! authority signed, and the proxy of a company network that leads every name to it.

mod attack;
mod bad_input;
mod clients;
mod logins;
pub mod rig;
mod smuggling;
mod sources;
mod streams;

use rig::Rig;

use crate::support::{Finished, Fixture, RunToEnd};

/// The libraries of this machine's curl, for images of the same distribution.
const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// Opens connections as no program would that means well: the rest of a Python script that runs inside.
const RAW_CLIENT: &str = r#"
import base64, os, re, socket, ssl, sys, threading, urllib.parse
KEY = os.environ.get("A_TEST_KEY", "")
def tunnel(target):
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    raw = socket.create_connection((proxy.hostname, proxy.port), 60)
    login = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    raw.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = raw.recv(1)
        if not part: break
        head += part
    return raw, head.split(b"\r\n")[0].decode()
def connect(name="api.vendor.example", target="api.vendor.example:443", alpn=None):
    raw, status = tunnel(target)
    context = ssl.create_default_context()
    if alpn: context.set_alpn_protocols(alpn)
    return context.wrap_socket(raw, server_hostname=name)
def rest(s):
    got = b""
    try:
        while part := s.recv(65536): got += part
    except OSError: pass
    return got
def ask(data, **options):
    s = connect(**options)
    s.sendall(data)
    return rest(s)
"#;

impl Rig {
    /// Runs a Python script in a native sandbox that has the key outside.
    fn python(&self, fixture: &Fixture, script: &str) -> Finished {
        let mut command = fixture.run();
        command.envs(self.host()).args(["--secret", "A_TEST_KEY@api.vendor.example", "--", "/usr/bin/python3", "-c"]);
        command.arg(format!("{RAW_CLIENT}{script}")).finish()
    }

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
