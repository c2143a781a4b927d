//! Attack 29, by clients that are not Git: lies about the present value, packs that differ from what
//! was announced, floods and silence. The server's refs never change.

use std::io::Write;
use std::process::Stdio;

use sha1::{Digest, Sha1};

use super::client::{Sandbox, ZERO};
use super::server::GitServer;
use crate::for_docker_and_native;
use crate::support::{Fixture, RunToEnd, eventually};

for_docker_and_native!(
    attack_29_wrong_requests_are_refused,
    attack_29_lies_of_a_client_change_nothing,
    attack_29_a_pack_with_more_behind_it_is_checked_first,
    attack_29_silent_clients_do_not_hold_up_others,
    attack_29_pushes_at_a_time_are_limited,
    attack_29_a_small_pack_takes_no_gigabytes,
);

fn head(fixture: &Fixture, name: &str) -> String {
    fixture.host_command("git").args(["rev-parse", name]).finish().success().to_owned()
}

/// Makes a pack of one commit beside `main` on the host; returns the commit and the pack.
fn pack_of(fixture: &Fixture, parents: &[&str]) -> (String, Vec<u8>) {
    let mut commit = fixture.host_command("git");
    commit.args(["commit-tree", "-m", "made by hand"]).args(parents.iter().flat_map(|parent| ["-p", parent]));
    let id = commit.arg("HEAD^{tree}").finish().success().to_owned();
    let mut git = fixture.host_command("git");
    let mut child =
        git.args(["pack-objects", "--stdout", "-q"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git");
    writeln!(child.stdin.take().expect("stdin"), "{id}").expect("written");
    (id, child.wait_with_output().expect("a pack").stdout)
}

fn attack_29_wrong_requests_are_refused(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let before = server.refs();
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    for request in [
        "git-upload-pack 1",
        "git-upload-pack -1",
        "git-upload-pack 00",
        "git-upload-pack +0",
        "git-upload-archive 0",
        "git-upload-pack 0 ",
        "git-upload-pack  0",
        "git-upload-pack",
        "git-receive-pack 0;id",
        "git-receive-pack 18446744073709551616",
        "",
    ] {
        let mut client = sandbox.connect();
        client.send(format!("{request}\n").as_bytes());
        assert_eq!(client.line(), "error no such service or remote", "{request}");
    }
    let mut client = sandbox.connect();
    client.send(&[b'a'; 100_000]);
    assert_eq!(client.rest(), "");
    assert_eq!(server.refs(), before);
}

fn attack_29_lies_of_a_client_change_nothing(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    server.git(&["branch", "agent/a", "main"]).success();
    let main = head(fixture, "HEAD");
    let (orphan, pack) = pack_of(fixture, &[]);
    let (child, child_pack) = pack_of(fixture, &[&main]);
    let before = server.refs();
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    let status = "\0 report-status";
    for (what, updates, pack) in [
        ("the ref is new, says the client", vec![format!("{ZERO} {orphan} refs/heads/agent/a{status}")], &pack),
        ("another old value", vec![format!("{child} {orphan} refs/heads/agent/a{status}")], &pack),
        ("not a fast-forward", vec![format!("{main} {orphan} refs/heads/agent/a{status}")], &pack),
        ("the pack lacks the commit", vec![format!("{main} {child} refs/heads/agent/a{status}")], &pack),
        ("the pack is garbage", vec![format!("{main} {child} refs/heads/agent/a{status}")], &b"PACKx".repeat(99)),
        (
            "an option that was not offered",
            vec![format!("{ZERO} {child} refs/heads/agent/b\0push-options")],
            &child_pack,
        ),
        (
            "twice",
            vec![format!("{ZERO} {child} refs/heads/agent/b{status}"), format!("{ZERO} {child} refs/heads/agent/b")],
            &child_pack,
        ),
        ("a name with a space", vec![format!("{ZERO} {child} refs/heads/agent/b c{status}")], &child_pack),
        ("a name that climbs", vec![format!("{ZERO} {child} refs/heads/agent/../main{status}")], &child_pack),
        ("a name outside of refs", vec![format!("{main} {child} HEAD{status}")], &child_pack),
        ("the default branch", vec![format!("{main} {child} refs/heads/main{status}")], &child_pack),
        (
            "two, one refused",
            vec![format!("{ZERO} {child} refs/heads/agent/b{status}"), format!("{main} {child} refs/heads/main")],
            &child_pack,
        ),
        ("a certificate", vec!["push-cert\0report-status".to_owned()], &child_pack),
    ] {
        let (mut client, refs) = sandbox.push();
        assert!(!refs[0].contains("push-options") && !refs[0].contains("push-cert"), "{}", refs[0]);
        for update in updates {
            client.send_packet(&update);
        }
        client.send(b"0000");
        client.send(pack);
        let answer = client.rest();
        assert!(!answer.contains("ok refs/"), "{what}: {answer}");
        assert_eq!(server.refs(), before, "{what}: {answer}");
    }
    // A second list after the first one is no list.
    let (mut client, _) = sandbox.push();
    client.send_packet(&format!("{ZERO} {child} refs/heads/agent/b{status}"));
    client.send(b"0000");
    client.send_packet(&format!("{main} {child} refs/heads/main"));
    client.send(b"0000");
    client.send(&child_pack);
    client.rest();
    assert_eq!(server.refs(), before);
    // The same client, when it says the truth.
    let (mut client, _) = sandbox.push();
    client.send_packet(&format!("{main} {child} refs/heads/agent/a{status}"));
    client.send(b"0000");
    client.send(&child_pack);
    let answer = client.rest();
    assert!(answer.contains("ok refs/heads/agent/a"), "{answer}");
    assert_eq!(server.subject("agent/a"), "made by hand");
}

/// What follows a pack must not push the pack itself out before the check.
fn attack_29_a_pack_with_more_behind_it_is_checked_first(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    server.git(&["branch", "agent/a", "main"]).success();
    let (main, (orphan, pack)) = (head(fixture, "HEAD"), pack_of(fixture, &[]));
    let before = server.refs();
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    for more in [20, 4096, 1 << 20, 8 << 20] {
        let (mut client, _) = sandbox.push();
        client.send_packet(&format!("{main} {orphan} refs/heads/agent/a\0 report-status"));
        client.send(b"0000");
        client.send(&pack);
        client.send(&vec![0; more]);
        let answer = client.rest();
        assert!(answer.contains("ng refs/heads/agent/a sandpen: not a fast-forward"), "{more}: {answer}");
        assert_eq!(server.refs(), before, "{more}");
    }
}

fn attack_29_silent_clients_do_not_hold_up_others(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let before = server.refs();
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    let silent: Vec<_> = (0..8).map(|_| sandbox.connect()).collect();
    let (mut stalled, _) = sandbox.push();
    stalled.send(b"00");
    let mut client = sandbox.connect();
    client.send(b"git-upload-pack 0\n");
    assert_eq!(client.line(), "ok");
    // No more than a limited number is served.
    let mut many: Vec<_> = (0..64).map(|_| sandbox.connect()).collect();
    let refused = many.iter_mut().rev().take(8).map(|client| client.line());
    assert!(refused.into_iter().all(|line| line == "error there are too many connections"));
    drop((silent, many, stalled, client));
    assert_eq!(server.refs(), before);
}

/// Pushes take more of the host than fetches, so there are fewer at a time.
fn attack_29_pushes_at_a_time_are_limited(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let before = server.refs();
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    let pushes: Vec<_> = (0..4).map(|_| sandbox.push()).collect();
    let answer = || {
        let mut client = sandbox.connect();
        client.send(b"git-receive-pack 0\n");
        client.line()
    };
    assert_eq!(answer(), "error more than 4 pushes at a time");
    drop(pushes);
    eventually("there is room again", || answer() == "ok");
    assert_eq!(server.refs(), before);
}

/// A pack of a few bytes, whose second object claims to have 3 GiB.
fn pack_of_a_bomb() -> Vec<u8> {
    let size = |mut number: usize, first_bits: u32, kind: u8| {
        let mut bytes = vec![kind | (number & ((1 << first_bits) - 1)) as u8];
        number >>= first_bits;
        while number > 0 {
            *bytes.last_mut().expect("a byte") |= 0x80;
            bytes.push((number & 0x7f) as u8);
            number >>= 7;
        }
        bytes
    };
    // A zlib stream with one block that is not compressed.
    let stored = |content: &[u8]| {
        let length = content.len() as u16;
        let (mut a, mut b) = (1u32, 0u32);
        for byte in content {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        let sums = ((b << 16) | a).to_be_bytes();
        [&[0x78, 1, 1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), content, &sums].concat()
    };
    let base = b"base";
    let id = Sha1::digest([&b"blob 4\0"[..], base].concat());
    let delta = [size(base.len(), 7, 0), size(3 << 30, 7, 0), vec![0x90, 4]].concat();
    let objects =
        [size(base.len(), 4, 3 << 4), stored(base), size(delta.len(), 4, 7 << 4), id.to_vec(), stored(&delta)];
    let pack = [&b"PACK"[..], &[0, 0, 0, 2, 0, 0, 0, 2], &objects.concat()].concat();
    let sum = Sha1::digest(&pack);
    [&pack[..], &sum[..]].concat()
}

fn attack_29_a_small_pack_takes_no_gigabytes(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    server.git(&["branch", "agent/a", "main"]).success();
    let (main, before) = (head(fixture, "HEAD"), server.refs());
    let sandbox = Sandbox::start(fixture, &["agent/*"]);
    let (mut client, _) = sandbox.push();
    client.send_packet(&format!("{main} {} refs/heads/agent/a\0 report-status", "1".repeat(40)));
    client.send(b"0000");
    client.send(&pack_of_a_bomb());
    let answer = client.rest();
    assert!(answer.contains("the pack cannot be read: Out of memory"), "{answer}");
    assert_eq!(server.refs(), before);
}
