//! `trust` shows a project's file, lets exactly the shown content take effect, and can be revoked.

use std::fs;

use crate::support::Fixture;
use crate::support::pty::Pty;

const FILE: &str = "project/.sandpen/config.toml";

#[test]
fn trust_names_what_it_cannot_trust() {
    let fixture = Fixture::new().with_recording_docker();
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["trust"])),
        "sandpen: error: there is no project file `[ROOT]/home/project/.sandpen/config.toml`\n"
    );
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["trust", "/nowhere"])),
        "\
sandpen: error: cannot open the directory `/nowhere`
sandpen:   No such file or directory (os error 2)
"
    );
    fixture.write(FILE, "network = \"off\"\nallowHosts = [\"a.b\"]\n");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["trust"]));
    assert!(stderr.contains("asks for a filtered network"), "{stderr}");
}

#[test]
fn trust_shows_the_file_and_trusts_what_it_showed() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(
        FILE,
        "network = \"off\"\nengineFlags = [\"--privileged\"]\nmounts = [{ from = \"/etc/hosts\" }]\n[env]\nA = \"b\"\nMY_KEY = \"hush\"\n",
    );
    let shown = "\
[ROOT]/home/project/.sandpen/config.toml

Opens the sandbox
  mounts       `/etc/hosts` is mounted, read-only       the sandbox can read it
  engineFlags  the engine gets the flag `--privileged`  a flag of the engine can disable any
                                                        protection

Changes
  env      `A` is `b` inside
  env      `MY_KEY` is set to a secret inside
  network  there is no network                 without the file: `on` (default)
";
    let only_shown = fixture.finish(&mut fixture.sandpen(["trust", "--dry-run"]));
    assert_eq!((only_shown.code, only_shown.stdout.as_str(), only_shown.stderr.as_str()), (Some(0), shown, ""));
    assert_eq!(fixture.explain_normalized(&[], &[])["network"]["mode"], "on");
    // `trust` finds the file from a subdirectory, as `run` does.
    fs::create_dir(fixture.home.join("project/below")).unwrap();
    let finished = fixture.finish(fixture.sandpen(["trust"]).current_dir(fixture.home.join("project/below")));
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), shown));
    assert_eq!(
        finished.stderr,
        "sandpen: trusted with its present content: [ROOT]/home/project/.sandpen/config.toml\n"
    );
    assert_eq!(fixture.explain_normalized(&[], &[])["network"]["mode"], "off");
}

#[test]
fn a_change_is_told_from_what_was_trusted() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(FILE, "env = { A = \"1\", B = \"2\" }\n");
    assert_eq!(fixture.finish(&mut fixture.sandpen(["trust"])).code, Some(0));
    fixture.write(FILE, "env = { A = \"1\", B = \"3\" }\nproxyCommand = \"evil\"\n");
    let finished = fixture.finish(fixture.sandpen(["trust", "--dry-run"]).env("SANDPEN_NETWORK", ""));
    for line in [
        "proxyCommand  the proxy is the command `evil`  it runs on this machine, outside the",
        "env      `A` is `1` inside                      as you trusted it",
        "env      `B` is `3` inside                      new since you trusted it",
        "Removed since you trusted it\n  env  `B` is `2` inside\n",
    ] {
        assert!(finished.stdout.contains(line), "{line}\n{}", finished.stdout);
    }
}

#[test]
fn trust_is_listed_and_taken_back() {
    let fixture = Fixture::new().with_recording_docker();
    let list = || fixture.finish(&mut fixture.sandpen(["trust", "--list"])).stdout;
    assert_eq!(list(), "");
    let projects = ["project", "other", "third"].map(|name| {
        fixture.write(format!("{name}/.sandpen/config.toml"), "network = \"off\"\n");
        assert_eq!(fixture.finish(fixture.sandpen(["trust", name]).current_dir(&fixture.home)).code, Some(0));
        fixture.home.join(name)
    });
    fixture.write("other/.sandpen/config.toml", "network = \"on\"\n");
    fs::remove_dir_all(&projects[2]).unwrap();
    assert_eq!(
        list(),
        "\
[ROOT]/home/other    changed since: no effect until it is trusted again
[ROOT]/home/project  in effect
[ROOT]/home/third    deleted
"
    );
    for (arguments, name) in [
        (&["trust", "--revoke"][..], "project"),
        (&["trust", "--revoke", "../other"], "other"),
        (&["trust", "--revoke", "../third"], "third"),
    ] {
        let finished = fixture.finish(&mut fixture.sandpen(arguments));
        let said = format!("sandpen: no longer trusted: [ROOT]/home/{name}/.sandpen/config.toml\n");
        assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr), (Some(0), "", said));
    }
    assert_eq!(list(), "");
    assert_eq!(fixture.explain_normalized(&[], &[])["network"]["mode"], "on");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["trust", "--revoke"])),
        "\
sandpen: error: no project file of `[ROOT]/home/project` is trusted
hint: `sandpen trust --list` lists the trusted ones
"
    );
}

/// `trust` asks at a terminal; every answer except yes means no.
#[test]
fn trust_asks_at_a_terminal() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(FILE, "network = \"off\"\n");
    for (answer, code, mode) in [("\n", 1, "on"), ("no\n", 1, "on"), ("y\n", 0, "off")] {
        let mut terminal = Pty::start(&fixture.sandpen(["trust"]));
        terminal.expect("Let it take effect? [y/N]");
        terminal.send(answer);
        terminal.expect(&format!("[ended {code}]"));
        assert_eq!(fixture.explain_normalized(&[], &[])["network"]["mode"], mode, "{answer:?}");
    }
    // sandpen does not ask if the content is already in effect, or with `--yes`.
    let mut again = Pty::start(&fixture.sandpen(["trust"]));
    again.expect("[ended 0]");
    fixture.write(FILE, "network = \"proxied\"\nallowHosts = [\"a.b\"]\n");
    let mut sure = Pty::start(&fixture.sandpen(["trust", "--yes"]));
    sure.expect("[ended 0]");
    assert_eq!(fixture.explain_normalized(&[], &[])["network"]["mode"], "proxied");
}

/// A project's author is not trusted, so control characters in the file must not reach the terminal
/// of the reader.
#[test]
fn attack_10_what_is_shown_is_text() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(
        FILE,
        "env = { A = \"\\u001b[2J\\u202e\" }\nproxyCommand = \"a\\u001b[1A\\nb\"\nengineFlags = [\"\\u009b2J\"]\n",
    );
    let finished = fixture.finish(&mut fixture.sandpen(["trust", "--dry-run"]));
    assert!(
        finished.stdout.contains("\\u{1b}[2J\\u{202e}") && finished.stdout.contains("\\u{9b}2J"),
        "{}",
        finished.stdout
    );
    assert!(!finished.stdout.contains(['\u{1b}', '\u{9b}', '\u{202e}']));
}
