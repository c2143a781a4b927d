//! `trust`: a project's file is shown in words, takes effect as it was shown, and can be taken back.

use std::fs;

use super::world::World;
use crate::support::pty::Pty;

const FILE: &str = "project/.sandpen/config.toml";

#[test]
fn what_cannot_be_trusted_is_said() {
    let world = World::new();
    assert_eq!(
        world.refused(&mut world.sandpen(["trust"])),
        "sandpen: error: there is no project file `[ROOT]/home/project/.sandpen/config.toml`\n"
    );
    assert_eq!(
        world.refused(&mut world.sandpen(["trust", "/nowhere"])),
        "\
sandpen: error: cannot open the directory `/nowhere`
sandpen:   No such file or directory (os error 2)
"
    );
    world.write(FILE, "network = \"off\"\nallowHosts = [\"a.b\"]\n");
    let stderr = world.refused(&mut world.sandpen(["trust"]));
    assert!(stderr.contains("asks for a filtered network"), "{stderr}");
}

#[test]
fn it_is_shown_in_words_and_trusted_as_shown() {
    let world = World::new();
    world.write(
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
    let only_shown = world.ran(&mut world.sandpen(["trust", "--dry-run"]));
    assert_eq!((only_shown.code, only_shown.stdout.as_str(), only_shown.stderr.as_str()), (Some(0), shown, ""));
    assert_eq!(world.explain(&[], &[])["network"]["mode"], "on");
    // From below, as `run` finds it.
    fs::create_dir(world.home.join("project/below")).unwrap();
    let ran = world.ran(world.sandpen(["trust"]).current_dir(world.home.join("project/below")));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), shown));
    assert_eq!(ran.stderr, "sandpen: trusted with its present content: [ROOT]/home/project/.sandpen/config.toml\n");
    assert_eq!(world.explain(&[], &[])["network"]["mode"], "off");
}

#[test]
fn a_change_is_told_from_what_was_trusted() {
    let world = World::new();
    world.write(FILE, "env = { A = \"1\", B = \"2\" }\n");
    assert_eq!(world.ran(&mut world.sandpen(["trust"])).code, Some(0));
    world.write(FILE, "env = { A = \"1\", B = \"3\" }\nproxyCommand = \"evil\"\n");
    let ran = world.ran(world.sandpen(["trust", "--dry-run"]).env("SANDPEN_NETWORK", ""));
    for line in [
        "proxyCommand  the proxy is the command `evil`  it runs on this machine, outside the",
        "env      `A` is `1` inside                      as you trusted it",
        "env      `B` is `3` inside                      new since you trusted it",
        "Removed since you trusted it\n  env  `B` is `2` inside\n",
    ] {
        assert!(ran.stdout.contains(line), "{line}\n{}", ran.stdout);
    }
}

#[test]
fn trust_is_listed_and_taken_back() {
    let world = World::new();
    let list = || world.ran(&mut world.sandpen(["trust", "--list"])).stdout;
    assert_eq!(list(), "");
    let projects = ["project", "other", "third"].map(|name| {
        world.write(format!("{name}/.sandpen/config.toml"), "network = \"off\"\n");
        assert_eq!(world.ran(world.sandpen(["trust", name]).current_dir(&world.home)).code, Some(0));
        world.home.join(name)
    });
    world.write("other/.sandpen/config.toml", "network = \"on\"\n");
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
        let ran = world.ran(&mut world.sandpen(arguments));
        let said = format!("sandpen: no longer trusted: [ROOT]/home/{name}/.sandpen/config.toml\n");
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), (Some(0), "", said));
    }
    assert_eq!(list(), "");
    assert_eq!(world.explain(&[], &[])["network"]["mode"], "on");
    assert_eq!(
        world.refused(&mut world.sandpen(["trust", "--revoke"])),
        "\
sandpen: error: no project file of `[ROOT]/home/project` is trusted
hint: `sandpen trust --list` lists the trusted ones
"
    );
}

/// A person is asked, and anything but a yes is a no.
#[test]
fn on_a_terminal_it_asks() {
    let world = World::new();
    world.write(FILE, "network = \"off\"\n");
    for (answer, code, mode) in [("\n", 1, "on"), ("no\n", 1, "on"), ("y\n", 0, "off")] {
        let mut terminal = Pty::start(&world.sandpen(["trust"]));
        terminal.expect("Let it take effect? [y/N]");
        terminal.send(answer);
        terminal.expect(&format!("[ended {code}]"));
        assert_eq!(world.explain(&[], &[])["network"]["mode"], mode, "{answer:?}");
    }
    // What is in effect already is not asked about, and neither is who said yes before.
    let mut again = Pty::start(&world.sandpen(["trust"]));
    again.expect("[ended 0]");
    world.write(FILE, "network = \"proxied\"\nallowHosts = [\"a.b\"]\n");
    let mut sure = Pty::start(&world.sandpen(["trust", "--yes"]));
    sure.expect("[ended 0]");
    assert_eq!(world.explain(&[], &[])["network"]["mode"], "proxied");
}

/// Nothing that a stranger writes into the file acts on the terminal of the one who reads it.
#[test]
fn attack_10_what_is_shown_is_text() {
    let world = World::new();
    world.write(
        FILE,
        "env = { A = \"\\u001b[2J\\u202e\" }\nproxyCommand = \"a\\u001b[1A\\nb\"\nengineFlags = [\"\\u009b2J\"]\n",
    );
    let ran = world.ran(&mut world.sandpen(["trust", "--dry-run"]));
    assert!(ran.stdout.contains("\\u{1b}[2J\\u{202e}") && ran.stdout.contains("\\u{9b}2J"), "{}", ran.stdout);
    assert!(!ran.stdout.contains(['\u{1b}', '\u{9b}', '\u{202e}']));
}
