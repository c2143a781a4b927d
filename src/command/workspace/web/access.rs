//! Decides which requests are answered: those of the page that this command has served itself, once, to
//! whoever had the address from the terminal.

use std::sync::{Mutex, PoisonError};

use super::server::RequestHead;
use crate::command::workspace::WorkspaceCommandError;

const TOKEN_BYTES: usize = 32;

/// A random text that nobody can guess.
pub struct Token(String);

impl Token {
    fn random() -> Result<Self, WorkspaceCommandError> {
        let mut bytes = [0; TOKEN_BYTES];
        graviola::random::fill(&mut bytes).map_err(|_| WorkspaceCommandError::NoRandom)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Compares in a time that does not depend on the first byte that differs.
    fn is(&self, given: &[u8]) -> bool {
        let known = self.0.as_bytes();
        let differing = known.iter().zip(given).fold(0, |differing, (one, other)| differing | (one ^ other));
        known.len() == given.len() && std::hint::black_box(differing) == 0
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The secrets of one server. The address has a token that opens the page once. The page receives the
/// session's key, which all its requests carry, and the token with which it can be reloaded once.
pub struct Access {
    /// The only value of `Host`. A name that somebody makes lead to this machine is another.
    authority: String,
    /// `Authorization` of all requests but the first.
    authorization: Token,
    next: Mutex<Token>,
}

impl Access {
    pub fn new(port: u16) -> Result<Self, WorkspaceCommandError> {
        let next = Mutex::new(Token::random()?);
        Ok(Access { authority: format!("127.0.0.1:{port}"), authorization: Token::random()?, next })
    }

    /// Returns the address with the token that opens the page.
    pub fn address(&self) -> String {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        format!("http://{}/?token={}", self.authority, next.as_str())
    }

    /// Returns the key for the page's requests.
    pub fn session_key(&self) -> &str {
        self.authorization.as_str()
    }

    /// Tells whether a request is answered. The token of the page is used up.
    pub fn permits(&self, head: &RequestHead) -> bool {
        self.has_own_origin(head) && if head.path == "/" { self.opens_page(head) } else { self.has_session_key(head) }
    }

    /// Browsers send these headers, and no page can change them.
    fn has_own_origin(&self, head: &RequestHead) -> bool {
        let own = format!("http://{}", self.authority);
        let is_own_host = head.header("host").is_ok_and(|host| host == Some(self.authority.as_bytes()));
        let is_own_origin = match head.header("origin") {
            Ok(Some(origin)) => origin == own.as_bytes(),
            Ok(None) => head.method == "GET",
            Err(_) => false,
        };
        is_own_host && is_own_origin
    }

    fn opens_page(&self, head: &RequestHead) -> bool {
        // Not in a frame, and not as a script of another page.
        let is_document = head.header("sec-fetch-dest").is_ok_and(|kind| kind.is_none_or(|kind| kind == b"document"));
        let given = head.query.as_deref().and_then(|query| query.strip_prefix("token="));
        let (true, "GET", Some(given)) = (is_document, head.method.as_str(), given) else { return false };
        let Ok(following) = Token::random() else { return false };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = next.is(given.as_bytes());
        if is_next {
            *next = following;
        }
        is_next
    }

    fn has_session_key(&self, head: &RequestHead) -> bool {
        let is_same_origin =
            head.header("sec-fetch-site").is_ok_and(|site| site.is_none_or(|site| site == b"same-origin"));
        let given = head.header("authorization").ok().flatten().and_then(|value| value.strip_prefix(b"Bearer "));
        is_same_origin && given.is_some_and(|given| self.authorization.is(given))
    }

    /// Returns the token with which the page can be loaded again.
    pub fn next_token(&self) -> String {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).as_str().to_owned()
    }
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
