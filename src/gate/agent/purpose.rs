//! Parses the data that a client wants signed: a user's authentication (RFC 4252), or a signature of a
//! file or commit (OpenSSH's SSHSIG). Only data that is parsed to its last byte has a purpose.

use super::wire::Reader;

const USERAUTH_REQUEST: u8 = 50;
const MAGIC: &[u8] = b"SSHSIG";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    Login(Login<'a>),
    /// A signature of a file or commit, in a namespace.
    Signature {
        namespace: &'a str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    pub session: &'a [u8],
    pub user: &'a str,
    /// The server's key, which only `publickey-hostbound-v00@openssh.com` names.
    pub host_key: Option<&'a [u8]>,
}

impl<'a> Purpose<'a> {
    /// Parses data that is to be signed with a key.
    pub fn parse(data: &'a [u8], key: &[u8]) -> Option<Self> {
        login(data, key).map(Purpose::Login).or_else(|| signature(data))
    }
}

fn login<'a>(data: &'a [u8], key: &[u8]) -> Option<Login<'a>> {
    let mut reader = Reader(data);
    let session = reader.string().filter(|session| !session.is_empty())?;
    if reader.byte()? != USERAUTH_REQUEST {
        return None;
    }
    let user = reader.text()?;
    if reader.string()? != b"ssh-connection" {
        return None;
    }
    let method = reader.string()?;
    let has_signature = reader.byte()? == 1;
    let _algorithm = reader.string()?;
    let is_same_key = reader.string()? == key;
    let host_key = match method {
        b"publickey" => None,
        b"publickey-hostbound-v00@openssh.com" => Some(reader.string()?),
        _ => return None,
    };
    reader.end()?;
    (has_signature && is_same_key).then_some(Login { session, user, host_key })
}

fn signature(data: &[u8]) -> Option<Purpose<'_>> {
    let mut reader = Reader(data.strip_prefix(MAGIC)?);
    let namespace = reader.text()?;
    let _reserved = reader.string()?;
    let hash = reader.string()?;
    let length = match hash {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    let is_digest = reader.string()?.len() == length;
    reader.end()?;
    is_digest.then_some(Purpose::Signature { namespace })
}

#[cfg(test)]
pub mod tests {
    use super::super::wire::put_string;
    use super::*;
    use proptest::prelude::*;

    /// Makes the data of a user's authentication.
    pub fn login_data(session: &[u8], user: &str, key: &[u8], host_key: Option<&[u8]>) -> Vec<u8> {
        let mut data = Vec::new();
        put_string(&mut data, session);
        data.push(USERAUTH_REQUEST);
        put_string(&mut data, user.as_bytes());
        put_string(&mut data, b"ssh-connection");
        put_string(&mut data, host_key.map_or(b"publickey".as_slice(), |_| b"publickey-hostbound-v00@openssh.com"));
        data.push(1);
        put_string(&mut data, b"ssh-ed25519");
        put_string(&mut data, key);
        host_key.into_iter().for_each(|key| put_string(&mut data, key));
        data
    }

    pub fn signature_data(namespace: &str) -> Vec<u8> {
        let mut data = MAGIC.to_vec();
        put_string(&mut data, namespace.as_bytes());
        put_string(&mut data, b"");
        put_string(&mut data, b"sha512");
        put_string(&mut data, &[7; 64]);
        data
    }

    #[test]
    fn both_methods_of_authentication_are_parsed() {
        let plain = login_data(b"session", "git", b"key", None);
        let expected = Login { session: b"session", user: "git", host_key: None };
        assert_eq!(Purpose::parse(&plain, b"key"), Some(Purpose::Login(expected)));
        let bound = login_data(b"session", "git", b"key", Some(b"host"));
        let expected = Login { host_key: Some(b"host"), ..expected };
        assert_eq!(Purpose::parse(&bound, b"key"), Some(Purpose::Login(expected)));
        assert_eq!(Purpose::parse(&plain, b"another key"), None);
    }

    #[test]
    fn a_byte_more_or_less_has_no_purpose() {
        for whole in [
            login_data(b"session", "git", b"key", None),
            login_data(b"session", "git", b"key", Some(b"host")),
            signature_data("git"),
        ] {
            assert!(Purpose::parse(&whole, b"key").is_some());
            assert_eq!(Purpose::parse(&[&whole[..], &[0]].concat(), b"key"), None);
            for end in 0..whole.len() {
                assert_eq!(Purpose::parse(&whole[..end], b"key"), None, "{end}");
            }
        }
    }

    #[test]
    fn other_services_and_methods_have_no_purpose() {
        let data = login_data(b"session", "git", b"key", None);
        let replaced = |from: &[u8], to: &[u8]| {
            let at = data.windows(from.len()).position(|window| window == from).expect("a part");
            [&data[..at], to, &data[at + from.len()..]].concat()
        };
        assert_eq!(Purpose::parse(&replaced(b"ssh-connection", b"ssh-connectioN"), b"key"), None);
        assert_eq!(Purpose::parse(&replaced(b"publickey", b"hostbased"), b"key"), None);
        assert_eq!(Purpose::parse(&login_data(b"", "git", b"key", None), b"key"), None);
    }

    proptest! {
        #[test]
        fn any_data_is_parsed_or_has_no_purpose(data in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Purpose::parse(&data, b"key");
            let _ = Purpose::parse(&[MAGIC, &data].concat(), b"key");
        }
    }
}
