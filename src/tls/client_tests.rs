//! Tests connections against a server in a thread.

use std::net::TcpListener;
use std::thread;

use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::tls::Authority;

type Failure = Box<dyn std::error::Error>;

#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

fn server_config(key: Arc<CertifiedKey>) -> Result<Arc<ServerConfig>, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(Arc::new(builder.with_no_client_auth().with_cert_resolver(Arc::new(OneCertificate(key)))))
}

/// Answers every connection with the bytes that it received first.
fn echo(config: Arc<ServerConfig>) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let Ok(connection) = ServerConnection::new(config.clone()) else { continue };
            let mut stream = StreamOwned::new(connection, socket);
            let mut buffer = [0; 100];
            if let Ok(length) = stream.read(&mut buffer) {
                let _ = stream.write_all(&buffer[..length]);
            }
        }
    });
    Ok(port)
}

/// Makes a client that trusts an authority and finds all names on this machine.
fn client(authority: &Authority, variables: &[(&str, &str)]) -> Result<Client, Failure> {
    let directory = tempfile::tempdir()?;
    let (bundle, hosts) = (directory.path().join("ca.pem"), directory.path().join("hosts"));
    std::fs::write(&bundle, authority.pem())?;
    let env = [("SSL_CERT_FILE", bundle.as_os_str())].into_iter().collect();
    let roots = Roots::read(&env)?;
    std::fs::write(&hosts, "127.0.0.1 a.example b.example\n")?;
    let resolver = Resolver { hosts, servers: "/nonexistent".into() };
    let _kept = directory.keep();
    Ok(Client::with(roots, Route::read(&variables.iter().copied().collect())?, resolver))
}

fn name(text: &str) -> HostName {
    HostName::Name(text.to_owned())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_server_that_proves_its_name_is_connected() -> Result<(), Failure> {
    let authority = Authority::new(&["a.example".to_owned()])?;
    let port = echo(server_config(authority.server("a.example")?)?)?;
    let mut stream = client(&authority, &[])?.connect(&name("a.example"), port, LONG)?;
    stream.write_all(b"hello")?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

#[test]
fn another_name_another_authority_and_a_name_beyond_the_constraint_are_refused() -> Result<(), Failure> {
    let authority = Authority::new(&["a.example".to_owned()])?;
    let refused = |client: Client, host: &str, port| {
        matches!(client.connect(&name(host), port, LONG), Err(TlsError::Handshake { .. }))
    };
    let port = echo(server_config(authority.server("a.example")?)?)?;
    assert!(refused(client(&authority, &[])?, "b.example", port));
    assert!(refused(client(&Authority::new(&["a.example".to_owned()])?, &[])?, "a.example", port));
    // The authority signs it, but its own certificate does not permit the name.
    let port = echo(server_config(authority.server("b.example")?)?)?;
    assert!(refused(client(&authority, &[])?, "b.example", port));
    Ok(())
}

#[test]
fn a_silent_server_is_given_up_in_time() -> Result<(), Failure> {
    let authority = Authority::new(&["a.example".to_owned()])?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let started = Instant::now();
    let result = client(&authority, &[])?.connect(&name("a.example"), port, Duration::from_millis(200));
    assert!(matches!(result, Err(TlsError::Handshake { .. })));
    assert!(started.elapsed() < Duration::from_secs(30));
    Ok(())
}

#[test]
fn the_proxy_of_the_network_is_asked_for_a_tunnel() -> Result<(), Failure> {
    let authority = Authority::new(&["a.example".to_owned()])?;
    let port = echo(server_config(authority.server("a.example")?)?)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = format!("http://me:pw@127.0.0.1:{}", listener.local_addr()?.port());
    let asked = thread::spawn(move || -> io::Result<String> {
        let (mut guest, _) = listener.accept()?;
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            guest.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        guest.write_all(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n")?;
        let server = TcpStream::connect(("127.0.0.1", port))?;
        crate::proxy::both_ways(&guest, &server, &[], Some(LONG));
        // The second connection is refused.
        let (mut guest, _) = listener.accept()?;
        guest.write_all(b"HTTP/1.1 407 Login \x1b needed\r\n\r\n")?;
        let _ = guest.read(&mut [0; 1000]);
        Ok(String::from_utf8_lossy(&head).into_owned())
    });
    let client = client(&authority, &[("HTTPS_PROXY", &proxy)])?;
    let mut stream = client.connect(&name("a.example"), port, LONG)?;
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])?;
    drop(stream);
    let refused = client.connect(&name("a.example"), port, LONG).err().map(|error| error.to_string());
    assert!(
        refused
            .as_deref()
            .is_some_and(|text| text.ends_with("407 Login \\x1b needed")
                || (text.contains("407 Login") && !text.contains('\x1b'))),
        "{refused:?}"
    );
    let head = asked.join().map_err(|_| "the proxy's thread")??;
    assert!(head.starts_with(&format!("CONNECT a.example:{port} HTTP/1.1\r\n")), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic bWU6cHc=\r\n"), "{head}");
    Ok(())
}
