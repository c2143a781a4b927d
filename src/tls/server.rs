//! Ends TLS connections of a guest, as the server of one name.

use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use super::client::{set_timeouts, timed_out};
use super::{Authority, TlsError, provider};

/// The certificate of one name, for connections that ask for it.
#[derive(Debug)]
struct OneName {
    name: String,
    key: Arc<CertifiedKey>,
}

impl ResolvesServerCert for OneName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        hello.server_name().is_some_and(|asked| asked.eq_ignore_ascii_case(&self.name)).then(|| self.key.clone())
    }
}

/// Makes the configuration of a server of this name. It speaks HTTP/1.1 only.
pub fn server_config(authority: &Authority, name: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| TlsError::Certificate(Box::new(error)))?;
    let resolver = OneName { name: name.to_owned(), key: authority.server(name)? };
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Completes a client's handshake. `read_ahead` has already been read from its socket.
pub fn accept(
    config: Arc<ServerConfig>,
    mut socket: TcpStream,
    read_ahead: &[u8],
    limit: Instant,
) -> io::Result<(TcpStream, ServerConnection)> {
    let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut read_ahead = read_ahead;
    while connection.is_handshaking() || connection.wants_write() || !read_ahead.is_empty() {
        set_timeouts(&socket, limit)?;
        while connection.wants_write() {
            connection.write_tls(&mut socket).map_err(timed_out)?;
        }
        if !connection.is_handshaking() && read_ahead.is_empty() {
            break;
        }
        let mut from = (&mut read_ahead).chain(&socket);
        if connection.read_tls(&mut from).map_err(timed_out)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Err(error) = connection.process_new_packets() {
            // The client learns why.
            let _ = connection.write_tls(&mut socket);
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
    }
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok((socket, connection))
}
