//! A host and the values that it gets.

use std::fmt;

use base64ct::{Base64, Encoding};

use super::redact::Patterns;
use crate::config::value::{SecretHeader, SecretHost};
use crate::secret::Secret;

/// The user of Basic authentication: GitHub ignores it, GitLab and others take this one as well.
const BASIC_USER: &str = "x-access-token";

/// A host, and what is set in requests to it.
#[derive(Debug)]
pub struct Binding {
    pub host: SecretHost,
    pub bound: Vec<Bound>,
    /// Every value of the session: a host may answer with one that another host got.
    pub patterns: std::sync::Arc<Patterns>,
}

/// A value and the header that carries it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bound {
    pub name: String,
    pub header: SecretHeader,
    pub value: Secret,
    pub placeholder: Secret,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bound({} in {})", self.name, self.header)
    }
}

impl Binding {
    /// Chooses the value for a request with these credentials: the one whose placeholder the guest sent.
    /// Without any, the only one; several of one kind are interchangeable.
    pub fn choose(&self, credentials: &[String]) -> Option<&Bound> {
        let is_meant = |bound: &&Bound| {
            let placeholder = bound.placeholder.reveal().to_string_lossy();
            credentials.iter().any(|sent| sent.contains(placeholder.as_ref()))
        };
        let first = self.bound.first();
        let is_one_kind = first.is_some_and(|first| self.bound.iter().all(|bound| bound.header == first.header));
        self.bound.iter().find(is_meant).or(first.filter(|_| is_one_kind))
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

    pub fn header_value(&self) -> Vec<u8> {
        let value = self.value.reveal().as_encoded_bytes();
        match self.header {
            SecretHeader::Bearer => [b"Bearer ", value].concat(),
            SecretHeader::Basic => [b"Basic ", basic(&self.value).as_bytes()].concat(),
            SecretHeader::Named(_) => value.to_vec(),
        }
    }

    /// Returns the texts that must not come back, each with what replaces it.
    pub fn patterns(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let forms: [fn(&Secret) -> String; 4] = [
            |secret| secret.reveal().to_string_lossy().into_owned(),
            |secret| secret.reveal().to_string_lossy().bytes().map(percent).collect(),
            basic,
            |secret| Base64::encode_string(secret.reveal().as_encoded_bytes()),
        ];
        let pairs = forms.iter().map(|form| (form(&self.value).into_bytes(), form(&self.placeholder).into_bytes()));
        pairs.collect()
    }
}

fn basic(value: &Secret) -> String {
    let pair = [BASIC_USER.as_bytes(), b":", value.reveal().as_encoded_bytes()].concat();
    Base64::encode_string(&pair)
}

fn percent(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}
