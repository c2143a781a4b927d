//! Tests Docker on another machine.

use std::fs;

use super::machine::{with_docker, with_docker_and_agent};
use crate::support::pty::Pty;
use crate::support::{KEY_COMMENT, RunToEnd, Running};

#[test]
fn a_repository_is_there_as_it_is() {
    with_docker(|machine, fixture| {
        let git = "git init -q && git config user.name me && git config user.email me@example.org && \
                   echo ignored >.gitignore && echo one >file && git add . && git commit -qm first && \
                   echo two >file && git add file && echo three >file && echo new >new && touch ignored && \
                   printf '#!/bin/sh\n' >tool && chmod 755 tool";
        fixture.host_command("sh").args(["-c", git]).finish().success();
        let look = "pwd; id -u; git log --format=%s; git status --short; cat file; git show :file; ls -A; test -x tool";
        let finished = fixture.bash(look);
        let expected = format!(
            "{}\n1000\nfirst\nMM file\n?? new\n?? tool\nthree\ntwo\n.git\n.gitignore\nfile\nnew\ntool",
            fixture.project.display()
        );
        assert_eq!(finished.success(), expected, "{}", finished.stderr);
        machine.assert_empty(fixture);
    });
}

#[test]
fn changes_wait_to_be_applied_and_commits_are_refs() {
    with_docker(|machine, fixture| {
        let git = "git init -q -b main && git config user.name me && git config user.email me@example.org && \
                   echo one >file && git add . && git commit -qm first";
        fixture.host_command("sh").args(["-c", git]).finish().success();
        let work = "echo two >file; git commit -qam second; echo three >file; echo new >new";
        let mut command = fixture.run();
        command.args(["--name", "changed", "--", "bash", "-c", work]).finish().success();
        machine.assert_empty(fixture);
        let read = |name: &str| fs::read_to_string(fixture.project.join(name)).ok();
        assert_eq!((read("file").as_deref(), read("new")), (Some("one\n"), None));
        let refs = fixture.host_command("git").args(["log", "--format=%s", "refs/sandpen/changed/heads/main"]).finish();
        assert_eq!(refs.success(), "second\nfirst", "{}", refs.stderr);
        let shown = fixture.sandpen(["diff", "changed"]).finish();
        assert!(shown.success().contains("+three"), "{}", shown.stdout);
        fixture.sandpen(["apply", "changed"]).finish();
        assert_eq!((read("file").as_deref(), read("new").as_deref()), (Some("three\n"), Some("new\n")));
    });
}

#[test]
fn a_detached_sandbox_is_attached_to() {
    with_docker(|_, fixture| {
        crate::detach::a_screen_is_left_and_found_again(fixture);
        crate::detach::a_command_that_does_not_start_is_reported(fixture);
    });
}

#[test]
fn streams_codes_and_variables_are_those_of_the_command() {
    with_docker(|_, fixture| {
        let script = "cat; echo \"$GIVEN\"; echo wrong >&2; exit 7";
        let mut command = fixture.run();
        command.args(["--env", "GIVEN=a b", "--", "sh", "-c", script]);
        let input: Vec<u8> = (0..=255_u8).cycle().take(700_000).collect();
        let file = fixture.outside("files").join("input");
        fs::write(&file, &input).expect("input");
        let output = command.stdin(fs::File::open(&file).expect("input")).output().expect("sandpen");
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(output.stdout, [input.as_slice(), b"a b\n"].concat());
        assert!(String::from_utf8_lossy(&output.stderr).contains("wrong\n"));
        assert_eq!(fixture.bash("kill -9 $$").code, Some(137));
        assert_eq!(fixture.run().args(["--", "no-such-program"]).finish().code, Some(127));
    });
}

#[test]
fn the_command_has_no_rights_and_its_own_network() {
    with_docker(|_, fixture| {
        let script = "grep -E '^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status | tr -d '\\t'; ls /sys/class/net; \
                      kill -9 1 2>/dev/null || echo kept; cat /proc/1/environ 2>/dev/null || echo closed; \
                      echo x >/etc/passwd 2>/dev/null || echo read-only; \
                      rm -f /.sandpen/sandpen 2>/dev/null || echo stays";
        let finished = fixture.run().args(["--network", "off", "--", "bash", "-c", script]).finish();
        let nothing = "0".repeat(16);
        let expected = format!(
            "CapPrm:{nothing}\nCapEff:{nothing}\nCapBnd:{nothing}\nCapAmb:{nothing}\nNoNewPrivs:1\nlo\nkept\nclosed\n\
             read-only\nstays"
        );
        assert_eq!(finished.success(), expected, "{}", finished.stderr);
    });
}

