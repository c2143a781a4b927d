//! Attack 30 with requests that programs do not send: none may be read in two ways, or carry the value to
//! another place than its host.

use base64ct::{Base64, Encoding};

use super::rig::{Rig, VALUE};
use crate::support::{Engine, Fixture};

#[test]
fn attack_30_a_request_that_can_be_read_in_two_ways_is_refused() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        // Each hides a request, which a server that reads the first in another way would answer.
        let script = r#"
HOST = b"Host: api.vendor.example\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: api.vendor.example\r\n\r\n"
CHUNKS = b"0\r\n\r\n"
heads = {
    "both lengths": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(CHUNKS + HIDDEN),
    "two lengths": b"Content-Length: 5\r\nContent-Length: 50\r\n",
    "a list of lengths": b"Content-Length: 5, 50\r\n",
    "a signed length": b"Content-Length: +5\r\n",
    "a blank before the colon": b"Content-Length : 5\r\n",
    "another coding": b"Transfer-Encoding: chunked, identity\r\n",
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n",
    "two codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "a coding behind a tab": b"Transfer-Encoding:\x0bchunked\r\n",
    "a folded line": b"X-Folded: a\r\n Transfer-Encoding: chunked\r\n",
    "a bare line feed": b"X-Bare: a\nTransfer-Encoding: chunked\r\n",
    "a bare carriage return": b"X-Bare: a\rTransfer-Encoding: chunked\r\n",
    "a zero byte": b"X-Zero: a\x00b\r\n",
    "two hosts": b"Host: other.vendor.example\r\n",
}
for name, head in heads.items():
    print(ask(b"POST /outer HTTP/1.1\r\n" + HOST + head + b"\r\n" + CHUNKS + HIDDEN)[9:12].decode(), name)
lines = {
    "another host": b"GET /outer HTTP/1.1\r\nHost: other.vendor.example\r\n\r\n",
    "no host": b"GET /outer HTTP/1.1\r\n\r\n",
    "a whole URL": b"GET https://other.vendor.example/outer HTTP/1.1\r\n" + HOST + b"\r\n",
    "a whole URL of the host": b"GET https://api.vendor.example/outer HTTP/1.1\r\n" + HOST + b"\r\n",
    "two blanks": b"GET  /outer HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/0.9": b"GET /outer\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT other.vendor.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "TRACE": b"TRACE /outer HTTP/1.1\r\n" + HOST + b"\r\n",
}
for name, request in lines.items():
    print(ask(request + HIDDEN)[9:12].decode(), name)
"#;
        let finished = rig.python(fixture, script);
        let refused = |line: &str| ["400 ", "405 ", "421 "].iter().any(|status| line.starts_with(status));
        let passed: Vec<&str> = finished.success().lines().filter(|line| !refused(line)).collect();
        assert_eq!((passed, finished.stdout.lines().count()), (Vec::new(), 23), "{finished:?}");
        assert_eq!(rig.requests(), Vec::<String>::new());
    });
}

#[test]
fn attack_30_each_of_many_requests_on_a_connection_is_rewritten() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let script = r#"
HOST = b"Host: api.vendor.example\r\n"
OWN = b"Authorization: Bearer attackers-key\r\n"
body = b"GET /in-a-body HTTP/1.1\r\n" + HOST + OWN + b"\r\n"
pipelined = b"".join([
    b"POST /1 HTTP/1.1\r\n" + HOST + OWN + b"Content-Length: %d\r\n\r\n" % len(body) + body,
    b"POST /2 HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5;name=\"a;b\"\r\nhello\r\n0\r\n" + OWN + b"\r\n",
    b"GET /3 HTTP/1.1\r\n" + HOST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n\r\n",
    b"POST /4 HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"GET /5?key=attackers-key&private_token=attackers-key HTTP/1.1\r\n" + HOST + b"X_Api_Key: attackers-key\r\nRange: bytes=0-3\r\n\r\n",
    b"GET /6 HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n",
    b"GET /after-the-end HTTP/1.1\r\n" + HOST + b"\r\n",
])
answer = ask(pipelined)
print(*(status.decode() for status in re.findall(rb"HTTP/1\.1 (\d+) ", answer)))
"#;
        let finished = rig.python(fixture, script);
        let expected = "200 200 200 100 200 200 200";
        assert_eq!(finished.success().trim(), expected, "{finished:?}");
        let requests = rig.requests();
        let paths: Vec<&str> = requests.iter().filter_map(|request| request.split([' ', '?']).nth(1)).collect();
        assert_eq!(paths, ["/1", "/2", "/3", "/4", "/5", "/6"], "{requests:?}");
        for request in &requests {
            let (head, _) = request.split_once("\r\n\n").expect("a head");
            assert_eq!(head.matches(VALUE).count(), 1, "{request}");
            for wrong in ["attackers-key", "h2c", "HTTP2", "Expect", "Range", "HTTP/1.0"] {
                assert!(!head.contains(wrong), "{wrong}: {request}");
            }
        }
        assert!(requests[1].ends_with("\nhello"), "neither extensions nor trailers: {requests:?}");
    });
}

