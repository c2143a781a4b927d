//! `--ssh-host`: real OpenSSH clients log in to the allowed one of two real servers, and not to the
//! other. A recording agent shows which requests to sign the real agent has seen.

use std::process::Stdio;

use super::sshd::Sshd;
use crate::attacks::ssh_agent::{attack, hex, strings};
use crate::for_every_engine;
use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RecordingAgent, RunToEnd, Running, public_key};

for_every_engine!(
    with_agent:
    attack_28_only_allowed_servers_get_a_signature,
    attack_28_a_client_that_does_not_bind_gets_no_signature,
    commits_are_signed_with_the_configured_key_only,
    nothing_is_signed_before_the_user_confirms_it,
    a_terminal_that_follows_the_log_confirms_signatures,
);

const SIGN_REQUEST: u8 = 13;

fn signatures(agent: &RecordingAgent) -> usize {
    agent.seen().iter().filter(|request| request[0] == SIGN_REQUEST).count()
}

fn attack_28_only_allowed_servers_get_a_signature(fixture: &Fixture) {
    if fixture.engine() == Engine::DockerRootless {
        // The servers on the host's loopback cannot be reached from its network namespace.
        return;
    }
    let servers = [(); 2].map(|()| {
        let server = Fixture::new().with_engine(Engine::PodmanRootless);
        let sshd = Sshd::start(&server, "");
        fixture.agent().add_key(fixture, &sshd.identity);
        (server, sshd)
    });
    let [(first_user, first), (_, second)] = &servers;
    let user = first_user.user_name();
    let known = format!("{}{}", first.known, second.known);
    let agent = RecordingAgent::start(fixture);
    let network: &[&str] = if fixture.engine().is_container() { &["--engine-flag=--network=host"] } else { &[] };
    let ssh =
        |port: u16| format!("ssh -o BatchMode=yes -p {port} {user}@127.0.0.1 echo in 2>/dev/null || echo refused");
    let script = format!("{}; {}", ssh(first.port), ssh(second.port));
    let run = |known: &str, host: &str| {
        fixture.write(".ssh/known_hosts", known);
        let before = signatures(&agent);
        let finished = attack(fixture, &agent, &[network, &["--ssh-host", host]].concat(), &script);
        (finished.success().to_owned(), signatures(&agent) - before)
    };
    let host = format!("{user}@127.0.0.1:{}", first.port);
    let (output, signed) = run(&known, &host);
    assert_eq!(output, "in\nrefused");
    assert!(signed >= 1, "the agent signed for the allowed server");
    let log = fixture.sandpen(["log"]).finish();
    let name = format!("127.0.0.1:{}", first.port);
    assert!(log.success().contains(&format!("allowed  {user}@{name} (signed)")), "{}", log.stdout);
    assert!(log.stdout.contains(&format!("refused  {user}@[127.0.0.1]:{}", second.port)), "{}", log.stdout);
    // Another user; a server that is not known under the allowed name; a revoked key.
    let revoked = format!("{known}@revoked * {}", first.known.split_once(' ').expect("a key").1);
    for (known, host) in
        [(&known, format!("nobody@{name}")), (&known, "example.org".to_owned()), (&revoked, host.clone())]
    {
        let (output, signed) = run(known, &host);
        assert_eq!((output.as_str(), signed), ("refused\nrefused", 0), "{host}");
    }
    // Hashed names.
    fixture.write(".ssh/known_hosts", &known);
    let file = fixture.home.join(".ssh/known_hosts");
    fixture.host_command("ssh-keygen").args(["-q", "-H", "-f"]).arg(&file).finish().success();
    let hashed = std::fs::read_to_string(&file).expect("known_hosts");
    assert!(hashed.starts_with("|1|"), "{hashed}");
    assert_eq!(run(&hashed, &host).0, "in\nrefused");
}

fn attack_28_a_client_that_does_not_bind_gets_no_signature(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let key = public_key(&fixture.outside("keys").join("user-key"));
    let script = format!(
        "key=$(echo {} | base64 -d | od -An -v -tx1 | tr -d ' \\n'); send ${{1//KEY/$key}} $2",
        key.split(' ').nth(1).expect("a key")
    );
    // A login as OpenSSH makes it, but on a connection that is bound to no server.
    let blob_length = 51u32;
    let login_start =
        [&strings(&[&[7; 32]])[..], &[50], &strings(&[b"git", b"ssh-connection", b"publickey"]), &[1]].concat();
    let login_start = [login_start, strings(&[b"ssh-ed25519"]), blob_length.to_be_bytes().to_vec()].concat();
    let data_length = u32::try_from(login_start.len()).expect("a length") + blob_length;
    let sign = format!(
        "0d{}KEY{}{}KEY00000000",
        hex(&blob_length.to_be_bytes()),
        hex(&data_length.to_be_bytes()),
        hex(&login_start)
    );
    // A binding whose signature is made up.
    let forged = [
        &[27][..],
        &strings(&[
            b"session-bind@openssh.com",
            &strings(&[b"ssh-ed25519", &[1; 32]]),
            &[7; 32],
            &strings(&[b"ssh-ed25519", &[2; 64]]),
        ]),
        &[0],
    ]
    .concat();
    let mut command = fixture.run();
    command.env("SSH_AUTH_SOCK", &agent.socket).args(["--ssh-host", "github.com", "--", "bash", "-c"]);
    let script = format!("{}{script}; send {} ${{1//KEY/$key}}", crate::attacks::ssh_agent::SEND, hex(&forged));
    let finished = command.args([&script, "attack", &sign]).finish();
    assert_eq!(finished.success(), "05\n05\n05", "{}", finished.stderr);
    assert_eq!(signatures(&agent), 0);
    // Without a rule, the same request is signed: it is the rule that refuses it.
    let mut command = fixture.run();
    command.env("SSH_AUTH_SOCK", &agent.socket).args(["--", "bash", "-c", &script, "attack", &sign]);
    assert!(command.finish().success().starts_with("0e"));
}

