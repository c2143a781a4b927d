use proptest::prelude::*;

use super::*;

fn asked(head: &str) -> Result<Request, Refusal> {
    parse(head.as_bytes())
        .map(|parsed| parsed.map(|(request, _)| request))
        .map(|request| request.expect("a whole head"))
}

fn connect(target: &str) -> Result<Request, Refusal> {
    asked(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"))
}

fn forwarded(head: &str) -> String {
    match asked(head).map(|request| request.action) {
        Ok(Action::Forward { head, .. }) => String::from_utf8_lossy(&head).into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tunnel_names_its_host_and_port() {
    let request = connect("example.org:443").expect("allowed");
    assert_eq!((request.host, request.port), (HostName::Name("example.org".into()), 443));
    assert_eq!(request.action, Action::Tunnel);
    for host in ["Host: example.org:443", "Host: example.org", "host: example.org"] {
        assert!(asked(&format!("CONNECT example.org:443 HTTP/1.1\r\n{host}\r\n\r\n")).is_ok(), "{host}");
    }
    assert!(connect("[2606:4700::1]:443").is_ok());
    let request = connect("EXAMPLE.Org:443").expect("the same name");
    assert_eq!(request.host, HostName::Name("example.org".into()));
    assert!(asked("GET http://example.org/ HTTP/1.1\r\nHost: Example.org\r\n\r\n").is_ok());
}

#[test]
fn attack_21_tricks_in_the_target_are_refused() {
    for target in [
        "example.org",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:0443",
        "example.org:+443",
        "example.org:443:80",
        "example.org.:443",
        "me@example.org:443",
        "example.org:443@evil:443",
        "evil.example:443#@example.org",
        "example.org%00.evil.example:443",
        "b\u{fc}cher.example:443",
        "2130706433:443",
        "0x7f000001:443",
        "0177.0.0.1:443",
        "127.1:443",
        "127.0.0.1.:443",
        "[::ffff:127.0.0.1]:443",
        "[::ffff:7f00:1]:443",
        "[0:0:0:0:0:0:0:1]:443",
        "[::1%25lo]:443",
        "::1:443",
        "example.org\\.evil.example:443",
        "http://example.org:443",
        "/",
        "*",
        "example.org:443/",
    ] {
        assert!(connect(target).is_err(), "{target}");
        assert!(asked(&format!("GET http://{target}/ HTTP/1.1\r\n\r\n")).is_err() || is_plain(target), "{target}");
    }
    for head in [
        "CONNECT exam\0ple.org:443 HTTP/1.1\r\n\r\n",
        "CONNECT example.org:443\r\nX: y HTTP/1.1\r\n\r\n",
        "CONNECT example.org:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:444\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "GET http://example.org:8080/ HTTP/1.1\r\nHost: example.org\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nHost: example.org\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\nHost: example.org\n\n",
        "GET http://example.org/ HTTP/1.1\r\nX: a\rb\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n",
        "GET http://example.org/ HTTP/1.1\r\nHost : example.org\r\n\r\n",
        "GET http://example.org/a b HTTP/1.1\r\n\r\n",
        "GET http://example.org/#x HTTP/1.1\r\n\r\n",
        "GET https://example.org/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        "GET http:///x HTTP/1.1\r\n\r\n",
        "GET http://example.org/ HTTP/2.0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        assert!(asked(head).is_err(), "{head:?}");
    }
}

/// Targets that are wrong for CONNECT only.
fn is_plain(target: &str) -> bool {
    target == "example.org" || target == "example.org:443/"
}

#[test]
fn ambiguous_requests_are_refused() {
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Content-Length: ",
        "Content-Length: 99999999999999999999999",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
    ] {
        assert!(asked(&format!("POST http://example.org/ HTTP/1.1\r\n{headers}\r\n\r\n")).is_err(), "{headers}");
    }
    assert!(asked("POST http://example.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    assert!(asked("CONNECT example.org:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\n").is_err());
}

#[test]
fn a_request_is_written_anew() {
    assert_eq!(
        forwarded(
            "POST http://example.org:8080?q=1 HTTP/1.1\r\nAccept: */*\r\nHost: example.org:8080\r\nProxy-Authorization: Basic x\r\n\
             Connection: keep-alive, X-Secret, Content-Length, Upgrade\r\nX-Secret: 1\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\n"
        ),
        "POST /?q=1 HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        forwarded("GET http://[2606:4700::1] HTTP/1.0\r\n\r\n"),
        "GET / HTTP/1.0\r\nHost: [2606:4700::1]\r\nConnection: close\r\n\r\n"
    );
    assert!(
        forwarded("PUT http://a.b/ HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n")
            .contains("\r\nTransfer-Encoding: chunked\r\n")
    );
}

#[test]
fn heads_are_bounded() {
    let endless = "GET http://example.org/ HTTP/1.1\r\nX: ".to_owned() + &"a".repeat(MAX_HEAD);
    assert_eq!(parse(endless.as_bytes()).map_err(|refusal| refusal.status), Err(431));
    assert_eq!(parse(&endless.as_bytes()[..1000]), Ok(None));
    let many = "GET http://example.org/ HTTP/1.1\r\n".to_owned() + &"X: y\r\n".repeat(MAX_HEADERS + 1) + "\r\n";
    assert!(parse(many.as_bytes()).is_err());
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_header_gets_past_the_one_that_was_decided_on(
        name in "[A-Za-z-]{1,12}", value in "[ -~\\t\\r\\n\\x00]{0,40}", method in "(GET|POST|OPTIONS)",
    ) {
        let head = format!("{method} http://example.org/x HTTP/1.1\r\n{name}: {value}\r\n\r\n");
        if let Ok(Some((request, length))) = parse(head.as_bytes()) {
            prop_assert_eq!(&request.host, &HostName::Name("example.org".into()));
            let Action::Forward { head: sent, .. } = request.action else { return Err(TestCaseError::fail("a tunnel")) };
            let sent = String::from_utf8_lossy(&sent).into_owned();
            prop_assert_eq!(sent.to_ascii_lowercase().matches("\r\nhost: ").count(), 1);
            prop_assert_eq!(sent.matches("\r\n\r\n").count(), 1);
            prop_assert!(length <= head.len());
        }
    }

    /// The parsed host is in the target, character for character.
    #[test]
    fn the_host_is_what_was_written(target in "[a-zA-Z0-9.:@\\[\\]#/?%_-]{1,40}") {
        if let Ok(request) = connect(&target) {
            prop_assert_eq!(format!("{}:{}", request.host, request.port), target);
        }
    }

    /// A simple server's parser finds the same body length.
    #[test]
    fn framing_is_unambiguous(lengths in proptest::collection::vec("[0-9+ ,x]{0,4}", 0..3), chunked in any::<bool>()) {
        let mut head = "POST http://example.org/ HTTP/1.1\r\n".to_owned();
        lengths.iter().for_each(|length| head += &format!("Content-Length: {length}\r\n"));
        if chunked { head += "Transfer-Encoding: chunked\r\n"; }
        head += "\r\n";
        if let Ok(Some((Request { action: Action::Forward { body, .. }, .. }, _))) = parse(head.as_bytes()) {
            match body {
                Body::Chunked => prop_assert!(chunked && lengths.is_empty()),
                Body::Length(length) => {
                    prop_assert!(!chunked && lengths.len() <= 1);
                    let said = lengths.first().map_or(Some(0), |text| text.trim().parse().ok());
                    prop_assert_eq!(said, Some(length));
                }
            }
        }
    }
}
