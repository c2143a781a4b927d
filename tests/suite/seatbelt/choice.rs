//! Tests the choice of a profile, and refused options.

use serde_json::Value;

use super::judge::Object;
use super::profiles::{explain, profile};
use crate::support::{Fixture, RunToEnd, install_program};

fn chosen(json: &Value) -> (&str, &str) {
    let env = json["env"].as_array().expect("env");
    let profile = env.iter().find(|entry| entry["name"] == "SEATBELT_PROFILE").expect("SEATBELT_PROFILE");
    (profile["value"].as_str().expect("value"), json["network"]["mode"].as_str().expect("mode"))
}

#[test]
fn the_network_chooses_the_profile_and_a_profile_the_network() {
    let fixture = Fixture::new().with_macos_seatbelt();
    for (options, expected) in [
        (&[][..], ("permissive-open", "on")),
        (&["--network", "off"], ("permissive-closed", "off")),
        (&["--profile", "tight"], ("permissive-closed", "off")),
        (&["--seatbelt-profile", "restrictive-closed"], ("restrictive-closed", "off")),
        (&["--seatbelt-profile", "restrictive-closed", "--network", "off"], ("restrictive-closed", "off")),
        (&["--allow-host", "example.org"], ("permissive-proxied", "proxied")),
        (&["--seatbelt-profile", "restrictive-proxied"], ("restrictive-proxied", "proxied")),
    ] {
        assert_eq!(chosen(&explain(&fixture, &[options, &["--", "true"]].concat())), expected, "{options:?}");
    }
    let variable =
        fixture.command("explain").args(["--format", "json"]).env("SEATBELT_PROFILE", "restrictive-open").finish();
    assert_eq!(chosen(&variable.json()), ("restrictive-open", "on"));
}

/// Asserts the exit code and a part of the message, and that nothing was started.
#[track_caller]
fn refused(fixture: &Fixture, code: i32, options: &[&str], variables: &[(&str, &str)], words: &str) {
    let finished = fixture.run().args(options).args(["--", "true"]).envs(variables.iter().copied()).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{}", finished.stderr);
    assert!(fixture.normalize(&finished.stderr).contains(words), "{}", finished.stderr);
    assert!(!fixture.root.join("argv").exists(), "sandbox-exec was started");
    assert_eq!(fixture.sessions().len(), 0);
}

#[test]
fn contradictions_and_what_seatbelt_cannot_do_are_refused() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let open = ["--seatbelt-profile", "permissive-open", "--network", "off"];
    refused(
        &fixture,
        2,
        &open,
        &[],
        "the profile `permissive-open` is for the network `on`, but flag --network says `off`\nhint: drop one of the two, or use `permissive-closed`",
    );
    refused(
        &fixture,
        2,
        &["--seatbelt-profile", "permisive-open"],
        &[],
        "`permisive-open` is not a built-in Seatbelt profile",
    );
    refused(&fixture, 2, &["--image", "x"], &[], "has no images");
    refused(&fixture, 2, &["--engine-flag", "x"], &[], "has no command line");
    refused(&fixture, 44, &[], &[("BUILD_SANDBOX", "1")], "macOS Seatbelt has no images to build");
    refused(&fixture, 44, &["--strict", "--memory", "1g"], &[], "memory 1g (flag --memory) cannot be enforced here");
    refused(
        &fixture,
        2,
        &["--seatbelt-profile", "permissive-proxied"],
        &[],
        "a filtered network needs a list of hosts",
    );
}

#[test]
fn without_the_systems_program_nothing_is_started() {
    let fixture = Fixture::new().with_macos_seatbelt();
    // A program of that name on PATH is not the system's.
    let planted = fixture.root.join("bin/sandbox-exec");
    install_program(fixture.root.join("sandbox-exec"), planted);
    let mut run = fixture.run();
    run.env_remove("SANDPEN_STAND_IN_SANDBOX_EXEC")
        .env("PATH", format!("{}:/usr/bin:/bin", fixture.root.join("bin").display()));
    let finished = run.args(["--", "true"]).finish();
    finished.failure(44);
    assert!(finished.stderr.contains("there is no `/usr/bin/sandbox-exec` here"), "{}", finished.stderr);
    assert!(!fixture.root.join("argv").exists());
}

