//! Tests completion in real shells: options, ids of running sandboxes, profiles.

use rustix::process::Signal;

use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, Running, binary};

/// Runs a test with a named running sandbox and one profile of the user.
fn with_names(test: impl FnOnce(&Fixture, &str)) {
    Fixture::on(Engine::NativeRoot, |fixture| {
        fixture.write(".config/sandpen/profiles/mine.toml", "network = \"off\"\n");
        let mut running =
            Running::start(fixture.run().args(["--name", "review-2", "--", "sh", "-c", "echo ready; exec sleep 300"]));
        assert_eq!(running.line(), "ready");
        test(fixture, &binary().parent().expect("a directory").display().to_string());
        running.signal(Signal::TERM);
        running.finish();
    });
}

#[test]
fn bash_completes_names() {
    with_names(|fixture, bin| {
        let script = format!(
            r#"PATH={bin}:$PATH; eval "$(sandpen completions bash)"
            try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sandpen_with_names sandpen "${{@: -1}}" "${{@: -2:1}}"; echo "${{COMPREPLY[*]}}"; }}
            complete -p sandpen | grep -o '_sandpen[a-z_]*'
            try sandpen exec ''; try sandpen stop rev; try sandpen stop x; try sandpen stop --al; try sandpen pru
            try sandpen run --profile mi; try sandpen run --engine nat"#
        );
        let finished = fixture.host_command("bash").args(["-c", &script]).finish();
        let expected = "_sandpen_with_names\nreview-2\nreview-2\n\n--all\nprune\nmine\nnative";
        assert_eq!(finished.success(), expected, "{}", finished.stderr);
    });
}

#[test]
fn fish_completes_names() {
    with_names(|fixture, bin| {
        let tries =
            ["exec ", "stop rev", "exec review-2 rev", "stop --al", "pru", "run --profile mi", "run --engine nat"];
        let tries: Vec<String> = tries.iter().map(|line| format!("complete -C 'sandpen {line}'; echo .")).collect();
        let script = format!("set PATH {bin} $PATH; sandpen completions fish | source; {}", tries.join("; "));
        let finished = fixture.host_command("fish").args(["--no-config", "--command", &script]).finish();
        // A tab separates the name from its description.
        let found: Vec<&str> =
            finished.success().lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
        let expected = ["review-2", ".", "review-2", ".", ".", "--all", ".", "prune", ".", "mine", ".", "native", "."];
        assert_eq!(found, expected, "{}", finished.stderr);
    });
}

#[test]
fn zsh_completes_names() {
    with_names(|fixture, bin| {
        let mut zsh = fixture.host_command("zsh");
        zsh.args(["-f", "-i"]).env("TERM", "dumb").env("PATH", format!("{bin}:/usr/bin:/bin"));
        let mut pty = Pty::start(&zsh);
        let start = "autoload -U compinit; compinit -u -D; eval \"$(sandpen completions zsh)\"; PS1='[prompt] '; echo re''ady\r";
        pty.send(start);
        pty.expect("ready");
        for (typed, whole) in [
            ("stop rev", "stop review-2"),
            ("exec rev", "exec review-2"),
            ("pru", "prune"),
            ("run --profile mi", "run --profile mine"),
            ("run --engine nat", "run --engine native"),
        ] {
            pty.expect("[prompt] ");
            // Tab completes the line; then Ctrl-A and Ctrl-E turn it into the argument of an echo.
            pty.send(&format!("sandpen {typed}\t\u{1}echo @\u{5}@\r"));
            pty.expect(&format!("@sandpen {whole}@"));
        }
    });
}
