//! A preset exposes an agent's settings and keys, for that agent only.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    a_preset_brings_settings_and_keys,
    without_a_preset_there_are_no_settings_and_no_keys,
    a_command_selects_its_preset,
    an_own_preset_brings_what_it_names,
);
for_native_image!(a_preset_brings_settings_and_keys);
for_every_container_engine!(settings_are_at_both_homes,);

const SCRIPT: &str = "echo ${ANTHROPIC_API_KEY-no key} ${OPENAI_API_KEY-no other key}; ls -A ~";

fn a_preset_brings_settings_and_keys(fixture: &Fixture) {
    let run = |script: &str| {
        let mut command = fixture.run();
        command.env("ANTHROPIC_API_KEY", "the key").env("OPENAI_API_KEY", "the other key");
        command.args(["--agent", "claude", "--", "bash", "-c", script]).finish()
    };
    assert_eq!(
        run(SCRIPT).success(),
        "the key no other key\n.claude\n.claude.json\nproject",
        "the preset creates a missing directory"
    );
    let made = fs::metadata(fixture.home.join(".claude"))
        .expect("the directory is created on the host, so that a login is kept");
    assert_eq!((made.uid(), made.gid()), (fixture.uid, fixture.gid));
    assert_eq!(run("set -e; echo login > ~/.claude/.credentials.json; cat ~/.claude.json").success(), "{}");
    let login = fs::read_to_string(fixture.home.join(".claude/.credentials.json")).expect("the login is kept");
    assert_eq!(login, "login\n");
}

fn without_a_preset_there_are_no_settings_and_no_keys(fixture: &Fixture) {
    fixture.write(".claude/credentials", "secret");
    for arguments in [&[][..], &["--agent", "none"]] {
        let mut command = fixture.run();
        command.env("ANTHROPIC_API_KEY", "the key").args(arguments);
        assert_eq!(command.args(["--", "bash", "-c", SCRIPT]).finish().success(), "no key no other key\nproject");
    }
}

fn a_command_selects_its_preset(fixture: &Fixture) {
    // The image lacks the command, but its preset still creates the settings directory.
    let finished = fixture.run().args(["--", "claude"]).finish();
    finished.failure(127);
    assert!(fixture.home.join(".claude").is_dir());
}

fn settings_are_at_both_homes(fixture: &Fixture) {
    fixture.write(".config/llxprt-code/settings.json", "of the host");
    let script = format!(
        "cat ~/.config/llxprt-code/settings.json {}/.config/llxprt-code/settings.json; echo $HOME",
        fixture.home.display()
    );
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished = command.args(["--agent", "llxprt", "--", "bash", "-c", &script]).finish();
    assert_eq!(finished.success(), "of the hostof the host/home/node");
}

const OWN: &str = r#"
name = "mine"
secrets = ["MINE_PASS"]
variables = ["MINE_MODEL"]
credential_files = ["MINE_CERTIFICATE"]
hosts = ["127.0.0.1:PORT"]

[[directories]]
path = "~/.mine"
mode = "rw"
create = true
reason = "what mine remembers"
obeyed = ["hooks"]

[[directories]]
path = "~/.mine.conf"
reason = "mine's settings"
"#;

/// The guest sees everything that the preset file names, and nothing else.
fn an_own_preset_brings_what_it_names(fixture: &Fixture) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 204 Fine\r\ncontent-length: 0\r\n\r\n");
        }
    });
    fixture.write(".config/sandpen/presets/mine.toml", &OWN.replace("PORT", &port.to_string()));
    fixture.write(".mine.conf", "settings");
    fixture.write(".other", "of another");
    let certificate = fixture.write("certificates/mine.pem", "certificate");
    let run = |script: &str| {
        let mut command = fixture.run();
        command.env("MINE_PASS", "hunter2").env("MINE_MODEL", "large").env("MINE_CERTIFICATE", &certificate);
        command.args(["--network", "proxied", "--agent", "mine", "--", "bash", "-c", script]).finish()
    };
    let inside = run("echo $MINE_PASS $MINE_MODEL; cat $MINE_CERTIFICATE ~/.mine.conf; echo; ls -A ~");
    // sandpen creates `.ssh` for the configuration that leads ssh through the proxy.
    assert_eq!(inside.success(), "hunter2 large\ncertificatesettings\n.mine\n.mine.conf\n.ssh\ncertificates\nproject");
    let refused = run("echo x >~/.mine.conf || echo x >$MINE_CERTIFICATE");
    assert!(refused.code == Some(1) && refused.stderr.contains("Read-only file system"), "{}", refused.stderr);
    let planted = run("mkdir -p ~/.mine/hooks; echo 'touch /x' >~/.mine/hooks/start");
    let words = "changed inside, and used by tools on the host: ";
    assert!(planted.stderr.contains(words) && planted.stderr.contains(".mine/hooks"), "{}", planted.stderr);
    let get = |port: u16| {
        format!(
            "exec 3<>/dev/tcp/127.0.0.1/8877; printf 'GET http://127.0.0.1:{port}/ HTTP/1.1\\r\\nhost: 127.0.0.1:{port}\\r\\n\\r\\n' >&3; head -n 1 <&3"
        )
    };
    assert_eq!(run(&get(port)).success().trim_end(), "HTTP/1.1 204 Fine");
    assert!(run(&get(port.wrapping_add(1))).success().starts_with("HTTP/1.1 403 "), "another port is reachable");
    let mut explain = fixture.command("explain");
    explain.args(["-v", "--agent", "mine"]).env("MINE_PASS", "hunter2");
    let shown = explain.args(["--format", "json", "--", "true"]).finish();
    assert!(
        shown.success().contains("MINE_PASS") && !shown.success().contains("hunter2"),
        "the secret is printed: {}",
        shown.stdout
    );
}
