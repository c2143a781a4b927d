//! Tests the rules of `--ssh-host` with keys of the test: what a forged, repeated, missing or second
//! binding leads to, and that the agent sees nothing of what is refused.

use base64ct::{Base64, Encoding};
use graviola::signing::eddsa::Ed25519SigningKey;

use super::purpose::tests::{login_data, signature_data};
use super::tests::{Rig, ask, plan_for_tests, sign_request};
use super::wire::put_string;
use crate::config::value::{SshHost, Value};
use crate::plan::AgentGatePlan;

/// A server with a key.
struct Server(Ed25519SigningKey);

impl Server {
    fn new(seed: u8) -> Self {
        Server(Ed25519SigningKey::from_bytes(&[seed; 32]).expect("a key"))
    }

    fn key(&self) -> Vec<u8> {
        encoded(&[b"ssh-ed25519", &self.0.public_key().as_bytes()])
    }

    /// Returns the line of `known_hosts`.
    fn known_as(&self, name: &str) -> String {
        format!("{name} ssh-ed25519 {}\n", Base64::encode_string(&self.key()))
    }

    /// Returns the request that binds a connection to a session with this server.
    fn binding(&self, session: &[u8]) -> Vec<u8> {
        binding(&self.key(), session, &encoded(&[b"ssh-ed25519", &self.0.sign(session)]), 0)
    }
}

fn encoded(strings: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    strings.iter().for_each(|string| put_string(&mut bytes, string));
    bytes
}

fn binding(key: &[u8], session: &[u8], signature: &[u8], forwarding: u8) -> Vec<u8> {
    [&[27], &encoded(&[b"session-bind@openssh.com", key, session, signature])[..], &[forwarding]].concat()
}

/// Starts a gate that allows `git@example.org`.
fn limited(known_hosts: &str) -> Rig {
    limited_with(known_hosts, |_| ())
}

fn limited_with(known_hosts: &str, change: impl FnOnce(&mut AgentGatePlan)) -> Rig {
    Rig::start_with(|socket, agent, home| {
        std::fs::create_dir(home.as_path().join(".ssh")).expect("a directory");
        std::fs::write(home.as_path().join(".ssh/known_hosts"), known_hosts).expect("known_hosts");
        let Ok(SshHost::Destination(host)) = SshHost::parse("git@example.org") else { panic!("a destination") };
        let mut plan = plan_for_tests(socket, agent);
        (plan.is_limited, plan.hosts, plan.home) = (true, vec![host], home);
        plan.signing_key = Some(format!("ssh-ed25519 {} me", Base64::encode_string(b"signing key")));
        change(&mut plan);
        plan
    })
}

fn login(session: &[u8], user: &str, host_key: Option<&[u8]>) -> Vec<u8> {
    sign_request(b"key", &login_data(session, user, b"key", host_key))
}

const SIGNED: [u8; 6] = [14, 0, 0, 0, 1, b's'];

#[test]
fn a_verified_session_with_an_allowed_server_gets_a_signature() {
    let server = Server::new(1);
    let rig = limited(&server.known_as("example.org"));
    let mut guest = rig.connect();
    assert_eq!(ask(&mut guest, &server.binding(b"session")), [6]);
    assert_eq!(ask(&mut guest, &login(b"session", "git", None)), SIGNED);
    assert_eq!(ask(&mut guest, &login(b"session", "git", Some(&server.key()))), SIGNED);
    // The binding is passed on, for keys that are restricted with `ssh-add -h`.
    assert_eq!(rig.agent.seen()[0], server.binding(b"session"));
    // Another user, another session, another server's key, a byte behind.
    for refused in [
        login(b"session", "root", None),
        login(b"another", "git", None),
        login(b"session", "git", Some(&Server::new(2).key())),
        sign_request(b"key", &[&login_data(b"session", "git", b"key", None)[..], &[0]].concat()),
        sign_request(b"other", &login_data(b"session", "git", b"key", None)),
        sign_request(b"key", b"anything"),
    ] {
        assert_eq!(ask(&mut guest, &refused), [5]);
    }
    assert_eq!(rig.agent.seen().len(), 3);
}

