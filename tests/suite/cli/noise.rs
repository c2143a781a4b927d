//! Warnings are given where the user can act on them, and nowhere else.

use crate::support::{Engine, Fixture, RunToEnd};

/// R4.2 is for containers; the native engine warns if the repository has a remote that uses SSH.
#[test]
fn native_misses_the_agent_only_where_remotes_use_ssh() {
    Fixture::on(Engine::Native, |fixture| {
        let run = |arguments: &[&str]| {
            let mut command = fixture.sandpen(["run", "--engine", "native"]);
            command.env_remove("SANDPEN_SSH_AGENT").args(arguments).args(["--", "true"]).finish().stderr
        };
        assert_eq!(run(&[]), "");
        assert!(run(&["--ssh-agent", "on"]).contains("no SSH agent"));
        let git = |arguments: &[&str]| fixture.host_command("git").args(arguments).finish().success().to_owned();
        git(&["init", "--quiet", "."]);
        git(&["remote", "add", "origin", "https://example.org/x.git"]);
        assert_eq!(run(&[]), "");
        git(&["remote", "set-url", "origin", "git@example.org:x.git"]);
        assert!(run(&[]).contains("no SSH agent: SSH_AUTH_SOCK is not set"));
    });
}

#[test]
fn sandpen_in_a_sandbox_says_so() {
    Fixture::on(Engine::Native, |fixture| {
        let program = crate::support::binary();
        let mount = program.display().to_string();
        let inside = |arguments: &[&str]| {
            let mut command = fixture.sandpen(["run", "--engine", "native", "--mount", &mount, "--", &mount, "run"]);
            command.args(arguments).args(["--", "true"]).finish()
        };
        for arguments in [&["--engine", "docker"][..], &["--engine", "podman"]] {
            let finished = inside(arguments);
            let stderr = finished.failure(44);
            assert!(stderr.starts_with("sandpen: error: this is already a sandbox of sandpen (`sandpen-"), "{stderr}");
        }
        // The variable alone is no sandbox.
        let stderr = fixture.sandpen(["explain", "--", "true"]).env("SANDBOX", "sandpen-x").finish().stderr;
        assert!(!stderr.contains("already a sandbox"), "{stderr}");
    });
}

#[test]
fn descriptions_of_terminals_are_visible() {
    Fixture::on(Engine::Native, |fixture| {
        fixture.write(".terminfo/x/xterm-mine", "mine");
        let other = fixture.outside("other");
        std::fs::create_dir_all(other.join("y")).expect("directory");
        let mut command = fixture.sandpen(["run", "--engine", "native"]);
        command.env("TERMINFO_DIRS", format!("{}:/usr/share/terminfo", other.display()));
        command.env("TERMINFO", &fixture.home);
        let script =
            "cat ~/.terminfo/x/xterm-mine; ls $(echo $TERMINFO_DIRS | cut -d: -f1); touch ~/.terminfo/z || ls -A ~";
        let finished = command.args(["--", "bash", "-c", script]).finish();
        assert_eq!(finished.success(), "miney\n.terminfo\nproject");
    });
}