fn commits_are_signed_with_the_configured_key_only(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let key = fixture.outside("keys").join("user-key");
    let config = |key: &str| format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {key}\n\tname = a\n\temail = b\n");
    fixture.write(".gitconfig", &config(&format!("key::{}", public_key(&key))));
    fixture.host_command("git").args(["init", "-q"]).arg(&fixture.project).finish().success();
    let commit = "git commit -q -S --allow-empty -m x && git cat-file commit HEAD | grep -c 'BEGIN SSH SIGNATURE'";
    let finished = attack(fixture, &agent, &["--ssh-host", "github.com"], commit);
    assert_eq!(finished.success(), "1", "{}", finished.stderr);
    assert_eq!(signatures(&agent), 1);
    let file = "ssh-add -L > /tmp/key.pub; echo x > /tmp/x; ssh-keygen -q -Y sign -f /tmp/key.pub -n file /tmp/x || echo refused";
    let finished = attack(fixture, &agent, &["--ssh-host", "github.com"], file);
    assert_eq!(finished.success(), "refused", "{}", finished.stderr);
    assert_eq!(signatures(&agent), 1);
}

fn nothing_is_signed_before_the_user_confirms_it(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let sign = "ssh-add -L > /tmp/key.pub; for n in 1 2; do echo x > /tmp/x; rm -f /tmp/x.sig
        ssh-keygen -q -Y sign -f /tmp/key.pub -n file /tmp/x 2>/dev/null && echo signed || echo refused; done";
    let asked = fixture.outside("askpass").join("asked");
    let run = |askpass: Option<std::path::PathBuf>| {
        let mut command = fixture.run();
        command.env("SSH_AUTH_SOCK", &agent.socket).args(["--ssh-confirm", "--", "bash", "-c", sign]);
        if let Some(program) = askpass {
            command.env("SSH_ASKPASS", program);
        }
        command.finish().success().to_owned()
    };
    let program = |name: &str, code: u8| {
        let text = format!("#!/bin/sh\necho \"$SSH_ASKPASS_PROMPT $1\" >> {}\nexit {code}\n", asked.display());
        fixture.write_script(name, &text).canonicalize().expect("a path")
    };
    // Nobody can be asked, the user says no, or the program lies where a guest could have written it.
    assert_eq!(run(None), "refused\nrefused");
    assert_eq!(run(Some(program("../askpass/no", 1))), "refused\nrefused");
    assert_eq!(run(Some(program("project/yes", 0))), "refused\nrefused");
    assert_eq!(signatures(&agent), 0);
    let text = std::fs::read_to_string(&asked).expect("the question");
    assert!(text.starts_with("confirm Let the sandbox ") && text.contains("signature `file`"), "{text}");
    assert_eq!(text.lines().count(), 1, "one question per destination: {text}");
    assert_eq!(run(Some(program("../askpass/yes", 0))), "signed\nsigned");
    assert_eq!(signatures(&agent), 2);
}

fn a_terminal_that_follows_the_log_confirms_signatures(fixture: &Fixture) {
    let agent = RecordingAgent::start(fixture);
    let sign = "ssh-add -L > /tmp/key.pub; echo up; while read namespace; do echo x > /tmp/x; rm -f /tmp/x.sig
        ssh-keygen -q -Y sign -f /tmp/key.pub -n $namespace /tmp/x 2>/dev/null && echo signed || echo refused; done";
    let mut command = fixture.run();
    command.env("SSH_AUTH_SOCK", &agent.socket).args(["--name", "asked", "--ssh-confirm", "--", "bash", "-c", sign]);
    let mut running = Running::start(command.stdin(Stdio::piped()));
    assert_eq!(running.line(), "up");
    let mut terminal = Pty::start(&fixture.sandpen(["log", "--follow", "asked"]));
    terminal.expect("started");
    // What was typed before a question is no answer to it, and without a yes it is no.
    terminal.send("y\n");
    running.write("one\n");
    terminal.expect("[y/N]");
    terminal.send("\n");
    assert_eq!(running.line(), "refused");
    assert_eq!(signatures(&agent), 0);
    running.write("two\n");
    terminal.expect("use your SSH key for");
    terminal.expect("[y/N]");
    terminal.send("y\n");
    assert_eq!(running.line(), "signed");
    // Each destination is asked for once.
    running.write("two\none\n");
    assert_eq!((running.line(), running.line()), ("signed".to_owned(), "refused".to_owned()));
    assert_eq!(signatures(&agent), 2);
    running.close_stdin();
    assert_eq!(running.finish().code, Some(0));
    terminal.expect("[ended 0]");
}
