//! An invalid value of a variable is refused with exit code 2, and the message names the value, the
//! variable and the expected form.

use crate::support::Fixture;

/// The fields are the variables, an invalid value, the complaint, and the expected form.
type Wrong = (&'static [&'static str], &'static str, &'static str, &'static str);
const WRONG: &[Wrong] = &[
    (
        &["SANDPEN_ENGINE", "LLXPRT_SANDBOX"],
        "lxc",
        "is not an engine",
        "`auto`, `docker`, `podman`, `sandbox-exec`, `native` or `kubernetes`",
    ),
    (
        &["SANDPEN_IMAGE", "LLXPRT_SANDBOX_IMAGE"],
        "A B",
        "is not an image reference",
        "`name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case",
    ),
    (
        &["SANDPEN_CPUS", "LLXPRT_SANDBOX_CPUS", "SANDBOX_CPUS"],
        "0",
        "is not a number of CPUs",
        "a positive number such as `2` or `0.5`",
    ),
    (
        &["SANDPEN_MEMORY", "LLXPRT_SANDBOX_MEMORY", "SANDBOX_MEMORY"],
        "lots",
        "is not an amount of memory",
        "a size of at least 6m, such as `512m` or `4g`",
    ),
    (
        &["SANDPEN_PIDS", "LLXPRT_SANDBOX_PIDS", "SANDBOX_PIDS"],
        "-1",
        "is not a number of processes",
        "a whole number from 1 to 4194304",
    ),
    (
        &["SANDPEN_NETWORK", "LLXPRT_SANDBOX_NETWORK", "SANDBOX_NETWORK"],
        "maybe",
        "is not a network policy",
        "`on`, `off` or `proxied`",
    ),
    (
        &["SANDPEN_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT"],
        "yes",
        "is not an agent setting",
        "`auto`, `on`, `off` or `raw`",
    ),
    (&["SANDBOX_SET_UID_GID", "BUILD_SANDBOX"], "maybe", "is not a boolean", "`1`, `true`, `0` or `false`"),
    (&["SANDBOX_FLAGS"], "--label 'x", "has an unbalanced quote", "words as a shell reads them"),
    (&["SANDBOX_PORTS"], "http", "is not a port", "a number from 1 to 65535"),
];

#[test]
fn a_wrong_value_names_itself_its_variable_and_the_form() {
    let fixture = Fixture::new().with_recording_docker();
    for (names, value, what, form) in WRONG {
        for name in *names {
            for command in ["run", "explain"] {
                let mut command = fixture.sandpen([command, "--", "true"]);
                // The fixture sets SANDPEN_SSH_AGENT, which overrides the other names.
                let stderr = fixture.usage_error(command.env_remove("SANDPEN_SSH_AGENT").env(name, value));
                let expected = format!("sandpen: error: env {name}: `{value}` {what}\nhint: expected {form}\n");
                assert_eq!(stderr, expected);
            }
        }
    }
}

#[test]
fn the_wrong_item_of_a_list_is_named() {
    let fixture = Fixture::new().with_recording_docker();
    for (name, list, message) in [
        (
            "SANDBOX_PORTS",
            "80, 99999",
            "\
sandpen: error: env SANDBOX_PORTS: `99999` is not a port
hint: expected a number from 1 to 65535
",
        ),
        (
            "SANDPEN_MOUNTS",
            "/etc,/usr:usr",
            "\
sandpen: error: env SANDPEN_MOUNTS: `/usr:usr` is not a mount
sandpen:   `usr` is not an absolute path
hint: expected `FROM[:TO[:ro|rw]]`
",
        ),
        (
            "LLXPRT_SANDBOX_MOUNTS",
            "/etc:/x:rx",
            "\
sandpen: error: env LLXPRT_SANDBOX_MOUNTS: `/etc:/x:rx` is not a mount
sandpen:   `rx` is neither `ro` nor `rw`
hint: expected `FROM[:TO[:ro|rw]]`
",
        ),
        (
            "SANDBOX_MOUNTS",
            "/etc,/nowhere",
            "\
sandpen: error: env SANDBOX_MOUNTS: `/nowhere` does not exist on the host
hint: expected an existing FROM in FROM[:TO[:ro|rw]]
",
        ),
        (
            "SANDBOX_ENV",
            "A=1,=2",
            "\
sandpen: error: env SANDBOX_ENV: `=…` is not a variable
sandpen:   there is no name before the `=`
hint: expected `NAME=VALUE`, or `NAME` or a pattern such as `AWS_*` to pass the host's values
",
        ),
    ] {
        assert_eq!(fixture.usage_error(fixture.sandpen(["run", "--", "true"]).env(name, list)), message);
    }
}

