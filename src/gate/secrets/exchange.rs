//! Carries the requests of one connection of the guest to a host of keys, and the answers back, in one
//! thread and with bounded memory.

use std::io;
use std::time::{Duration, Instant};

use super::super::login::Login;
use super::answer::{self, PreparedAnswer};
use super::binding::{Binding, Bound};
use super::body::{self, BodyEnd, BodyReader};
use super::head::{self, MalformedMessage, PreparedRequest, RefusedRequest};
use super::peer::{BUFFER, Peer, wait};
use super::redact::Redactor;
use super::websocket::WebSocketReader;

/// How long the guest may take for the head of a request, and be silent between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a receiver may take nothing.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the guest may take to read the last bytes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// What an exchange reports.
pub trait Observer {
    /// A value was set in a request.
    fn used(&mut self, bound: &Bound);
    /// The host did not accept a value.
    fn stale(&mut self, bound: &Bound);
    /// A login was refreshed; the second text says what went wrong on the host.
    fn refreshed(&mut self, login: &Login, how: &str, problem: Option<String>);
    /// A request was refused, or has failed.
    fn refused(&mut self, reason: &str, is_by_policy: bool);
    /// A value came back and was replaced.
    fn redacted(&mut self);
}

/// Opens connections to the host.
pub type Connect<'a> = &'a dyn Fn() -> Result<Peer, String>;

pub struct Exchange<'a> {
    pub binding: &'a Binding,
    pub connect: Connect<'a>,
    pub observer: &'a mut dyn Observer,
    /// Bytes that went to the host, and came from it.
    pub traffic: (u64, u64),
}

/// How a request has ended.
enum End {
    /// The next request may follow.
    Complete,
    /// The connection must be closed.
    Last,
    /// The host closed a connection that was used before, and answered nothing.
    NotSent,
}

impl<'a> Exchange<'a> {
    /// Serves the guest until its connection ends.
    pub fn serve(&mut self, mut guest: Peer) {
        let mut server: Option<Peer> = None;
        while let Some((mut request, length)) = self.next_request(&mut guest) {
            guest.plain.drain(..length);
            if let Some(login) = request.refreshes {
                match self.refresh(&mut guest, &mut request, login) {
                    Some(true) => continue,
                    Some(false) => break,
                    None => {}
                }
            }
            if let Some(bound) = request.bound {
                self.observer.used(bound);
            }
            server = server.filter_map_usable();
            let is_reused = server.is_some();
            let mut connection = match server.take().map_or_else(self.connect, Ok) {
                Ok(connection) => connection,
                Err(reason) => return self.fail(&mut guest, &reason),
            };
            let mut end = self.carry(&mut guest, &mut connection, &request, is_reused);
            if let Ok(End::NotSent) = end {
                connection = match (self.connect)() {
                    Ok(connection) => connection,
                    Err(reason) => return self.fail(&mut guest, &reason),
                };
                end = self.carry(&mut guest, &mut connection, &request, false);
            }
            match end {
                Ok(End::Complete) => server = Some(connection),
                Ok(End::Last | End::NotSent) | Err(_) => break,
            }
        }
        finish(&mut guest);
    }

    /// Waits for a request. Answers what cannot be passed on, and then returns `None`, as at the end of
    /// the connection.
    fn next_request(&mut self, guest: &mut Peer) -> Option<(PreparedRequest<'a>, usize)> {
        let limit = Instant::now() + HEAD_TIMEOUT;
        let mut parsed = 0;
        let binding = self.binding;
        loop {
            // Parsed again only if the head may be complete.
            let new = &guest.plain[guest.plain.len().min(parsed)..];
            if guest.plain.len() >= head::MAX_HEAD || new.contains(&b'\n') {
                match head::prepare(&guest.plain, binding) {
                    Ok(Some(request)) => return Some(request),
                    Ok(None) => {}
                    Err(refused) => {
                        self.observer.refused(&refused.reason, true);
                        answer_refusal(guest, &refused);
                        return None;
                    }
                }
            }
            parsed = guest.plain.len();
            if guest.is_ended || guest.is_broken || !matches!(wait(guest, None, [true, false], Some(limit)), Ok(true)) {
                return None;
            }
        }
    }

    /// Refuses a request, after which the connection is closed.
    pub fn refuse(&mut self, guest: &mut Peer, refused: &RefusedRequest) -> bool {
        self.observer.refused(&refused.reason, true);
        answer_refusal(guest, refused);
        false
    }