/// The test variable has no effect unless macOS is assumed.
#[test]
fn the_stand_in_is_for_an_assumed_mac_only() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut run = crate::support::sandpen_without_home(&fixture.project);
    run.env("SANDPEN_STAND_IN_SANDBOX_EXEC", fixture.root.join("sandbox-exec"));
    let finished = run.args(["run", "--engine", "sandbox-exec", "--", "true"]).finish();
    finished.failure(2);
    assert!(!fixture.root.join("argv").exists());
}

#[test]
fn limits_and_mounts_at_other_paths_are_downgrades() {
    let fixture = Fixture::new().with_macos_seatbelt();
    fixture.write("data/x", "");
    let json = explain(
        &fixture,
        &["--cpus", "2", "--memory", "1g", "--pids", "9", "--mount", "~/data:/data", "--keep", "--", "true"],
    );
    let downgrades = json["downgrades"].as_array().expect("downgrades");
    let asked: Vec<String> =
        downgrades.iter().map(|entry| fixture.normalize(entry["asked"].as_str().expect("asked"))).collect();
    assert_eq!(
        asked,
        [
            "cpus 2 (flag --cpus)",
            "memory 1g (flag --memory)",
            "pids 9 (flag --pids)",
            "keep (flag --keep)",
            "`[ROOT]/home/data` at `/data` (flag --mount)"
        ]
    );
}

/// The user names a profile by path, or by its name in the configuration directory. sandpen adds
/// its protections and the network rules.
#[test]
fn a_profile_of_the_users_own() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let text =
        "(version 1)\n(allow default)\n(allow file-write* (subpath (param \"INCLUDE_DIR_4\")) (subpath \"/\"))\n";
    let file = fixture.write(".config/sandpen/seatbelt/mine.sb", text).display().to_string();
    for name in ["mine", &file] {
        for (network, expected) in [("on", true), ("off", false)] {
            let profile = profile(&fixture, &["--seatbelt-profile", name, "--network", network, "--", "true"]);
            assert!(profile.allows("file-write-data", Object::Path("/opt/x")), "the user's rule is ignored");
            assert_eq!(profile.allows("network-outbound", Object::Address("example.org:443")), expected);
            for path in [".zshrc", ".config/sandpen/config.toml", "project/.git/hooks/x"] {
                assert!(!profile.allows("file-write-data", Object::Path(&fixture.home_path(path))), "{path}");
            }
            assert!(!profile.allows("network-outbound", Object::Unix(&fixture.home_path(".docker/run/docker.sock"))));
        }
    }
}

/// Attack 09: a profile in the repository cannot be selected by name or by path.
#[test]
fn attack_09_a_profile_in_the_repository_has_no_effect() {
    let fixture = Fixture::new().with_macos_seatbelt();
    fixture.write("project/.llxprt/sandbox-macos-mine.sb", "(version 1)\n(allow default)\n");
    refused(&fixture, 2, &["--seatbelt-profile", "mine"], &[], "belongs to the project and has no effect");
    refused(&fixture, 2, &[], &[("SEATBELT_PROFILE", "mine")], "belongs to the project and has no effect");
    let path = ".llxprt/sandbox-macos-mine.sb";
    refused(&fixture, 2, &["--seatbelt-profile", path], &[], "so it cannot be used as a profile");
    // A link from outside of the repository does not help either.
    let link = fixture.home.join("link.sb");
    std::os::unix::fs::symlink(fixture.project.join(path), &link).expect("link");
    refused(
        &fixture,
        2,
        &["--seatbelt-profile", &link.display().to_string()],
        &[],
        "so it cannot be used as a profile",
    );
}

#[test]
fn auto_on_macos_means_the_hosts_own_tools() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut explain = fixture.command("explain");
    let finished = explain.env_remove("SANDPEN_ENGINE").args(["--format", "json", "--", "true"]).finish();
    let json = finished.json();
    assert_eq!(json["engine"]["name"], "sandbox-exec");
    assert_eq!(json["image"], Value::Null);
    let mut explain = fixture.command("explain");
    let json =
        explain.env_remove("SANDPEN_ENGINE").args(["--image", "x", "--format", "json", "--", "true"]).finish().json();
    assert_eq!(json["engine"]["name"], "docker");
}
