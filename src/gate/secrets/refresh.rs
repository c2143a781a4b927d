//! Recognises the guest's request to refresh a login, and sends it with the real token. The answer is
//! read as a whole, because its tokens must not reach the guest.

use std::time::{Duration, Instant};

use serde_json::{Map, Value as Json};

use super::super::login::{Login, REFRESH, Refreshed, VendorAnswer};
use super::answer;
use super::body::{BodyEnd, BodyReader};
use super::exchange::{Exchange, STALL_TIMEOUT};
use super::head::{MalformedMessage, PreparedRequest, RefusedRequest, decoded, write_header};
use super::peer::{Peer, wait};
use super::redact::Patterns;
use crate::secret::Secret;

/// The size limit of a request to refresh, which must fit into a peer's buffer.
const MAX_REQUEST: usize = 48 * 1024;
const MAX_ANSWER: usize = 256 * 1024;
/// How long the guest may take for its request, and the vendor for its answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What a request to a URL for refreshes asks for.
enum Asked {
    /// New tokens for the guest's placeholder.
    Refresh(RefreshBody),
    /// A login of its own, which would be inside.
    Login,
    /// Something that has nothing to do with the login.
    Other,
}

/// The body of a request to refresh, as the agent wrote it.
enum RefreshBody {
    Json(Map<String, Json>),
    Form(Vec<(String, String)>),
}

/// Reads the body of a request and leaves it where it is, so that it can still be passed on. Returns the
/// length of what was read, too.
fn peek(guest: &mut Peer, end: BodyEnd) -> Result<(Vec<u8>, usize), RefusedRequest> {
    let refuse = |status, reason: &str| RefusedRequest { status, reason: reason.to_owned() };
    let limit = Instant::now() + REQUEST_TIMEOUT;
    loop {
        let (mut rest, mut data, mut reader) = (guest.plain.clone(), Vec::new(), BodyReader::new(end));
        reader.read(&mut rest, &mut data).map_err(|MalformedMessage(reason)| refuse("400 Bad Request", reason))?;
        if reader.is_done() {
            return Ok((data, guest.plain.len() - rest.len()));
        }
        if guest.plain.len() > MAX_REQUEST {
            return Err(refuse("413 Content Too Large", "the request to refresh a login is too long"));
        }
        if guest.is_ended || guest.is_broken || !matches!(wait(guest, None, [true, false], Some(limit)), Ok(true)) {
            return Err(refuse("408 Request Timeout", "the request to refresh a login is not complete"));
        }
    }
}

impl Asked {
    fn of(body: &[u8], login: &Login) -> Self {
        let Some(body) = RefreshBody::parse(body) else { return Asked::Other };
        match (body.get("grant_type").as_deref(), body.get(REFRESH)) {
            (_, Some(token)) if login.is_refresh_placeholder(&token) => Asked::Refresh(body),
            (Some("authorization_code"), _) => Asked::Login,
            _ => Asked::Other,
        }
    }
}

impl RefreshBody {
    fn parse(body: &[u8]) -> Option<Self> {
        if body.trim_ascii_start().starts_with(b"{") {
            return serde_json::from_slice(body).ok().map(RefreshBody::Json);
        }
        let text = std::str::from_utf8(body).ok()?;
        let pairs = text.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(&name.replace('+', " ")), decoded(&value.replace('+', " ")))
        });
        Some(RefreshBody::Form(pairs.collect()))
    }

    fn get(&self, name: &str) -> Option<String> {
        match self {
            RefreshBody::Json(members) => members.get(name)?.as_str().map(str::to_owned),
            RefreshBody::Form(pairs) => pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()),
        }
    }

    /// Returns the body with the real token.
    fn with(&self, token: &Secret) -> Vec<u8> {
        let token = token.reveal().to_string_lossy();
        match self {
            RefreshBody::Json(members) => {
                let mut members = members.clone();
                members.insert(REFRESH.to_owned(), Json::String(token.into_owned()));
                serde_json::to_vec(&members).unwrap_or_default()
            }
            RefreshBody::Form(pairs) => {
                let value = |name: &str, value: &str| if name == REFRESH { encoded(&token) } else { encoded(value) };
                let pairs = pairs.iter().map(|(name, text)| format!("{}={}", encoded(name), value(name, text)));
                pairs.collect::<Vec<_>>().join("&").into_bytes()
            }
        }
    }

    /// Sends the request with the real token, and reads the answer.
    fn ask(
        &self,
        server: &mut Peer,
        request: &PreparedRequest<'_>,
        token: &Secret,
        patterns: &Patterns,
    ) -> Result<VendorAnswer, MalformedMessage> {
        let limit = Instant::now() + ANSWER_TIMEOUT;
        let body = self.with(token);
        let mut to_server = head_with_length(&request.head, body.len());
        to_server.extend_from_slice(&body);
        let (mut data, mut found) = (Vec::new(), None::<(u16, BodyReader)>);
        loop {
            server.send(&mut to_server);
            while found.is_none() && !server.plain.is_empty() {
                let Some((answer, length)) = answer::prepare(&server.plain, request, patterns)? else { break };
                server.plain.drain(..length);
                if !answer.is_interim {
                    found = Some((answer.status, BodyReader::new(answer.body)));
                }
            }
            if let Some((status, reader)) = &mut found {
                reader.read(&mut server.plain, &mut data)?;
                if server.is_ended && server.plain.is_empty() && !reader.is_done() {
                    reader.close()?;
                }
                if reader.is_done() {
                    return Ok(VendorAnswer { status: *status, body: data });
                }
            } else if server.is_ended {
                return Err(MalformedMessage("the host closed the connection without an answer"));
            }
            if data.len() > MAX_ANSWER {
                return Err(MalformedMessage("the answer to the refresh is too long"));
            }
            if !matches!(wait(server, None, [true, false], Some(limit)), Ok(true)) {
                return Err(MalformedMessage("timed out"));
            }
        }
    }
}

