//! Which profile is taken, and what is refused.

use serde_json::Value;

use super::judge::Object;
use super::world::World;
use crate::support::RunToEnd;

fn chosen(json: &Value) -> (&str, &str) {
    let env = json["env"].as_array().expect("env");
    let profile = env.iter().find(|entry| entry["name"] == "SEATBELT_PROFILE").expect("SEATBELT_PROFILE");
    (profile["value"].as_str().expect("value"), json["network"]["mode"].as_str().expect("mode"))
}

#[test]
fn the_network_chooses_the_profile_and_a_profile_the_network() {
    let world = World::new();
    for (options, expected) in [
        (&[][..], ("permissive-open", "on")),
        (&["--network", "off"], ("permissive-closed", "off")),
        (&["--profile", "tight"], ("permissive-closed", "off")),
        (&["--seatbelt-profile", "restrictive-closed"], ("restrictive-closed", "off")),
        (&["--seatbelt-profile", "restrictive-closed", "--network", "off"], ("restrictive-closed", "off")),
        (&["--allow-host", "example.org"], ("permissive-proxied", "proxied")),
        (&["--seatbelt-profile", "restrictive-proxied"], ("restrictive-proxied", "proxied")),
    ] {
        assert_eq!(chosen(&world.explain(&[options, &["--", "true"]].concat())), expected, "{options:?}");
    }
    let variable =
        world.sandpen("explain").args(["--format", "json"]).env("SEATBELT_PROFILE", "restrictive-open").ran();
    assert_eq!(chosen(&serde_json::from_str(variable.ok()).expect("JSON")), ("restrictive-open", "on"));
}

/// Exit code 2, or the one given, and these words.
#[track_caller]
fn refused(world: &World, code: i32, options: &[&str], variables: &[(&str, &str)], words: &str) {
    let ran = world.sandpen("run").args(options).args(["--", "true"]).envs(variables.iter().copied()).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{}", ran.stderr);
    assert!(world.neutral(&ran.stderr).contains(words), "{}", ran.stderr);
    assert!(!world.root.join("argv").exists(), "sandbox-exec was started");
    assert_eq!(world.sessions(), 0);
}

#[test]
fn contradictions_and_what_seatbelt_cannot_do_are_refused() {
    let world = World::new();
    let open = ["--seatbelt-profile", "permissive-open", "--network", "off"];
    refused(
        &world,
        2,
        &open,
        &[],
        "the profile `permissive-open` is for the network `on`, but flag --network says `off`\nhint: drop one of the two, or use `permissive-closed`",
    );
    refused(&world, 2, &["--seatbelt-profile", "permisive-open"], &[], "`permisive-open` is no Seatbelt profile");
    refused(&world, 2, &["--image", "x"], &[], "has no images");
    refused(&world, 2, &["--engine-flag", "x"], &[], "has no command line");
    // The seeds' FatalSandboxError.
    refused(&world, 44, &[], &[("BUILD_SANDBOX", "1")], "there is no image to build for macOS Seatbelt");
    refused(&world, 44, &["--strict", "--memory", "1g"], &[], "memory 1g (flag --memory) cannot be enforced here");
    refused(&world, 2, &["--seatbelt-profile", "permissive-proxied"], &[], "a filtered network needs a list of hosts");
}

#[test]
fn without_the_systems_program_nothing_is_started() {
    let world = World::new();
    // What PATH offers under the name is not the system's.
    let planted = world.root.join("bin/sandbox-exec");
    std::fs::create_dir(world.root.join("bin")).expect("bin");
    std::fs::copy(world.root.join("sandbox-exec"), planted).expect("copy");
    let mut run = world.sandpen("run");
    run.env_remove("SANDPEN_STAND_IN_SANDBOX_EXEC")
        .env("PATH", format!("{}:/usr/bin:/bin", world.root.join("bin").display()));
    let ran = run.args(["--", "true"]).ran();
    assert_eq!(ran.code, Some(44), "{}", ran.stderr);
    assert!(ran.stderr.contains("there is no `/usr/bin/sandbox-exec` here"), "{}", ran.stderr);
    assert!(!world.root.join("argv").exists());
}

