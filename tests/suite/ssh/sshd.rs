//! Runs a real sshd as a fixture's user, on a free port of the loopback.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Fixture, Running, eventually, public_key};

pub struct Sshd {
    pub port: u16,
    pub process: Running,
    /// Holds the line for known_hosts.
    pub known: String,
    /// This key may log in.
    pub identity: PathBuf,
}

impl Sshd {
    /// `extra` holds further lines of the configuration.
    pub fn start(fixture: &Fixture, extra: &str) -> Self {
        Self::start_with(fixture, extra, &fixture.make_key("host-key", "host"))
    }

    pub fn start_with(fixture: &Fixture, extra: &str, host_key: &Path) -> Self {
        let identity = fixture.make_key("identity", "machine");
        let authorized = fixture.write("../keys/authorized", &format!("{}\n", public_key(&identity)));
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\nUseDNS no\nMaxStartups 100\n{extra}\n",
            host_key.display(),
            authorized.display(),
        );
        let config = fixture.write("../keys/sshd_config", &config);
        // As root, sshd would refuse users whose password is locked, such as the test user, and it
        // needs this directory.
        if fixture.uid == 0 {
            fs::create_dir_all("/run/sshd").expect("sshd's directory");
        }
        let process = Running::start(fixture.host_command("/usr/sbin/sshd").args(["-D", "-e", "-f"]).arg(config));
        eventually("sshd answers", || answers(port));
        let known = public_key(host_key);
        let known = known.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Sshd { port, process, known: format!("[127.0.0.1]:{port} {known}\n"), identity }
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut banner = [0; 4];
    let answers = stream.read_exact(&mut banner).is_ok() && &banner == b"SSH-";
    let _ = stream.write_all(b"SSH-2.0-probe\r\n");
    answers
}
