//! Decides about one connection of the guest: to which server it is bound, and whether a signature
//! may be given for it.
//!
//! A binding is proof: the server has signed the session's id with its host key, and the user's
//! signature over the same id is of use in that session only. So the guest cannot lie about the
//! destination.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::Shared;
use super::certificate::server_key;
use super::destinations::{Destination, key_blob, known_name};
use super::public_key::{fingerprint, missing_cpu_feature};
use super::purpose::{Login, Purpose};
use super::request::{BindRequest, SignRequest};

/// How many sessions are remembered, to refuse bindings that are repeated.
const MAX_SESSIONS: usize = 4096;
/// The namespace of Git's signatures.
const GIT: &str = "git";

/// The sessions to which connections of this sandbox were bound.
#[derive(Debug, Default)]
pub struct SeenSessions(Mutex<VecDeque<[u8; 32]>>);

impl SeenSessions {
    /// Remembers a session; returns `false` if it is known already.
    fn add(&self, session: &[u8]) -> bool {
        let digest: [u8; 32] = Sha256::digest(session).into();
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(&digest) {
            return false;
        }
        if seen.len() == MAX_SESSIONS {
            seen.pop_front();
        }
        seen.push_back(digest);
        true
    }
}

/// The state of one connection.
#[derive(Debug, Default)]
pub enum Session {
    #[default]
    Unbound,
    Bound(Binding),
    /// A binding was refused for this reason, and with it every signature.
    Spoiled(&'static str),
}

#[derive(Debug)]
pub struct Binding {
    host_key: Vec<u8>,
    session: Vec<u8>,
    /// The server's name, or the fingerprint of its key.
    name: String,
    /// The allowed users on allowed destinations that are this server; `None` stands for every user.
    users: Vec<Option<String>>,
}

/// Whether a signature is given, and for what.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What the signature is for, such as `git@github.com`.
    pub what: String,
    /// The reason of a refusal.
    pub refusal: Option<&'static str>,
}

impl Session {
    /// Binds the connection. A binding that does not verify spoils it.
    pub fn bind(&mut self, request: &BindRequest<'_>, shared: &Shared) -> Result<(), &'static str> {
        let bound = match self {
            Session::Unbound => verified(request, shared),
            _ => Err("a second binding"),
        };
        match bound {
            Ok(binding) => {
                *self = Session::Bound(binding);
                Ok(())
            }
            Err(reason) => {
                *self = Session::Spoiled(reason);
                Err(reason)
            }
        }
    }

    /// Decides about a signature.
    pub fn decide(&self, request: &SignRequest<'_>, shared: &Shared) -> Decision {
        let is_open = !shared.plan.is_limited;
        let (what, refusal) = match Purpose::parse(request.data, request.key) {
            Some(Purpose::Login(login)) => (self.destination(&login), self.refusal(&login)),
            Some(Purpose::Signature { namespace }) => {
                let signing_key = shared.plan.signing_key.as_deref().and_then(key_blob);
                let refusal = match (namespace, signing_key) {
                    (GIT, Some(key)) if key == request.key => None,
                    (GIT, _) => Some("the key is not the one that signs your commits (user.signingKey)"),
                    _ => Some("only commits and tags are signed, in the namespace `git`"),
                };
                (format!("signature `{namespace}`"), refusal)
            }
            None => ("unknown data".to_owned(), Some("it is neither a login nor a signature of a commit")),
        };
        Decision { what, refusal: refusal.filter(|_| !is_open) }
    }

    /// Names the destination of a login.
    fn destination(&self, login: &Login<'_>) -> String {
        match self {
            Session::Bound(binding) if binding.session == login.session => format!("{}@{}", login.user, binding.name),
            _ => format!("{}@unknown host", login.user),
        }
    }

    fn refusal(&self, login: &Login<'_>) -> Option<&'static str> {
        let binding = match self {
            Session::Bound(binding) => binding,
            Session::Unbound => return Some("the client does not say which server it is for (OpenSSH does since 8.9)"),
            Session::Spoiled(reason) => return Some(reason),
        };
        if binding.session != login.session {
            return Some("the login is for another session than the verified one");
        }
        if login.host_key.is_some_and(|key| key != binding.host_key) {
            return Some("the login names another server's key");
        }
        if binding.users.is_empty() {
            return Some("known_hosts has the server's key for no allowed destination (--ssh-host)");
        }
        let is_allowed = |user: &Option<String>| user.as_deref().is_none_or(|user| user == login.user);
        (!binding.users.iter().any(is_allowed)).then_some("the user is not allowed there (--ssh-host)")
    }
}

/// Verifies a binding, and finds the destination by the server's key.
fn verified(request: &BindRequest<'_>, shared: &Shared) -> Result<Binding, &'static str> {
    if request.is_forwarding {
        return Err("the connection belongs to an agent that ssh forwards further");
    }
    if missing_cpu_feature().is_some() {
        return Err("this processor cannot verify it");
    }
    let key = server_key(request.host_key).ok_or("the server's key is of an unknown kind")?;
    if !key.verifies(request.signature, request.session) {
        return Err("a binding that the server has not signed");
    }
    if !shared.sessions.add(request.session) {
        return Err("a binding that was used before");
    }
    let found = shared.destinations.with_key(&shared.plan, request.host_key);
    let name = found.first().map(|destination| destination.name.clone());
    let name = name.or_else(|| known_name(&shared.plan, request.host_key));
    Ok(Binding {
        host_key: request.host_key.to_owned(),
        session: request.session.to_owned(),
        name: name.unwrap_or_else(|| fingerprint(request.host_key)),
        users: found.iter().map(|Destination { user, .. }| user.clone()).collect(),
    })
}
