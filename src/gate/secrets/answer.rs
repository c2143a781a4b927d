//! Reads the head of an answer, and writes the one that the guest receives.

use super::body::BodyEnd;
use super::head::{HOP_BY_HOP, MAX_HEAD, MalformedMessage, PreparedRequest, write_header};
use super::redact::Patterns;

const MAX_HEADERS: usize = 256;
/// Headers that are not passed on: another way to the host, around the proxy, and credentials that the
/// host gave for the value. No cookie is sent to the host, so the guest does not need any.
const DROPPED: &[&str] = &["alt-svc", "set-cookie", "set-cookie2"];

/// An answer as the guest receives it.
#[derive(Debug)]
pub struct PreparedAnswer {
    pub head: Vec<u8>,
    pub status: u16,
    pub body: BodyEnd,
    /// Whether the body is written in chunks.
    pub is_chunked: bool,
    /// An answer that precedes the final one.
    pub is_interim: bool,
    /// The connection carries a WebSocket from now on.
    pub is_upgraded: bool,
    /// Whether the server closes the connection after the answer.
    pub is_last: bool,
    /// Whether the end of the guest's connection is the end of the body.
    pub ends_with_connection: bool,
    pub has_found: bool,
}

/// Parses an answer's head at the front of `input`; `None` if it is not complete.
pub fn prepare(
    input: &[u8],
    request: &PreparedRequest<'_>,
    patterns: &Patterns,
) -> Result<Option<(PreparedAnswer, usize)>, MalformedMessage> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let length = match head.parse(input) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Ok(None),
        _ => return Err(MalformedMessage("the answer is not HTTP/1.1")),
    };
    let status = head.code.unwrap_or_default();
    let values = |name: &'static str| {
        let named = head.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.flat_map(|header| header.value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    };
    let has_token = |name, token: &str| values(name).any(|word| word.eq_ignore_ascii_case(token.as_bytes()));
    let is_upgraded = status == 101;
    if is_upgraded && !request.is_upgrade {
        return Err(MalformedMessage("the answer changes the protocol unasked"));
    }
    // A value could not be found in another encoding.
    let is_encoded =
        values("content-encoding").any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
    let body = body_end(status, request, values("transfer-encoding").collect(), values("content-length").collect())?;
    if is_encoded && body != BodyEnd::Length(0) {
        return Err(MalformedMessage(
            "the answer is compressed although that was not allowed, so it cannot be searched for keys",
        ));
    }
    let is_interim = (100..200).contains(&status) && !is_upgraded;
    let is_chunked = request.reads_chunks && matches!(body, BodyEnd::Chunked | BodyEnd::Close);
    let ends_with_connection = !request.reads_chunks && matches!(body, BodyEnd::Chunked | BodyEnd::Close);
    let is_last = has_token("connection", "close") || head.version == Some(0) || body == BodyEnd::Close;
    let mut out = status_line(status, head.reason.unwrap_or_default(), request);
    let mut found = patterns.replace_all(&mut out);
    for header in head.headers.iter() {
        let name = header.name.to_ascii_lowercase();
        let is_length = name == "content-length" && (request.is_head || matches!(body, BodyEnd::Length(_)));
        if (HOP_BY_HOP.contains(&name.as_str()) && !is_length) || DROPPED.contains(&name.as_str()) {
            continue;
        }
        let mut line = Vec::new();
        write_header(&mut line, header.name, header.value);
        found |= patterns.replace_all(&mut line);
        out.extend_from_slice(&line);
    }
    if is_chunked {
        write_header(&mut out, "Transfer-Encoding", b"chunked");
    }
    if is_upgraded {
        write_header(&mut out, "Connection", b"Upgrade");
        write_header(&mut out, "Upgrade", b"websocket");
    } else if !is_interim && (request.is_last || ends_with_connection) {
        write_header(&mut out, "Connection", b"close");
    }
    out.extend_from_slice(b"\r\n");
    let answer = PreparedAnswer {
        head: out,
        status,
        body,
        is_chunked,
        is_interim,
        is_upgraded,
        is_last,
        ends_with_connection,
        has_found: found,
    };
    Ok(Some((answer, length)))
}

