//! Serves one connection of the guest: reads a request, lets it pass or not, and answers it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::request::{FAILURE, IDENTITIES_ANSWER, REQUEST_IDENTITIES, Request, SUCCESS};
use super::session::{Decision, Session};
use super::slots::Slot;
use super::upstream::Upstream;
use super::wire::{Reader, put_string, read_message, write_message};

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
        Connection { guest, slot, upstream, session: Session::default(), shared: shared.clone() }
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
                let answer = Some(answer).filter(|answer| answer.first() == Some(&IDENTITIES_ANSWER))?;
                if !shared.plan.is_limited {
                    return Some(answer);
                }
                match shared.destinations.accepted_keys(&shared.plan) {
                    Some(accepted) => keep_keys(&answer, &accepted),
                    None => Some(answer),
                }
            }
            Request::Query => self.ask(message),
            Request::Sign(request) => {
                let Decision { what, refusal } = self.session.decide(&request, &shared);
                let refusal = refusal.or_else(|| shared.confirmations.refusal(&what, &shared.plan));
                if let Some(reason) = refusal {
                    shared.usage.refused(&what, reason);
                    return None;
                }
                let answer = self.ask(message)?;
                let is_signed = answer.first() == Some(&SIGN_RESPONSE);
                shared.usage.signed(&what, is_signed);
                is_signed.then_some(answer)
            }
            Request::Bind(request) => {
                let bound = self.session.bind(&request, &shared);
                if !shared.plan.is_limited {
                    // The agent decides; the binding only names the destination in the record.
                    let answer = self.upstream.bind(message).ok()?;
                    return (answer == [SUCCESS]).then_some(answer);
                }
                if let Err(reason) = bound {
                    shared.usage.refused("a binding to a server", reason);
                    return None;
                }
                // Keys that are restricted with `ssh-add -h` need it; an agent may not know it.
                let _ = self.upstream.bind(message);
                Some(vec![SUCCESS])
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

/// Leaves only some keys in the agent's list.
fn keep_keys(answer: &[u8], accepted: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut reader = Reader(answer.get(1..)?);
    let count = reader.number()?;
    let (mut kept, mut number) = (Vec::new(), 0u32);
    for _ in 0..count {
        let (key, comment) = (reader.string()?, reader.string()?);
        if accepted.iter().any(|accepted| accepted == key) {
            put_string(&mut kept, key);
            put_string(&mut kept, comment);
            number += 1;
        }
    }
    Some([&[IDENTITIES_ANSWER][..], &number.to_be_bytes(), &kept].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_accepted_keys_stay_in_the_list() {
        let mut list = vec![IDENTITIES_ANSWER, 0, 0, 0, 2];
        ["one", "first", "two", "second"].iter().for_each(|text| put_string(&mut list, text.as_bytes()));
        let mut expected = vec![IDENTITIES_ANSWER, 0, 0, 0, 1];
        ["two", "second"].iter().for_each(|text| put_string(&mut expected, text.as_bytes()));
        assert_eq!(keep_keys(&list, &[b"two".to_vec()]), Some(expected));
        assert_eq!(keep_keys(&list, &[]), Some(vec![IDENTITIES_ANSWER, 0, 0, 0, 0]));
        assert_eq!(keep_keys(&list[..list.len() - 1], &[]), None);
    }

    proptest! {
        #[test]
        fn any_list_is_filtered_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = keep_keys(&bytes, &[]);
        }
    }
}
