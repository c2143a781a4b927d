//! Published ports: what arrives from outside goes on to the guest's loopback.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::plan::Forward;

pub(super) fn relay(forward: Forward) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", forward.listen)) else { return };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                // Servers listen on one of the two loopbacks, or on all addresses.
                let server = TcpStream::connect(("127.0.0.1", forward.port))
                    .or_else(|_| TcpStream::connect(("::1", forward.port)));
                if let Ok(server) = server {
                    pump(client, server);
                }
            });
        }
    });
}

/// Copies both ways until both ends are done.
fn pump(client: TcpStream, server: TcpStream) {
    let (Ok(mut client_in), Ok(mut server_in)) = (client.try_clone(), server.try_clone()) else { return };
    let (mut client_out, mut server_out) = (client, server);
    let upstream = thread::spawn(move || {
        let _ = io::copy(&mut client_in, &mut server_out);
        let _ = server_out.shutdown(std::net::Shutdown::Write);
    });
    let _ = io::copy(&mut server_in, &mut client_out);
    let _ = client_out.shutdown(std::net::Shutdown::Write);
    let _ = upstream.join();
}
