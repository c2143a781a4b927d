//! Flags override the environment, which overrides the profile, the trusted project file, the
//! user's file and the default, in this order; lists accumulate.

use super::entry;
use crate::support::Fixture;

/// Every layer sets another value; tests remove the layers from the top one by one.
fn layered() -> Fixture {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("image = \"user\"\nnetwork = \"on\"\n[resources]\ncpus = 1\nmemory = \"10m\"\npids = 10\n[env]\nWHO = \"user\"\n");
    fixture.write(
        "project/.sandpen/config.toml",
        "image = \"project\"\n[resources]\ncpus = 2\nmemory = \"20m\"\npids = 20\n[env]\nWHO = \"project\"\n",
    );
    fixture.write(
        ".config/sandpen/profiles/p.toml",
        "image = \"profile\"\n[resources]\ncpus = 3\nmemory = \"30m\"\npids = 30\n[env]\nWHO = \"profile\"\n",
    );
    fixture
}

#[test]
fn the_highest_layer_wins() {
    let fixture = layered();
    let flags =
        ["--profile", "p", "--image", "flag", "--cpus", "5", "--memory", "50m", "--pids", "50", "--env", "WHO=flag"];
    let variables = [
        ("SANDPEN_IMAGE", "env"),
        ("SANDPEN_CPUS", "4"),
        ("SANDPEN_MEMORY", "40m"),
        ("SANDPEN_PIDS", "40"),
        ("SANDBOX_ENV", "WHO=env"),
    ];
    let check = |flags: &[&str], variables: &[(&str, &str)], who: &str, from: &str, step: u64| {
        let json = fixture.explain_normalized(flags, variables);
        assert_eq!(json["image"]["reference"], who, "{json:#}");
        let origin = |what: &str| if what.is_empty() { from.to_owned() } else { format!("{from} {what}") };
        let suffix = |flag: &'static str, env: &'static str| match from {
            "flag" => flag,
            "env" => env,
            _ => "",
        };
        assert_eq!(json["image"]["from"], origin(suffix("--image", "SANDPEN_IMAGE")));
        let variable = entry(&json, "env", "name", "WHO");
        assert_eq!(variable["value"], who);
        assert_eq!(variable["from"], origin(suffix("--env", "SANDBOX_ENV")));
        let limits = serde_json::json!({"cpus": step.to_string(), "memory": format!("{step}0m"), "pids": step * 10});
        assert_eq!(json["limits"], limits);
    };
    assert_eq!(fixture.finish(&mut fixture.sandpen(["trust"])).code, Some(0));
    check(&flags, &variables, "flag", "flag", 5);
    check(&flags[..2], &variables, "env", "env", 4);
    check(&flags[..2], &[], "profile", "profile p", 3);
    check(&[], &[("SANDPEN_PROFILE", "p")], "profile", "profile p", 3);
    check(&[], &[], "project", "config [ROOT]/home/project/.sandpen/config.toml", 2);
    std::fs::remove_dir_all(fixture.project.join(".sandpen")).unwrap();
    check(&[], &[], "user", "config [ROOT]/home/.config/sandpen/config.toml", 1);
    fixture.write_config("");
    let json = fixture.explain_normalized(&[], &[]);
    assert_eq!(json["limits"], serde_json::json!({"cpus": null, "memory": null, "pids": 2048}));
    assert_eq!(json["image"]["from"], "default");
    assert_eq!(json["image"]["reference"], "docker.io/library/buildpack-deps:bookworm-scm");
}

#[test]
fn an_untrusted_project_file_is_no_layer() {
    let fixture = layered();
    let json = fixture.explain_normalized(&[], &[]);
    assert_eq!(json["image"]["reference"], "user");
    assert_eq!(json["limits"]["pids"], 10);
    assert_eq!(json["warnings"].as_array().map(Vec::len), Some(1), "{json:#}");
    // Trust is pinned to the content.
    assert_eq!(fixture.finish(&mut fixture.sandpen(["trust"])).code, Some(0));
    assert_eq!(fixture.explain_normalized(&[], &[])["image"]["reference"], "project");
    fixture.write("project/.sandpen/config.toml", "image = \"changed\"");
    assert_eq!(fixture.explain_normalized(&[], &[])["image"]["reference"], "user");
}

