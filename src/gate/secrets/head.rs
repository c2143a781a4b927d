//! Reads the head of a request to a host of a key, and writes the one that the host receives: without
//! the guest's credentials, with the value in the one header that the binding names.

use std::sync::Arc;

use base64ct::{Base64, Encoding};

use super::super::login::Login;
use super::binding::{Binding, Bound};
use super::body::BodyEnd;
use crate::config::value::SecretHost;
use crate::proxy::{Body, body_of, has_plain_line_ends};

/// The length limit of a head, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;

/// Headers of a single connection, and those that are written anew.
pub const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "host",
];
/// Headers that would make an answer unsearchable, or that this proxy answers itself. Of a value that is
/// asked for in ranges, each answer would have a part.
const DROPPED: &[&str] =
    &["accept-encoding", "expect", "http2-settings", "if-range", "range", "request-range", "sec-websocket-extensions"];
/// Browsers send credentials as one of the protocols of a WebSocket, because they can set no other header.
const WEBSOCKET_PROTOCOLS: &str = "sec-websocket-protocol";
/// The last words of the names of headers that carry credentials, and those names that only look so.
const CREDENTIAL_WORDS: &[&str] = &[
    "authorization",
    "authentication",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "key",
    "apikey",
    "jwt",
    "password",
    "secret",
    "signature",
    "token",
];
const NO_CREDENTIALS: &[&str] =
    &["sec-websocket-key", "idempotency-key", "x-idempotency-key", "x-stainless-helper-key"];
/// Parameters of a URL that servers take as credentials.
const CREDENTIAL_PARAMETERS: &[&str] = &[
    "access_token",
    "api-key",
    "api_key",
    "apikey",
    "auth_token",
    "authorization",
    "bearer_token",
    "job_token",
    "key",
    "oauth_token",
    "private_token",
    "x-api-key",
    "x-goog-api-key",
];

/// A message that is not understood, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedMessage(pub &'static str);

/// A request that is not passed on: the status, and the reason that the guest reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRequest {
    pub status: &'static str,
    pub reason: String,
}

/// A request as the host receives it.
#[derive(Debug)]
pub struct PreparedRequest<'a> {
    pub head: Vec<u8>,
    pub body: BodyEnd,
    /// The bound value that was set.
    pub bound: Option<&'a Bound>,
    /// The login that the request may refresh.
    pub refreshes: Option<&'a Arc<Login>>,
    pub is_head: bool,
    /// Whether it asks for a WebSocket.
    pub is_upgrade: bool,
    /// Whether the guest waits for permission to send the body.
    pub is_waiting: bool,
    /// Whether the guest closes the connection after the answer.
    pub is_last: bool,
    /// Whether the guest reads chunks.
    pub reads_chunks: bool,
    pub is_repeatable: bool,
}

/// Parses a request's head at the front of `input`; `None` if it is not complete. Returns the length of
/// the head, too.
pub fn prepare<'a>(input: &[u8], binding: &'a Binding) -> Result<Option<(PreparedRequest<'a>, usize)>, RefusedRequest> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let refuse = |status, reason: &str| RefusedRequest { status, reason: reason.to_owned() };
    let bad = |reason: &str| refuse("400 Bad Request", reason);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(refuse("431 Request Header Fields Too Large", "the request header is too long"));
        }
        Err(error) => return Err(bad(&format!("invalid HTTP/1.1 request: {error}"))),
    };
    if !has_plain_line_ends(&input[..length]) {
        return Err(bad("lines must end with CR LF"));
    }
    let method = head.method.unwrap_or_default();
    if ["TRACE", "TRACK", "CONNECT"].contains(&method) {
        return Err(refuse("405 Method Not Allowed", "the answer to this method would repeat the key"));
    }
    let target = head.path.unwrap_or_default();
    let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !is_plain || !(target.starts_with('/') || target == "*") {
        return Err(bad("the request target must be a path"));
    }
    check_host(head.headers, &binding.host).map_err(|reason| refuse("421 Misdirected Request", &reason))?;
    let version = head.version.unwrap_or_default();
    let body = match body_of(head.headers, version).map_err(bad)? {
        Body::Length(length) => BodyEnd::Length(length),
        Body::Chunked => BodyEnd::Chunked,
    };
    let (target, parameters) = without_credentials(target);
    let bound = binding.choose(&credentials(head.headers, &parameters));
    let request = Request { method, target: &target, headers: head.headers, body };
    Ok(Some((request.rewrite(version, binding, bound), length)))
}

struct Request<'a> {
    method: &'a str,
    target: &'a str,
    headers: &'a [httparse::Header<'a>],
    body: BodyEnd,
}