#[test]
fn attack_30_other_spellings_of_a_host_do_not_get_the_value() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let script = r#"
def status(target): return tunnel(target)[1].split(" ")[1]
print("capitals", ask(b"GET /capitals HTTP/1.1\r\nHost: API.Vendor.Example\r\nConnection: close\r\n\r\n",
    target="API.Vendor.Example:443")[9:12].decode())
for target in ["api.vendor.example.:443", "api%2evendor.example:443", "api\u3002vendor.example:443",
               "user@api.vendor.example:443", "2130706433:443", "0x7f.1:443", "[::ffff:127.0.0.1]:443"]:
    print("refused", status(target) in ("400", "403"))
# An address, and a name that the connection is not for: the server behind it proves another name.
for target, name in [("127.0.0.1:443", "api.vendor.example"), ("other.vendor.example:443", "api.vendor.example"), ("api.vendor.example:443", "other.vendor.example")]:
    try: print("connected", ask(b"GET /around HTTP/1.1\r\nHost: api.vendor.example\r\nAuthorization: Bearer " + KEY.encode() + b"\r\nConnection: close\r\n\r\n", name=name, target=target)[9:12].decode())
    except OSError: print("no connection")
print("HTTP/2", connect(alpn=["h2", "http/1.1"]).selected_alpn_protocol())
try: print("HTTP/2 only", connect(alpn=["h2"]).selected_alpn_protocol())
except OSError: print("HTTP/2 only no connection")
"#;
        let finished = rig.python(fixture, script);
        let lines: Vec<&str> = finished.success().lines().collect();
        assert_eq!(lines[0], "capitals 200", "{finished:?}");
        assert_eq!(lines[1..8], ["refused True"; 7], "{finished:?}");
        assert_eq!(lines[8..11], ["no connection"; 3], "{finished:?}");
        assert_eq!(lines[11..], ["HTTP/2 http/1.1", "HTTP/2 only no connection"], "{finished:?}");
        let requests = rig.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert!(requests[0].contains("Host: api.vendor.example\r\n") && requests[0].contains(VALUE), "{requests:?}");
    });
}

#[test]
fn attack_30_a_value_comes_back_in_no_encoding_and_goes_nowhere_by_a_redirect() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let script = r#"
            curl -sS -i https://api.vendor.example/encoded; echo
            curl -sS -i https://api.vendor.example/encoded -H 'Range: bytes=10-14'; echo
            curl -sS -i -L -H "Authorization: Bearer $A_TEST_KEY" https://api.vendor.example/redirect"#;
        let finished = rig.bash(fixture, &[], script);
        let text = finished.success();
        assert!(!text.to_ascii_lowercase().contains(&VALUE[8..].to_ascii_lowercase()), "{text}");
        let urls: String = VALUE[8..].bytes().map(|byte| format!("%{byte:02x}")).collect();
        assert!(text.contains("%20%73%6b") && !text.contains(&urls), "{text}");
        for before in ["", "x", "xx"] {
            let encoded = Base64::encode_string(format!("{before}Bearer {VALUE}").as_bytes());
            assert!(text.contains(&encoded[..12]) && !text.contains(&encoded[36..48]), "{text}");
        }
        assert!(!text.contains("of-the-host"), "no cookie: {text}");
        let requests = rig.requests();
        let taken =
            requests.iter().find(|request| request.starts_with("GET /taken")).expect("the redirect is followed");
        assert!(!taken.contains(VALUE), "{taken}");
        assert!(requests.iter().all(|request| !request.contains("Range:")), "{requests:?}");
    });
}
