//! Presets: an agent's settings and keys, for that agent only.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{IMAGE, Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    a_preset_brings_settings_and_keys,
    without_a_preset_there_is_neither,
    a_command_selects_its_preset,
    an_own_preset_brings_what_it_names,
);
for_every_container_engine!(settings_are_at_both_homes,);

const SCRIPT: &str = "echo ${ANTHROPIC_API_KEY-no key} ${OPENAI_API_KEY-no other key}; ls -A ~";

fn a_preset_brings_settings_and_keys(pen: &Pen) {
    let run = |script: &str| {
        let mut command = pen.run();
        command.env("ANTHROPIC_API_KEY", "the key").env("OPENAI_API_KEY", "the other key");
        command.args(["--agent", "claude", "--", "bash", "-c", script]).ran()
    };
    assert_eq!(run(SCRIPT).ok(), "the key no other key\n.claude\nproject", "made when it is missing");
    let made = fs::metadata(pen.home.join(".claude")).expect("made on the host, so that a login is not lost");
    assert_eq!((made.uid(), made.gid()), (pen.uid, pen.gid));
    pen.write(".claude.json", "{}");
    run("set -e; echo login > ~/.claude/login; cat ~/.claude.json").ok();
    assert_eq!(fs::read_to_string(pen.home.join(".claude/login")).expect("kept"), "login\n");
}

fn without_a_preset_there_is_neither(pen: &Pen) {
    pen.write(".claude/credentials", "secret");
    for arguments in [&[][..], &["--agent", "none"]] {
        let mut command = pen.run();
        command.env("ANTHROPIC_API_KEY", "the key").args(arguments);
        assert_eq!(command.args(["--", "bash", "-c", SCRIPT]).ran().ok(), "no key no other key\nproject");
    }
}

fn a_command_selects_its_preset(pen: &Pen) {
    // The image lacks the command, which is as good: the settings directory was made for it.
    let ran = pen.run().args(["--", "claude"]).ran();
    assert_eq!(ran.code, Some(127), "{}", ran.stderr);
    assert!(pen.home.join(".claude").is_dir());
}

fn settings_are_at_both_homes(pen: &Pen) {
    pen.write(".config/llxprt-code/settings.json", "of the host");
    let script = format!(
        "cat ~/.config/llxprt-code/settings.json {}/.config/llxprt-code/settings.json; echo $HOME",
        pen.home.display()
    );
    let mut command = pen.sandpen();
    command.args(["run", "--engine", pen.engine.flag(), "--image", "localhost/sandpen-node", "--user", "image"]);
    let ran = command.args(["--agent", "llxprt", "--", "bash", "-c", &script]).ran();
    assert_eq!(ran.ok(), "of the hostof the host/home/node");
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

/// Everything that the file names, and nothing beside it.
fn an_own_preset_brings_what_it_names(pen: &Pen) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"HTTP/1.1 204 Fine\r\ncontent-length: 0\r\n\r\n");
        }
    });
    pen.write(".config/sandpen/presets/mine.toml", &OWN.replace("PORT", &port.to_string()));
    pen.write(".mine.conf", "settings");
    pen.write(".other", "of another");
    let certificate = pen.write("certificates/mine.pem", "certificate");
    let run = |script: &str| {
        let mut command = pen.run();
        command.env("MINE_PASS", "hunter2").env("MINE_MODEL", "large").env("MINE_CERTIFICATE", &certificate);
        command.args(["--network", "proxied", "--agent", "mine", "--", "bash", "-c", script]).ran()
    };
    let inside = run("echo $MINE_PASS $MINE_MODEL; cat $MINE_CERTIFICATE ~/.mine.conf; echo; ls -A ~");
    // `.ssh` is the sandbox's own: the way to the proxy.
    assert_eq!(inside.ok(), "hunter2 large\ncertificatesettings\n.mine\n.mine.conf\n.ssh\ncertificates\nproject");
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
    assert_eq!(run(&get(port)).ok().trim_end(), "HTTP/1.1 204 Fine");
    assert!(run(&get(port.wrapping_add(1))).ok().starts_with("HTTP/1.1 403 "), "no other host");
    let mut explain = pen.sandpen();
    explain.args(["explain", "-v", "--engine", pen.engine.flag(), "--agent", "mine"]).env("MINE_PASS", "hunter2");
    if pen.engine.is_container() {
        explain.args(["--image", IMAGE]);
    }
    let shown = explain.args(["--format", "json", "--", "true"]).ran();
    assert!(
        shown.ok().contains("MINE_PASS") && !shown.ok().contains("hunter2"),
        "on no command line: {}",
        shown.stdout
    );
}