#[test]
fn without_a_valid_binding_there_is_no_signature() {
    let (server, other) = (Server::new(1), Server::new(2));
    let known = [server.known_as("example.org"), other.known_as("other.example")].concat();
    let rig = limited(&known);
    let signature = encoded(&[b"ssh-ed25519", &server.0.sign(b"session")]);
    let forged = encoded(&[b"ssh-ed25519", &other.0.sign(b"session")]);
    for (name, bindings) in [
        ("missing", vec![]),
        ("signed by another server", vec![(binding(&server.key(), b"session", &forged, 0), 5)]),
        ("of another session", vec![(binding(&server.key(), b"another", &signature, 0), 5)]),
        ("forwarding", vec![(binding(&server.key(), b"session", &signature, 1), 5)]),
        ("of a server that is not allowed", vec![(other.binding(b"session"), 6)]),
        ("second", vec![(server.binding(b"session 2"), 6), (server.binding(b"session 3"), 5)]),
    ] {
        let mut guest = rig.connect();
        for (binding, answer) in &bindings {
            assert_eq!(ask(&mut guest, binding), [*answer], "{name}");
        }
        for session in [&b"session"[..], b"session 2", b"session 3"] {
            let is_bound_first = name == "second" && session == b"session 2" && bindings.len() == 1;
            assert!(!is_bound_first);
            assert_eq!(ask(&mut guest, &login(session, "git", None)), [5], "{name}");
        }
    }
    // The same binding on a second connection.
    assert_eq!(ask(&mut rig.connect(), &server.binding(b"replayed")), [6]);
    let mut guest = rig.connect();
    assert_eq!(ask(&mut guest, &server.binding(b"replayed")), [5]);
    assert_eq!(ask(&mut guest, &login(b"replayed", "git", None)), [5]);
    assert!(rig.agent.seen().iter().all(|message| message[0] != 13), "the agent saw a request to sign");
}

#[test]
fn revoked_and_unknown_keys_get_no_signature() {
    let server = Server::new(1);
    let revoked = [server.known_as("example.org"), server.known_as("@revoked *")].concat();
    for known in
        [revoked, server.known_as("example.com"), server.known_as("@cert-authority example.org"), String::new()]
    {
        let rig = limited(&known);
        let mut guest = rig.connect();
        ask(&mut guest, &server.binding(b"session"));
        assert_eq!(ask(&mut guest, &login(b"session", "git", None)), [5], "{known}");
        assert!(rig.agent.seen().iter().all(|message| message[0] != 13));
    }
}

#[test]
fn a_list_of_servers_that_the_guest_can_write_counts_for_nothing() {
    let server = Server::new(1);
    for is_writable in [false, true] {
        let rig = limited_with(&server.known_as("example.org"), |plan| {
            plan.writable = if is_writable { vec![plan.home.clone()] } else { Vec::new() };
        });
        let mut guest = rig.connect();
        assert_eq!(ask(&mut guest, &server.binding(b"session")), [6]);
        let expected: &[u8] = if is_writable { &[5] } else { &SIGNED };
        assert_eq!(ask(&mut guest, &login(b"session", "git", None)), expected);
    }
}

#[test]
fn only_commits_are_signed_and_only_with_the_configured_key() {
    let rig = limited("");
    let mut guest = rig.connect();
    let request = |key: &[u8], namespace: &str| sign_request(key, &signature_data(namespace));
    assert_eq!(ask(&mut guest, &request(b"signing key", "git")), SIGNED);
    assert_eq!(ask(&mut guest, &request(b"signing key", "file")), [5]);
    assert_eq!(ask(&mut guest, &request(b"signing key", "git\0")), [5]);
    assert_eq!(ask(&mut guest, &request(b"another key", "git")), [5]);
    assert_eq!(rig.agent.seen().len(), 1);
}
