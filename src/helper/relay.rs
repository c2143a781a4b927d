//! Published ports: connections from outside the container are relayed to the guest's loopback.

use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::plan::Forward;
use crate::proxy::both_ways;

/// Accepts connections for a port in new threads. A port that cannot be bound is not published.
pub(super) fn serve(forward: Forward) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", forward.listen)) else { return };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || {
                // Servers listen on one of the two loopbacks, or on all addresses.
                let server = TcpStream::connect(("127.0.0.1", forward.port))
                    .or_else(|_| TcpStream::connect(("::1", forward.port)));
                if let Ok(server) = server {
                    // Sandpen does not know the protocol, so it sets no limit.
                    both_ways(&client, &server, &[], None);
                }
            });
        }
    });
}
