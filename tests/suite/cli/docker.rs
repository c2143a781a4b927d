//! What users of docker write is understood, or answered with sandpen's flag.

use crate::support::{Fixture, RunToEnd};

#[test]
fn dockers_flags_lead_to_sandpens() {
    let fixture = Fixture::new().with_recording_docker();
    for (arguments, hint) in [
        (&["--volume", "/a:/b"][..], "use `--mount FROM[:TO[:ro|rw]]`"),
        (&["-it"], "leave it out: the command has a terminal if sandpen has one"),
        (&["--rm"], "leave it out: a sandbox is removed when it ends"),
        (&["-v", "/a:/b", "--", "true"], "to mount it: --mount /a:/b"),
        (&["-v", "./a:/b:rw", "true"], "to mount it: --mount ./a:/b:rw"),
        (&["-p", "8080:80"], "a port has the same number on the host and inside"),
        (&["--privileged"], "`--engine-flag FLAG`"),
    ] {
        let stderr = fixture.usage_error(fixture.sandpen(["run"]).args(arguments));
        assert!(stderr.contains(hint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn dockers_short_flags_mean_the_same() {
    let fixture = Fixture::new().with_recording_docker();
    let json = fixture.explain(&["-e", "A=b", "-p", "3000"]);
    assert_eq!(super::entry(&json, "env", "name", "A")["value"], "b");
    assert_eq!(json["ports"], serde_json::json!([3000]));
}

#[test]
fn an_env_file_is_read_as_docker_reads_it() {
    let fixture = Fixture::new().with_recording_docker();
    let file = fixture.write("vars", "# comment\n\nA=b c \"d\"\n  B=$A\nMY_TOKEN=hunter2\nFROM_HOST\n");
    let path = file.display().to_string();
    let json = fixture.explain_with(&["--env-file", &path, "--env", "B=flag"], &[("FROM_HOST", "secret")]);
    let value = |name: &str| &super::entry(&json, "env", "name", name)["value"];
    assert_eq!((value("A"), value("B")), (&serde_json::json!("b c \"d\""), &serde_json::json!("flag")));
    for name in ["MY_TOKEN", "FROM_HOST"] {
        assert_eq!(super::entry(&json, "env", "name", name)["secret"], true, "{name}");
    }
    assert!(!json.to_string().contains("hunter2"), "{json}");
    fixture.write("vars", "A=b\nhunter2 = x\n");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--env-file", &path]));
    assert!(stderr.contains("line 2 is not a variable") && !stderr.contains("hunter2"), "{stderr}");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--env-file", "missing"]));
    assert!(stderr.contains("cannot read the file of variables"), "{stderr}");
}

#[test]
fn a_pattern_passes_the_hosts_variables_as_secrets() {
    let fixture = Fixture::new().with_recording_docker();
    let variables = [("AWS_REGION", "x"), ("AWS_PROFILE", "y"), ("AWSX", "z"), ("A_SOCK", "q")];
    let json = fixture.explain_with(&["--env", "AWS_*", "--env", "AWS_REGION=mine"], &variables);
    assert_eq!(super::entry(&json, "env", "name", "AWS_PROFILE")["secret"], true);
    assert_eq!(super::entry(&json, "env", "name", "AWS_REGION")["value"], "mine");
    assert!(!json.to_string().contains("AWSX"), "{json}");
    let json = fixture.explain(&["--env", "NOTHING_*"]);
    assert!(json["warnings"].to_string().contains("no variable of the host matches `NOTHING_*`"), "{json}");
    let json = fixture.explain_with(&["--env", "*H*"], &[("SSH_AUTH_SOCK", "/x")]);
    for name in ["PATH", "SSH_AUTH_SOCK"] {
        assert!(!json["env"].as_array().expect("a list").iter().any(|one| one["name"] == name), "{name}: {json}");
    }
}

#[test]
fn a_mount_in_a_file_can_be_text() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("x/y", "");
    fixture.write_config("mounts = [\"~/x:~/z:rw\", { from = \"~/x\", to = \"/t\" }]\n");
    let json = fixture.explain(&[]);
    let target = format!("{}/z", fixture.home.display());
    assert_eq!(super::entry(&json, "mounts", "target", &target)["mode"], "rw");
    assert_eq!(super::entry(&json, "mounts", "target", "/t")["mode"], "ro");
    fixture.write_config("mounts = [\"~/x:z\"]\n");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
    assert!(stderr.contains("config.toml:1:") && stderr.contains("not an absolute path"), "{stderr}");
}

#[test]
fn presets_lists_all_with_paths_and_keys() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(".config/sandpen/presets/mine.toml", "name = \"mine\"\nsecrets = [\"MINE_KEY\"]\n");
    let finished = fixture.sandpen(["presets"]).finish();
    for part in
        ["claude\n", "own  ~/.claude  ", "ANTHROPIC_API_KEY", "cursor-agent\n", "crush\n", "mine  (", "keys MINE_KEY"]
    {
        assert!(finished.success().contains(part), "{part}: {}", finished.stdout);
    }
    let json = fixture.sandpen(["presets", "--format", "json"]).finish().json();
    let names: Vec<&str> =
        json["presets"].as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "llxprt",
            "gemini",
            "claude",
            "codex",
            "aider",
            "opencode",
            "copilot",
            "qwen",
            "amp",
            "goose",
            "cursor-agent",
            "crush",
            "mine"
        ]
    );
}

#[test]
fn a_directory_that_sandboxes_have_of_their_own_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    let stderr = fixture.usage_error(fixture.sandpen(["run", "--", "ls"]).current_dir("/etc"));
    assert!(
        stderr.starts_with("sandpen: error: the working directory is `/etc`, which every sandbox has of its own\n"),
        "{stderr}"
    );
}
