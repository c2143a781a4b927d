//! Provides servers on this machine, and shell functions by which a guest connects to them.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Runs an HTTP server on the loopback that answers with one word and counts connections.
pub struct Server {
    pub port: u16,
    asked: Arc<AtomicUsize>,
}

impl Server {
    pub fn start(word: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
        let port = listener.local_addr().expect("address").port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || answer(stream, word));
            }
        });
        Server { port, asked }
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns the server's address as a value of `--allow-host`.
    pub fn rule(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn answer(mut stream: TcpStream, word: &str) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{word}", word.len());
}

/// Returns an address of this machine that is not its loopback; no packet is sent.
pub fn outer_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("socket");
    socket.connect("192.0.2.200:9").expect("this machine needs a network interface with a route");
    socket.local_addr().expect("address").ip()
}

/// Defines bash functions: `ask TEXT` sends TEXT (with printf's escapes) to the proxy and prints
/// the answer; `get PORT` requests a page; `connect HOST:PORT` opens a tunnel.
pub const ASK: &str = r#"
    ask() { exec 3<>/dev/tcp/127.0.0.1/8877 && printf "$1" >&3 && cat <&3; exec 3>&-; }
    get() { ask "GET http://127.0.0.1:$1/ HTTP/1.1\r\nHost: 127.0.0.1:$1\r\n\r\n"; }
    connect() { ask "CONNECT $1 HTTP/1.1\r\n\r\n"; }
"#;
