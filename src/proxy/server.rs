//! Serves the guest's connections: a thread each, so many at most, none without an end to its timeout.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::body;
use super::journal::Journal;
use super::policy::Policy;
use super::refusal::Refusal;
use super::relay::{self, Traffic};
use super::request::{self, Action, Body, LONGEST_HEAD, Request};
use super::resolve::Resolver;
use super::thread_pool::ThreadPool;

/// Connections at a time; further ones wait to be accepted.
pub const MOST: usize = 1500;
/// Enough for a connection; its buffers are elsewhere.
pub const STACK: usize = 128 * 1024;
/// How long a guest may take to say what it wants.
const HEAD: Duration = Duration::from_secs(10);
/// How long one address may take to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a request's body, or its receiver, may stand still.
const STALL: Duration = Duration::from_secs(120);
/// An answer to the guest that it does not read, and what it still sends after its request.
const FAREWELL: Duration = Duration::from_millis(500);
const MOST_IGNORED: usize = 256 * 1024;
/// When a silent server is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// The filtering proxy.
#[derive(Debug)]
pub struct Proxy {
    /// What may be reached.
    pub policy: Policy,
    /// How names become addresses.
    pub resolver: Resolver,
    /// Where decisions are written.
    pub journal: Arc<Journal>,
}

impl Proxy {
    /// Serves everything that arrives, until the listener fails for good.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) {
        each(listener, move |client| self.connection(client));
    }

    fn connection(&self, client: &TcpStream) {
        let _ = client.set_nodelay(true);
        let (request, early) = match read_request(client) {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(refusal) => return self.refuse(client, &refusal),
        };
        let target = format!("{}:{}", request.host, request.port);
        let server = match self.reach(&request) {
            Ok(server) => server,
            Err(refusal) => return self.refuse(client, &refusal),
        };
        self.journal.allowed(&target);
        let traffic = match request.action {
            Action::Tunnel => tunnel(client, &server, &early),
            Action::Forward { head, body } => forward(client, &server, &head, body, &early),
        };
        self.journal.ended(&target, traffic);
    }

    /// Decides, resolves, decides again, and connects to an address that was decided on.
    fn reach(&self, request: &Request) -> Result<TcpStream, Refusal> {
        let Request { host, port, .. } = request;
        self.policy.check_host(host, *port)?;
        let addresses = self.resolver.resolve(host).map_err(|error| Refusal::unreachable(host, *port, &error))?;
        let addresses = self.policy.check_addresses(host, *port, &addresses)?;
        connect(&addresses, *port).map_err(|error| Refusal::unreachable(host, *port, &error))
    }

    fn refuse(&self, mut client: &TcpStream, refusal: &Refusal) {
        self.journal.refused(refusal);
        let _ = client.set_write_timeout(Some(FAREWELL));
        let _ = client.write_all(refusal.response().as_bytes());
        take_leave(client);
    }
}

/// Passes everything that arrives on to another proxy, unseen.
pub fn pass_on(listener: &TcpListener, to: SocketAddr) {
    each(listener, move |client| {
        let _ = client.set_nodelay(true);
        if let Ok(server) = TcpStream::connect_timeout(&to, CONNECT) {
            let _ = server.set_nodelay(true);
            relay::both_ways(client, &server, &[], Some(relay::HALF_OPEN));
        }
    });
}

/// A thread for every connection, so many at a time.
fn each(listener: &TcpListener, serve: impl Fn(&TcpStream) + Send + Sync + 'static) {
    raise_descriptor_limit();
    let thread_pool = Arc::new(ThreadPool::new(serve));
    loop {
        thread_pool.wait_for_room();
        match listener.accept() {
            Ok((client, _)) => thread_pool.give(client),
            Err(error) if is_passing(&error) => thread::sleep(Duration::from_millis(20)),
            Err(_) => return,
        }
    }
}

/// Two descriptors for each connection, and some to spare. The guest, which runs already, keeps its own limit.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = 3 * MOST as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Errors after which `accept` works again: a client that left, or no more descriptors for now.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EINTR
                | libc::EMFILE
                | libc::ENFILE
                | libc::ENOBUFS
                | libc::ENOMEM
                | libc::EAGAIN
        )
    )
}

