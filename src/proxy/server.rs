//! Serves the guest's connections: one thread for each, up to a maximum, with a time limit for
//! every wait.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::body;
use super::intercept::Intercept;
use super::journal::Journal;
use super::policy::Policy;
use super::refusal::Refusal;
use super::relay::{self, Traffic};
use super::request::{self, Action, Body, MAX_HEAD, Request};
use super::resolve::Resolver;
use super::thread_pool::ThreadPool;
use crate::secret::Secret;

/// How many connections are served at a time; further ones wait to be accepted.
pub const MAX_CONNECTIONS: usize = 1500;
/// The stack of a connection's thread, in bytes; its buffers are on the heap.
pub const STACK_SIZE: usize = 512 * 1024;
/// How long a guest may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request's body, or its receiver, may stall.
const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the guest may take to read the last bytes and to stop sending.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// How many bytes that the guest sends after its request are discarded before the connection is
/// closed.
const MAX_DISCARDED: usize = 256 * 1024;
/// How long a server may be silent before the kernel probes it.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Proxy {
    pub policy: Policy,
    pub resolver: Resolver,
    pub journal: Arc<Journal>,
    /// Serves some hosts itself.
    pub intercept: Option<Arc<dyn Intercept>>,
    /// The value of `Proxy-Authorization` that clients must send.
    pub login: Option<Secret>,
}

impl Proxy {
    /// Serves all connections until the listener fails permanently.
    pub fn serve(self: Arc<Self>, listener: &TcpListener) {
        serve_connections(listener, move |client| self.serve_connection(client));
    }

    /// Connects to the proxy without a port that other processes could connect to.
    pub fn connect(self: &Arc<Self>) -> io::Result<TcpStream> {
        let (client, server) = pair()?;
        let proxy = self.clone();
        thread::Builder::new().name("proxy".into()).spawn(move || proxy.serve_connection(&server))?;
        Ok(client)
    }

    fn serve_connection(&self, client: &TcpStream) {
        let _ = client.set_nodelay(true);
        let (request, read_ahead) = match read_request(client, self.login.as_ref()) {
            Ok(Some(read)) => read,
            Ok(None) => return,
            Err(refusal) => return self.refuse(client, &refusal),
        };
        let target = format!("{}:{}", request.host, request.port);
        if let (Action::Tunnel, Some(intercept)) = (&request.action, &self.intercept)
            && intercept.intercepts(&request.host, request.port)
        {
            return self.intercept(client, intercept.as_ref(), &request, &read_ahead);
        }
        let server = match self.reach(&request) {
            Ok(server) => server,
            Err(refusal) => return self.refuse(client, &refusal),
        };
        self.journal.allowed(&target);
        let traffic = match request.action {
            Action::Tunnel => tunnel(client, &server, &read_ahead),
            Action::Forward { head, body } => forward(client, &server, &head, body, &read_ahead),
        };
        self.journal.ended(&target, traffic);
    }

    /// Leaves a connection to the gate of the host. The policy decides on it as on all others.
    fn intercept(&self, client: &TcpStream, intercept: &dyn Intercept, request: &Request, read_ahead: &[u8]) {
        let Request { host, port, .. } = request;
        if let Err(refusal) = self.policy.check_host(host, *port) {
            return self.refuse(client, &refusal);
        }
        let target = format!("{host}:{port}");
        self.journal.allowed(&target);
        let choose = |addresses: &[IpAddr]| {
            if self.policy.is_open() {
                return Ok(addresses.to_vec());
            }
            self.policy.check_addresses(host, *port, addresses).inspect_err(|refusal| self.journal.refused(refusal))
        };
        let traffic = intercept.serve(client, host, *port, read_ahead, &choose);
        self.journal.ended(&target, traffic);
    }

    /// Checks the name, resolves it, checks its addresses, and connects to one that is allowed.
    fn reach(&self, request: &Request) -> Result<TcpStream, Refusal> {
        let Request { host, port, .. } = request;
        self.policy.check_host(host, *port)?;
        if let (true, Action::Tunnel, Some(intercept)) = (self.policy.is_open(), &request.action, &self.intercept)
            && let Some(tunnel) = intercept.detour(host, *port)
        {
            return tunnel.map_err(|error| Refusal::unreachable(host, *port, &error));
        }
        let addresses = self.resolver.resolve(host).map_err(|error| Refusal::unresolved(host, *port, &error))?;
        let addresses = self.policy.check_addresses(host, *port, &addresses)?;
        connect(&addresses, *port).map_err(|error| Refusal::unreachable(host, *port, &error))
    }

    fn refuse(&self, mut client: &TcpStream, refusal: &Refusal) {
        self.journal.refused(refusal);
        let _ = client.set_write_timeout(Some(CLOSE_TIMEOUT));
        let _ = client.write_all(refusal.response().as_bytes());
        close_gracefully(client);
    }
}

/// Relays all connections to another proxy, without looking at them.
pub fn pass_on(listener: &TcpListener, to: SocketAddr) {
    serve_connections(listener, move |client| {
        let _ = client.set_nodelay(true);
        if let Ok(server) = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT) {
            let _ = server.set_nodelay(true);
            relay::both_ways(client, &server, &[], Some(relay::STALL_TIMEOUT));
        }
    });
}

