//! A TLS server with the names of vendors, and the way to it: an authority that the host trusts, and a
//! network proxy that leads every name to the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use sandpen::internals::{Authority, accept, server_config};

use crate::support::{Fixture, git_answer, holds_within};

/// How long the server waits for what the client must do first.
const PATIENCE: Duration = Duration::from_secs(60);

/// The names of the server.
pub const NAMES: &[&str] = &[
    "api.vendor.example",
    "other.vendor.example",
    "login.vendor.example",
    "auth.vendor.example",
    "api.anthropic.com",
    "github.com",
    "api.github.com",
];
/// The value of the key in these tests.
pub const VALUE: &str = "sk-test-RealValue0123456789abcdefXYZ";

/// What Git's server gets for it.
const BASIC: &str = "Basic eC1hY2Nlc3MtdG9rZW46c2stdGVzdC1SZWFsVmFsdWUwMTIzNDU2Nzg5YWJjZGVmWFla";

pub struct Rig {
    /// The certificate of the test's authority, which only the host trusts.
    pub roots: PathBuf,
    /// The address of the company network's proxy.
    pub proxy: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<String>,
    tunnels: Vec<String>,
    logins: Logins,
    /// The directory with the repositories of `github.com`.
    repositories: Option<PathBuf>,
    /// How many streams are held, to which the first part was sent.
    streams: usize,
}

/// The vendor's side of one account: each refresh ends all earlier tokens.
#[derive(Default)]
struct Logins {
    generation: u32,
    is_expired: bool,
    refreshes: u32,
    /// Requests with a refresh token that is not the present one, after which a vendor may end the login.
    misuses: u32,
}

impl Logins {
    fn refresh(&mut self, body: &str) -> (u16, String) {
        if !body.contains(&refresh_token(self.generation)) {
            self.misuses += 1;
            return (400, r#"{"error":"invalid_grant"}"#.to_owned());
        }
        (self.generation, self.is_expired, self.refreshes) = (self.generation + 1, false, self.refreshes + 1);
        let (access, refresh) = (access_token(self.generation), refresh_token(self.generation));
        (
            200,
            format!(
                r#"{{"access_token":"{access}","refresh_token":"{refresh}","expires_in":3600,"note":"{refresh}"}}"#
            ),
        )
    }
}

pub fn access_token(generation: u32) -> String {
    format!("at-mine-Real{generation:04}ABCDEFGHIJabcdefghij0123")
}

pub fn refresh_token(generation: u32) -> String {
    format!("rt-mine-Real{generation:04}ABCDEFGHIJabcdefghij0123")
}

impl Rig {
    pub fn start(fixture: &Fixture) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        let authority = Arc::new(Authority::new(&names).expect("an authority"));
        let roots = fixture.outside("roots").join("test.pem");
        std::fs::write(&roots, authority.pem()).expect("written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = format!("http://127.0.0.1:{}", listener.local_addr().expect("an address").port());
        let log = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (authority, log) = (authority.clone(), log.clone());
                thread::spawn(move || tunnel(stream, &authority, &log));
            }
        });
        Rig { roots, proxy, seen }
    }

    /// Returns the variables of a host in this network.
    pub fn host(&self) -> Vec<(&'static str, String)> {
        vec![
            ("SSL_CERT_FILE", self.roots.display().to_string()),
            ("HTTPS_PROXY", self.proxy.clone()),
            ("A_TEST_KEY", VALUE.to_owned()),
        ]
    }

    /// Returns all requests that arrived, with their bodies.
    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().expect("the log").requests.clone()
    }

    /// Serves the repositories in a directory to clients with the value of the key.
    pub fn serve_repositories(&self, directory: PathBuf) {
        self.seen.lock().expect("the log").repositories = Some(directory);
    }

    /// Ends the present access token.
    pub fn expire(&self) {
        self.seen.lock().expect("the log").logins.is_expired = true;
    }

    /// Refreshes the tokens as a program on the host would, and returns their number.
    pub fn refresh_on_host(&self) -> u32 {
        let logins = &mut self.seen.lock().expect("the log").logins;
        (logins.generation, logins.is_expired) = (logins.generation + 1, false);
        logins.generation
    }

    /// Returns how often tokens were refreshed, and how often a refresh token was used twice.
    pub fn refreshes(&self) -> (u32, u32) {
        let logins = &self.seen.lock().expect("the log").logins;
        (logins.refreshes, logins.misuses)
    }

    /// Returns the targets for which the network's proxy was asked.
    pub fn tunnels(&self) -> Vec<String> {
        self.seen.lock().expect("the log").tunnels.clone()
    }
}

/// Leads a tunnel to any name to the server.
fn tunnel(mut stream: TcpStream, authority: &Authority, log: &Mutex<Seen>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1)?.to_owned();
    log.lock().ok()?.tunnels.push(target.clone());
    let name = target.split(':').next()?;
    if !NAMES.contains(&name) {
        let _ = stream.write_all(b"HTTP/1.1 502 No such host\r\n\r\n");
        return None;
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    let config = server_config(authority, name).ok()?;
    let (socket, connection) = accept(config, stream, &[], Instant::now() + Duration::from_secs(30)).ok()?;
    let mut tls = BufReader::new(rustls::StreamOwned::new(connection, socket));
    while answer(&mut tls, log).is_some() {}
    tls.get_mut().conn.send_close_notify();
    let _ = tls.get_mut().flush();
    Some(())
}

type Tls = BufReader<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>;

