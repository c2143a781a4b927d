//! Serves one connection of the guest: reads a request, lets it pass or not, and answers it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::request::{FAILURE, IDENTITIES_ANSWER, REQUEST_IDENTITIES, Request, SUCCESS};
use super::session::Session;
use super::slots::Slot;
use super::upstream::Upstream;
use super::wire::{read_message, write_message};

/// A connection that sends no request for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the guest may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const SIGN_RESPONSE: u8 = 14;

pub struct Connection {
    guest: UnixStream,
    slot: Slot,
    upstream: Upstream,
    session: Session,
    shared: Arc<Shared>,
}

impl Connection {
    pub fn new(guest: UnixStream, slot: Slot, shared: &Arc<Shared>) -> Self {
        let upstream = Upstream::new(shared.plan.agent.as_path().to_owned());
        Connection { guest, slot, upstream, session: Session, shared: shared.clone() }
    }

    /// Answers requests until the guest or a limit ends the connection.
    pub fn serve(mut self) {
        let _ = self.guest.set_read_timeout(Some(IDLE_TIMEOUT));
        let _ = self.guest.set_write_timeout(Some(WRITE_TIMEOUT));
        while let Ok(Some(message)) = read_message(&mut self.guest) {
            self.slot.set_idle(false);
            let answer = self.answer(&message).unwrap_or_else(|| vec![FAILURE]);
            if write_message(&mut self.guest, &answer).is_err() {
                return;
            }
            self.slot.set_idle(true);
        }
    }

    /// Returns the answer; `None` is a plain failure, whose reason the guest does not learn.
    fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared.clone();
        match Request::parse(message) {
            Request::List => {
                let answer = self.ask(&[REQUEST_IDENTITIES])?;
                shared.usage.listed();
                answer.first().is_some_and(|kind| *kind == IDENTITIES_ANSWER).then_some(answer)
            }
            Request::Query => self.ask(message),
            Request::Sign(request) => {
                let what = self.session.describe(&request);
                let answer = self.ask(message)?;
                let is_signed = answer.first() == Some(&SIGN_RESPONSE);
                shared.usage.signed(&what, is_signed);
                is_signed.then_some(answer)
            }
            Request::Bind(_) => {
                let answer = self.upstream.bind(message).ok()?;
                (answer == [SUCCESS]).then_some(answer)
            }
            Request::Forbidden(what) => {
                shared.usage.refused(what, "only listing and signing pass");
                None
            }
        }
    }

    fn ask(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        match self.upstream.ask(message) {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.shared.usage.failed(&error);
                None
            }
        }
    }
}