/// Writes the status. A host that does not accept a value makes the user look for the reason inside, so
/// the line names it.
fn status_line(status: u16, reason: &str, request: &PreparedRequest<'_>) -> Vec<u8> {
    let reason: String = reason.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(128).collect();
    match (status, request.bound) {
        (401, Some(bound)) => {
            let name = &bound.name;
            let note = format!("sandpen: the value of {name} on the host was not accepted; it may have expired");
            format!("HTTP/1.1 401 {reason} ({note})\r\n").into_bytes()
        }
        _ => format!("HTTP/1.1 {status} {reason}\r\n").into_bytes(),
    }
}

fn body_end(
    status: u16,
    request: &PreparedRequest<'_>,
    codings: Vec<&[u8]>,
    lengths: Vec<&[u8]>,
) -> Result<BodyEnd, MalformedMessage> {
    if request.is_head || (100..200).contains(&status) || status == 204 || status == 304 {
        return Ok(BodyEnd::Length(0));
    }
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(BodyEnd::Close),
        ([coding], []) if coding.eq_ignore_ascii_case(b"chunked") => Ok(BodyEnd::Chunked),
        ([], [first, rest @ ..]) if rest.iter().all(|other| other == first) => {
            let digits = std::str::from_utf8(first).unwrap_or_default();
            let is_number =
                !digits.is_empty() && digits.len() <= 18 && digits.bytes().all(|byte| byte.is_ascii_digit());
            let length = digits.parse().ok().filter(|_| is_number);
            length.map(BodyEnd::Length).ok_or(MalformedMessage("the answer's Content-Length is not a number"))
        }
        _ => Err(MalformedMessage("the end of the answer is ambiguous")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::binding::Binding;
    use super::super::head;
    use super::*;
    use crate::config::value::SecretHost;

    fn received(answer: &str) -> Result<String, &'static str> {
        let host = SecretHost { name: "api.example".into(), port: 443 };
        let binding = Binding::new(host, Arc::default());
        let request = head::prepare(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", &binding);
        let (request, _) = request.expect("a request").expect("complete");
        let patterns = Patterns::new([(b"sk-secret-value".to_vec(), b"sk-placeholders".to_vec())]);
        match prepare(answer.replace('\n', "\r\n").as_bytes(), &request, &patterns) {
            Ok(Some((answer, _))) => Ok(String::from_utf8_lossy(&answer.head).into_owned()),
            Ok(None) => Err("incomplete"),
            Err(MalformedMessage(reason)) => Err(reason),
        }
    }

    #[test]
    fn no_head_has_a_value_or_another_credential() {
        let head = received(
            "HTTP/1.1 200 sk-secret-value\nX-Echo: Bearer SK-Secret-Value\nSet-Cookie: session=1\nAlt-Svc: h3=\":443\"\n\
             Location: https://other.example/?key=sk-secret-value\nContent-Length: 0\n\n",
        );
        let head = head.expect("an answer");
        assert!(!head.to_ascii_lowercase().contains("secret"), "{head}");
        assert!(!head.contains("session=1") && !head.contains("h3"), "{head}");
        assert!(head.contains("Location: https://other.example/?key=sk-placeholders\r\n"), "{head}");
    }

    #[test]
    fn an_answer_that_cannot_be_searched_is_an_error() {
        for coding in ["gzip", "x-gzip", "deflate", "br", "zstd", "identity, gzip", "aes128gcm"] {
            let answer = format!("HTTP/1.1 200 OK\nContent-Encoding: {coding}\nContent-Length: 4\n\n");
            assert!(received(&answer).is_err_and(|reason| reason.contains("compressed")), "{coding}");
        }
        for header in [
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\nContent-Length: 4",
            "Content-Length: 4\nContent-Length: 5",
            "Content-Length: 4, 5",
            "Content-Length: -4",
        ] {
            assert!(received(&format!("HTTP/1.1 200 OK\n{header}\n\n")).is_err(), "{header}");
        }
        assert!(received("HTTP/1.1 101 Switching Protocols\nUpgrade: h2c\n\n").is_err());
        assert!(received("HTTP/1.1 200 OK\nContent-Encoding: identity\nContent-Length: 4\n\n").is_ok());
    }
}
