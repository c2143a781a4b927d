//! stdout holds data, stderr diagnostics; `-q` silences warnings, `-v` shows the command line, secrets never show.

use std::process::Stdio;

use super::world::World;

/// A run that has something to warn of: a variable that is not set.
const WARNED: [&str; 5] = ["run", "--env", "MISSING", "--", "true"];
const WARNING: &str = "sandpen: warning: flag --env: MISSING is not set on the host, so it is not set inside\n";

#[test]
fn all_well_means_silence() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen(["run", "--", "true"]));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn warnings_go_to_stderr_and_q_silences_them() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen(WARNED));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", WARNING));
    for quiet in ["-q", "--quiet"] {
        let ran = world.ran(&mut world.sandpen(["run", quiet].iter().chain(&WARNED[1..])));
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
        let ran = world.ran(&mut world.sandpen(["explain", quiet, "--env", "MISSING"]));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout.starts_with("Sandbox – "), "{}", ran.stdout);
    }
}

#[test]
fn errors_are_never_silenced() {
    let world = World::new();
    let stderr = world.refused(&mut world.sandpen(["run", "-q", "--cpus", "x"]));
    assert_eq!(
        stderr,
        "sandpen: error: flag --cpus: `x` is not a number of CPUs\nhint: expected a positive number such as `2` or `0.5`\n"
    );
}

#[test]
fn explain_prints_data_to_stdout_and_warnings_to_stderr() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen(["explain", "--env", "MISSING"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), WARNING));
    for section in ["Sandbox", "Workspace", "Your home", "Environment", "Network", "SSH agent", "Command line"] {
        assert!(ran.stdout.lines().any(|line| line.split(" – ").next() == Some(section)), "{section}: {}", ran.stdout);
    }
    for limit in ["  cpus ", "  memory ", "  pids "] {
        assert!(ran.stdout.lines().any(|line| line.starts_with(limit)), "{limit}: {}", ran.stdout);
    }
    // In JSON, warnings are data.
    let ran = world.ran(&mut world.sandpen(["explain", "--format", "json", "--env", "MISSING"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout.contains("MISSING is not set on the host"), "{}", ran.stdout);
}

#[test]
fn explain_is_the_same_text_twice_and_touches_nothing() {
    let world = World::new();
    let before = world.tree();
    for format in ["text", "json"] {
        let explain = || {
            world.ran(&mut world.sandpen(["explain", "--format", format, "--agent", "llxprt", "--", "llxprt"])).stdout
        };
        assert_eq!(explain(), explain());
    }
    assert_eq!(world.tree(), before);
    assert_eq!(world.calls(), Vec::<Vec<String>>::new());
}

#[test]
fn secrets_show_nowhere() {
    let world = World::new();
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
        let ran = world.ran(world.sandpen(command.iter().chain(&options).chain(&["--", "true"])).envs(secrets));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(!ran.stdout.contains("hunter2") && !ran.stderr.contains("hunter2"), "{command:?}: {ran:?}");
        assert!(ran.stdout.contains("GH_TOKEN") || ran.stderr.contains("GH_TOKEN"), "{command:?}: {ran:?}");
    }
    let calls = world.calls();
    assert!(!calls.iter().flatten().any(|word| word.contains("hunter2")), "{calls:?}");
    assert!(
        world.engine_environment().contains("GH_TOKEN='hunter2'")
            || world.engine_environment().contains("GH_TOKEN=\"hunter2\"")
    );
}

#[test]
fn v_shows_the_command_line_that_is_run() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen(["run", "-v", "--", "echo", "two words"]));
    let line = ran.stderr.lines().find_map(|line| line.strip_prefix("sandpen: starting: ")).expect("the command line");
    let words = shlex_split(line);
    assert_eq!(vec![words], world.calls());
    assert_eq!(ran.stdout, "");
}

/// Shell words without a shell: `printf` of a real one.
fn shlex_split(line: &str) -> Vec<String> {
    let output =
        std::process::Command::new("/bin/sh").args(["-c", &format!("printf '%s\\0' {line}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn explain_shows_the_command_line_that_run_runs() {
    let world = World::new();
    let options =
        ["--mount", "/etc:/x", "--publish", "3000", "--cpus", "1", "--env", "A=b c", "--", "sh", "-c", "echo hi"];
    let json = world.explain(&options, &[]);
    let shown: Vec<String> =
        json["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect();
    world.ran(&mut world.sandpen(["run"].iter().chain(&options)));
    let call = world.calls().remove(0);
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
    let world = World::new();
    for arguments in [&["explain"][..], &["completions", "bash"], &["man"], &["profile", "list"]] {
        let mut child = world.sandpen(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked") && output.status.code() != Some(101), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_closed_stderr_does_not_stop_a_sandbox() {
    let world = World::new();
    let like = world.sandpen(WARNED);
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", "exec \"$@\" 2>&-", "sh"]).arg(like.get_program()).args(like.get_args()).env_clear();
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(&world.project);
    assert_eq!(world.ran(&mut command).code, Some(0));
}
