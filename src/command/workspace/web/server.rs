//! Answers HTTP/1.1 requests on this machine, one per connection. Every request has limits of time and
//! length, and so has the number of connections. It decides nothing about what is asked.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MAX_CONNECTIONS: usize = 32;
/// How long a client may take to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
const MAX_BODY: usize = 4 << 20;
/// So much of a body that nobody read is taken, for so long, before the connection is closed: otherwise
/// the client loses the answer.
const MAX_UNREAD: u64 = 64 << 10;
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead {
    pub method: String,
    pub path: String,
    /// What follows `?`.
    pub query: Option<String>,
    /// Names in lower case.
    pub(super) headers: Vec<(String, Vec<u8>)>,
}

impl RequestHead {
    /// Returns the header with a name in lower case; an error if there is more than one.
    pub fn header(&self, name: &str) -> io::Result<Option<&[u8]>> {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let first = found.next().map(|(_, value)| value.as_slice());
        if found.next().is_some() { Err(malformed("a header is repeated")) } else { Ok(first) }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub content: Vec<u8>,
    pub headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub fn text(status: u16, text: &str) -> Self {
        Reply {
            status,
            content_type: "text/plain; charset=utf-8",
            content: format!("{text}\n").into_bytes(),
            headers: Vec::new(),
        }
    }
}

/// What requests are answered with.
pub trait Service: Sync {
    /// Answers a request by its head alone, before its body is read; `None` to go on.
    fn refuse(&self, head: &RequestHead) -> Option<Reply>;
    fn answer(&self, head: &RequestHead, body: &[u8]) -> Reply;
    /// Tells whether the last request has been answered.
    fn is_over(&self) -> bool;
}

/// A connection whose request may not be complete yet.
struct Open {
    number: u64,
    stream: TcpStream,
    is_accepted: bool,
}

#[derive(Default)]
struct Connections(Mutex<Vec<Open>>);

impl Connections {
    fn with<T>(&self, action: impl FnOnce(&mut Vec<Open>) -> T) -> T {
        action(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a connection. If there are too many, the one that has been waiting for a request for the
    /// longest time is closed, so that nobody keeps others out by silence.
    fn add(&self, number: u64, stream: TcpStream) -> bool {
        self.with(|open| {
            if open.len() >= MAX_CONNECTIONS {
                let Some(waiting) = open.iter().position(|one| !one.is_accepted) else { return false };
                let _ = open.remove(waiting).stream.shutdown(Shutdown::Both);
            }
            open.push(Open { number, stream, is_accepted: false });
            true
        })
    }

    fn accept(&self, number: u64) {
        self.with(|open| open.iter_mut().filter(|one| one.number == number).for_each(|one| one.is_accepted = true));
    }

    fn remove(&self, number: u64) {
        self.with(|open| open.retain(|one| one.number != number));
    }

    fn close_waiting(&self) {
        self.with(|open| {
            open.iter().filter(|one| !one.is_accepted).for_each(|one| drop(one.stream.shutdown(Shutdown::Both)));
        });
    }
}

/// Answers requests until the service is over.
pub fn serve(listener: &TcpListener, service: &dyn Service) -> io::Result<()> {
    let address = listener.local_addr()?;
    let connections = Connections::default();
    std::thread::scope(|scope| {
        for number in 0.. {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) => return Err(error),
            };
            if service.is_over() {
                break;
            }
            let is_added = stream.try_clone().is_ok_and(|other| connections.add(number, other));
            let connections = &connections;
            if is_added {
                scope.spawn(move || {
                    // A client that went away has no use for an error.
                    let _ = handle(stream, service, || connections.accept(number));
                    connections.remove(number);
                    if service.is_over() {
                        // Wakes the loop above.
                        let _ = TcpStream::connect(address);
                    }
                });
            }
        }
        connections.close_waiting();
        Ok(())
    })
}

fn handle(mut stream: TcpStream, service: &dyn Service, accept: impl FnOnce()) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let mut request = TimedStream { stream: &stream, deadline: Instant::now() + REQUEST_TIMEOUT };
    let reply = match reply(&mut request, service, accept) {
        Ok(reply) => reply,
        Err(error) if error.kind() == ErrorKind::InvalidData => Reply::text(400, &error.to_string()),
        Err(error) => return Err(error),
    };
    write(&mut stream, &reply)?;
    stream.shutdown(Shutdown::Write)?;
    let rest = TimedStream { stream: &stream, deadline: Instant::now() + UNREAD_TIMEOUT };
    io::copy(&mut rest.take(MAX_UNREAD), &mut io::sink()).map(drop)
}

fn reply(stream: &mut TimedStream<'_>, service: &dyn Service, accept: impl FnOnce()) -> io::Result<Reply> {
    let mut received = Vec::new();
    let (head, length) = loop {
        let mut part = [0; 4096];
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&part[..read]);
        if let Some(parsed) = parse(&received)? {
            break parsed;
        }
        if received.len() > MAX_HEAD {
            return Err(malformed("the head is too long"));
        }
    };
    if let Some(refused) = service.refuse(&head) {
        return Ok(refused);
    }
    accept();
    let mut body = received.split_off(length);
    let expected = body_length(&head)?;
    if body.len() > expected {
        return Err(malformed("the body is longer than announced"));
    }
    let missing = (expected - body.len()) as u64;
    if stream.take(missing).read_to_end(&mut body)? as u64 != missing {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(service.answer(&head, &body))
}

/// Parses a head and returns its length; `None` if it is not complete.
fn parse(received: &[u8]) -> io::Result<Option<(RequestHead, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(received).map_err(|error| malformed(&error.to_string()))?;
    let httparse::Status::Complete(length) = parsed else { return Ok(None) };
    let target = request.path.unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let headers = request.headers.iter().map(|header| (header.name.to_ascii_lowercase(), header.value.to_vec()));
    let head = RequestHead {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query,
        headers: headers.collect(),
    };
    Ok(Some((head, length)))
}

fn body_length(head: &RequestHead) -> io::Result<usize> {
    if head.header("transfer-encoding")?.is_some() {
        return Err(malformed("a body without a length"));
    }
    let Some(text) = head.header("content-length")? else { return Ok(0) };
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(text).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    length.filter(|length| *length <= MAX_BODY).ok_or_else(|| malformed("a body that is too long"))
}

fn write(stream: &mut TcpStream, reply: &Reply) -> io::Result<()> {
    let reason = match reply.status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        _ => "Error",
    };
    let mut head = format!(
        "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n",
        reply.status,
        reply.content_type,
        reply.content.len()
    );
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes())?;
    stream.write_all(&reply.content)
}

/// A stream whose reads end at a deadline, however slowly bytes arrive.
struct TimedStream<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Read for TimedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        (&mut self.stream).read(buffer)
    }
}

fn malformed(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.to_owned())
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
