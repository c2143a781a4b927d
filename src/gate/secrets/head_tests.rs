//! Tests what a host of a key receives.

use std::sync::Arc;

use super::*;
use crate::config::value::{SecretHeader, Value};
use crate::gate::secrets::binding::Credential;
use crate::secret::Secret;

fn bound(name: &str, header: &str, value: &str, placeholder: &str) -> Bound {
    let header = SecretHeader::parse(header).expect("a header");
    let credential = Credential::Key { value: Secret::new(value), placeholder: Secret::new(placeholder) };
    Bound { name: name.into(), header, credential }
}

fn binding(bound: Vec<Bound>) -> Binding {
    let host = SecretHost { name: "api.example".into(), port: 443 };
    Binding { host, bound, refreshes: Vec::new(), patterns: Arc::default() }
}

fn one() -> Binding {
    binding(vec![bound("KEY", "x-api-key", "the-real-value", "the-fake-value")])
}

fn sent(binding: &Binding, request: &str) -> Result<String, &'static str> {
    let request = request.replace('\n', "\r\n");
    match prepare(request.as_bytes(), binding) {
        Ok(Some((prepared, length))) if length == request.len() => {
            Ok(String::from_utf8_lossy(&prepared.head).into_owned())
        }
        Ok(_) => Err("incomplete"),
        Err(refused) => Err(refused.status),
    }
}

#[test]
fn the_guests_credentials_are_replaced() {
    let text = sent(
        &one(),
        "POST /v1?a=1&key=mine&API%5FKEY=mine HTTP/1.1\nHost: api.example\nX-Api-Key: mine\nAuthorization: Bearer mine\n\
         Cookie: session=mine\nX-Goog-Api-Key: mine\nPrivate-Token: mine\nX_Auth_Token: mine\nConnection: keep-alive, X-Odd\nX-Odd: y\n\
         Accept-Encoding: gzip\nX-Note: the-fake-value\nSec-WebSocket-Key: abc\nContent-Length: 3\n\n",
    );
    let text = text.expect("passed on");
    assert!(!text.contains("mine") && !text.contains("X-Odd") && !text.contains("gzip"), "{text}");
    assert_eq!(text.matches("the-real-value").count(), 1, "{text}");
    assert!(text.starts_with("POST /v1?a=1 HTTP/1.1\r\nHost: api.example\r\n"), "{text}");
    for line in [
        "x-api-key: the-real-value\r\n",
        "X-Note: the-fake-value\r\n",
        "Sec-WebSocket-Key: abc\r\n",
        "Content-Length: 3\r\n",
    ] {
        assert!(text.contains(line), "{line} {text}");
    }
}

#[test]
fn other_targets_and_ambiguous_requests_are_refused() {
    for (request, status) in [
        ("TRACE / HTTP/1.1\nHost: api.example\n\n", "405 Method Not Allowed"),
        ("CONNECT a:1 HTTP/1.1\nHost: api.example\n\n", "405 Method Not Allowed"),
        ("GET / HTTP/1.1\nHost: other.example\n\n", "421 Misdirected Request"),
        ("GET / HTTP/1.1\nHost: api.example:8443\n\n", "421 Misdirected Request"),
        ("GET / HTTP/1.1\n\n", "421 Misdirected Request"),
        ("GET / HTTP/1.1\nHost: api.example\nHost: other.example\n\n", "421 Misdirected Request"),
        ("GET https://other.example/ HTTP/1.1\nHost: api.example\n\n", "400 Bad Request"),
        ("POST / HTTP/1.1\nHost: api.example\nContent-Length: 1\nTransfer-Encoding: chunked\n\n", "400 Bad Request"),
        ("POST / HTTP/1.1\nHost: api.example\nContent-Length: 1\nContent-Length: 2\n\n", "400 Bad Request"),
        ("GET / HTTP/1.1\nHost: api.example\n folded: x\n\n", "400 Bad Request"),
    ] {
        assert_eq!(sent(&one(), request), Err(status), "{request}");
    }
    assert!(prepare(b"GET / HTTP/1.1\nHost: api.example\n\n", &one()).is_err(), "bare line feeds");
}

#[test]
fn credentials_that_look_otherwise_are_removed_too() {
    let pass = binding(vec![bound("KEY", "X-Own-Pass", "the-real-value", "the-fake-value")]);
    let text = sent(
        &pass,
        "GET /?x=1&private_token=mine&Job%5FToken=mine HTTP/1.1\nHost: api.example\nX_Own_Pass: mine\nTransfer_Encoding: mine\n\
         X-Access-JWT: mine\nX-Authentication: mine\nRange: bytes=0-4\nIf-Range: x\n\
         Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.mine, base64url.bearer.authorization.k8s.io.mine\n\n",
    );
    let text = text.expect("passed on");
    assert!(!text.contains("mine") && !text.contains("Range"), "{text}");
    assert!(text.contains("x-own-pass: the-real-value\r\n"), "{text}");
    assert!(text.contains("Sec-WebSocket-Protocol: realtime\r\n"), "{text}");
    let text =
        sent(&pass, "GET / HTTP/1.1\nHost: api.example\nSec-WebSocket-Protocol: api-key.mine\n\n").expect("passed on");
    assert!(!text.contains("Sec-WebSocket-Protocol"), "{text}");
}

#[test]
fn of_several_keys_the_placeholder_chooses() {
    let two = binding(vec![
        bound("KEY", "x-api-key", "value-of-key", "fake-of-key"),
        bound("TOKEN", "Bearer", "value-of-token", "fake-of-token"),
    ]);
    let with =
        |header: &str| sent(&two, &format!("GET / HTTP/1.1\nHost: api.example\n{header}\n\n")).expect("passed on");
    assert!(with("X-Api-Key: fake-of-key").contains("x-api-key: value-of-key\r\n"));
    assert!(with("Authorization: Bearer fake-of-token").contains("authorization: Bearer value-of-token\r\n"));
    for header in ["X-Api-Key: mine", "Authorization: Bearer mine", "X-Other: x"] {
        assert!(!with(header).contains("value-of") && !with(header).contains("mine"), "{header}");
    }
}

#[test]
fn git_authenticates_with_the_token_as_the_password() {
    let git = binding(vec![bound("GITHUB_TOKEN", "Basic", "ghp_real", "ghp_fake")]);
    let text = sent(&git, "GET /a/b.git/info/refs HTTP/1.1\nHost: api.example\n\n").expect("passed on");
    assert!(text.contains(&format!("authorization: Basic {}\r\n", Base64::encode_string(b"x-access-token:ghp_real"))));
}
