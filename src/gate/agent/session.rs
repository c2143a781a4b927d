//! What a connection is used for: which destination its signatures are for.

use super::purpose::Purpose;
use super::request::SignRequest;

#[derive(Debug, Default)]
pub struct Session;

impl Session {
    /// Says what a signature is for, in the user's words.
    pub fn describe(&self, request: &SignRequest<'_>) -> String {
        match Purpose::parse(request.data, request.key) {
            Some(Purpose::Login(login)) => format!("login as {}", login.user),
            Some(Purpose::Signature { namespace }) => format!("signature `{namespace}`"),
            None => "unknown data".to_owned(),
        }
    }
}
