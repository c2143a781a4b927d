//! An invalid network policy is refused with exit code 2, and the message names the entry.

use crate::support::Fixture;

#[test]
fn a_filtered_network_needs_a_host_list_or_a_proxy() {
    let fixture = Fixture::new().with_recording_docker();
    for (arguments, variables, reason) in [
        (&["--network", "proxied"][..], &[][..], "set by flag --network"),
        (&[], &[("SANDBOX_NETWORK", "proxied")], "set by env SANDBOX_NETWORK"),
    ] {
        for command in ["run", "explain"] {
            let mut command = fixture.sandpen([command].iter().chain(arguments));
            assert_eq!(
                fixture.usage_error(command.envs(variables.iter().copied())),
                format!(
                    "sandpen: error: a filtered network needs a list of hosts or a proxy command
sandpen:   the network is filtered: {reason}
hint: name hosts with `--allow-host HOST[:PORT]`, or a proxy with `--proxy-command`; `--network off` allows none\n"
                )
            );
        }
    }
}

#[test]
fn the_list_and_a_proxy_contradict_each_other() {
    let fixture = Fixture::new().with_recording_docker();
    let mut command = fixture.sandpen(["run", "--allow-host", "example.org", "--proxy-command", "x"]);
    assert_eq!(
        fixture.usage_error(&mut command),
        "\
sandpen: error: flag --proxy-command and flag --allow-host contradict each other: either your proxy decides, or the list does
hint: drop one of the two
"
    );
}

#[test]
fn a_proxy_command_is_split_into_words() {
    let fixture = Fixture::new().with_recording_docker();
    let mut command = fixture.sandpen(["run", "--proxy-command", "proxy 'x"]);
    assert_eq!(
        fixture.usage_error(&mut command),
        "\
sandpen: error: flag --proxy-command: `proxy 'x` is not a command
sandpen:   a quote is not closed
hint: it is split into words as in a shell, and executed without one
"
    );
}

#[test]
fn invalid_hosts_are_refused() {
    let fixture = Fixture::new().with_recording_docker();
    for (entry, reason) in [
        ("http://example.org/", "write the host only: `example.org`"),
        ("me@example.org", "user information is not allowed"),
        ("example.org:0", "the port is not a number from 1 to 65535"),
        ("example.org:65536", "the port is not a number from 1 to 65535"),
        ("bücher.example", "it is not ASCII; an international name is written as `xn--…`"),
        ("example.org.", "it ends with a dot"),
        ("127.1", "an IPv4 address is written as four decimal numbers"),
        ("0x7f000001", "an IPv4 address is written as four decimal numbers"),
        ("[::ffff:127.0.0.1]", "an IPv4 address is not written as IPv6"),
        ("*.127.0.0.1", "an address has no subdomains"),
        ("*", "it is not a host name"),
    ] {
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen(["run", "--allow-host", entry])),
            format!(
                "sandpen: error: flag --allow-host: `{entry}` is not an allowed host
sandpen:   {reason}
hint: expected `HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets\n"
            )
        );
    }
}

#[test]
fn explain_lists_the_hosts_of_the_list_and_of_the_preset() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen([
        "explain",
        "--format",
        "json",
        "--agent",
        "claude",
        "--network",
        "proxied",
        "--allow-host",
        "github.com:22",
        "--",
        "true",
    ]));
    let json: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    let listed = &json["network"]["allow_hosts"];
    assert_eq!(listed[0], "github.com:22", "{}", finished.stdout);
    assert!(listed.as_array().expect("a list").contains(&"api.anthropic.com:443".into()), "{listed}");
    let text = fixture
        .finish(&mut fixture.sandpen(["explain", "--agent", "claude", "--network", "proxied", "--", "true"]))
        .stdout;
    let line = text.lines().find(|line| line.contains("api.anthropic.com:443")).expect("listed");
    assert!(line.trim_start().starts_with("allowed ") && line.ends_with("preset claude"), "{line}");
}
