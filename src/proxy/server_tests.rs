use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::config::value::{HostRule, Value};
use crate::ui::Ui;

/// Long enough for a busy machine.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a proxy with these rules and returns its address.
fn proxy(rules: &[&str]) -> SocketAddr {
    let rules = rules.iter().map(|rule| HostRule::parse(rule).expect("a rule")).collect();
    let proxy = Proxy {
        policy: Policy::new(rules),
        resolver: Resolver { hosts: "/nonexistent".into(), servers: "/nonexistent".into() },
        journal: Arc::new(Journal::new(None, Arc::new(crate::event_log::EventLog::disabled()), Ui::default())),
        intercept: None,
        login: None,
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let address = listener.local_addr().expect("address");
    thread::spawn(move || Arc::new(proxy).serve(&listener));
    address
}

/// A server that hands every connection to `serve`, and counts them.
fn origin(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
    let address = listener.local_addr().expect("address");
    let (serve, count) = (Arc::new(serve), Arc::new(AtomicUsize::new(0)));
    let counter = count.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::SeqCst);
            let serve = serve.clone();
            thread::Builder::new().stack_size(STACK_SIZE).spawn(move || serve(stream)).expect("a thread");
        }
    });
    (address, count)
}

fn echo(mut stream: TcpStream) {
    let mut other = stream.try_clone().expect("clone");
    let _ = io::copy(&mut stream, &mut other);
    let _ = other.shutdown(Shutdown::Write);
}

/// Answers with the head it got.
fn mirror(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(length) => bytes.extend_from_slice(&buffer[..length]),
        }
    }
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    let _ = stream.write_all(&bytes);
}

fn dial(proxy: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(proxy).expect("the proxy listens");
    stream.set_read_timeout(Some(READ_TIMEOUT)).expect("timeout");
    stream
}

/// Sends a text, and reads all that comes back.
fn talk(proxy: SocketAddr, text: &str) -> String {
    let mut stream = dial(proxy);
    stream.write_all(text.as_bytes()).expect("written");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer that ends");
    String::from_utf8_lossy(&answer).into_owned()
}

fn open(proxy: SocketAddr, server: SocketAddr) -> TcpStream {
    let mut stream = dial(proxy);
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes()).expect("written");
    let mut answer = [0; 39];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer[..], b"HTTP/1.1 200 Connection established\r\n\r\n");
    stream
}

#[test]
fn a_tunnel_carries_bytes_both_ways_and_ends_with_its_ends() {
    let (server, _) = origin(echo);
    let mut stream = open(proxy(&[&server.to_string()]), server);
    let mut reader = stream.try_clone().expect("clone");
    let sent: Vec<u8> = (0..8_000_000_u32).map(|number| (number % 251) as u8).collect();
    let expected = sent.clone();
    let back = thread::spawn(move || {
        let mut back = Vec::new();
        reader.read_to_end(&mut back).map(|_| back)
    });
    stream.write_all(&sent).expect("written");
    stream.shutdown(Shutdown::Write).expect("half closed");
    assert!(back.join().expect("joined").expect("read") == expected, "all bytes, in order");
}

#[test]
fn early_bytes_are_not_lost() {
    let (server, _) = origin(echo);
    let mut stream = dial(proxy(&[&server.to_string()]));
    stream.write_all(format!("CONNECT {server} HTTP/1.0\r\n\r\nhello").as_bytes()).expect("written");
    stream.shutdown(Shutdown::Write).expect("half closed");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
}

