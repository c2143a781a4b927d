//! Tests of both ends together, over a pair of sockets.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::host::{Forward, forward};
use super::inside::serve;
use crate::channel::{ChannelError, ChannelFrame};

const LIMIT: Duration = Duration::from_secs(20);

/// Starts the host's end with one port, and returns the stream to it and its end.
fn start_host(port: u16) -> (u16, UnixStream, mpsc::Receiver<Result<(), ChannelError>>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let host_port = listener.local_addr().expect("an address").port();
    let (sender, end) = mpsc::channel();
    thread::spawn(move || {
        let input = OwnedFd::from(ours);
        let output = input.try_clone().expect("a descriptor");
        let _ = sender.send(forward(input, output, vec![Forward { listener, port }], |_| true));
    });
    (host_port, theirs, end)
}

/// Starts both ends, and returns the host's port.
fn start(port: u16) -> u16 {
    let (host_port, stream, _) = start_host(port);
    thread::spawn(move || serve(stream.as_fd(), stream.as_fd()));
    host_port
}

/// Starts a server that reads everything and sends it back when it has the end.
fn start_server(address: &str) -> u16 {
    let listener = TcpListener::bind(address).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            thread::spawn(move || {
                let mut content = Vec::new();
                let _ = socket.read_to_end(&mut content);
                let _ = socket.write_all(&content);
            });
        }
    });
    port
}

fn exchange(port: u16, content: &[u8]) -> Vec<u8> {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    client.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let mut answer = Vec::new();
    thread::scope(|scope| {
        let mut writer = client.try_clone().expect("a descriptor");
        scope.spawn(move || {
            let _ = writer.write_all(content);
            let _ = writer.shutdown(Shutdown::Write);
        });
        let _ = client.read_to_end(&mut answer);
    });
    answer
}

#[test]
fn bytes_pass_unchanged_on_every_loopback() {
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        let port = start(start_server(address));
        assert!(exchange(port, &content) == content, "{address}");
        assert!(exchange(port, b"").is_empty(), "{address}");
    }
}

#[test]
fn a_hundred_connections_hold_at_once() {
    let port = start(start_server("127.0.0.1:0"));
    let mut clients: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).expect("a connection")).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.set_read_timeout(Some(LIMIT)).expect("a timeout");
        client.write_all(format!("client {number}").as_bytes()).expect("sent");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.shutdown(Shutdown::Write).expect("shut down");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, format!("client {number}"));
    }
}

#[test]
fn one_that_does_not_read_holds_up_no_other() {
    let port = start(start_server("127.0.0.1:0"));
    let mut idle = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    idle.write_all(&vec![b'x'; 8 << 20]).expect("sent");
    idle.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(exchange(port, b"answered"), b"answered");
}

#[test]
fn a_port_on_which_nothing_listens_closes_the_connection() {
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = unused.local_addr().expect("an address").port();
    drop(unused);
    let port = start(port);
    assert_eq!(exchange(port, b"lost"), b"");
    assert_eq!(exchange(port, b"lost"), b"");
}

/// Sends frames to the host as if it were the process inside, while a client is connected.
fn send_to_host(frames: &[ChannelFrame<'_>]) -> Result<(), ChannelError> {
    let (port, mut stream, end) = start_host(1);
    let _client = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    // The host greets, and opens the connection as number 0.
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream.read_exact(&mut [0; 15 + 12]).expect("two frames");
    let mut bytes = Vec::new();
    ChannelFrame::Hello { version: 1 }.encode(&mut bytes);
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    let _ = stream.write_all(&bytes);
    let _ = stream.shutdown(Shutdown::Write);
    end.recv_timeout(LIMIT).expect("an end")
}

#[test]
fn a_sandbox_cannot_open_connections_or_exceed_its_window() {
    let data = |count| vec![ChannelFrame::Data { id: 0, bytes: &[b'x'; 16 * 1024] }; count];
    assert!(send_to_host(&[]).is_ok());
    assert!(send_to_host(&data(1)).is_ok());
    assert!(send_to_host(&[ChannelFrame::Open { id: 1, kind: 1, argument: &[22, 0] }]).is_err());
    assert!(send_to_host(&[ChannelFrame::Open { id: 0, kind: 1, argument: &[22, 0] }]).is_err());
    // The client does not read, so that at some time the window is not opened again.
    assert!(send_to_host(&data(4096)).is_err());
}
