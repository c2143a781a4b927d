//! Requests of sandpen's own: HTTP/1.1 over TLS, and without TLS to this machine only. One request per
//! connection; every wait has a time limit, and every header a length limit.

mod body;
mod url;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::time::Duration;

pub use url::Url;

use crate::config::value::HostName;
use crate::error::{Diagnostic, Kind};
use crate::tls::{self, TlsError};
use body::Body;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server may send nothing.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;
const MOST_REDIRECTS: usize = 5;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the server names an address that is not used: {reason}")]
    Address { reason: &'static str },
    #[error("`{url}` is not encrypted, which is permitted on this machine only")]
    Plain { url: String },
    #[error("failed to connect to {server}")]
    Connect { server: String, source: io::Error },
    #[error("{server} sent no valid answer")]
    Answer { server: String, source: io::Error },
    #[error("{server} redirects too often")]
    Redirects { server: String },
}

impl Diagnostic for HttpError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn hints(&self) -> Vec<String> {
        match self {
            Self::Tls(error) => error.hints(),
            _ => Vec::new(),
        }
    }
}

/// The head of an answer, and its body.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Box<dyn Read>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Response {
    /// Returns the first header of a name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn headers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Reads a body of at most `most` bytes.
    pub fn content(self, most: u64) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.body.take(most + 1).read_to_end(&mut content)?;
        if content.len() as u64 > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the answer is too long"));
        }
        Ok(content)
    }
}

/// What is sent besides the address.
#[derive(Debug, Default, Clone, Copy)]
pub struct Request<'a> {
    pub headers: &'a [(&'a str, &'a str)],
    /// The value of `Authorization`, which is sent to the first server only.
    pub authorization: Option<&'a str>,
    /// Sent by POST, as a form.
    pub form: Option<&'a str>,
}

/// Sends a request, and follows redirects.
pub fn send(client: &tls::Client, url: &Url, request: Request<'_>) -> Result<Response, HttpError> {
    let mut next = url.clone();
    for _ in 0..=MOST_REDIRECTS {
        let is_same = next.is_same_server(url);
        let authorization = request.authorization.filter(|_| is_same);
        let response = once(client, &next, Request { authorization, ..request })?;
        let location = match response.status {
            301 | 302 | 303 | 307 | 308 if request.form.is_none() => response.header("location"),
            _ => return Ok(response),
        };
        let location = location.ok_or(HttpError::Address { reason: "it is missing" })?;
        let location = next.join(location).map_err(|reason| HttpError::Address { reason })?;
        if next.is_secure && !location.is_secure {
            return Err(HttpError::Plain { url: location.to_string() });
        }
        next = location;
    }
    Err(HttpError::Redirects { server: url.authority() })
}

fn once(client: &tls::Client, url: &Url, request: Request<'_>) -> Result<Response, HttpError> {
    let server = url.authority();
    let answer = |source| HttpError::Answer { server: server.clone(), source };
    if url.is_secure {
        let stream = client.connect(&url.host, url.port, CONNECT_TIMEOUT)?;
        set_timeouts(stream.get_ref()).map_err(answer)?;
        return exchange(stream, url, request).map_err(answer);
    }
    if !url.is_loopback() {
        return Err(HttpError::Plain { url: url.to_string() });
    }
    let connected = match &url.host {
        // Without a resolver: it is `localhost`.
        HostName::Name(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, url.port))
            .or_else(|_| TcpStream::connect((Ipv6Addr::LOCALHOST, url.port))),
        HostName::Address(address) => TcpStream::connect((*address, url.port)),
    };
    let stream = connected.map_err(|source| HttpError::Connect { server: server.clone(), source })?;
    set_timeouts(&stream).map_err(answer)?;
    exchange(stream, url, request).map_err(answer)
}

fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
    stream.set_write_timeout(Some(SILENCE_TIMEOUT))
}

fn exchange<S: Read + Write + 'static>(mut stream: S, url: &Url, request: Request<'_>) -> io::Result<Response> {
    let method = if request.form.is_some() { "POST" } else { "GET" };
    let mut head = format!("{method} {} HTTP/1.1\r\nHost: {}\r\n", url.target, url.authority());
    head += "User-Agent: sandpen\r\nConnection: close\r\nAccept-Encoding: identity\r\n";
    let login = request.authorization.map(|value| ("Authorization", value));
    let form = request.form.map(|form| (form, form.len().to_string()));
    let form_headers = form.iter().flat_map(|(_, length)| {
        [("Content-Type", "application/x-www-form-urlencoded"), ("Content-Length", length.as_str())]
    });
    for (name, value) in request.headers.iter().copied().chain(login).chain(form_headers) {
        if value.contains(['\r', '\n']) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a header of two lines"));
        }
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    head += form.as_ref().map_or("", |(form, _)| form);
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    read_response(BufReader::with_capacity(64 * 1024, stream))
}

fn read_response<R: BufRead + 'static>(mut stream: R) -> io::Result<Response> {
    let malformed = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    loop {
        let head = read_head(&mut stream)?;
        let mut parsed = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut response = httparse::Response::new(&mut parsed);
        let is_complete = response.parse(&head).map_err(|error| malformed(&error.to_string()))?.is_complete();
        let status = response.code.filter(|_| is_complete).ok_or_else(|| malformed("its head is incomplete"))?;
        // Such as 100 Continue.
        if (100..200).contains(&status) {
            continue;
        }
        let headers: Vec<(String, String)> = response
            .headers
            .iter()
            .map(|header| (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).trim().to_owned()))
            .collect();
        let body = Body::of(status, &headers, stream)?;
        return Ok(Response { status, headers, body: Box::new(body) });
    }
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head != b"\r\n" {
        let line = stream.by_ref().take((LONGEST_HEAD - head.len()) as u64).read_until(b'\n', &mut head)?;
        if line == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its head is too long or incomplete"));
        }
    }
    Ok(head)
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