#[test]
fn read_only_mounts_are_copies_that_the_command_cannot_change() {
    with_docker(|_, fixture| {
        let directory = fixture.outside("books");
        fs::create_dir_all(&directory).expect("directory");
        fixture.write(directory.join("book"), "text\n");
        let mount = format!("{}:/books", directory.display());
        let script = "cat /books/book; echo more >>/books/book || rm -f /books/book || echo refused";
        let finished = fixture.run().args(["--mount", &mount, "--", "sh", "-c", script]).finish();
        assert_eq!(finished.success(), "text\nrefused", "{}", finished.stderr);
        assert!(finished.stderr.contains("a copy as of the start"), "{}", finished.stderr);
    });
}

#[test]
fn a_terminal_has_its_size_and_ctrl_c() {
    with_docker(|_, fixture| {
        let mut command = fixture.run();
        command.args([
            "--",
            "bash",
            "-c",
            "stty size; trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done",
        ]);
        let mut terminal = Pty::start(&command);
        terminal.expect("ready");
        terminal.send("\u{3}");
        terminal.expect("caught");
        terminal.expect_end(9);
    });
}

#[test]
fn ps_exec_and_stop_find_it() {
    with_docker(|machine, fixture| {
        let mut command = fixture.run();
        command.args(["--name", "far", "--env", "GIVEN=a b"]);
        command.args(["--", "sh", "-c", "echo up; trap 'exit 3' TERM; while :; do sleep 0.1; done"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        let listed = fixture.sandpen(["ps"]).finish();
        assert!(listed.success().contains("far"), "{}", listed.stdout);
        // The variables of the launch are not needed any more.
        let mut enter = fixture.sandpen(["exec", "far", "--", "sh", "-c", "echo $GIVEN; id -u; exit 4"]);
        let entered = enter.env_remove("DOCKER_HOST").finish();
        assert_eq!((entered.code, entered.stdout.trim()), (Some(4), "a b\n1000"), "{}", entered.stderr);
        fixture.sandpen(["stop", "far"]).finish().success();
        assert_eq!(running.finish().code, Some(3));
        machine.assert_empty(fixture);
        assert_eq!(fixture.sessions().len(), 0);
    });
}

#[test]
fn a_killed_launcher_loses_nothing_and_leaves_nothing() {
    with_docker(|machine, fixture| {
        let mut command = fixture.run();
        command.args(["--name", "killed", "--", "sh", "-c", "echo text >made; echo up; sleep 1000"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        running.kill_alone();
        let shown = fixture.sandpen(["diff", "killed"]).env_remove("DOCKER_HOST").finish();
        assert!(shown.success().contains("+text"), "{}", shown.stderr);
        machine.assert_empty(fixture);
        assert_eq!(fixture.sessions().len(), 0);
    });
}

#[test]
fn an_image_that_is_not_there_is_called_that() {
    with_docker(|machine, fixture| {
        let finished = fixture.run_image("localhost/no-such-image").args(["--", "true"]).finish();
        let stderr = finished.failure(44);
        assert!(stderr.contains("the sandbox image `localhost/no-such-image` is missing"), "{stderr}");
        machine.assert_empty(fixture);
    });
}

#[test]
fn a_context_selects_it_and_explain_shows_the_command_line() {
    with_docker(|machine, fixture| {
        let endpoint = machine.endpoint(fixture.engine());
        let create = ["context", "create", "far", "--docker", &format!("host={endpoint}")];
        fixture.host_command("docker").env_remove("DOCKER_HOST").args(create).finish().success();
        let mut explain = fixture.command("explain");
        explain.env_remove("DOCKER_HOST").env("DOCKER_CONTEXT", "far").args(["--", "true"]);
        let explained = explain.finish();
        let text = explained.success();
        assert!(text.contains("docker --context far run ") && text.contains("--cap-drop ALL"), "{text}");
        assert!(!text.contains("--volume") && !text.contains("--mount"), "{text}");
        let mut run = fixture.run();
        run.env_remove("DOCKER_HOST").env("DOCKER_CONTEXT", "far").args(["--", "echo", "there"]);
        assert_eq!(run.finish().success(), "there");
    });
}

#[test]
fn keys_sign_inside_and_stay_outside() {
    with_docker_and_agent(|machine, fixture| {
        let script = "set -e; cd /tmp; ssh-add -l | cut -d' ' -f3-; ssh-add -L >key.pub; echo text >text; \
                      ssh-keygen -q -Y sign -f key.pub -n file text; head -1 text.sig; ! ssh-add -D 2>/dev/null";
        let finished = fixture.bash(script);
        let lines: Vec<&str> = finished.success().lines().collect();
        assert!(lines[0].starts_with(KEY_COMMENT), "{lines:?}");
        assert_eq!(lines[1], "-----BEGIN SSH SIGNATURE-----");
        machine.assert_empty(fixture);
    });
}
