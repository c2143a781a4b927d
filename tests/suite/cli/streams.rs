//! stdout holds data, stderr diagnostics; `-q` silences warnings, `-v` shows the command line, and
//! secrets are never printed.

use std::process::Stdio;

use crate::support::Fixture;

/// This run warns that a variable is not set.
const WARNED: [&str; 5] = ["run", "--env", "MISSING", "--", "true"];
const WARNING: &str = "sandpen: warning: flag --env: MISSING is not set on the host, so it is not set inside\n";

#[test]
fn a_successful_run_prints_nothing() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--", "true"]));
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn warnings_go_to_stderr_and_q_silences_them() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(WARNED));
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), "", WARNING));
    for quiet in ["-q", "--quiet"] {
        let finished = fixture.finish(&mut fixture.sandpen(["run", quiet].iter().chain(&WARNED[1..])));
        assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(0), "", ""));
        let finished = fixture.finish(&mut fixture.sandpen(["explain", quiet, "--env", "MISSING"]));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        assert!(finished.stdout.starts_with("Sandbox – "), "{}", finished.stdout);
    }
}

#[test]
fn errors_are_never_silenced() {
    let fixture = Fixture::new().with_recording_docker();
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "-q", "--cpus", "x"]));
    assert_eq!(
        stderr,
        "sandpen: error: flag --cpus: `x` is not a number of CPUs\nhint: expected a positive number such as `2` or `0.5`\n"
    );
}

#[test]
fn explain_prints_data_to_stdout_and_warnings_to_stderr() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(["explain", "--env", "MISSING"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), WARNING));
    for section in ["Sandbox", "Workspace", "Your home", "Environment", "Network", "SSH agent", "Command line"] {
        assert!(
            finished.stdout.lines().any(|line| line.split(" – ").next() == Some(section)),
            "{section}: {}",
            finished.stdout
        );
    }
    for limit in ["  cpus ", "  memory ", "  pids "] {
        assert!(finished.stdout.lines().any(|line| line.starts_with(limit)), "{limit}: {}", finished.stdout);
    }
    // In JSON, warnings are part of the data.
    let finished = fixture.finish(&mut fixture.sandpen(["explain", "--format", "json", "--env", "MISSING"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert!(finished.stdout.contains("MISSING is not set on the host"), "{}", finished.stdout);
}

#[test]
fn explain_is_the_same_text_twice_and_touches_nothing() {
    let fixture = Fixture::new().with_recording_docker();
    let before = fixture.snapshot();
    for format in ["text", "json"] {
        let explain = || {
            fixture
                .finish(&mut fixture.sandpen(["explain", "--format", format, "--agent", "llxprt", "--", "llxprt"]))
                .stdout
        };
        assert_eq!(explain(), explain());
    }
    assert_eq!(fixture.snapshot(), before);
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new());
}

#[test]
fn secrets_are_never_printed() {
    let fixture = Fixture::new().with_recording_docker();
    let secrets = [
        ("GH_TOKEN", "hunter2"),
        ("GEMINI_API_KEY", "hunter2"),
        ("PLAIN", "hunter2"),
        ("HTTPS_PROXY", "http://me:hunter2@proxy"),
    ];
    let options = [
        "--agent",
        "llxprt",
        "--env",
        "GH_TOKEN",
        "--env",
        "PLAIN",
        "--env",
        "DB_PASSWORD=hunter2",
        "--env",
        "HTTPS_PROXY",
        "--env",
        "http_proxy=http://me:hunter2@proxy/",
    ];
    for command in [vec!["run", "-v"], vec!["explain", "-v"], vec!["explain", "--format", "json"]] {
        let finished =
            fixture.finish(fixture.sandpen(command.iter().chain(&options).chain(&["--", "true"])).envs(secrets));
        finished.success();
        assert!(
            !finished.stdout.contains("hunter2") && !finished.stderr.contains("hunter2"),
            "{command:?}: {finished:?}"
        );
        assert!(
            finished.stdout.contains("GH_TOKEN") || finished.stderr.contains("GH_TOKEN"),
            "{command:?}: {finished:?}"
        );
    }
    let calls = fixture.calls();
    assert!(!calls.iter().flatten().any(|word| word.contains("hunter2")), "{calls:?}");
    assert!(
        fixture.engine_environment().contains("GH_TOKEN='hunter2'")
            || fixture.engine_environment().contains("GH_TOKEN=\"hunter2\"")
    );
}

#[test]
fn verbose_shows_the_engines_command_line() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(["run", "-v", "--", "echo", "two words"]));
    let line =
        finished.stderr.lines().find_map(|line| line.strip_prefix("sandpen: starting: ")).expect("the command line");
    let words = shlex_split(line);
    assert_eq!(vec![words], fixture.calls());
    assert_eq!(finished.stdout, "");
}

/// A real shell splits the line, and `printf` prints its words.
fn shlex_split(line: &str) -> Vec<String> {
    let output =
        std::process::Command::new("/bin/sh").args(["-c", &format!("printf '%s\\0' {line}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn explain_shows_the_command_line_that_run_runs() {
    let fixture = Fixture::new().with_recording_docker();
    let options =
        ["--mount", "/etc:/x", "--publish", "3000", "--cpus", "1", "--env", "A=b c", "--", "sh", "-c", "echo hi"];
    let json = fixture.explain_normalized(&options, &[]);
    let shown: Vec<String> =
        json["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    fixture.finish(&mut fixture.sandpen(["run"].iter().chain(&options)));
    let call = fixture.calls().remove(0);
    let id = call.iter().find_map(|word| word.strip_prefix("dev.sandpen.session=")).unwrap();
    let stamp = |word: &str| {
        word.split_once("dev.sandpen.owner-")
            .and_then(|(_, rest)| rest.split_once('='))
            .map(|(key, _)| format!("dev.sandpen.owner-{key}=0"))
    };
    let call: Vec<String> =
        call.iter().map(|word| stamp(word).unwrap_or_else(|| word.replace(id, "SESSION"))).collect();
    assert_eq!(call, shown);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let fixture = Fixture::new().with_recording_docker();
    for arguments in [&["explain"][..], &["completions", "bash"], &["man"], &["profile", "list"]] {
        let mut child = fixture.sandpen(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked") && output.status.code() != Some(101), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_closed_stderr_does_not_stop_a_sandbox() {
    let fixture = Fixture::new().with_recording_docker();
    let like = fixture.sandpen(WARNED);
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(like.get_program()).args(like.get_args()).env_clear();
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(&fixture.project);
    assert_eq!(fixture.finish(&mut command).code, Some(0));
}
