//! A client of the push gate that is written by hand, so that it can lie. It uses the socket in the
//! session's directory, which is the one inside.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::{Fixture, Running};

pub const ZERO: &str = "0000000000000000000000000000000000000000";

/// A sandbox that waits.
pub struct Sandbox<'a> {
    fixture: &'a Fixture,
    _running: Running,
}

impl<'a> Sandbox<'a> {
    pub fn start(fixture: &'a Fixture, rules: &[&str]) -> Self {
        let mut command = fixture.run();
        for rule in rules {
            command.args(["--push", rule]);
        }
        let mut running = Running::start(command.args(["--", "bash", "-c", "echo started; exec sleep 1000"]));
        assert_eq!(running.line(), "started");
        Sandbox { fixture, _running: running }
    }

    pub fn connect(&self) -> Client {
        let session = self.fixture.sessions().pop().expect("a session");
        // The path may be too long for a socket's address.
        let directory = std::fs::File::open(session).expect("a directory");
        let path = format!("/proc/self/fd/{}/push", std::os::fd::AsRawFd::as_raw_fd(&directory));
        let stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        Client(stream)
    }

    /// Asks for a push to the first remote and reads the list of refs.
    pub fn push(&self) -> (Client, Vec<String>) {
        let mut client = self.connect();
        client.send(b"git-receive-pack 0\n");
        assert_eq!(client.line(), "ok");
        let mut refs = Vec::new();
        while let Some(packet) = client.packet() {
            refs.push(String::from_utf8_lossy(&packet).into_owned());
        }
        (client, refs)
    }
}

pub struct Client(UnixStream);

impl Client {
    /// Sends bytes; the gate may have closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    pub fn send_packet(&mut self, content: &str) {
        self.send(format!("{:04x}{content}", content.len() + 4).as_bytes());
    }

    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.0.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Reads a packet; returns `None` for a flush.
    pub fn packet(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 4];
        self.0.read_exact(&mut header).expect("a packet");
        let length = usize::from_str_radix(std::str::from_utf8(&header).expect("digits"), 16).expect("a number");
        let mut content = vec![0; length.checked_sub(4)?];
        self.0.read_exact(&mut content).expect("a packet");
        Some(content)
    }

    /// Ends the guest's side and reads everything up to the end of the connection.
    pub fn rest(&mut self) -> String {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        // A connection that was closed with unread bytes is reset.
        let _ = self.0.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}
