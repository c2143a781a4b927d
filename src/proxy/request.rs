//! Parses the head of a request. The head that is forwarded is written anew from the parsed values,
//! so that the server reads the same request that the policy decided on; an ambiguous one is
//! refused.

use super::refusal::Refusal;
use crate::config::value::HostName;

/// The length limit of a head, in bytes.
pub const MAX_HEAD: usize = 32 * 1024;
const MAX_HEADERS: usize = 100;

/// Headers of a single connection (RFC 9110, 7.6.1), and those that are addressed to this proxy.
/// `Host` is written anew.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
];

/// A request whose target has been parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The host in its canonical spelling, on which the policy decides.
    pub host: HostName,
    /// The port; 80 if a URL omits it.
    pub port: u16,
    /// What the proxy does if the policy allows the host.
    pub action: Action,
}

/// The two kinds of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `CONNECT`: copies bytes both ways.
    Tunnel,
    /// Forwards one HTTP request and its response.
    Forward {
        /// The rewritten head, as the server receives it.
        head: Vec<u8>,
        /// The body that follows the head.
        body: Body,
    },
}

/// Determines where the body of a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    Length(u64),
    Chunked,
}

/// Parses the bytes received so far. Returns the request and the length of its head, or `None` if
/// the head is not complete.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let target = |head: &httparse::Request<'_, '_>| head.path.unwrap_or_default().as_bytes().to_vec();
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) => {
            return Err(Refusal { status: 431, ..Refusal::malformed(b"", "the request header is too long") });
        }
        Err(error) => return Err(Refusal::malformed(&target(&head), format!("invalid HTTP/1.1 request: {error}"))),
    };
    let asked = target(&head);
    let refuse = |reason: &str| Refusal::malformed(&asked, reason);
    if !has_plain_line_ends(&bytes[..length]) {
        return Err(refuse("lines must end with CR LF"));
    }
    let Some(text) = head.path.filter(|path| path.bytes().all(|byte| byte.is_ascii_graphic())) else {
        return Err(refuse("the request target is not plain ASCII"));
    };
    let method = head.method.unwrap_or_default();
    let (authority, path) = match method {
        "CONNECT" => (text, None),
        _ => {
            let rest =
                text.strip_prefix("http://").ok_or_else(|| refuse("only `http://` URLs and CONNECT are supported"))?;
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            (&rest[..end], Some(&rest[end..]))
        }
    };
    let (host, port) = authority_of(authority, path.map(|_| 80)).map_err(|reason| refuse(&reason))?;
    check_host_header(head.headers, &host, port, path.is_some()).map_err(|reason| refuse(&reason))?;
    let version = head.version.unwrap_or_default();
    let body = body_of(head.headers, version).map_err(refuse)?;
    let Some(path) = path else {
        return match body {
            Body::Length(0) => Ok(Some((Request { host, port, action: Action::Tunnel }, length))),
            _ => Err(refuse("CONNECT must not have a body")),
        };
    };
    if path.contains('#') {
        return Err(refuse("the request target must not contain a fragment"));
    }
    let head = rewrite(method, path, version, &host, port, head.headers, body);
    Ok(Some((Request { host, port, action: Action::Forward { head, body } }, length)))
}

/// Returns the value of `Proxy-Authorization` in a complete head.
pub fn proxy_login(head: &[u8]) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?;
    let mut named = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("proxy-authorization"));
    named.next().map(|header| header.value.to_vec())
}

/// Whether every line feed follows a carriage return, and no carriage return is elsewhere.
pub fn has_plain_line_ends(head: &[u8]) -> bool {
    let before = |at: usize| at.checked_sub(1).and_then(|at| head.get(at));
    head.iter().enumerate().all(|(at, byte)| match byte {
        b'\n' => before(at) == Some(&b'\r'),
        b'\r' => head.get(at + 1) == Some(&b'\n'),
        _ => true,
    })
}