/// An error message must not reveal a secret.
#[test]
fn an_invalid_entry_does_not_reveal_its_secret() {
    let fixture = Fixture::new().with_recording_docker();
    for (arguments, variables) in [
        (vec!["run", "--env", "MY API_KEY=hunter2"], vec![]),
        (vec!["run"], vec![("SANDBOX_ENV", "MY API_KEY=hunter2")]),
    ] {
        let stderr = fixture.usage_error(fixture.sandpen(arguments).envs(variables));
        assert!(stderr.contains("MY API_KEY") && !stderr.contains("hunter2"), "{stderr}");
    }
}

#[test]
fn a_value_that_is_not_text_names_its_variable() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::new().with_recording_docker();
    let names =
        WRONG.iter().flat_map(|(names, ..)| *names).chain(&["SANDPEN_PROFILE", "SANDBOX_ENV", "SANDBOX_MOUNTS"]);
    for name in names {
        let mut command = fixture.sandpen(["run", "--", "true"]);
        command.env_remove("SANDPEN_SSH_AGENT").env(name, std::ffi::OsStr::from_bytes(b"a\xffb"));
        let expected = format!(
            "sandpen: error: env {name}: the value is not UTF-8\nhint: set {name} to plain text, or unset it\n"
        );
        assert_eq!(fixture.usage_error(&mut command), expected);
    }
}

#[test]
fn an_empty_variable_means_not_set() {
    let fixture = Fixture::new().with_recording_docker();
    let plain = fixture.explain_normalized(&["--", "true"], &[]);
    let names = WRONG.iter().flat_map(|(names, ..)| *names).filter(|name| !name.ends_with("SSH_AGENT"));
    let lists = [
        "SANDPEN_PROFILE",
        "SANDBOX_ENV",
        "SANDPEN_MOUNTS",
        "SANDBOX_MOUNTS",
        "SEATBELT_PROFILE",
        "LLXPRT_SANDBOX_PROXY_COMMAND",
    ];
    // The fixture itself needs LLXPRT_SANDBOX.
    for name in names.chain(&lists).filter(|name| **name != "LLXPRT_SANDBOX") {
        assert_eq!(fixture.explain_normalized(&["--", "true"], &[(name, "")]), plain, "{name}");
    }
    // An empty list has no items.
    for (name, list) in
        [("SANDBOX_PORTS", ","), ("SANDBOX_ENV", " , "), ("SANDBOX_MOUNTS", ",,"), ("SANDBOX_FLAGS", " ")]
    {
        assert_eq!(fixture.explain_normalized(&["--", "true"], &[(name, list)]), plain, "{name}");
    }
}

#[test]
fn a_relative_home_is_replaced_by_the_accounts_home() {
    let fixture = Fixture::new().with_recording_docker();
    for home in ["", "relative"] {
        let json = fixture.explain_normalized(&["--", "true"], &[("HOME", home)]);
        assert!(json["host"]["home"].as_str().is_some_and(|home| home.starts_with('/')), "{json:#}");
    }
    for name in ["TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
        assert_eq!(
            fixture.explain_normalized(&[], &[(name, "relative")]),
            fixture.explain_normalized(&[], &[]),
            "{name}"
        );
    }
}