impl Request<'_> {
    fn has_token(&self, header: &str, token: &str) -> bool {
        let named = self.headers.iter().filter(|known| known.name.eq_ignore_ascii_case(header));
        let mut tokens = named.flat_map(|known| known.value.split(|byte| *byte == b','));
        tokens.any(|word| word.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    fn rewrite<'b>(&self, version: u8, binding: &'b Binding, bound: Option<&'b Bound>) -> PreparedRequest<'b> {
        let is_upgrade = version == 1
            && self.body == BodyEnd::Length(0)
            && self.has_token("connection", "upgrade")
            && self.has_token("upgrade", "websocket");
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.target, binding.host).into_bytes();
        let injected = bound.map(|bound| bound.header_name());
        // What `Connection` names belongs to this connection, too.
        for header in self.headers.iter().filter(|header| !self.has_token("connection", header.name)) {
            let name = plain_name(header.name);
            let is_dropped = HOP_BY_HOP.contains(&name.as_str()) || DROPPED.contains(&name.as_str());
            if is_dropped || is_credential(&name) || injected == Some(name.as_str()) {
                continue;
            }
            let protocols = (name == WEBSOCKET_PROTOCOLS).then(|| plain_protocols(header.value));
            match protocols {
                Some(protocols) if protocols.is_empty() => {}
                Some(protocols) => write_header(&mut head, header.name, &protocols),
                None => write_header(&mut head, header.name, header.value),
            }
        }
        let value = bound.and_then(Bound::header_value);
        if let (Some(bound), Some(value)) = (bound, &value) {
            write_header(&mut head, bound.header_name(), value);
        }
        write_header(&mut head, "Accept-Encoding", b"identity");
        match self.body {
            BodyEnd::Chunked => write_header(&mut head, "Transfer-Encoding", b"chunked"),
            BodyEnd::Length(length) if length > 0 || ["POST", "PUT", "PATCH"].contains(&self.method) => {
                write_header(&mut head, "Content-Length", length.to_string().as_bytes());
            }
            _ => {}
        }
        if is_upgrade {
            write_header(&mut head, "Connection", b"Upgrade");
            write_header(&mut head, "Upgrade", b"websocket");
        }
        head.extend_from_slice(b"\r\n");
        PreparedRequest {
            head,
            body: self.body,
            bound: bound.filter(|_| value.is_some()),
            refreshes: binding.refreshes(self.method, self.target),
            is_head: self.method == "HEAD",
            is_upgrade,
            is_waiting: version == 1 && self.has_token("expect", "100-continue") && self.body != BodyEnd::Length(0),
            is_last: self.has_token("connection", "close") || version == 0,
            reads_chunks: version == 1,
            is_repeatable: self.body == BodyEnd::Length(0) && ["GET", "HEAD", "OPTIONS"].contains(&self.method),
        }
    }
}

pub fn write_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Requires a single Host header, which names the host of this connection.
fn check_host(headers: &[httparse::Header<'_>], host: &SecretHost) -> Result<(), String> {
    let mut named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let (Some(header), None) = (named.next(), named.next()) else {
        return Err("expected one Host header".to_owned());
    };
    let text = std::str::from_utf8(header.value).unwrap_or_default().trim().to_ascii_lowercase();
    let is_same = text == host.to_string() || text == format!("{}:{}", host.name, host.port);
    if is_same { Ok(()) } else { Err(format!("the Host header is not `{host}`, the host of this connection")) }
}

/// Returns a header's name in lower case. Many servers take `_` for `-`.
fn plain_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Returns the protocols of a WebSocket that carry no credential.
fn plain_protocols(value: &[u8]) -> Vec<u8> {
    let is_plain = |protocol: &&[u8]| {
        let text = String::from_utf8_lossy(protocol).to_ascii_lowercase();
        !["auth", "bearer", "jwt", "key", "secret", "token"].iter().any(|word| text.contains(word))
    };
    let protocols = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    protocols.filter(|protocol| !protocol.is_empty()).filter(is_plain).collect::<Vec<_>>().join(&b", "[..])
}

/// Tells whether a header, in lower case, carries a credential.
pub fn is_credential(name: &str) -> bool {
    let last = name.rsplit('-').next().unwrap_or(name);
    !NO_CREDENTIALS.contains(&name) && CREDENTIAL_WORDS.contains(&last)
}

/// Removes parameters that carry credentials. Returns their values, too.
fn without_credentials(target: &str) -> (String, Vec<String>) {
    let Some((path, query)) = target.split_once('?') else { return (target.to_owned(), Vec::new()) };
    let is_credential = |parameter: &&str| {
        let name = decoded(parameter.split('=').next().unwrap_or_default()).to_ascii_lowercase();
        CREDENTIAL_PARAMETERS.contains(&name.as_str())
    };
    let (found, kept): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_credential);
    if found.is_empty() {
        return (target.to_owned(), Vec::new());
    }
    let values = found.iter().map(|parameter| decoded(parameter.split_once('=').map_or("", |(_, value)| value)));
    let values = values.collect();
    (if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }, values)
}

/// Replaces `%XX`.
pub fn decoded(text: &str) -> String {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *byte == b'%') {
            Some(value) => {
                decoded.push(value);
                rest = &after[2..];
            }
            None => {
                decoded.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Lists what the guest sent as credentials, by which it says which of several keys it means.
fn credentials(headers: &[httparse::Header<'_>], parameters: &[String]) -> Vec<String> {
    let carries = |name: String| is_credential(&name) || name == WEBSOCKET_PROTOCOLS;
    let headers = headers.iter().filter(|header| carries(plain_name(header.name)));
    let values = headers.flat_map(|header| {
        let text = String::from_utf8_lossy(header.value).into_owned();
        let basic = text.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("basic"));
        let decoded = basic.and_then(|(_, encoded)| Base64::decode_vec(encoded.trim()).ok());
        let decoded = decoded.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        [Some(text.clone()), decoded].into_iter().flatten().collect::<Vec<_>>()
    });
    values.chain(parameters.iter().cloned()).collect()
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