/// The variable of the tests means nothing where macOS is not assumed.
#[test]
fn the_stand_in_is_for_an_assumed_mac_only() {
    let world = World::new();
    let mut run = crate::support::plain(&world.project);
    run.env("SANDPEN_STAND_IN_SANDBOX_EXEC", world.root.join("sandbox-exec"));
    let ran = run.args(["run", "--engine", "sandbox-exec", "--", "true"]).ran();
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(!world.root.join("argv").exists());
}

#[test]
fn limits_and_other_places_are_downgrades() {
    let world = World::new();
    world.write("data/x", "");
    let json = world.explain(&[
        "--cpus",
        "2",
        "--memory",
        "1g",
        "--pids",
        "9",
        "--mount",
        "~/data:/data",
        "--keep",
        "--",
        "true",
    ]);
    let downgrades = json["downgrades"].as_array().expect("downgrades");
    let asked: Vec<String> =
        downgrades.iter().map(|entry| world.neutral(entry["asked"].as_str().expect("asked"))).collect();
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

/// A profile of the user's: by path, or by name in the configuration. Protections come on top, and the network's switch.
#[test]
fn a_profile_of_the_users_own() {
    let world = World::new();
    let text =
        "(version 1)\n(allow default)\n(allow file-write* (subpath (param \"INCLUDE_DIR_4\")) (subpath \"/\"))\n";
    let file = world.write(".config/sandpen/seatbelt/mine.sb", text).display().to_string();
    for name in ["mine", &file] {
        for (network, expected) in [("on", true), ("off", false)] {
            let profile = world.profile(&["--seatbelt-profile", name, "--network", network, "--", "true"]);
            assert!(profile.allows("file-write-data", Object::Path("/opt/x")), "the user's word");
            assert_eq!(profile.allows("network-outbound", Object::Address("example.org:443")), expected);
            for path in [".zshrc", ".config/sandpen/config.toml", "project/.git/hooks/x"] {
                assert!(!profile.allows("file-write-data", Object::Path(&world.path(path))), "{path}");
            }
            assert!(!profile.allows("network-outbound", Object::Unix(&world.path(".docker/run/docker.sock"))));
        }
    }
}

/// attack 09: a profile in the repository chooses nothing, neither by the seeds' name for it nor by its path.
#[test]
fn attack_09_a_profile_in_the_repository_has_no_effect() {
    let world = World::new();
    world.write("project/.llxprt/sandbox-macos-mine.sb", "(version 1)\n(allow default)\n");
    refused(&world, 2, &["--seatbelt-profile", "mine"], &[], "is the project's and has no effect");
    refused(&world, 2, &[], &[("SEATBELT_PROFILE", "mine")], "is the project's and has no effect");
    let path = ".llxprt/sandbox-macos-mine.sb";
    refused(&world, 2, &["--seatbelt-profile", path], &[], "must not choose its own walls");
    // Nor through a link from outside.
    let link = world.home.join("link.sb");
    std::os::unix::fs::symlink(world.project.join(path), &link).expect("link");
    refused(&world, 2, &["--seatbelt-profile", &link.display().to_string()], &[], "must not choose its own walls");
}

#[test]
fn auto_on_macos_means_the_hosts_own_tools() {
    let world = World::new();
    let mut explain = world.sandpen("explain");
    let ran = explain.env_remove("SANDPEN_ENGINE").args(["--format", "json", "--", "true"]).ran();
    let json: Value = serde_json::from_str(ran.ok()).expect("JSON");
    assert_eq!(json["engine"]["name"], "sandbox-exec");
    assert_eq!(json["image"], Value::Null);
    let mut explain = world.sandpen("explain");
    let ran = explain.env_remove("SANDPEN_ENGINE").args(["--image", "x", "--format", "json", "--", "true"]).ran();
    let json: Value = serde_json::from_str(ran.ok()).expect("JSON");
    assert_eq!(json["engine"]["name"], "docker");
}
