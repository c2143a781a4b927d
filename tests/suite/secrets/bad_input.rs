//! Bindings that make no sense are refused in one line, with the expected form.

use crate::support::{Engine, Fixture, RunToEnd};

#[test]
fn wrong_bindings_are_usage_errors() {
    let fixture = Fixture::new();
    for (value, reason) in [
        ("A_KEY", "the host that gets the value is missing"),
        ("A_KEY@", "the host is empty"),
        ("A_KEY=secret@a.example", "write the name only: the value is the host's"),
        ("A_KEY@*.co.uk", "name each host: a pattern could include hosts of other people"),
        ("A_KEY@com", "write the complete name, with its domain"),
        ("A_KEY@10.0.0.1", "write a name: the server proves it with its certificate"),
        ("A_KEY@https://a.example", "write the host only"),
        ("A_KEY@a.example:0", "the port is not a number from 1 to 65535"),
    ] {
        let finished = fixture.sandpen(["run", "--secret", value, "--", "true"]).finish();
        let stderr = finished.failure(2);
        assert!(stderr.contains(reason) && stderr.contains("expected `NAME@HOST[:PORT]"), "{value}: {stderr}");
        assert!(!stderr.contains("=secret"), "{stderr}");
    }
    for (line, reason) in [
        ("hosts = []", "expected at least one host"),
        ("hosts = [\"a.example\"]\nheader = \"Content-Length\"", "`content-length` does not carry a credential"),
        ("hosts = [\"a.example\"]\nheader = \"two words\"", "expected `Bearer`, `Basic`, or a header's name"),
        ("hosts = [\"a.example\"]\nfrom = \"nowhere\"", "expected `env`, a path, or a command"),
        ("hosts = [\"a.example\"]\nfrom = []", "expected `env`, a path, or a command"),
        ("hosts = [\"a.example\"]\nvalue = \"x\"", "unknown key `value`"),
    ] {
        fixture.write(".config/sandpen/config.toml", &format!("[[secrets]]\nname = \"A_KEY\"\n{line}\n"));
        let finished = fixture.sandpen(["run", "--", "true"]).finish();
        assert!(finished.failure(2).contains(reason), "{line}: {}", finished.stderr);
    }
}

#[test]
fn outside_is_never_weakened_silently() {
    Fixture::on(Engine::Native, |fixture| {
        let explain = |arguments: &[&str]| {
            let mut command = fixture.command("explain");
            command.envs([("A_KEY", "value-of-a-key"), ("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway: token-of-it")]);
            command.args(["--keys", "outside"]).args(arguments).args(["--", "true"]).finish()
        };
        let bound = ["--secret", "A_KEY@a.example"];
        explain(&bound).success();
        let given = explain(&["--secret", "A_KEY@a.example", "--env", "A_KEY"]);
        assert!(given.failure(2).contains("`A_KEY` cannot stay outside: it is passed by `env`"), "{}", given.stderr);
        let preset = explain(&["--agent", "claude"]);
        assert!(
            preset.failure(2).contains("`ANTHROPIC_CUSTOM_HEADERS` cannot stay outside: its hosts are not known"),
            "{}",
            preset.stderr
        );
        let mac = fixture
            .sandpen([
                "explain",
                "--assume-host",
                "macos",
                "--keys",
                "outside",
                "--secret",
                "A_KEY@a.example",
                "--",
                "true",
            ])
            .env("A_KEY", "value-of-a-key")
            .env("SANDPEN_STAND_IN_SANDBOX_EXEC", "/bin/true")
            .finish();
        assert!(mac.failure(2).contains("cannot stay outside"), "{}", mac.stderr);
    });
}