/// Answers one request: the path says how.
fn answer(tls: &mut Tls, log: &Mutex<Seen>) -> Option<()> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if tls.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length: usize = header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    tls.read_exact(&mut body).ok()?;
    let mut drained = 0;
    if header("transfer-encoding").is_some() {
        loop {
            let mut size = String::new();
            tls.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            tls.read_exact(&mut chunk).ok()?;
            drained += size;
            if !head.contains("/drained") {
                body.extend_from_slice(&chunk[..size]);
            }
            if size == 0 {
                break;
            }
        }
    }
    let path = head.split(' ').nth(1)?.to_owned();
    let echo = format!("{head}\n{}", String::from_utf8_lossy(&body));
    if !path.starts_with("/big") && !path.starts_with("/count") {
        log.lock().ok()?.requests.push(echo.clone());
    }
    let credential = header("authorization").or(header("x-api-key")).unwrap_or_default();
    let repositories = log.lock().ok()?.repositories.clone();
    let out = tls.get_mut();
    if let Some(root) = repositories.filter(|_| path.starts_with("/me/")) {
        let answer = if credential == BASIC {
            git_answer(&root, &root, (head.split(' ').next()?, &path), header, body)?
        } else {
            unauthorized()
        };
        out.write_all(&answer).ok()?;
        return out.flush().ok();
    }
    match path.split('?').next()? {
        "/chunks" => {
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
            for part in echo.as_bytes().chunks(7) {
                write!(out, "{:x}\r\n", part.len()).ok()?;
                out.write_all(part).ok()?;
                out.write_all(b"\r\n").ok()?;
                out.flush().ok()?;
            }
            write!(out, "0\r\n\r\n").ok()?;
        }
        "/header" => {
            write!(out, "HTTP/1.1 200 {credential}\r\nX-Echo: {credential}\r\nSet-Cookie: a={credential}\r\nContent-Length: 0\r\n\r\n").ok()?;
        }
        "/compressed" => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd").ok()?;
        }
        "/oauth/token" => {
            let (status, text) = log.lock().ok()?.logins.refresh(&String::from_utf8_lossy(&body));
            write!(out, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
        }
        "/with-login" => {
            let logins = &log.lock().ok()?.logins;
            let is_valid = !logins.is_expired && credential == format!("Bearer {}", access_token(logins.generation));
            let status = if is_valid { 200 } else { 401 };
            write!(out, "HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{echo}", echo.len()).ok()?;
        }
        "/stale" => write!(out, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nwrong").ok()?,
        "/error" => {
            write!(out, "HTTP/1.1 500 Error\r\nConnection: close\r\n\r\n{echo}").ok()?;
            return None;
        }
        "/events" => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                .ok()?;
            for number in 1..4 {
                write!(out, "9\r\ndata: {number}\n\n\r\n").ok()?;
                out.flush().ok()?;
                let acknowledged = format!("GET /received/{number} ");
                let is_acknowledged = |seen: &Seen| seen.requests.iter().any(|text| text.starts_with(&acknowledged));
                holds_within(PATIENCE, || is_acknowledged(&log.lock().expect("the log"))).then_some(())?;
            }
            write!(out, "0\r\n\r\n").ok()?;
        }
        "/held" => {
            log.lock().ok()?.streams += 1;
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n").ok()?;
            out.flush().ok()?;
            let all: usize = path.split('=').nth(1)?.parse().ok()?;
            holds_within(PATIENCE, || log.lock().expect("the log").streams >= all).then_some(())?;
            write!(out, "5\r\nlast\n\r\n0\r\n\r\n").ok()?;
        }
        "/redirect" => {
            write!(out, "HTTP/1.1 302 Found\r\nLocation: https://other.vendor.example/taken?x={credential}\r\nContent-Length: 0\r\n\r\n").ok()?;
        }
        "/encoded" => {
            let urls: String = credential.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let lines = (0..3)
                .map(|before| Base64::encode_string([&b"xx"[..before], credential.as_bytes()].concat().as_slice()));
            let lines: Vec<String> =
                lines.chain([credential.to_uppercase(), credential.to_lowercase(), urls]).collect();
            let text = lines.join("\n");
            write!(
                out,
                "HTTP/1.1 200 OK\r\nSet-Cookie: session=of-the-host\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            )
            .ok()?;
        }
        "/socket" => {
            let protocol = header("sec-websocket-protocol").map(|name| format!("Sec-WebSocket-Protocol: {name}\r\n"));
            let protocol = protocol.unwrap_or_default();
            write!(
                out,
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{protocol}\r\n"
            )
            .ok()?;
            // The last word could be the beginning of the value.
            let text = format!("welcome {credential} sk-test");
            let (first, second) = text.as_bytes().split_at(30);
            for (opcode, part) in [(1, first), (0x80, second)] {
                out.write_all(&[&[opcode, part.len() as u8], part].concat()).ok()?;
                out.flush().ok()?;
            }
            // A frame of a client is masked.
            let mut head = [0; 6];
            tls.read_exact(&mut head).ok()?;
            let mut payload = vec![0; usize::from(head[1] & 0x7f)];
            tls.read_exact(&mut payload).ok()?;
            payload.iter_mut().zip(head[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
            tls.get_mut().write_all(&[&[0x81, payload.len() as u8], &payload[..]].concat()).ok()?;
            return None;
        }
        "/big" => {
            let size: usize = path.split('=').nth(1)?.parse().ok()?;
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").ok()?;
            let part = vec![b'x'; 64 * 1024];
            let mut left = size;
            while left > 0 {
                let length = left.min(part.len());
                out.write_all(&part[..length]).ok()?;
                left -= length;
            }
        }
        "/drained" => {
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{drained}", drained.to_string().len()).ok()?
        }
        "/count" => {
            let text = body.len().to_string();
            write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()).ok()?;
        }
        _ => write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{echo}", echo.len()).ok()?,
    }
    out.flush().ok()
}

fn unauthorized() -> Vec<u8> {
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=x\r\nContent-Length: 0\r\n\r\n".to_vec()
}