/// Returns both ends of a connection over the loopback.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let own = client.local_addr()?;
    loop {
        let (server, peer) = listener.accept()?;
        // Another process may have been faster.
        if peer == own {
            return Ok((client, server));
        }
    }
}

/// Accepts connections and serves each in a thread of a pool.
fn serve_connections(listener: &TcpListener, serve: impl Fn(&TcpStream) + Send + Sync + 'static) {
    raise_descriptor_limit();
    let pool = Arc::new(ThreadPool::new(serve));
    loop {
        pool.wait_for_capacity();
        match listener.accept() {
            Ok((client, _)) => pool.submit(client),
            Err(error) if is_temporary(&error) => thread::sleep(Duration::from_millis(20)),
            Err(_) => return,
        }
    }
}

/// A connection needs two descriptors. The guest, which runs already, keeps its own limit.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = 3 * MAX_CONNECTIONS as u64;
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Whether `accept` may work again later: the client has disconnected, or there is no free
/// descriptor.
fn is_temporary(error: &io::Error) -> bool {
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

/// Reads a request and returns it with the bytes that follow its head; `None` if the guest sends
/// nothing or disconnects.
fn read_request(mut client: &TcpStream, login: Option<&Secret>) -> Result<Option<(Request, Vec<u8>)>, Refusal> {
    let limit = Instant::now() + HEAD_TIMEOUT;
    let mut bytes = Vec::new();
    let mut parsed: usize = 0;
    let mut buffer = [0; 4096];
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let too_slow = || Refusal { status: 408, ..Refusal::malformed(b"", "timed out waiting for the request") };
        if left.is_zero() || client.set_read_timeout(Some(left)).is_err() {
            return if bytes.is_empty() { Ok(None) } else { Err(too_slow()) };
        }
        let space = buffer.len().min(MAX_HEAD.saturating_sub(bytes.len()).max(1));
        match client.read(&mut buffer[..space]) {
            Ok(0) => return Ok(None),
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(_) => return Ok(None),
        }
        // Parsed again only if the head may be complete: a guest that sends single bytes must not
        // cause work for all bytes before them each time.
        let new = &bytes[parsed.saturating_sub(3)..];
        let may_end = new.windows(2).any(|pair| pair == b"\n\r" || pair == b"\n\n");
        if (parsed == 0 || may_end || bytes.len() >= MAX_HEAD)
            && let Some((request, length)) = request::parse(&bytes)?
        {
            let read_ahead = bytes.split_off(length);
            let is_known = login.is_none_or(|login| {
                request::proxy_login(&bytes).is_some_and(|sent| is_same(&sent, login.reveal().as_encoded_bytes()))
            });
            return if is_known { Ok(Some((request, read_ahead))) } else { Err(Refusal::no_login()) };
        }
        parsed = bytes.len();
    }
}

/// Compares without telling by the time how much is the same.
fn is_same(sent: &[u8], expected: &[u8]) -> bool {
    sent.len() == expected.len() && sent.iter().zip(expected).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// Connects to the first address that answers, of four at most.
fn connect(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(4) {
        match TcpStream::connect_timeout(&SocketAddr::new(*address, port), CONNECT_TIMEOUT) {
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

/// Detects a server that has vanished without closing the connection.
fn keep_alive(server: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(server, true);
    let _ = sockopt::set_tcp_keepidle(server, KEEP_ALIVE);
}

fn tunnel(mut client: &TcpStream, server: &TcpStream, read_ahead: &[u8]) -> Traffic {
    let _ = client.set_write_timeout(Some(STALL_TIMEOUT));
    match client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n") {
        Ok(()) => relay::both_ways(client, server, read_ahead, Some(relay::STALL_TIMEOUT)),
        Err(_) => Traffic::default(),
    }
}

/// Forwards one request and its response, which ends when the server closes the connection.
fn forward(client: &TcpStream, mut server: &TcpStream, head: &[u8], body: Body, read_ahead: &[u8]) -> Traffic {
    let timeouts = [
        client.set_read_timeout(Some(STALL_TIMEOUT)),
        client.set_write_timeout(Some(STALL_TIMEOUT)),
        server.set_write_timeout(Some(STALL_TIMEOUT)),
    ];
    if timeouts.iter().any(Result::is_err) || server.write_all(head).is_err() {
        return Traffic::default();
    }
    let upload = move || {
        let (mut from, mut to) = (BufReader::new(read_ahead.chain(client)), server);
        body::forward(body, &mut from, &mut to).unwrap_or(0)
    };
    thread::scope(|scope| {
        // A server may respond before it has read the body, or ask for the rest of it.
        let upload = (body != Body::Length(0))
            .then(|| thread::Builder::new().stack_size(STACK_SIZE).spawn_scoped(scope, upload));
        let received = download(server, client);
        close_gracefully(client);
        // Ends the upload thread, if it still reads from the guest.
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

/// Closes the connection so that the guest receives the last bytes: closing with unread bytes would
/// reset it.
fn close_gracefully(mut client: &TcpStream) {
    let _ = client.shutdown(Shutdown::Write);
    let limit = Instant::now() + CLOSE_TIMEOUT;
    let mut buffer = [0; 4096];
    for _ in 0..MAX_DISCARDED / buffer.len() {
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