/// The head, and what came after it. `None`: the guest said nothing, or left.
fn read_request(mut client: &TcpStream) -> Result<Option<(Request, Vec<u8>)>, Refusal> {
    let limit = Instant::now() + HEAD;
    let mut bytes = Vec::new();
    let mut looked_at: usize = 0;
    let mut buffer = [0; 4096];
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let too_slow = || Refusal { status: 408, ..Refusal::malformed(b"", "the request did not arrive in time") };
        if left.is_zero() || client.set_read_timeout(Some(left)).is_err() {
            return if bytes.is_empty() { Ok(None) } else { Err(too_slow()) };
        }
        let space = buffer.len().min(LONGEST_HEAD.saturating_sub(bytes.len()).max(1));
        match client.read(&mut buffer[..space]) {
            Ok(0) => return Ok(None),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(_) => return Ok(None),
        }
        // Looked at when something may have changed, not at every byte: whoever sends single bytes must not cost more than they.
        let fresh = &bytes[looked_at.saturating_sub(3)..];
        let may_end = fresh.windows(2).any(|pair| pair == b"\n\r" || pair == b"\n\n");
        if (looked_at == 0 || may_end || bytes.len() >= LONGEST_HEAD)
            && let Some((request, length)) = request::parse(&bytes)?
        {
            return Ok(Some((request, bytes.split_off(length))));
        }
        looked_at = bytes.len();
    }
}

/// The first address that answers.
pub fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(4) {
        match TcpStream::connect_timeout(&SocketAddr::new(*address, port), CONNECT) {
            Ok(server) => {
                let _ = server.set_nodelay(true);
                keep_alive(&server);
                return Ok(server);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A server that vanished without a word is noticed in the end.
fn keep_alive(server: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(server, true);
    let _ = sockopt::set_tcp_keepidle(server, KEEP_ALIVE);
}

fn tunnel(mut client: &TcpStream, server: &TcpStream, early: &[u8]) -> Traffic {
    let _ = client.set_write_timeout(Some(STALL));
    match client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n") {
        Ok(()) => relay::both_ways(client, server, early, Some(relay::HALF_OPEN)),
        Err(_) => Traffic::default(),
    }
}

/// One request and its answer, which ends when the server closes.
fn forward(client: &TcpStream, mut server: &TcpStream, head: &[u8], body: Body, early: &[u8]) -> Traffic {
    let timeouts = [
        client.set_read_timeout(Some(STALL)),
        client.set_write_timeout(Some(STALL)),
        server.set_write_timeout(Some(STALL)),
    ];
    if timeouts.iter().any(Result::is_err) || server.write_all(head).is_err() {
        return Traffic::default();
    }
    let upload = move || {
        let (mut from, mut to) = (BufReader::new(early.chain(client)), server);
        body::forward(body, &mut from, &mut to).unwrap_or(0)
    };
    thread::scope(|scope| {
        // A server may answer before it has read all, or ask for the rest.
        let upload =
            (body != Body::Length(0)).then(|| thread::Builder::new().stack_size(STACK).spawn_scoped(scope, upload));
        let received = download(server, client);
        take_leave(client);
        // Whoever still reads from the guest has nobody left to read for.
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
        let sent = upload.and_then(Result::ok).and_then(|upload| upload.join().ok()).unwrap_or(0);
        Traffic { sent: sent + head.len() as u64, received }
    })
}

fn download(mut server: &TcpStream, mut client: &TcpStream) -> u64 {
    let mut buffer = vec![0; 64 * 1024];
    let mut received = 0;
    loop {
        match server.read(&mut buffer) {
            Ok(0) => return received,
            Ok(length) if client.write_all(&buffer[..length]).is_ok() => received += length as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return received,
        }
    }
}

/// Closes so that the last words arrive: whoever closes with unread bytes resets the connection.
fn take_leave(mut client: &TcpStream) {
    let _ = client.shutdown(Shutdown::Write);
    let limit = Instant::now() + FAREWELL;
    let mut buffer = [0; 4096];
    for _ in 0..MOST_IGNORED / buffer.len() {
        let left = limit.saturating_duration_since(Instant::now());
        if left.is_zero() || client.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match client.read(&mut buffer) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
