use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Answers with the body, and refuses what has no header `x-pass`.
#[derive(Default)]
struct Echo {
    is_over: AtomicBool,
}

impl Service for Echo {
    fn refuse(&self, head: &RequestHead) -> Option<Reply> {
        let may_pass = head.header("x-pass").is_ok_and(|value| value.is_some());
        (!may_pass).then(|| Reply::text(403, "no"))
    }

    fn answer(&self, head: &RequestHead, body: &[u8]) -> Reply {
        self.is_over.store(head.path == "/end", Ordering::Relaxed);
        Reply { content: body.to_vec(), ..Reply::text(200, "") }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// Runs a client against a server, and ends the server.
fn with_server(client: impl FnOnce(&dyn Fn(&[u8]) -> String, &dyn Fn() -> TcpStream)) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("listener");
    let address = listener.local_addr().expect("address");
    let connect = || TcpStream::connect(address).expect("connection");
    let ask = |request: &[u8]| {
        let mut stream = connect();
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, &Echo::default()));
        client(&ask, &connect);
        ask(b"GET /end HTTP/1.1\r\nX-Pass: 1\r\n\r\n");
        assert!(server.join().expect("server").is_ok());
    });
}

#[test]
fn requests_are_answered_and_malformed_ones_are_not() {
    with_server(|ask, _| {
        let answer = ask(b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: 3\r\n\r\nabc");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nabc"), "{answer}");
        for request in [
            &b"nonsense\r\n\r\n"[..],
            b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: +3\r\n\r\nabc",
            b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: 99999999999\r\n\r\nabc",
            b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
            b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: 1\r\n\r\nabc",
            &[b"GET / HTTP/1.1\r\nX-Pass: ".as_slice(), &[b'a'; 20 << 10], b"\r\n\r\n"].concat(),
        ] {
            assert!(ask(request).starts_with("HTTP/1.1 400 "), "{}", String::from_utf8_lossy(request));
        }
    });
}

#[test]
fn a_body_is_not_read_before_the_head_is_accepted() {
    with_server(|ask, _| {
        let answer = ask(b"POST /x HTTP/1.1\r\nContent-Length: 4000000\r\n\r\nabc");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    });
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    with_server(|ask, connect| {
        let silent: Vec<TcpStream> = (0..3 * MAX_CONNECTIONS).map(|_| connect()).collect();
        let answer = ask(b"POST /x HTTP/1.1\r\nX-Pass: 1\r\nContent-Length: 2\r\n\r\nok");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        drop(silent);
    });
}