#[test]
fn a_flags_profile_wins_over_the_environments() {
    let fixture = Fixture::new().with_recording_docker();
    let json = fixture.explain_normalized(&["--profile", "tight"], &[("SANDPEN_PROFILE", "dev")]);
    assert_eq!(json["limits"]["pids"], 64);
    assert_eq!(json["network"]["mode"], "off");
    assert_eq!(fixture.explain_normalized(&["--profile", ""], &[("SANDPEN_PROFILE", "dev")])["limits"]["pids"], 256);
}

#[test]
fn choices_follow_the_same_order() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("engine = \"podman\"\nuser = \"image\"\nnetwork = \"off\"\ntmp = \"host\"\n");
    let json = fixture.explain_normalized(&[], &[("LLXPRT_SANDBOX", "")]);
    assert_eq!(json["engine"]["name"], "podman");
    assert_eq!(json["engine"]["from"], "config [ROOT]/home/.config/sandpen/config.toml");
    assert_eq!((&json["user"]["how"], &json["network"]["mode"]), (&"image".into(), &"off".into()));
    let env = [("SANDPEN_ENGINE", "docker"), ("SANDBOX_SET_UID_GID", "1"), ("SANDBOX_NETWORK", "on")];
    let json = fixture.explain_normalized(&[], &env);
    assert_eq!((&json["engine"]["name"], &json["engine"]["from"]), (&"docker".into(), &"env SANDPEN_ENGINE".into()));
    assert_eq!((&json["user"]["how"], &json["network"]["mode"]), (&"host".into(), &"on".into()));
    let json = fixture
        .explain_normalized(&["--engine", "podman", "--user", "image", "--network", "off", "--tmp", "private"], &env);
    assert_eq!((&json["engine"]["name"], &json["engine"]["from"]), (&"podman".into(), &"flag --engine".into()));
    assert_eq!((&json["user"]["how"], &json["network"]["mode"]), (&"image".into(), &"off".into()));
    assert_eq!(entry(&json, "mounts", "target", "/tmp")["source"], "tmpfs");
}

#[test]
fn among_environment_names_the_leftmost_non_empty_one_is_taken_whole() {
    let fixture = Fixture::new().with_recording_docker();
    let names = ["SANDPEN_CPUS", "LLXPRT_SANDBOX_CPUS", "SANDBOX_CPUS"];
    for (index, name) in names.iter().enumerate() {
        let mut variables: Vec<(&str, &str)> =
            names.iter().zip(["1", "2", "3"]).map(|(name, value)| (*name, value)).collect();
        variables.iter_mut().take(index).for_each(|variable| variable.1 = "");
        assert_eq!(fixture.explain_normalized(&[], &variables)["limits"]["cpus"], (index + 1).to_string(), "{name}");
    }
    // sandpen does not parse the names to the right of the first non-empty one.
    assert_eq!(fixture.explain_normalized(&[], &[("SANDPEN_CPUS", "1"), ("SANDBOX_CPUS", "x")])["limits"]["cpus"], "1");
    let json = fixture.explain_normalized(&[], &[("SANDPEN_MOUNTS", "/etc:/a"), ("SANDBOX_MOUNTS", "/etc:/b")]);
    assert_eq!(entry(&json, "mounts", "target", "/a")["from"], "env SANDPEN_MOUNTS");
    assert!(!json["mounts"].to_string().contains("\"/b\""), "{json:#}");
    let json = fixture.explain_normalized(&[], &[("LLXPRT_SANDBOX_IMAGE", "b"), ("SANDPEN_IMAGE", "a")]);
    assert_eq!(json["image"]["reference"], "a");
    let json = fixture.explain_normalized(&[], &[("LLXPRT_SANDBOX", "podman"), ("SANDPEN_ENGINE", "docker")]);
    assert_eq!(json["engine"]["from"], "env SANDPEN_ENGINE");
}

#[test]
fn llxprt_sandbox_may_be_a_truth_value() {
    let fixture = Fixture::new().with_recording_docker();
    for (value, from) in
        [("true", "env LLXPRT_SANDBOX"), ("1", "env LLXPRT_SANDBOX"), ("false", "default"), ("0", "default")]
    {
        assert_eq!(fixture.explain_normalized(&[], &[("LLXPRT_SANDBOX", value)])["engine"]["from"], from, "{value}");
    }
}

