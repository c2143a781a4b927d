//! A host and the values that it gets.

use std::fmt;
use std::sync::Arc;

use base64ct::{Base64, Encoding};

use super::super::login::Login;
use super::redact::SessionPatterns;
use crate::config::value::{SecretHeader, SecretHost};
use crate::secret::Secret;

/// The user of Basic authentication: GitHub ignores it, GitLab and others take this one as well.
const BASIC_USER: &str = "x-access-token";

/// A host, and what is set in requests to it.
#[derive(Debug)]
pub struct Binding {
    pub host: SecretHost,
    pub bound: Vec<Bound>,
    /// The paths at which the guest refreshes logins.
    pub refreshes: Vec<(String, Arc<Login>)>,
    /// Every value of the session: a host may answer with one that another host got.
    pub patterns: Arc<SessionPatterns>,
}

/// A value and the header that carries it.
#[derive(Clone)]
pub struct Bound {
    pub name: String,
    pub header: SecretHeader,
    pub credential: Credential,
}

#[derive(Clone)]
pub enum Credential {
    Key {
        value: Secret,
        placeholder: Secret,
    },
    /// The token of a login at this index.
    Login(Arc<Login>, usize),
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bound({} in {})", self.name, self.header)
    }
}

impl Binding {
    pub fn new(host: SecretHost, patterns: Arc<SessionPatterns>) -> Self {
        Binding { host, bound: Vec::new(), refreshes: Vec::new(), patterns }
    }

    /// Chooses the value for a request with these credentials: the one whose placeholder the guest sent.
    /// Without any, the only key; several of one kind are interchangeable. A login must be asked for.
    pub fn choose(&self, credentials: &[String]) -> Option<&Bound> {
        let is_meant = |bound: &&Bound| credentials.iter().any(|sent| bound.is_placeholder(sent));
        let keys = || self.bound.iter().filter(|bound| matches!(bound.credential, Credential::Key { .. }));
        let first = keys().next();
        let is_one_kind = first.is_some_and(|first| keys().all(|bound| bound.header == first.header));
        self.bound.iter().find(is_meant).or(first.filter(|_| is_one_kind))
    }

    /// Returns the login that a request to this target refreshes.
    pub fn refreshes(&self, method: &str, target: &str) -> Option<&Arc<Login>> {
        let path = target.split('?').next().unwrap_or(target);
        self.refreshes.iter().find(|(known, _)| method == "POST" && known == path).map(|(_, login)| login)
    }
}

impl Bound {
    /// Returns the name of the header, in lower case.
    pub fn header_name(&self) -> &str {
        match &self.header {
            SecretHeader::Bearer | SecretHeader::Basic => "authorization",
            SecretHeader::Named(name) => name,
        }
    }

    fn is_placeholder(&self, credential: &str) -> bool {
        match &self.credential {
            Credential::Key { placeholder, .. } => credential.contains(placeholder.reveal().to_string_lossy().as_ref()),
            Credential::Login(login, index) => login.is_placeholder(*index, credential),
        }
    }

    /// Returns the value for a request that is about to be sent; `None` if the host has none any more.
    pub fn header_value(&self) -> Option<Vec<u8>> {
        let value = match &self.credential {
            Credential::Key { value, .. } => value.clone(),
            Credential::Login(login, index) => login.use_token(*index)?,
        };
        let bytes = value.reveal().as_encoded_bytes();
        Some(match self.header {
            SecretHeader::Bearer => [b"Bearer ", bytes].concat(),
            SecretHeader::Basic => [b"Basic ", basic(&value).as_bytes()].concat(),
            SecretHeader::Named(_) => bytes.to_vec(),
        })
    }

    /// Notes that a host did not accept the value.
    pub fn refuse(&self) {
        if let Credential::Login(login, index) = &self.credential {
            login.refuse(*index);
        }
    }
}

/// Returns the texts that must not come back, each with what replaces it.
pub fn forms(value: &Secret, placeholder: &Secret) -> Vec<(Vec<u8>, Vec<u8>)> {
    encodings(value).into_iter().zip(encodings(placeholder)).collect()
}

/// Lists the ways in which servers write what they were sent: as it is, in a URL, in JSON with escaped
/// slashes, in hexadecimal digits, and in both kinds of Base64, at whatever place in a longer text.
pub fn encodings(secret: &Secret) -> Vec<Vec<u8>> {
    let bytes = secret.reveal().as_encoded_bytes();
    let text = secret.reveal().to_string_lossy();
    let mut encodings = vec![
        text.to_string(),
        bytes.iter().copied().map(percent).collect(),
        text.replace('/', "\\/"),
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes.iter().map(|byte| format!("%{byte:02x}")).collect(),
    ];
    for before in 0..3 {
        let encoded = inner_base64(bytes, before);
        encodings.push(encoded.replace('+', "-").replace('/', "_"));
        encodings.push(encoded);
    }
    encodings.into_iter().map(String::into_bytes).collect()
}

/// Encodes bytes that follow `before` others in a group of three. Returns the characters that depend on
/// these bytes only.
fn inner_base64(bytes: &[u8], before: usize) -> String {
    let all = [&[0; 2][..before], bytes].concat();
    let mut encoded = Base64::encode_string(&all);
    encoded.truncate(all.len() * 8 / 6);
    encoded.split_off((before * 8).div_ceil(6))
}

fn basic(value: &Secret) -> String {
    let pair = [BASIC_USER.as_bytes(), b":", value.reveal().as_encoded_bytes()].concat();
    Base64::encode_string(&pair)
}

/// Writes a byte as URLs and forms have it.
pub fn percent(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}
