//! Connects to a server as this machine would: with its roots, and through the proxy of its network
//! where one is set. Every wait has a time limit.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::route::{NetworkProxy, Route};
use super::{Roots, TlsError, provider};
use crate::config::value::HostName;
use crate::host::Host;
use crate::proxy::Resolver;

/// How long a connection to one address may take.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// How many addresses of a host are tried.
const MAX_ADDRESSES: usize = 4;
/// The length limit of a proxy's answer, in bytes.
const MAX_ANSWER: usize = 8 * 1024;

/// A connection whose server has proved its name.
pub type ServerStream = StreamOwned<ClientConnection, TcpStream>;

/// Opens connections to servers.
#[derive(Debug)]
pub struct Client {
    roots: Roots,
    route: Route,
    resolver: Resolver,
    /// Made at the first connection, because parsing all roots takes a millisecond.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Client {
    pub fn new(host: &Host) -> Result<Self, TlsError> {
        Ok(Self::with(Roots::read(&host.env)?, Route::read(&host.env)?, Resolver::default()))
    }

    pub fn with(roots: Roots, route: Route, resolver: Resolver) -> Self {
        Client { roots, route, resolver, config: OnceLock::new() }
    }

    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Connects to a server and checks its certificate, within `timeout`. The caller sets the limits
    /// of later reads and writes, with [`ServerStream::get_ref`].
    pub fn connect(&self, host: &HostName, port: u16, timeout: Duration) -> Result<ServerStream, TlsError> {
        self.connect_to(host, port, timeout, |addresses| Ok(addresses.to_vec()))
    }

    /// Connects to one of those addresses of a host that `choose` returns. It is not asked where a
    /// proxy resolves the name.
    pub fn connect_to<E: From<TlsError>>(
        &self,
        host: &HostName,
        port: u16,
        timeout: Duration,
        choose: impl FnOnce(&[IpAddr]) -> Result<Vec<IpAddr>, E>,
    ) -> Result<ServerStream, E> {
        let limit = Instant::now() + timeout;
        let target = format!("{host}:{port}");
        let socket = match self.route.proxy_for(host, port) {
            Some(proxy) => self.tunnel(proxy, host, port, limit)?,
            None => {
                let addresses = choose(&self.addresses(host)?)?;
                open(&addresses, port, limit).map_err(|source| TlsError::Unreachable { target, source })?
            }
        };
        Ok(self.secure(socket, host, port, limit)?)
    }

    /// Connects to a server through the network's proxy, also if the server has a name of this machine:
    /// inside a sandbox, the proxy may be the only one who knows it.
    pub fn connect_through_proxy(
        &self,
        host: &HostName,
        port: u16,
        timeout: Duration,
    ) -> Result<ServerStream, TlsError> {
        let limit = Instant::now() + timeout;
        let no_proxy = || TlsError::Unreachable {
            target: format!("{host}:{port}"),
            source: io::Error::new(io::ErrorKind::NotFound, "no proxy is set"),
        };
        let socket = self.tunnel(self.route.proxy().ok_or_else(no_proxy)?, host, port, limit)?;
        self.secure(socket, host, port, limit)
    }

