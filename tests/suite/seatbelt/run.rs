//! Tests `run` with a stand-in for `sandbox-exec`: environment, exit codes, signals, the agent,
//! cleanup.

use std::fs;
use std::os::unix::net::UnixListener;

use rustix::process::Signal;

use crate::support::{Fixture, RunToEnd, Running, eventually, is_running};

#[test]
fn the_environment_is_what_was_asked_for() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut run = fixture.run();
    run.env("NOT_ASKED_FOR", "hunter2").env("MY_TOKEN", "hunter3").env("TERM", "xterm").env("LANG", "de_DE.UTF-8");
    let finished = run.args(["--env", "MY_TOKEN", "--env", "A=b c", "--", "env"]).finish();
    let mut lines: Vec<String> = fixture.normalize(finished.success()).lines().map(str::to_owned).collect();
    lines.sort();
    let id = lines
        .iter()
        .find_map(|line| line.strip_prefix("TMPDIR=[ROOT]/home/.local/state/sandpen/sessions/")?.strip_suffix("/tmp"));
    let id = id.expect("a private TMPDIR").to_owned();
    let tmp = format!("[ROOT]/home/.local/state/sandpen/sessions/{id}/tmp");
    lines.retain(|line| {
        !line.starts_with("USER=")
            && !line.starts_with("LOGNAME=")
            && !line.starts_with("PWD=")
            && !line.starts_with("_=")
    });
    assert_eq!(
        lines,
        [
            "A=b c",
            "GIT_DISCOVERY_ACROSS_FILESYSTEM=1",
            "GIT_TEMPLATE_DIR=",
            &format!("GOCACHE={tmp}/cache/go-build"),
            "HOME=[ROOT]/home",
            "LANG=de_DE.UTF-8",
            "MY_TOKEN=hunter3",
            "PATH=/usr/bin:/bin",
            "SANDBOX=sandbox-exec",
            "SEATBELT_PROFILE=permissive-open",
            "TERM=xterm",
            &format!("TMPDIR={tmp}"),
            &format!("XDG_CACHE_HOME={tmp}/cache"),
            &format!("npm_config_cache={tmp}/cache/npm"),
        ]
    );
    let argv = fs::read_to_string(fixture.root.join("argv")).expect("argv");
    assert!(!argv.contains("hunter"), "a secret is on the command line");
}

#[test]
fn exit_codes_are_the_commands_own() {
    let fixture = Fixture::new().with_macos_seatbelt();
    for (script, code) in
        [("exit 0", 0), ("exit 7", 7), ("exit 125", 125), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        assert_eq!(fixture.sh(script).code, Some(code), "{script}");
    }
    let missing = fixture.run().args(["--", "no-such-command"]).finish();
    missing.failure(127);
    assert!(missing.stderr.contains("`no-such-command` was not found"), "{}", missing.stderr);
    let file = fixture.run().args(["--", "/etc/passwd"]).finish();
    file.failure(126);
}

/// A failure of sandbox-exec itself ends with 44; the same code from the guest is passed through.
#[test]
fn a_failed_start_of_the_sandbox_exits_with_44() {
    let fixture = Fixture::new().with_macos_seatbelt();
    fixture.install_sandbox_exec("echo 'sandbox-exec: profile.sb:3: syntax error' >&2\nexit 65\n");
    let finished = fixture.run().args(["--", "true"]).finish();
    finished.failure(44);
    assert!(
        finished.stderr.contains("syntax error") && finished.stderr.contains("could not start the sandbox"),
        "{}",
        finished.stderr
    );
    assert_eq!(fixture.sessions().len(), 0);
    assert_eq!(Fixture::new().with_macos_seatbelt().sh("exit 65").code, Some(65));
}

#[test]
fn the_streams_and_the_directory_are_the_callers() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut run = fixture.run();
    run.args(["--", "sh", "-c", "cat; pwd; echo err >&2"]).stdin(fs::File::open("/etc/hostname").expect("file"));
    let finished = run.finish();
    let hostname = fs::read_to_string("/etc/hostname").expect("hostname");
    assert_eq!(finished.success(), format!("{hostname}{}", fixture.project.display()));
    assert_eq!(finished.stderr, "err\n");
}

#[test]
fn signals_reach_the_command_and_its_end_is_reported() {
    let fixture = Fixture::new().with_macos_seatbelt();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut run = fixture.run();
        let mut running = Running::start(run.args(["--", "sh", "-c", "echo ready; exec sleep 1000"]));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        assert_eq!(running.finish().code, Some(code), "{signal:?}");
    }
    // A command that handles the signal receives it once.
    let mut run = fixture.run();
    let script = "trap 'echo got; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::start(run.args(["--", "sh", "-c", script]));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::TERM);
    let finished = running.finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(5), "got"));
    assert_eq!(fixture.sessions().len(), 0);
}