    /// Tells the guest that the host cannot be reached, or answers nothing useful.
    pub fn fail(&mut self, guest: &mut Peer, reason: &str) {
        self.observer.refused(reason, false);
        let refused = RefusedRequest { status: "502 Bad Gateway", reason: reason.to_owned() };
        answer_refusal(guest, &refused);
        finish(guest);
    }

    /// Sends one request and returns its answer.
    fn carry(
        &mut self,
        guest: &mut Peer,
        server: &mut Peer,
        request: &PreparedRequest<'_>,
        is_reused: bool,
    ) -> io::Result<End> {
        let (sent, received) = (server.sent, server.received);
        let patterns = self.binding.patterns.get();
        let mut transfer = Transfer {
            upload: BodyReader::new(request.body),
            to_server: request.head.clone(),
            to_guest: if request.is_waiting { b"HTTP/1.1 100 Continue\r\n\r\n".to_vec() } else { Vec::new() },
            answer: None,
            download: BodyReader::new(BodyEnd::Length(0)),
            redactor: Redactor::new(&patterns),
            frames: WebSocketReader::default(),
            is_upload_ended: request.body == BodyEnd::Length(0),
            is_complete: false,
        };
        let result = transfer.run(guest, server, request);
        self.traffic.0 += server.sent - sent;
        self.traffic.1 += server.received - received;
        if transfer.redactor.has_found || transfer.answer.as_ref().is_some_and(|answer| answer.has_found) {
            self.observer.redacted();
        }
        match (result, &transfer.answer) {
            (Err(_), None) if is_reused && request.is_repeatable && server.received == received && !guest.is_broken => {
                Ok(End::NotSent)
            }
            (Err(MalformedMessage(reason)), None) => {
                self.fail(guest, reason);
                Ok(End::Last)
            }
            (Err(MalformedMessage(reason)), Some(_)) => {
                self.observer.refused(reason, false);
                // The guest must not take a part for the whole.
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            (Ok(()), Some(answer)) => {
                if let (401, Some(bound)) = (answer.status, request.bound) {
                    self.observer.stale(bound);
                }
                let is_last = request.is_last
                    || answer.ends_with_connection
                    || answer.is_upgraded
                    || !transfer.is_upload_ended
                    || guest.is_broken;
                if answer.is_last {
                    server.is_ended = true;
                }
                Ok(if is_last { End::Last } else { End::Complete })
            }
            (Ok(()), None) => Ok(End::Last),
        }
    }
}

/// The bytes of one request and its answer that are on their way.
struct Transfer<'a> {
    upload: BodyReader,
    to_server: Vec<u8>,
    to_guest: Vec<u8>,
    /// `None` before the head of the final answer.
    answer: Option<PreparedAnswer>,
    download: BodyReader,
    redactor: Redactor<'a>,
    /// Reads what comes from the host once the connection carries a WebSocket.
    frames: WebSocketReader,
    is_upload_ended: bool,
    is_complete: bool,
}

