//! Parses the requests of the agent protocol that may pass. Whatever is not parsed to its last byte is
//! refused by name.

use super::wire::Reader;

pub const FAILURE: u8 = 5;
pub const SUCCESS: u8 = 6;
pub const REQUEST_IDENTITIES: u8 = 11;
pub const IDENTITIES_ANSWER: u8 = 12;
pub const SIGN_REQUEST: u8 = 13;
pub const EXTENSION: u8 = 27;
const SESSION_BIND: &str = "session-bind@openssh.com";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    List,
    Sign(SignRequest<'a>),
    Bind(BindRequest<'a>),
    /// Asks which extensions the agent knows.
    Query,
    /// The name says what was asked for.
    Forbidden(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignRequest<'a> {
    /// The public key.
    pub key: &'a [u8],
    pub data: &'a [u8],
}

/// Binds a connection to an SSH session: the server's key, the session's id, and the server's
/// signature over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindRequest<'a> {
    pub host_key: &'a [u8],
    pub session: &'a [u8],
    pub signature: &'a [u8],
    /// Whether the session forwards the agent to the server.
    pub is_forwarding: bool,
}

impl<'a> Request<'a> {
    pub fn parse(message: &'a [u8]) -> Self {
        let mut reader = Reader(message);
        let parsed = match reader.byte() {
            Some(REQUEST_IDENTITIES) => reader.end().map(|()| Request::List),
            Some(SIGN_REQUEST) => sign(reader).map(Request::Sign),
            Some(EXTENSION) => extension(reader),
            Some(kind) => Some(Request::Forbidden(name(kind))),
            None => None,
        };
        parsed.unwrap_or(Request::Forbidden("a malformed request"))
    }
}

fn sign(mut reader: Reader<'_>) -> Option<SignRequest<'_>> {
    let request = SignRequest { key: reader.string()?, data: reader.string()? };
    // The flags choose the hash of an RSA signature.
    reader.number()?;
    reader.end()?;
    Some(request)
}

fn extension(mut reader: Reader<'_>) -> Option<Request<'_>> {
    match reader.string()? {
        b"query" => reader.end().map(|()| Request::Query),
        name if name == SESSION_BIND.as_bytes() => {
            let (host_key, session, signature) = (reader.string()?, reader.string()?, reader.string()?);
            let is_forwarding = reader.byte()? != 0;
            reader.end()?;
            Some(Request::Bind(BindRequest { host_key, session, signature, is_forwarding }))
        }
        _ => Some(Request::Forbidden("an unknown extension")),
    }
}

/// Names a kind of request that never passes.
fn name(kind: u8) -> &'static str {
    match kind {
        17 | 25 => "to add a key",
        18 => "to remove a key",
        19 => "to remove all keys",
        20 | 26 => "to load a smartcard's library",
        21 => "to remove a smartcard's keys",
        22 => "to lock the agent",
        23 => "to unlock the agent",
        _ => "an unknown request",
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u8, strings: &[&[u8]], rest: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        strings.iter().for_each(|string| put_string(&mut bytes, string));
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn only_listing_signing_and_two_extensions_pass() {
        assert_eq!(Request::parse(&[REQUEST_IDENTITIES]), Request::List);
        let request = message(SIGN_REQUEST, &[b"key", b"data"], &[0, 0, 0, 4]);
        assert_eq!(Request::parse(&request), Request::Sign(SignRequest { key: b"key", data: b"data" }));
        assert_eq!(Request::parse(&message(EXTENSION, &[b"query"], &[])), Request::Query);
        let bind = message(EXTENSION, &[SESSION_BIND.as_bytes(), b"host", b"id", b"signature"], &[1]);
        let expected = BindRequest { host_key: b"host", session: b"id", signature: b"signature", is_forwarding: true };
        assert_eq!(Request::parse(&bind), Request::Bind(expected));
        for kind in (0..=255).filter(|kind| ![REQUEST_IDENTITIES, SIGN_REQUEST, EXTENSION].contains(kind)) {
            assert!(matches!(Request::parse(&[kind]), Request::Forbidden(_)), "{kind}");
        }
    }

    #[test]
    fn a_byte_more_or_less_is_refused() {
        let bind = message(EXTENSION, &[SESSION_BIND.as_bytes(), b"host", b"id", b"signature"], &[0]);
        let sign = message(SIGN_REQUEST, &[b"key", b"data"], &[0, 0, 0, 0]);
        for whole in [vec![REQUEST_IDENTITIES], sign, message(EXTENSION, &[b"query"], &[]), bind] {
            assert!(!matches!(Request::parse(&whole), Request::Forbidden(_)));
            let longer = [&whole[..], &[0]].concat();
            assert!(matches!(Request::parse(&longer), Request::Forbidden(_)), "{longer:?}");
            let shorter = &whole[..whole.len() - 1];
            assert!(matches!(Request::parse(shorter), Request::Forbidden(_)), "{shorter:?}");
        }
        let other = message(EXTENSION, &[b"restrict-destination-v00@openssh.com"], &[]);
        assert_eq!(Request::parse(&other), Request::Forbidden("an unknown extension"));
    }

    proptest! {
        #[test]
        fn any_message_is_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&bytes);
        }
    }
}