impl Exchange<'_> {
    /// Answers a request to refresh a login. Returns whether another request may follow; `None` if this
    /// one is to be passed on.
    pub fn refresh(&mut self, guest: &mut Peer, request: &mut PreparedRequest<'_>, login: &Login) -> Option<bool> {
        if std::mem::take(&mut request.is_waiting) {
            guest.send(&mut b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
        }
        let peeked = peek(guest, request.body).map(|(body, length)| (Asked::of(&body, login), length));
        let (body, length) = match peeked {
            Ok((Asked::Other, _)) => return None,
            Ok((Asked::Refresh(body), length)) => (body, length),
            Ok((Asked::Login, _)) => {
                let reason = format!("{} stays outside: log in on the host", login.plan().name());
                return Some(self.refuse(guest, &RefusedRequest { status: "403 Forbidden", reason }));
            }
            Err(refused) => return Some(self.refuse(guest, &refused)),
        };
        guest.plain.drain(..length);
        let (connect, patterns) = (self.connect, self.binding.patterns.get());
        let mut traffic = (0, 0);
        let refreshed = login.refresh(|token| {
            let mut server = connect()?;
            let answer = body.ask(&mut server, request, token, &patterns);
            traffic = (server.sent, server.received);
            answer.map_err(|MalformedMessage(reason)| reason.to_owned())
        });
        self.traffic = (self.traffic.0 + traffic.0, self.traffic.1 + traffic.1);
        let (status, mut body) = match refreshed {
            Ok(Refreshed::New(answer, problem)) => {
                self.observer.refreshed(login, "its tokens were refreshed", problem);
                (200, answer.to_string().into_bytes())
            }
            Ok(Refreshed::Known(answer)) => {
                self.observer.refreshed(login, "its tokens had been refreshed before", None);
                (200, answer.to_string().into_bytes())
            }
            Ok(Refreshed::Refused(answer)) => {
                self.observer.refused(&format!("{} was not refreshed ({})", login.plan().name(), answer.status), false);
                (answer.status, answer.body)
            }
            Err(reason) => {
                self.fail(guest, &reason);
                return Some(false);
            }
        };
        if self.binding.patterns.get().replace_all(&mut body) {
            self.observer.redacted();
        }
        let mut bytes = answer_to_guest(status, &body, request.is_last);
        let limit = Instant::now() + STALL_TIMEOUT;
        guest.send(&mut bytes);
        while !bytes.is_empty() && matches!(wait(guest, None, [false, false], Some(limit)), Ok(true)) {
            guest.send(&mut bytes);
        }
        Some(bytes.is_empty() && !request.is_last)
    }
}

/// Replaces the headers that frame the body.
fn head_with_length(head: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().to_ascii_lowercase();
        if !matches!(name.as_slice(), b"content-length" | b"transfer-encoding" | b"\r\n") {
            out.extend_from_slice(line);
        }
    }
    write_header(&mut out, "Content-Length", length.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out
}

/// Writes the answer that the guest receives.
fn answer_to_guest(status: u16, body: &[u8], is_last: bool) -> Vec<u8> {
    let close = if is_last { "Connection: close\r\n" } else { "" };
    let length = body.len();
    let kind = "Content-Type: application/json\r\nCache-Control: no-store\r\n";
    let mut out = format!("HTTP/1.1 {status} \r\n{kind}Content-Length: {length}\r\n{close}\r\n").into_bytes();
    out.extend_from_slice(body);
    out
}

fn encoded(text: &str) -> String {
    text.bytes().map(super::binding::percent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_token(body: &str) -> String {
        let parsed = RefreshBody::parse(body.as_bytes()).expect("a body");
        String::from_utf8(parsed.with(&Secret::new("1//real"))).expect("text")
    }

    #[test]
    fn the_token_is_set_in_the_body_that_the_agent_wrote() {
        assert_eq!(
            with_token(r#"{"grant_type":"refresh_token","refresh_token":"1//other","client_id":"me"}"#),
            r#"{"grant_type":"refresh_token","refresh_token":"1//real","client_id":"me"}"#
        );
        assert_eq!(
            with_token("refresh_token=1%2F%2Fother&client_id=me+too&grant_type=refresh_token"),
            "refresh_token=1%2F%2Freal&client_id=me%20too&grant_type=refresh_token"
        );
    }

    #[test]
    fn the_head_has_the_length_of_the_new_body() {
        let head = b"POST /token HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\nX: y\r\n\r\n";
        let expected = b"POST /token HTTP/1.1\r\nHost: a.example\r\nX: y\r\nContent-Length: 7\r\n\r\n";
        assert_eq!(head_with_length(head, 7), expected);
    }
}
