//! Bytes that are not UTF-8, and text that controls a terminal, are escaped or refused, without a
//! crash (attack 10).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::entry;
use crate::support::Fixture;

fn bytes(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

/// Returns whether text contains a character that controls a terminal; line ends are allowed.
pub fn acts(text: &str) -> bool {
    text.chars().any(|c| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)))
}

#[test]
fn arguments_that_are_not_text_are_refused_by_name() {
    let fixture = Fixture::new().with_recording_docker();
    let mut failures = Vec::new();
    for flag in [
        "--image",
        "--cpus",
        "--mount",
        "--env",
        "--publish",
        "--profile",
        "--agent",
        "--engine",
        "--network",
        "--engine-flag",
    ] {
        for command in ["run", "explain"] {
            let stderr = fixture.usage_error(&mut fixture.sandpen([command.into(), flag.into(), bytes(b"a\xff")]));
            if !stderr.contains(flag) {
                failures.push(format!("{flag}: {stderr}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn a_command_that_is_not_text_is_refused_with_the_reason() {
    let fixture = Fixture::new().with_recording_docker();
    for (words, message) in [
        (vec![bytes(b"a\xff")], "the command, `a\u{fffd}`, is not UTF-8"),
        (vec!["ls".into(), bytes(b"\xff\x1b[31m")], "argument 1 of the command, `\u{fffd}\\u{1b}[31m`, is not UTF-8"),
    ] {
        let arguments = [OsString::from("run"), "--".into()].into_iter().chain(words);
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen(arguments)),
            format!("sandpen: error: {message}\nsandpen:   docker passes arguments as JSON and would change it\n")
        );
    }
}

#[test]
fn directories_that_are_not_text_are_refused_with_the_reason() {
    let fixture = Fixture::new().with_recording_docker();
    let project = fixture.home.join(bytes(b"pro\xffject"));
    fs::create_dir(&project).unwrap();
    let message = "sandpen: error: `[ROOT]/home/pro\u{fffd}ject` is not UTF-8, and docker cannot mount such a path\nhint: rename it, or use another engine\n";
    assert_eq!(fixture.usage_error(fixture.sandpen(["run"]).current_dir(&project)), message);
    let include = [OsString::from("run"), "--include-dir".into(), project.clone().into()];
    assert_eq!(fixture.usage_error(&mut fixture.sandpen(include)), message);
    let stderr = fixture.usage_error(fixture.sandpen(["run"]).env("HOME", &project));
    assert!(stderr.contains("is not UTF-8"), "{stderr}");
}

#[test]
fn variables_that_are_not_text_do_no_harm() {
    let fixture = Fixture::new().with_recording_docker();
    for name in [
        "USER",
        "LOGNAME",
        "TERM",
        "COLORTERM",
        "NODE_OPTIONS",
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "SSH_AUTH_SOCK",
        "DOCKER_CONTEXT",
        "XDG_CONFIG_HOME",
        "GEMINI_API_KEY",
    ] {
        let mut command = fixture.sandpen(["run", "--agent", "llxprt", "--ssh-agent", "auto", "--", "true"]);
        let finished = fixture.finish(command.env(name, bytes(b"/a\xff\x1b]0;x\x07")));
        assert!(matches!(finished.code, Some(0 | 2)), "{name}: {finished:?}");
        assert!(!acts(&finished.stderr), "{name}: {:?}", finished.stderr);
    }
}

#[test]
fn a_secret_that_is_not_text_reaches_the_engine_unchanged() {
    let fixture = Fixture::new().with_recording_docker();
    let finished =
        fixture.finish(fixture.sandpen(["run", "--env", "BLOB", "--", "true"]).env("BLOB", bytes(b"a\xffb")));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let call = fixture.calls().remove(0);
    assert!(call.windows(2).any(|pair| pair == ["--env", "BLOB"]), "{call:?}");
    assert!(fs::read(fixture.root.join("calls.env")).unwrap().windows(3).any(|part| part == b"a\xffb"));
}

#[test]
fn attack_10_terminal_escapes_are_shown_as_text() {
    let fixture = Fixture::new().with_recording_docker();
    let evil = "x\u{1b}[31m\u{9b}2J\u{202e}\r\n\tend";
    let shown = "x\\u{1b}[31m\\u{9b}2J\\u{202e}\\r\\n\\tend";
    for flag in ["--image", "--cpus", "--mount", "--publish", "--profile", "--agent", "--allow-host", "--include-dir"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", flag, evil]));
        assert!(stderr.contains(shown) && !acts(&stderr), "{flag}: {stderr:?}");
    }
    for name in
        ["SANDPEN_ENGINE", "SANDPEN_IMAGE", "SANDPEN_CPUS", "SANDBOX_PORTS", "SANDPEN_PROFILE", "SANDBOX_SET_UID_GID"]
    {
        let stderr = fixture.usage_error(fixture.sandpen(["run"]).env(name, evil));
        assert!(stderr.contains(shown) && !acts(&stderr), "{name}: {stderr:?}");
    }
    fixture.write_config("\"a\\u001b[31m\" = 1");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
    assert!(stderr.contains("a\\u{1b}[31m") && !acts(&stderr), "{stderr:?}");
}

/// The argument parser prints its input; it must escape it, also on a terminal.
#[test]
fn attack_10_terminal_escapes_in_the_command_line_are_shown_as_text() {
    let fixture = Fixture::new().with_recording_docker();
    let evil = "x\u{1b}]0;title\u{7}\u{1b}[31m\u{8}y";
    let mut failures = Vec::new();
    for arguments in [
        vec!["run", "--engine", evil],
        vec![&format!("--{evil}")],
        vec![evil],
        vec!["profile", evil],
        vec!["completions", evil],
    ] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(&arguments));
        if acts(&stderr) {
            failures.push(format!("{arguments:?}: {stderr:?}"));
        }
        // The parser does not strip escapes on a terminal.
        let like = fixture.sandpen(&arguments);
        let line = std::iter::once(like.get_program()).chain(like.get_args());
        let line: Vec<String> = line.map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let mut terminal = Command::new("/usr/bin/script");
        terminal
            .args(["-qec", &line.join(" "), "/dev/null"])
            .env_clear()
            .env("HOME", &fixture.home)
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm");
        let shown = fixture.finish(terminal.current_dir(&fixture.project).stdin(std::process::Stdio::null())).stdout;
        if shown.contains("\u{1b}]0;") || shown.contains('\u{7}') || shown.contains('\u{8}') {
            failures.push(format!("on a terminal, {arguments:?}: {shown:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn attack_10_names_of_files_are_shown_as_text() {
    let fixture = Fixture::new().with_recording_docker();
    let project = fixture.home.join("a\u{1b}[31m b:c,d\n-e");
    fs::create_dir(&project).unwrap();
    fs::create_dir(project.join(".sandpen")).unwrap();
    fs::write(project.join(".sandpen/config.toml"), "").unwrap();
    for command in [vec!["explain"], vec!["explain", "--format", "json"], vec!["run", "-v", "--", "true"]] {
        let finished = fixture.finish(fixture.sandpen(&command).current_dir(&project));
        finished.success();
        assert!(!acts(&finished.stderr), "{:?}", finished.stderr);
        assert!(!acts(&finished.stdout), "{:?}", finished.stdout);
    }
    let finished = fixture.finish(fixture.sandpen(["trust"]).current_dir(&project));
    assert_eq!((finished.code, acts(&finished.stderr)), (Some(0), false), "{:?}", finished.stderr);
    // `profile list` prints the names of profiles as data, one per line.
    fs::create_dir_all(fixture.home.join(".config/sandpen/profiles")).unwrap();
    fs::write(fixture.home.join(".config/sandpen/profiles/p\u{1b}[31mq.toml"), "").unwrap();
    let finished = fixture.finish(&mut fixture.sandpen(["profile", "list"]));
    assert!(!acts(&finished.stdout), "{:?}", finished.stdout);
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--profile", "xyzzy"]));
    assert!(!acts(&finished.stderr), "{:?}", finished.stderr);
}

#[test]
fn odd_names_reach_the_engine_as_one_word() {
    let fixture = Fixture::new().with_recording_docker();
    for name in ["a b", "-rf", "a,b", "$(reboot)", "a'b\"c", "ü"] {
        let directory = fixture.home.join(name);
        fs::create_dir(&directory).unwrap();
        let finished = fixture.finish(fixture.sandpen(["run", "--", "true"]).current_dir(&directory));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        let call = fixture.calls().pop().unwrap();
        let path = format!("[ROOT]/home/{name}");
        assert!(call.windows(2).any(|pair| pair == ["--volume", &format!("{path}:{path}")]), "{call:?}");
        assert!(call.windows(2).any(|pair| pair == ["--workdir", &path]), "{call:?}");
    }
    let directory = fixture.home.join("a:b");
    fs::create_dir(&directory).unwrap();
    let json = fixture.explain_normalized(&["--mount", &format!("{}:/x", fixture.project.display())], &[]);
    entry(&json, "mounts", "target", "/x");
    assert_eq!(fixture.finish(fixture.sandpen(["run", "--", "true"]).current_dir(&directory)).code, Some(0));
    let call = fixture.calls().pop().unwrap();
    assert!(call.contains(&"type=bind,source=[ROOT]/home/a:b,target=[ROOT]/home/a:b".to_owned()), "{call:?}");
}

#[test]
fn a_path_that_podman_cannot_mount_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let directory = fixture.home.join("a:b,c");
    fs::create_dir(&directory).unwrap();
    assert_eq!(
        fixture.usage_error(fixture.sandpen(["run", "--engine", "podman"]).current_dir(&directory)),
        "\
sandpen: error: Podman cannot mount `[ROOT]/home/a:b,c`: its path contains both a colon and a comma
hint: use Docker, or rename the directory
"
    );
}
