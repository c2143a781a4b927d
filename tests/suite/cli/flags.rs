//! An invalid value of a flag is refused with exit code 2, and the message names the value, the
//! flag and the expected form.

use crate::support::Fixture;

/// Each row has a flag, an invalid value, and the whole of stderr.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "--image",
        "A B",
        "\
sandpen: error: flag --image: `A B` is not an image reference
hint: expected `name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case
",
    ),
    (
        "--image",
        "name@sha256:12",
        "\
sandpen: error: flag --image: `name@sha256:12` is not an image reference
sandpen:   the digest is not `sha256:` and 64 hexadecimal digits
hint: expected `name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case
",
    ),
    (
        "--image",
        "name:a b",
        "\
sandpen: error: flag --image: `name:a b` is not an image reference
sandpen:   the tag may contain letters, digits, `_`, `.` and `-` only
hint: expected `name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case
",
    ),
    (
        "--cpus",
        "two",
        "\
sandpen: error: flag --cpus: `two` is not a number of CPUs
hint: expected a positive number such as `2` or `0.5`
",
    ),
    (
        "--cpus",
        "-1",
        "\
sandpen: error: flag --cpus: `-1` is not a number of CPUs
hint: expected a positive number such as `2` or `0.5`
",
    ),
    (
        "--memory",
        "1m",
        "\
sandpen: error: flag --memory: `1m` is not an amount of memory
hint: expected a size of at least 6m, such as `512m` or `4g`
",
    ),
    (
        "--pids",
        "0",
        "\
sandpen: error: flag --pids: `0` is not a number of processes
hint: expected a whole number from 1 to 4194304
",
    ),
    (
        "--mount",
        "/etc:etc",
        "\
sandpen: error: flag --mount: `/etc:etc` is not a mount
sandpen:   `etc` is not an absolute path
hint: expected `FROM[:TO[:ro|rw]]`
",
    ),
    (
        "--mount",
        "/etc:/x:rx",
        "\
sandpen: error: flag --mount: `/etc:/x:rx` is not a mount
sandpen:   `rx` is neither `ro` nor `rw`
hint: expected `FROM[:TO[:ro|rw]]`
",
    ),
    (
        "--mount",
        ":/x",
        "\
sandpen: error: flag --mount: `:/x` is not a mount
sandpen:   the path before the colon is missing
hint: expected `FROM[:TO[:ro|rw]]`
",
    ),
    (
        "--mount",
        "/a:/b:/c:/d",
        "\
sandpen: error: flag --mount: `/a:/b:/c:/d` is not a mount
sandpen:   a path with a colon can be mounted from a config file only: mounts = [{ from = …, to = … }]
hint: expected `FROM[:TO[:ro|rw]]`
",
    ),
    (
        "--env",
        "A B=c",
        "\
sandpen: error: flag --env: `A B=…` is not a variable
sandpen:   `A B` is not a variable's name
hint: expected `NAME=VALUE`, or `NAME` or a pattern such as `AWS_*` to pass the host's values
",
    ),
    (
        "--publish",
        "80:80",
        "\
sandpen: error: flag --publish: `80:80` is not a port
sandpen:   a port has the same number on the host and inside
hint: expected a number from 1 to 65535
",
    ),
    (
        "--publish",
        "65536",
        "\
sandpen: error: flag --publish: `65536` is not a port
hint: expected a number from 1 to 65535
",
    ),
    (
        "--allow-host",
        "http://example.org",
        "\
sandpen: error: flag --allow-host: `http://example.org` is not an allowed host
sandpen:   write the host only: `example.org`
hint: expected `HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets
",
    ),
    (
        "--allow-host",
        "me@example.org",
        "\
sandpen: error: flag --allow-host: `me@example.org` is not an allowed host
sandpen:   user information is not allowed
hint: expected `HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets
",
    ),
    (
        "--include-dir",
        "nowhere",
        "\
sandpen: error: flag --include-dir: `nowhere` is not a directory
",
    ),
];

#[test]
fn a_wrong_value_names_itself_its_flag_and_the_form() {
    let fixture = Fixture::new().with_recording_docker();
    for (flag, value, message) in WRONG {
        for command in ["run", "explain"] {
            let stderr = fixture.usage_error(&mut fixture.sandpen([command, flag, value, "--", "true"]));
            assert_eq!(stderr, *message, "{command} {flag} {value}");
        }
    }
}

#[test]
fn a_wrong_choice_names_itself_its_flag_and_the_choices() {
    let fixture = Fixture::new().with_recording_docker();
    for (flag, choices) in [
        ("--engine", ["auto", "docker", "podman", "sandbox-exec", "native", "kubernetes"].as_slice()),
        ("--network", &["on", "off", "proxied"]),
        ("--ssh-agent", &["auto", "on", "off", "raw"]),
        ("--user", &["auto", "host", "image"]),
        ("--tmp", &["private", "host"]),
        ("--git", &["private", "shared"]),
        ("--assume-host", &["linux", "macos"]),
    ] {
        for command in ["run", "explain"] {
            let stderr = fixture.usage_error(&mut fixture.sandpen([command, flag, "xyzzy", "--", "true"]));
            for part in [flag, "xyzzy"].iter().chain(choices) {
                assert!(stderr.contains(part), "{part} is missing in: {stderr}");
            }
        }
    }
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["explain", "--format", "yaml"])),
        "sandpen: error: flag --format: `yaml` is not valid\nhint: expected `text` or `json`\n"
    );
}

#[test]
fn a_flag_without_its_value_is_named() {
    let fixture = Fixture::new().with_recording_docker();
    for flag in ["--engine", "--image", "--profile", "--mount", "--env", "--publish", "--cpus", "--network", "--tmp"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", flag]));
        assert!(
            stderr.starts_with(&format!("sandpen: error: flag {flag}: a value is missing\nhint: expected ")),
            "{stderr}"
        );
    }
}

#[test]
fn a_flag_that_takes_one_value_cannot_be_given_twice() {
    let fixture = Fixture::new().with_recording_docker();
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--cpus", "1", "--cpus", "2"]));
    assert_eq!(stderr, "sandpen: error: flag --cpus: can be given only once\n");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "-q", "-v"]));
    assert_eq!(stderr, "sandpen: error: flag --quiet cannot be used with flag --verbose\nhint: drop one of the two\n");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--strict=yes"]));
    assert_eq!(stderr, "sandpen: error: flag --strict: takes no value, but `yes` was given\n");
}

/// These are the flags of `run` that take a value.
pub const FLAGS: &[&str] = &[
    "--engine",
    "--image",
    "--profile",
    "--mount",
    "--env",
    "--publish",
    "--cpus",
    "--memory",
    "--pids",
    "--network",
    "--allow-host",
    "--proxy-command",
    "--ssh-agent",
    "--ssh-host",
    "--user",
    "--tmp",
    "--engine-flag",
    "--include-dir",
    "--seatbelt-profile",
    "--agent",
    "--git",
];

#[test]
fn an_empty_value_means_not_set() {
    let fixture = Fixture::new().with_recording_docker();
    let plain = fixture.explain_normalized(&["--", "true"], &[]);
    let mut failures = Vec::new();
    for flag in FLAGS.iter().copied() {
        let finished = fixture.finish(&mut fixture.sandpen(["explain", "--format", "json", flag, "", "--", "true"]));
        if finished.code != Some(0) {
            failures.push(format!("{flag} '' is refused: {}", finished.stderr));
            continue;
        }
        let json: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
        if json != plain {
            failures.push(format!("{flag} '' changes something: {}\n", json["argv"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}
