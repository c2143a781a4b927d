//! Tests attempts to have a program of the guest's run on the host, or the host's secrets in a sandbox:
//! 07, 14, 24.

use std::os::unix::fs::symlink;

use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd, Running, SYSTEM_PATH, install_program};

for_every_engine!(attack_07_a_link_to_a_program_in_the_workspace_is_not_executed,);

/// The user develops Git, and has a link to it on PATH.
fn attack_07_a_link_to_a_program_in_the_workspace_is_not_executed(fixture: &Fixture) {
    let proof = fixture.home.join("executed");
    for name in ["git", "docker", "podman", "ssh"] {
        let script = format!("#!/bin/sh\necho {name} >> {}\n", proof.display());
        let program = fixture.write_script(format!("project/bin/{name}"), &script);
        let _ = std::fs::create_dir(fixture.home.join("links"));
        symlink(program, fixture.home.join("links").join(name)).expect("link");
    }
    let path = format!("{}:{SYSTEM_PATH}", fixture.home.join("links").display());
    for subcommand in ["explain", "run"] {
        let mut command = fixture.command(subcommand);
        command.env("PATH", &path).args(["--", "true"]).finish().success();
    }
    let mut command = fixture.sandpen(["ps"]);
    command.env("PATH", &path).finish().success();
    assert!(!proof.exists(), "{}", std::fs::read_to_string(&proof).unwrap_or_default());
}

/// The launcher's first child is then the user's proxy, with the environment of the host.
#[test]
fn attack_24_exec_has_the_environment_of_the_sandbox() {
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, |fixture| {
            let proxy = "python3 -c \"import os,socket,time
s=socket.create_server(('127.0.0.1', int(os.environ['SANDPEN_PROXY_PORT'])))
time.sleep(60)\"";
            let mut command = fixture.run();
            command.env("MY_SECRET_TOKEN", "host-only").args(["--name", "with-proxy", "--proxy-command", proxy]);
            command.args([
                "--env",
                "GIVEN=yes",
                "--",
                "bash",
                "-c",
                "export GIVEN=changed; echo ready; exec sleep 300",
            ]);
            let mut running = Running::start(&mut command);
            assert_eq!(running.line(), "ready");
            let seen = fixture.sandpen(["exec", "with-proxy", "--", "env"]).finish();
            let seen = seen.success();
            assert!(!seen.contains("host-only"), "{seen}");
            assert!(seen.lines().any(|line| line == "GIVEN=yes"), "{seen}");
            assert!(seen.lines().any(|line| line.starts_with("HTTPS_PROXY=")), "{seen}");
            fixture.sandpen(["stop", "with-proxy"]).finish().success();
            running.finish();
        });
    }
}

/// The launcher's arguments name mounts and values that are not for the guest.
#[test]
fn attack_14_the_launchers_command_line_is_not_visible() {
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, |fixture| {
            let mut command = fixture.run();
            command.args(["--env", "A=not-for-you", "--", "bash", "-c", "tr '\\0' ' ' < /proc/1/cmdline"]);
            assert_eq!(command.finish().success().trim_end_matches([' ', '\0']), "sandpen");
        });
    }
}

/// sandpen's developers run it in its own repository, where the guest can replace it.
#[test]
fn sandpen_in_the_workspace_starts_the_running_program() {
    Fixture::on(Engine::Native, |fixture| {
        let program = fixture.project.join("sandpen");
        install_program(crate::support::binary(), &program);
        fixture.give_to_user(&program);
        let proof = fixture.home.join("executed");
        let planted = fixture.write_script("planted", &format!("#!/bin/sh\ntouch {}\n", proof.display()));
        // Git on PATH replaces it after the start, as the guest of another sandbox would.
        let git = format!("#!/bin/sh\nmv {} {}\nexec /usr/bin/git \"$@\"\n", planted.display(), program.display());
        fixture.write_script("tools/git", &git);
        fixture.write(".gitconfig", "[include]\n\tpath = other\n");
        let mut command = fixture.host_command(&program);
        command.env("PATH", format!("{}:{SYSTEM_PATH}", fixture.home.join("tools").display()));
        command.args(["run", "--engine", "native", "--proxy-command"]);
        command.arg("python3 -c \"import os,socket,time\ns=socket.create_server(('127.0.0.1', int(os.environ['SANDPEN_PROXY_PORT'])))\ntime.sleep(60)\"");
        let finished = command.args(["--", "echo", "inside"]).finish();
        assert_eq!(finished.success(), "inside");
        assert!(!proof.exists());
    });
}
