//! Attack 28: the guest changes the host's SSH agent, or makes it sign what it must not. A recording
//! agent in the middle shows that the real one never sees the request.

use crate::for_every_engine;
use crate::support::{Finished, Fixture, KEY_COMMENT, RecordingAgent, RunToEnd};

for_every_engine!(
    with_agent:
    attack_28_the_agent_cannot_be_emptied_locked_or_added_to,
    attack_28_floods_and_half_messages_do_not_stop_others,
);

/// Sends messages, in hexadecimal, over one connection, and prints the answers.
pub const SEND: &str = r#"
send() { perl -MSocket -e '
    socket my $s, AF_UNIX, SOCK_STREAM, 0; connect $s, sockaddr_un($ENV{SSH_AUTH_SOCK}) or die "no agent";
    sub get { my ($n, $got) = (shift, ""); while (length $got < $n) { sysread($s, $got, $n - length $got, length $got) or return undef } $got }
    for (@ARGV) { my $m = pack "H*", $_; syswrite $s, pack("N", length $m) . $m;
        my $l = get(4); defined $l or do { print "closed\n"; exit }; print unpack("H*", get(unpack "N", $l)), "\n" }' "$@"; }
"#;

pub fn attack(fixture: &Fixture, agent: &RecordingAgent, options: &[&str], script: &str) -> Finished {
    let mut command = fixture.run();
    command.env("SSH_AUTH_SOCK", &agent.socket).args(options);
    command.args(["--", "bash", "-c", &format!("{SEND}{script}")]).finish()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes strings with their lengths.
pub fn strings(strings: &[&[u8]]) -> Vec<u8> {
    let encode = |string: &&[u8]| [&(string.len() as u32).to_be_bytes(), *string].concat();
    strings.iter().flat_map(encode).collect()
}

fn attack_28_the_agent_cannot_be_emptied_locked_or_added_to(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let message = |kind: u8, fields: &[&[u8]]| hex(&[&[kind][..], &strings(fields)].concat());
    let messages = [
        message(19, &[]),                                                        // remove all keys
        message(9, &[]),                                                         // the same, version 1
        message(18, &[b"key"]),                                                  // remove a key
        message(22, &[b"passphrase"]),                                           // lock
        message(23, &[b"passphrase"]),                                           // unlock
        message(20, &[b"/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so", b""]),      // load a library
        message(26, &[b"/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so", b"", b""]), // the same, constrained
        message(21, &[b"/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so", b""]),      // unload it
        message(17, &[b"ssh-ed25519", &[1; 32], &[2; 64], b"planted"]),          // add a key
        message(25, &[b"ssh-ed25519", &[1; 32], &[2; 64], b"planted"]),          // the same, constrained
        message(27, &[b"unknown@example.org"]),
        message(11, &[b"more"]),
        message(255, &[]),
    ];
    let finished =
        attack(fixture, &agent, &[], &format!("send {}; ssh-add -D; ssh-add -l | cut -d' ' -f3-", messages.join(" ")));
    let expected = format!("{}{KEY_COMMENT} (ED25519)", "05\n".repeat(messages.len()));
    assert_eq!(finished.success(), expected, "{}", finished.stderr);
    // The guest learns nothing more than the failure; the user is told.
    assert!(finished.stderr.contains("sandpen: the SSH agent's gate refused "), "{}", finished.stderr);
    assert!(agent.kinds() == [11] && agent.seen().iter().all(|request| request == &[11]), "{:?}", agent.seen());
    let log = fixture.sandpen(["log"]).finish();
    assert!(log.success().contains("refused  to load a smartcard's library"), "{}", log.stdout);
    let mut list = fixture.host_command("ssh-add");
    assert!(list.arg("-l").finish().success().contains(KEY_COMMENT), "the host's agent has changed");
}

fn attack_28_floods_and_half_messages_do_not_stop_others(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let script = r#"perl -MSocket -e '
        for (1..200) { socket my $s, AF_UNIX, SOCK_STREAM, 0; connect $s, sockaddr_un($ENV{SSH_AUTH_SOCK}) or last;
            syswrite $s, pack("N C", 9, 11); push @held, $s } print "held\n"; sleep 60' & sleep 0.1
        timeout 50 ssh-add -l | cut -d' ' -f3-; kill %1"#;
    let finished = attack(fixture, &agent, &[], script);
    assert!(finished.success().contains(KEY_COMMENT), "{} {}", finished.stdout, finished.stderr);
}