/// Parses `HOST[:PORT]`; the port may be omitted if there is a default.
fn authority_of(text: &str, default: Option<u16>) -> Result<(HostName, u16), String> {
    if text.contains('@') {
        return Err("user information in the URL is not allowed".into());
    }
    let after = text.rfind(']').map_or(0, |at| at + 1);
    let (host, port) = match text[after..].find(':') {
        Some(colon) => (&text[..after + colon], Some(&text[after + colon + 1..])),
        None => (text, None),
    };
    let port = match port {
        Some(digits) => Some(canonical_port(digits).ok_or("the port is not a number from 1 to 65535")?),
        None => default,
    };
    let host = HostName::parse(host)?;
    Ok((host, port.ok_or("the port is missing")?))
}

fn canonical_port(digits: &str) -> Option<u16> {
    let port = digits.parse::<u16>().ok().filter(|port| *port > 0)?;
    (port.to_string() == digits).then_some(port)
}

/// Allows a single Host header, which must name the target. The port of a tunnel may be omitted.
fn check_host_header(headers: &[httparse::Header<'_>], host: &HostName, port: u16, plain: bool) -> Result<(), String> {
    let mut named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let Some(header) = named.next() else { return Ok(()) };
    if named.next().is_some() {
        return Err("more than one Host header".into());
    }
    let text = std::str::from_utf8(header.value).map_err(|_| "the Host header is not ASCII")?;
    let default = if plain { 80 } else { port };
    match authority_of(text, Some(default)) {
        Ok(named) if named == (host.clone(), port) => Ok(()),
        Ok(_) => Err(format!("the Host header is `{text}`, which is not the request target")),
        Err(reason) => Err(format!("the Host header `{text}` is invalid: {reason}")),
    }
}

/// Determines the end of the body. Two ends, or one that servers may parse differently, are refused
/// (request smuggling).
pub fn body_of(headers: &[httparse::Header<'_>], version: u8) -> Result<Body, &'static str> {
    let all = |name: &'static str| headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    let (mut lengths, mut codings) = (all("content-length"), all("transfer-encoding"));
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(Body::Length(0)),
        (Some(_), Some(_)) => Err("both Content-Length and Transfer-Encoding are given"),
        (Some(length), None) => {
            let digits = std::str::from_utf8(length.value).unwrap_or_default();
            let is_number = !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
            match digits.parse() {
                Ok(length) if is_number && lengths.next().is_none() => Ok(Body::Length(length)),
                _ => Err("Content-Length must be a single number"),
            }
        }
        (None, Some(coding)) => {
            let is_chunked = coding.value.eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            if is_chunked && version == 1 {
                Ok(Body::Chunked)
            } else {
                Err("the only supported Transfer-Encoding is `chunked`")
            }
        }
    }
}

fn rewrite(
    method: &str,
    path: &str,
    version: u8,
    host: &HostName,
    port: u16,
    headers: &[httparse::Header<'_>],
    body: Body,
) -> Vec<u8> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {host}").into_bytes();
    if port != 80 {
        head.extend(format!(":{port}").bytes());
    }
    head.extend(b"\r\n");
    // Headers that `Connection` names are for a single connection, too; the one that determines the
    // end of the body must stay all the same.
    let options = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("connection"));
    let named: Vec<&[u8]> =
        options.flat_map(|header| header.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii).collect();
    for header in headers {
        let is_named = named.iter().any(|name| header.name.as_bytes().eq_ignore_ascii_case(name));
        let is_length = header.name.eq_ignore_ascii_case("content-length");
        if HOP_BY_HOP.iter().any(|name| header.name.eq_ignore_ascii_case(name)) || (is_named && !is_length) {
            continue;
        }
        head.extend(header.name.bytes());
        head.extend(b": ");
        head.extend(header.value);
        head.extend(b"\r\n");
    }
    if body == Body::Chunked {
        head.extend(b"Transfer-Encoding: chunked\r\n");
    }
    // The policy decides per request, so a connection carries a single one.
    head.extend(b"Connection: close\r\n\r\n");
    head
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