impl Transfer<'_> {
    fn run(
        &mut self,
        guest: &mut Peer,
        server: &mut Peer,
        request: &PreparedRequest<'_>,
    ) -> Result<(), MalformedMessage> {
        let mut progress = (0, Instant::now());
        loop {
            self.upload(guest, request)?;
            server.send(&mut self.to_server);
            self.download(server, request)?;
            guest.send(&mut self.to_guest);
            if guest.is_broken {
                return Err(MalformedMessage("the sandbox closed the connection"));
            }
            if self.is_complete && self.to_guest.is_empty() {
                return Ok(());
            }
            // A host may answer before it has read everything, and close.
            if server.is_ended && server.plain.is_empty() && !self.is_complete {
                self.end_of_server(server)?;
                continue;
            }
            let is_upgraded = self.answer.as_ref().is_some_and(|answer| answer.is_upgraded);
            let reads_guest = (is_upgraded || !self.is_upload_ended) && self.to_server.len() < BUFFER;
            let reads_server = self.to_guest.len() < BUFFER;
            let moved = guest.received + guest.sent + server.received + server.sent;
            if moved != progress.0 {
                progress = (moved, Instant::now());
            }
            let is_sending = guest.has_unsent() || server.has_unsent() || (reads_guest && !is_upgraded);
            let limit = is_sending.then(|| progress.1 + STALL_TIMEOUT);
            match wait(guest, Some(server), [reads_guest, reads_server], limit) {
                Ok(true) => {}
                Ok(false) => return Err(MalformedMessage("timed out")),
                Err(_) => return Err(MalformedMessage("the connection was closed")),
            }
        }
    }

    /// Takes what the guest sends.
    fn upload(&mut self, guest: &mut Peer, request: &PreparedRequest<'_>) -> Result<(), MalformedMessage> {
        if self.answer.as_ref().is_some_and(|answer| answer.is_upgraded) {
            if self.to_server.len() < BUFFER {
                self.to_server.append(&mut guest.plain);
            }
            return Ok(());
        }
        if self.is_upload_ended || self.to_server.len() >= BUFFER {
            return Ok(());
        }
        let mut data = Vec::new();
        self.upload.read(&mut guest.plain, &mut data)?;
        let is_chunked = request.body == BodyEnd::Chunked;
        body::write(is_chunked, &data, &mut self.to_server);
        if self.upload.is_done() {
            body::write_end(is_chunked, &mut self.to_server);
            self.is_upload_ended = true;
        } else if guest.is_ended {
            return Err(MalformedMessage("the sandbox closed the connection within a request"));
        }
        Ok(())
    }

    /// Takes what the host sends.
    fn download(&mut self, server: &mut Peer, request: &PreparedRequest<'_>) -> Result<(), MalformedMessage> {
        while self.answer.is_none() && !server.plain.is_empty() {
            let Some((answer, length)) = answer::prepare(&server.plain, request, self.redactor.patterns())? else {
                break;
            };
            server.plain.drain(..length);
            // The guest was answered 100 by this proxy.
            if answer.status != 100 {
                self.to_guest.extend_from_slice(&answer.head);
            }
            if !answer.is_interim {
                self.download = BodyReader::new(if answer.is_upgraded { BodyEnd::Close } else { answer.body });
                self.answer = Some(answer);
            }
        }
        let Some(answer) = &self.answer else { return Ok(()) };
        if self.to_guest.len() < BUFFER && !self.is_complete {
            let mut data = Vec::new();
            self.download.read(&mut server.plain, &mut data)?;
            if answer.is_upgraded {
                return self.frames.push(&data, &mut self.redactor, &mut self.to_guest);
            }
            let is_done = self.download.is_done();
            let mut safe = Vec::new();
            self.redactor.push(&data, &mut safe);
            if is_done {
                self.redactor.finish(&mut safe);
            }
            body::write(answer.is_chunked, &safe, &mut self.to_guest);
            if is_done {
                body::write_end(answer.is_chunked, &mut self.to_guest);
                self.is_complete = true;
            }
        }
        Ok(())
    }

    /// Decides whether the end of the host's connection is the end of the answer.
    fn end_of_server(&mut self, server: &Peer) -> Result<(), MalformedMessage> {
        let Some(answer) = &self.answer else {
            return Err(MalformedMessage("the host closed the connection without an answer"));
        };
        // Many servers end an answer without a notice, but a part must not pass for the whole.
        let _ = server.is_clean;
        self.download.close()?;
        self.is_complete = true;
        if answer.is_upgraded {
            return Ok(());
        }
        let mut rest = Vec::new();
        self.redactor.finish(&mut rest);
        body::write(answer.is_chunked, &rest, &mut self.to_guest);
        body::write_end(answer.is_chunked, &mut self.to_guest);
        Ok(())
    }
}

/// Keeps a connection that can be used again.
trait FilterUsable {
    fn filter_map_usable(self) -> Self;
}

impl FilterUsable for Option<Peer> {
    fn filter_map_usable(self) -> Self {
        self.and_then(|mut peer| (!peer.is_unusable()).then_some(peer))
    }
}

fn answer_refusal(guest: &mut Peer, refused: &RefusedRequest) {
    let line = format!("sandpen: {}", crate::ui::escape::escape(&refused.reason));
    let mut bytes = format!(
        "HTTP/1.1 {} ({line})\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}\n",
        refused.status,
        line.len() + 1
    )
    .into_bytes();
    guest.send(&mut bytes);
}

/// Sends the last bytes, and lets the guest read them before the connection ends.
fn finish(guest: &mut Peer) {
    let limit = Instant::now() + CLOSE_TIMEOUT;
    while guest.has_unsent() && matches!(wait(guest, None, [false, false], Some(limit)), Ok(true)) {}
    guest.close();
    while !guest.is_ended && !guest.is_broken {
        guest.plain.clear();
        if !matches!(wait(guest, None, [true, false], Some(limit)), Ok(true)) {
            return;
        }
    }
}
