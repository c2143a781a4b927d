//! Tests the guest's environment variables and their exact values.

use std::collections::BTreeMap;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(
    terminal_and_node_options_are_passed,
    the_sandbox_has_a_name,
    values_arrive_unchanged,
    variables_come_from_every_layer,
    only_requested_variables_are_set,
);
for_native_image!(the_sandbox_has_a_name, only_requested_variables_are_set);

/// Returns the guest's environment, read without a shell.
fn environment(fixture: &Fixture, prepare: impl FnOnce(&mut std::process::Command)) -> BTreeMap<String, String> {
    let mut command = fixture.run();
    prepare(&mut command);
    let finished = command.args(["--", "env", "-0"]).finish();
    finished.success();
    let pairs = finished.stdout.split('\0').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').expect("NAME=VALUE")).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

fn terminal_and_node_options_are_passed(fixture: &Fixture) {
    let expected =
        [("TERM", "xterm-kitty"), ("COLORTERM", "truecolor"), ("NODE_OPTIONS", "--max-old-space-size=99 -r \"a b\"")];
    let inside = environment(fixture, |command| {
        command.envs(expected);
    });
    for (name, value) in expected {
        assert_eq!(inside.get(name).map(String::as_str), Some(value), "{name}");
    }
}

fn the_sandbox_has_a_name(fixture: &Fixture) {
    let finished = fixture.bash("echo $SANDBOX");
    let sandbox = finished.success();
    let id = sandbox.strip_prefix("sandpen-").expect("sandpen-ID");
    assert!(id.len() >= 8 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
    assert_ne!(fixture.bash("echo $SANDBOX").success(), sandbox, "two sandboxes have the same name");
}

const ODD: &[&str] = &[
    "a b",
    "  two  ",
    "it's \"quoted\"",
    "line 1\nline 2\n",
    "ünïcödé 日本語 \u{1f600}",
    "",
    "--rm",
    "-",
    "a=b=c",
    "$HOME `id` $(id) \\n %s",
    "a,b:c;d#e",
    "tab\there\r",
    "#comment",
];

fn values_arrive_unchanged(fixture: &Fixture) {
    let inside = environment(fixture, |command| {
        for (number, value) in ODD.iter().enumerate() {
            command.arg("--env").arg(format!("PLAIN_{number}={value}"));
            // A variable given by name only, and one whose name looks secret, are passed in other
            // ways.
            command.arg("--env").arg(format!("NAMED_{number}")).env(format!("NAMED_{number}"), value);
            command.arg("--env").arg(format!("N{number}_TOKEN={value}"));
        }
    });
    for (number, value) in ODD.iter().enumerate() {
        for name in [format!("PLAIN_{number}"), format!("NAMED_{number}"), format!("N{number}_TOKEN")] {
            assert_eq!(inside.get(&name).map(String::as_str), Some(*value), "{name}");
        }
    }
}

fn variables_come_from_every_layer(fixture: &Fixture) {
    fixture.write(".config/sandpen/config.toml", "[env]\nFROM_CONFIG = \"c\"\nBOTH = \"config\"\nNUMBER = 5\n");
    let inside = environment(fixture, |command| {
        command.env("SANDBOX_ENV", "FROM_VARIABLE=v, WITH_EQUALS=a=b,BOTH=variable").args(["--env", "FROM_FLAG=f"]);
        command.args(["--env", "HOME=/tmp", "--env", "NOT_SET_OUTSIDE"]);
    });
    let expected = [
        ("FROM_CONFIG", Some("c")),
        ("NUMBER", Some("5")),
        ("FROM_VARIABLE", Some("v")),
        ("WITH_EQUALS", Some("a=b")),
        ("FROM_FLAG", Some("f")),
        ("BOTH", Some("variable")),
        ("HOME", Some("/tmp")),
        ("NOT_SET_OUTSIDE", None),
    ];
    for (name, value) in expected {
        assert_eq!(inside.get(name).map(String::as_str), value, "{name}");
    }
}

/// The whole list is compared, so that a variable that an engine adds is noticed.
fn only_requested_variables_are_set(fixture: &Fixture) {
    let host = [
        ("GITHUB_TOKEN", "hunter2"),
        ("AWS_SECRET_ACCESS_KEY", "hunter2"),
        ("ANTHROPIC_API_KEY", "hunter2"),
        ("DISPLAY", ":0"),
        ("WAYLAND_DISPLAY", "wayland-0"),
        ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1/bus"),
        ("SSH_AUTH_SOCK", "/nowhere"),
        ("LD_PRELOAD_OF_MINE", "x"),
        ("BASH_ENV", "/nowhere"),
        // Podman passes it on by default.
        ("FTP_PROXY", "http://user:hunter2@proxy.invalid:1"),
    ];
    let inside = environment(fixture, |command| {
        command.envs(host);
    });
    let expected = [
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "HOME",
        "HOSTNAME",
        "LOGNAME",
        "PATH",
        "SANDBOX",
        "TERM",
        "USER",
        "container",
    ];
    let unexpected: Vec<_> = inside.keys().filter(|name| !expected.contains(&name.as_str())).collect();
    assert!(unexpected.is_empty(), "variables that were not requested: {unexpected:?}");
    assert!(!inside.values().any(|value| value.contains("hunter2")), "{inside:?}");
}
