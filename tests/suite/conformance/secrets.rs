//! Secrets reach the guest, but appear on no command line, in no explanation, and in no file that
//! remains.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::for_every_container_engine;
use crate::support::{Fixture, Running, command_lines};

for_every_container_engine!(secrets_are_in_no_argv, explain_does_not_show_secrets,);

/// All values contain this text, and no command line of this test does.
const NEEDLE: &str = "hunter2-of-the-secrets-test";

/// Sets three secrets: two under names that look secret, of which one has the prefix of a
/// variable of Docker's client, and one as a login in a URL.
fn configure(fixture: &Fixture) {
    let config = format!(
        "[env]\nOTHER_PASSWORD = \"{NEEDLE} 2\"\nHTTP_PROXY = \"http://u:{NEEDLE}@h:1\"\nDOCKER_API_KEY = \"{NEEDLE} 4\"\n"
    );
    fixture.write(".config/sandpen/config.toml", &config);
}

fn secrets_are_in_no_argv(fixture: &Fixture) {
    configure(fixture);
    let script = r#"printf '%s|' "$BY_NAME" "$OTHER_PASSWORD" "$HTTP_PROXY" "$DOCKER_API_KEY" "$MY_TOKEN" | base64 -w0;
        echo; read -r _; true"#;
    let mut command = fixture.run();
    command.env("BY_NAME", format!("{NEEDLE} 1")).env("SANDBOX_ENV", format!("MY_TOKEN={NEEDLE} 5"));
    command.stdin(Stdio::piped()).args(["--env", "BY_NAME", "--", "bash", "-c", script]);
    let mut running = Running::start(&mut command);
    let arrived = running.line();
    let expected = format!("{NEEDLE} 1|{NEEDLE} 2|http://u:{NEEDLE}@h:1|{NEEDLE} 4|{NEEDLE} 5|");
    let mut decode = std::process::Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("base64");
    std::io::Write::write_all(decode.stdin.as_mut().expect("stdin"), arrived.as_bytes()).expect("write");
    assert_eq!(String::from_utf8_lossy(&decode.wait_with_output().expect("base64").stdout), expected);

    let lines = command_lines();
    let own = lines.iter().filter(|line| line.contains(&fixture.project.display().to_string())).count();
    assert!(own >= 1, "the command line of the engine's client is missing");
    let leaks: Vec<_> = lines.iter().filter(|line| line.contains(NEEDLE)).collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    // A file that must hold a secret is private.
    for session in fixture.sessions() {
        for entry in fs::read_dir(&session).expect("session").flatten() {
            let is_secret = fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(NEEDLE));
            let mode = entry.metadata().expect("metadata").permissions().mode() & 0o777;
            assert!(!is_secret || mode == 0o600, "{}: {mode:o}", entry.path().display());
        }
    }
    running.close_stdin();
    running.finish().success();
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
}

fn explain_does_not_show_secrets(fixture: &Fixture) {
    configure(fixture);
    for format in ["json", "text"] {
        let mut command = fixture.command("explain");
        command.env("BY_NAME", NEEDLE).env("SANDBOX_ENV", format!("MY_TOKEN={NEEDLE}")).args(["--format", format]);
        let output = command.args(["--env", "BY_NAME", "--", "true"]).output().expect("explain");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("BY_NAME"), "{text}");
        assert!(!text.contains(NEEDLE), "{text}");
    }
    let explained = fixture.explain(&["--", "true"]);
    let variables = explained["env"].as_array().expect("env");
    let secret = variables.iter().find(|variable| variable["name"] == "OTHER_PASSWORD").expect("the variable");
    assert_eq!((&secret["secret"], &secret["value"]), (&true.into(), &serde_json::Value::Null));
}