    /// Lets a server prove its name.
    fn secure(&self, socket: TcpStream, host: &HostName, port: u16, limit: Instant) -> Result<ServerStream, TlsError> {
        let target = format!("{host}:{port}");
        let config = self.config()?;
        let refused = |source| TlsError::Handshake { target: target.clone(), source };
        let connection = ClientConnection::new(config, server_name(host).map_err(refused)?);
        let mut connection = connection.map_err(|error| refused(io::Error::other(error)))?;
        let mut socket = socket;
        shake_hands(&mut connection, &mut socket, limit).map_err(refused)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Opens a tunnel to a host through the network's proxy; `None` if the host is reached straight.
    pub fn tunnel_through_proxy(
        &self,
        host: &HostName,
        port: u16,
        timeout: Duration,
    ) -> Option<Result<TcpStream, TlsError>> {
        let proxy = self.route.proxy_for(host, port)?;
        let tunnel = self.tunnel(proxy, host, port, Instant::now() + timeout);
        let unlimited = |socket: TcpStream| {
            let failed = |source| TlsError::Unreachable { target: format!("{host}:{port}"), source };
            socket.set_read_timeout(None).map_err(failed)?;
            socket.set_write_timeout(None).map_err(failed)?;
            Ok(socket)
        };
        Some(tunnel.and_then(unlimited))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        if let Some(config) = self.config.get() {
            return Ok(config.clone());
        }
        let unusable = |error: rustls::Error| TlsError::Certificate(Box::new(error));
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config = builder.map_err(unusable)?.with_root_certificates(self.roots.store()?).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(self.config.get_or_init(|| Arc::new(config)).clone())
    }

    fn addresses(&self, host: &HostName) -> Result<Vec<IpAddr>, TlsError> {
        let unresolved = |source| TlsError::Unresolved { host: host.to_string(), source };
        let addresses = self.resolver.resolve(host).map_err(unresolved)?;
        if addresses.is_empty() {
            return Err(unresolved(io::Error::other("the name has no address")));
        }
        Ok(addresses)
    }

    /// Asks the network's proxy for a tunnel.
    fn tunnel(&self, proxy: &NetworkProxy, host: &HostName, port: u16, limit: Instant) -> Result<TcpStream, TlsError> {
        let name = format!("{}:{}", proxy.host, proxy.port);
        let unreachable = |source| TlsError::Unreachable { target: format!("the host's proxy {name}"), source };
        let mut socket = open(&self.addresses(&proxy.host)?, proxy.port, limit).map_err(unreachable)?;
        set_timeouts(&socket, limit).map_err(unreachable)?;
        socket.write_all(proxy.request(host, port).as_bytes()).map_err(unreachable)?;
        let status = read_answer(&mut socket, limit).map_err(unreachable)?;
        let code = status.split(' ').nth(1).unwrap_or_default();
        if code.starts_with('2') {
            return Ok(socket);
        }
        let status = crate::ui::escape::escape(&status).into_owned();
        Err(TlsError::ProxyRefused { proxy: name, target: format!("{host}:{port}"), status })
    }
}

fn server_name(host: &HostName) -> io::Result<ServerName<'static>> {
    match host {
        HostName::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other),
        HostName::Address(address) => Ok(ServerName::IpAddress((*address).into())),
    }
}

/// Connects to the first address that answers.
fn open(addresses: &[IpAddr], port: u16, limit: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(MAX_ADDRESSES) {
        let left = limit.saturating_duration_since(Instant::now()).min(ADDRESS_TIMEOUT);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&SocketAddr::new(*address, port), left) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn set_timeouts(socket: &TcpStream, limit: Instant) -> io::Result<()> {
    let left = limit.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

/// Completes the handshake. The limit is that of the whole, however slowly the server sends.
fn shake_hands(connection: &mut ClientConnection, socket: &mut TcpStream, limit: Instant) -> io::Result<()> {
    while connection.is_handshaking() || connection.wants_write() {
        set_timeouts(socket, limit)?;
        while connection.wants_write() {
            connection.write_tls(socket).map_err(timed_out)?;
        }
        if connection.is_handshaking() && connection.wants_read() {
            if connection.read_tls(socket).map_err(timed_out)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = connection.process_new_packets() {
                // The server learns why.
                let _ = connection.write_tls(socket);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
    Ok(())
}

/// The kernel reports the end of a socket's time limit as an operation that would block.
pub(super) fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// Reads the head of a proxy's answer byte by byte, because what follows belongs to the tunnel.
/// Returns its first line.
fn read_answer(socket: &mut TcpStream, limit: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_ANSWER {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
        }
        set_timeouts(socket, limit)?;
        socket.read_exact(&mut byte).map_err(timed_out)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