#[test]
fn a_plain_request_is_forwarded_once() {
    let (server, count) = origin(mirror);
    let (port, proxy) = (server.port(), proxy(&[&server.to_string()]));
    // A second request behind the first is not answered, let alone decided by the first one's host.
    let request = format!("GET http://{server}/a?b HTTP/1.1\r\nHost: {server}\r\nAccept: x\r\n\r\n");
    let answer = talk(proxy, &request.repeat(2));
    let head = format!("GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: x\r\nConnection: close\r\n\r\n");
    assert_eq!(answer, format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{head}"));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn bodies_are_forwarded_to_their_end_and_no_further() {
    let (server, _) = origin(|mut stream| {
        let mut all = Vec::new();
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("timeout");
        let _ = stream.read_to_end(&mut all);
        let body = all.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = stream.write_all(&all[body..]);
    });
    let proxy = proxy(&[&server.to_string()]);
    let post =
        |headers: &str, body: &str| talk(proxy, &format!("POST http://{server}/ HTTP/1.1\r\n{headers}\r\n\r\n{body}"));
    assert_eq!(post("Content-Length: 3", "abcdef"), "HTTP/1.1 200 OK\r\n\r\nabc");
    assert_eq!(
        post("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"),
        "HTTP/1.1 200 OK\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    );
}

#[test]
fn what_is_not_listed_is_refused_with_the_flag_that_would_allow_it() {
    let (server, count) = origin(echo);
    let port = server.port();
    let proxy = proxy(&["127.0.0.1:1", "example.org"]);
    let answer = talk(proxy, &format!("CONNECT {server} HTTP/1.1\r\n\r\n"));
    let line = format!("sandpen: {server}: the host is not allowed; `--allow-host 127.0.0.1:{port}` would allow it");
    assert!(
        answer.starts_with(&format!("HTTP/1.1 403 {line}\r\n")) && answer.ends_with(&format!("\r\n\r\n{line}\n")),
        "{answer}"
    );
    let answer = talk(proxy, &format!("GET http://localhost:{port}/ HTTP/1.1\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(count.load(Ordering::SeqCst), 0, "nothing was connected to");
}

#[test]
fn attack_23_a_name_that_leads_to_loopback_is_refused() {
    let (server, count) = origin(echo);
    let hosts = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(hosts.path(), "127.0.0.1 rebind.example\n169.254.169.254 metadata.example\n").expect("written");
    let names =
        ["rebind.example", "metadata.example"].map(|name| HostRule::parse(&format!("{name}:{}", server.port())));
    let proxy = Proxy {
        policy: Policy::new(names.into_iter().flatten().collect()),
        resolver: Resolver { hosts: hosts.path().into(), servers: "/nonexistent".into() },
        journal: Arc::new(Journal::new(None, Arc::new(crate::event_log::EventLog::disabled()), Ui::default())),
        intercept: None,
        login: None,
    };
    for name in ["rebind.example", "metadata.example"] {
        let request = Request {
            host: crate::config::value::HostName::Name(name.into()),
            port: server.port(),
            action: Action::Tunnel,
        };
        let refusal = proxy.reach(&request).expect_err("refused");
        assert!(refusal.status == 403 && refusal.reason.contains("not a public address"), "{refusal}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_is_not_there_is_a_bad_gateway() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("listener").local_addr().expect("address");
    let answer = talk(proxy(&[&closed.to_string()]), &format!("CONNECT {closed} HTTP/1.1\r\n\r\n"));
    assert!(answer.starts_with(&format!("HTTP/1.1 502 sandpen: {closed}: failed to connect: ")), "{answer}");
}

#[test]
fn an_endless_head_is_cut_off() {
    let (server, _) = origin(echo);
    let mut stream = dial(proxy(&[&server.to_string()]));
    stream.write_all(format!("GET http://{server}/ HTTP/1.1\r\nX: ").as_bytes()).expect("written");
    let written = (0..10_000).map_while(|_| stream.write_all(&[b'a'; 1024]).ok()).count();
    assert!(written < 9_000, "{written} KiB were taken");
}

/// A guest that sends one byte at a time is cut off by the clock; meanwhile others are served.
#[test]
fn slow_and_silent_clients_are_bounded_in_time() {
    let (server, _) = origin(echo);
    let proxy = proxy(&[&server.to_string()]);
    let begun = Instant::now();
    let mut silent = dial(proxy);
    let mut slow = dial(proxy);
    let mut writer = slow.try_clone().expect("clone");
    thread::spawn(move || {
        for byte in b"CONNECT ".iter().chain([b'a'; 10_000].iter()) {
            if writer.write_all(&[*byte]).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
    });
    drop(open(proxy, server));
    let mut answer = Vec::new();
    // Reset or ended: either way it is over.
    let _ = slow.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 408 ") || answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(silent.read_to_end(&mut Vec::new()).ok(), Some(0));
    assert!(
        begun.elapsed() >= HEAD_TIMEOUT - Duration::from_secs(1)
            && begun.elapsed() < HEAD_TIMEOUT + Duration::from_secs(8)
    );
}

#[test]
fn a_thousand_connections_hold() {
    let (server, count) = origin(echo);
    let proxy = proxy(&[&server.to_string()]);
    super::raise_descriptor_limit();
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| open(proxy, server)).collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all(&(number as u32).to_be_bytes()).expect("written");
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut back = [0; 4];
        stream.read_exact(&mut back).expect("an echo");
        assert_eq!(u32::from_be_bytes(back), number as u32);
    }
    // Only an answer shows that the server has taken the connection.
    assert_eq!(count.load(Ordering::SeqCst), 1000);
}
