//! Random command lines and environments for `explain` must end with a documented exit code,
//! without a crash and without control characters on stderr.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use super::bytes::acts;
use super::flags::FLAGS;
use crate::support::{Fixture, RunToEnd};

const SWITCHES: &[&str] = &["--allow-home", "--strict", "-q", "-v", "--", "-", "--no-such-flag", "--help=x"];
const VARIABLES: &[&str] = &[
    "SANDPEN_ENGINE",
    "LLXPRT_SANDBOX",
    "SANDPEN_IMAGE",
    "SANDPEN_PROFILE",
    "SANDPEN_MOUNTS",
    "SANDBOX_ENV",
    "SANDBOX_PORTS",
    "SANDBOX_CPUS",
    "SANDBOX_MEMORY",
    "SANDBOX_PIDS",
    "SANDBOX_NETWORK",
    "SANDPEN_SSH_AGENT",
    "SANDBOX_SET_UID_GID",
    "SANDBOX_FLAGS",
    "BUILD_SANDBOX",
    "HOME",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "USER",
    "TERM",
    "VIRTUAL_ENV",
    "SSH_AUTH_SOCK",
    "PYTHONPATH",
    "PATH",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "CONTAINER_HOST",
    "GOOGLE_APPLICATION_CREDENTIALS",
];
/// Most values are valid for some option, so that random calls get past the parser.
const LIKELY: &[&str] = &[
    "docker",
    "podman",
    "auto",
    "on",
    "off",
    "image",
    "host",
    "debian:12",
    "dev",
    "safe",
    "/etc:/x",
    "/etc:/x:rw",
    "A=b",
    "PATH",
    "3000",
    "0.5",
    "64m",
    "256",
    "llxprt",
    "macos",
    "json",
    "1",
    "true",
    "~",
    "/",
    ".",
    "unix:///x",
    "",
    "-",
    "a:b,c",
    "/tmp",
];

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::sample::select(LIKELY).prop_map(|text| text.as_bytes().to_vec()),
        2 => any::<String>().prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..24),
        1 => prop::sample::select(vec!["\u{1b}[31m", "\u{9b}2J", "a\nb", "\u{202e}x", "\u{7}", "\r"]).prop_map(|text| text.as_bytes().to_vec()),
    ]
    // Arguments and variables cannot contain NUL.
    .prop_map(|bytes| bytes.into_iter().filter(|byte| *byte != 0).collect())
}

fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option = (prop::sample::select(FLAGS), value()).prop_map(|(flag, value)| vec![flag.as_bytes().to_vec(), value]);
    let switch = prop::sample::select(SWITCHES).prop_map(|flag| vec![flag.as_bytes().to_vec()]);
    let loose = value().prop_map(|value| vec![value]);
    prop::collection::vec(prop_oneof![6 => option, 1 => switch, 1 => loose], 0..5).prop_map(|words| words.concat())
}

fn os(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

/// PROPTEST_CASES=5000 runs more cases.
#[test]
fn explain_survives_300_random_calls() {
    let fixture = Fixture::new().with_recording_docker();
    let config = Config {
        cases: Config::default().cases.max(300),
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        max_shrink_time: 20_000,
        ..Config::default()
    };
    let variables = prop::collection::vec((prop::sample::select(VARIABLES), value()), 0..4);
    let before = fixture.snapshot();
    proptest!(config, |(words in words(), variables in variables)| {
        let mut command = fixture.sandpen(["explain"]);
        command.args(words.iter().map(|word| os(word)));
        command.envs(variables.iter().map(|(name, value)| (*name, os(value))));
        let finished = command.finish();
        prop_assert!(matches!(finished.code, Some(0 | 2 | 44)), "{command:?}: {finished:?}");
        prop_assert!(!acts(&finished.stderr), "{command:?}: {:?}", finished.stderr);
        prop_assert!(!finished.stderr.contains("panicked"), "{command:?}: {}", finished.stderr);
        prop_assert!(finished.code == Some(0) || !finished.stderr.is_empty(), "{command:?}: it failed without a message");
    });
    prop_assert_unchanged(&fixture, &before);
}

fn prop_assert_unchanged(fixture: &Fixture, before: &std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>) {
    assert_eq!(&fixture.snapshot(), before, "`explain` changed a file");
    // `explain` may ask an engine for an image, its machine or its connections, but starts no
    // container.
    let calls = fixture.calls();
    assert!(calls.iter().all(|call| ["image", "info", "system"].contains(&call[1].as_str())), "{calls:?}");
}