#[test]
fn lists_accumulate_over_all_layers() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("ports = [1001]\nmounts = [{ from = \"/etc\", to = \"/m1\" }]\nengineFlags = [\"--one\"]\nincludeDirs = [\"~/inc1\"]\n[env]\nA = \"user\"\n");
    fixture.write(".config/sandpen/profiles/p.toml", "ports = [1002]\nmounts = [{ from = \"/etc\", to = \"/m2\" }]\nengineFlags = [\"--two\"]\n[env]\nB = \"profile\"\n");
    for name in ["inc1", "inc2"] {
        std::fs::create_dir(fixture.home.join(name)).unwrap();
    }
    let variables = [
        ("SANDBOX_PORTS", "1003"),
        ("SANDBOX_MOUNTS", "/etc:/m3"),
        ("SANDBOX_FLAGS", "--three"),
        ("SANDBOX_ENV", "C=env"),
    ];
    let flags = [
        "--profile",
        "p",
        "--publish",
        "1004",
        "--mount",
        "/etc:/m4",
        "--engine-flag",
        "--four",
        "--env",
        "D=flag",
        "--include-dir",
        "~/inc2",
    ];
    let json = fixture.explain_normalized(&flags, &variables);
    let mut ports: Vec<u64> = json["ports"].as_array().unwrap().iter().filter_map(|port| port.as_u64()).collect();
    ports.sort();
    assert_eq!(ports, [1001, 1002, 1003, 1004]);
    for (target, from) in [("/m2", "profile p"), ("/m3", "env SANDBOX_MOUNTS"), ("/m4", "flag --mount")] {
        assert_eq!(entry(&json, "mounts", "target", target)["from"], from);
    }
    entry(&json, "mounts", "target", "/m1");
    for (name, value) in [("A", "user"), ("B", "profile"), ("C", "env"), ("D", "flag")] {
        assert_eq!(entry(&json, "env", "name", name)["value"], value);
    }
    for name in ["inc1", "inc2"] {
        entry(&json, "mounts", "target", &format!("[ROOT]/home/{name}"));
    }
    let argv: Vec<&str> = json["argv"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
    let flags: Vec<&&str> = argv.iter().filter(|word| ["--one", "--two", "--three", "--four"].contains(word)).collect();
    assert_eq!(
        flags,
        [&"--one", &"--two", &"--three", &"--four"],
        "the engine lets the last one win, so the highest layer is last"
    );
}

#[test]
fn on_the_same_target_or_name_the_higher_layer_wins() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config(
        "ports = [3000]\nmounts = [{ from = \"/usr\", to = \"/m\", mode = \"rw\" }]\n[env]\nA = \"user\"\n",
    );
    let json = fixture.explain_normalized(
        &["--mount", "/etc:/m", "--env", "A=flag", "--publish", "3000"],
        &[("SANDBOX_ENV", "A=env"), ("SANDBOX_MOUNTS", "/bin:/m:rw"), ("SANDBOX_PORTS", "3000")],
    );
    let mount = entry(&json, "mounts", "target", "/m");
    assert_eq!(
        (&mount["source"], &mount["mode"], &mount["from"]),
        (&"/etc".into(), &"ro".into(), &"flag --mount".into())
    );
    assert_eq!(entry(&json, "env", "name", "A")["value"], "flag");
    assert_eq!(json["ports"], serde_json::json!([3000]));
    let argv = json["argv"].to_string();
    assert!(!argv.contains("A=env") && !argv.contains("A=user") && !argv.contains("/usr:/m"), "{argv}");
}

/// Within one layer the last of two equal names wins, as in most tools.
#[test]
fn on_the_same_name_in_one_layer_the_later_one_wins() {
    let fixture = Fixture::new().with_recording_docker();
    let json =
        fixture.explain_normalized(&["--env", "A=1", "--env", "A=2", "--mount", "/etc:/m", "--mount", "/usr:/m"], &[]);
    assert_eq!(entry(&json, "env", "name", "A")["value"], "2");
    assert_eq!(entry(&json, "mounts", "target", "/m")["source"], "/usr");
}

#[test]
fn built_in_profiles_give_way_to_flags_and_own_files() {
    let fixture = Fixture::new().with_recording_docker();
    let json = fixture.explain_normalized(&["--profile", "safe", "--network", "on", "--cpus", "0.5"], &[]);
    assert_eq!(json["limits"], serde_json::json!({"cpus": "0.5", "memory": "4g", "pids": 128}));
    assert_eq!(json["network"]["mode"], "on");
    fixture.write(".config/sandpen/profiles/safe.toml", "[resources]\npids = 7\n");
    assert_eq!(fixture.explain_normalized(&["--profile", "safe"], &[])["limits"]["pids"], 7);
}