/// Attack 25: no process of the group outlives the command, or a killed launcher.
#[test]
fn no_process_outlives_the_command() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let left = "sleep 98761";
    assert_eq!(fixture.sh(&format!("{left} >/dev/null 2>&1 & exit 3")).code, Some(3));
    eventually("the background process ends", || !is_running(left));
    assert_eq!(fixture.sessions().len(), 0);
    let killed = "sleep 98762";
    let mut run = fixture.run();
    let mut running = Running::start(run.args(["--", "sh", "-c", &format!("echo ready; {killed}")]));
    assert_eq!(running.line(), "ready");
    eventually("the command runs", || is_running(killed));
    running.signal(Signal::KILL);
    eventually("the command ends with its launcher", || !is_running(killed));
}

/// R4.1, R4.3: a forwarded agent keeps its path, because Seatbelt cannot mount it elsewhere.
/// Without forwarding, the variable is unset.
#[test]
fn r4_3_the_agent_is_passed_at_its_own_path() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let socket = fixture.root.join("agent");
    let agent = UnixListener::bind(&socket).expect("socket");
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut peer in agent.incoming().flatten() {
            let mut request = [0; 5];
            let _ = peer.read_exact(&mut request).and_then(|()| peer.write_all(&[0, 0, 0, 5, 12, 0, 0, 0, 1]));
        }
    });
    // sandpen's own socket is in the session's directory.
    let gate = fixture.home.join(".local/state/sandpen/sessions/mine/ssh-agent").display().to_string();
    for (setting, expected) in
        [("raw", socket.display().to_string()), ("auto", gate.clone()), ("on", gate), ("off", String::new())]
    {
        let mut run = fixture.run();
        let finished = run
            .env("SSH_AUTH_SOCK", &socket)
            .args(["--name", "mine", "--ssh-agent", setting, "--", "sh", "-c", "echo $SSH_AUTH_SOCK"])
            .finish();
        assert_eq!((finished.success(), finished.stderr.as_str()), (expected.as_str(), ""), "{setting}");
    }
    let unset = fixture.run().args(["--ssh-agent", "auto", "--", "sh", "-c", "echo ${SSH_AUTH_SOCK-unset}"]).finish();
    assert_eq!(unset.success(), "unset");
    assert!(unset.stderr.contains("no SSH agent"), "R4.2: {}", unset.stderr);
}

#[test]
fn a_seatbelt_sandbox_is_listed_and_stopped() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut run = fixture.run();
    let mut running = Running::start(run.args(["--", "sh", "-c", "echo ready; exec sleep 1000"]));
    assert_eq!(running.line(), "ready");
    let manage = |words: &[&str]| {
        crate::support::sandpen_without_home(&fixture.project).env("HOME", &fixture.home).args(words).finish()
    };
    let listed = manage(&["ps", "--format", "json"]).json();
    assert_eq!((listed[0]["engine"].as_str(), listed[0]["state"].as_str()), (Some("sandbox-exec"), Some("running")));
    // Attack 24: `exec` has the same restrictions and the same environment.
    let id = listed[0]["id"].as_str().expect("id");
    let argv = || {
        let argv = fs::read_to_string(fixture.root.join("argv")).expect("argv");
        argv.split_once("guest\0").expect("the helper").0.to_owned()
    };
    let (first, session) = (argv(), argv());
    fs::remove_file(fixture.root.join("argv")).expect("argv");
    let entered = manage(&["exec", id, "--", "sh", "-c", "echo $SANDBOX $TMPDIR; exit 9"]);
    entered.failure(9);
    assert!(entered.stdout.starts_with("sandbox-exec /"), "{}", entered.stdout);
    assert!(session.contains(entered.stdout.trim_start_matches("sandbox-exec ").trim()), "`exec` has another TMPDIR");
    assert_eq!(argv(), first);
    manage(&["stop", "--all"]).success();
    assert_eq!(running.finish().code, Some(143));
    assert_eq!(fixture.sessions().len(), 0);
    manage(&["prune"]).success();
}

#[test]
fn the_startup_file_and_the_workspaces_path_take_part() {
    let fixture = Fixture::new().with_macos_seatbelt();
    fixture.write("project/.sandpen/sandbox.bashrc", "FROM_STARTUP=yes; export FROM_STARTUP\n");
    let mut run = fixture.run();
    run.env("PATH", format!("{}/bin:/usr/bin:/bin", fixture.project.display()));
    let finished = run.args(["--", "sh", "-c", "echo $FROM_STARTUP; echo $PATH"]).finish();
    assert_eq!(fixture.normalize(finished.success()), "yes\n/usr/bin:/bin:[ROOT]/home/project/bin");
}
