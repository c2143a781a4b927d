//! Values, files and addresses that are odd end with a message, and not with a hang, a page of text or
//! a wrong reason.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Fixture, RunToEnd};

#[test]
fn sandbox_env_passes_no_values_of_the_host() {
    let fixture = Fixture::new();
    let mut command = fixture.sandpen(["explain", "--", "true"]);
    let finished = command.env("SANDBOX_ENV", "A=b,GH_TOKEN").env("GH_TOKEN", "s3cret").finish();
    let stderr = finished.failure(2);
    assert!(stderr.contains("env SANDBOX_ENV: `GH_TOKEN` is not a variable"), "{stderr}");
}

/// An ordinary read would wait for a writer for ever.
#[test]
fn configuration_that_is_a_pipe_or_a_device_is_refused() {
    let places = [
        (".config/sandpen/config.toml", vec!["explain"]),
        (".config/sandpen/profiles/p.toml", vec!["explain", "--profile", "p"]),
        (".config/sandpen/profiles/j.json", vec!["explain", "--profile", "j"]),
        (".config/sandpen/presets/a.toml", vec!["explain", "--agent", "a"]),
    ];
    for (place, arguments) in places {
        let fixture = Fixture::new();
        let path = fixture.home.join(place);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let finished = fixture.sandpen(&arguments).finish();
        assert!(finished.failure(2).contains("not a regular file"), "{place}: {}", finished.stderr);
        std::fs::remove_file(&path).expect("remove");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("link");
        let finished = fixture.sandpen(&arguments).finish();
        assert!(finished.failure(2).contains("not a regular file"), "{place}: {}", finished.stderr);
    }
    // Docker's own file is not read then.
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.home.join(".docker")).expect("directory");
    mknodat(CWD, fixture.home.join(".docker/config.json"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
    fixture.sandpen(["explain", "--engine", "docker", "--", "true"]).finish().success();
}

#[test]
fn a_list_is_not_a_table_and_a_doubled_key_is_named() {
    for (file, text, parts) in [
        ("p.json", "[\"docker\"]", ["p.json:1:1", "wrong type"]),
        ("p.toml", "resources = [2, \"4g\"]", ["`resources`", "wrong type"]),
        ("p.toml", "mounts = [[\"/etc\"]]", ["`mounts[0]`", "wrong type"]),
        ("p.toml", "network = \"on\"\nnetwork = \"off\"", ["p.toml:2:", "`network`"]),
        ("p.toml", "[resources]\ncpus = 1\n[resources]\npids = 1", ["p.toml:3:", "`resources`"]),
        ("p.json", "{\"network\":\"on\",\"network\":\"off\"}", ["`network`", "twice"]),
    ] {
        let fixture = Fixture::new();
        fixture.write(format!(".config/sandpen/profiles/{file}"), text);
        let finished = fixture.sandpen(["explain", "--profile", "p"]).finish();
        let stderr = finished.failure(2);
        assert!(parts.iter().all(|part| stderr.contains(part)), "{text}: {stderr}");
    }
}

#[test]
fn long_values_are_shortened_in_messages() {
    let long = "X".repeat(10_000);
    for arguments in [
        vec!["explain", "--image", &long],
        vec!["explain", "--profile", &long],
        vec!["explain", "--agent", &long],
        vec!["explain", "--memory", &long],
        vec!["explain", "--allow-host", &long],
        vec!["explain", "--mount", &long],
        vec!["explain", "--network", &long],
        vec!["explain", &format!("--{long}")],
        vec!["exec", &long, "--", "true"],
    ] {
        let finished = Fixture::new().sandpen(&arguments).finish();
        assert_ne!(finished.code, Some(0));
        let longest = finished.stderr.lines().map(str::len).max().unwrap_or(0);
        assert!(longest < 1_000, "{} {}: a line of {longest} bytes", arguments[0], &arguments[1][..8]);
    }
}

#[test]
fn an_engine_on_another_machine_is_not_chosen_unasked() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let context = r#"{"Name":"far","Endpoints":{"docker":{"Host":"ssh://me@build.example"}}}"#;
    fixture.write(".docker/contexts/meta/1/meta.json", context);
    let service = "[engine.service_destinations.far]\nuri = \"ssh://me@build.example/run/podman/podman.sock\"\n";
    fixture.write(".config/containers/containers.conf", service);
    let remote = format!("[engine]\nremote = true\nactive_service = \"far\"\n{service}");
    let remote = fixture.write("remote.conf", &remote).display().to_string();
    for (docker, podman) in [
        (
            ("DOCKER_HOST", "ssh://me@build.example"),
            ("CONTAINER_HOST", "ssh://me@build.example/run/podman/podman.sock"),
        ),
        (("DOCKER_CONTEXT", "far"), ("CONTAINER_CONNECTION", "far")),
        (("DOCKER_CONTEXT", "far"), ("CONTAINERS_CONF", remote.as_str())),
    ] {
        let mut command = fixture.sandpen(["run", "--engine", "auto", "--image", "debian:12", "--", "true"]);
        let name = podman.0;
        let finished = command.env_remove("DOCKER_HOST").env(docker.0, docker.1).env(name, podman.1).finish();
        let stderr = finished.failure(44);
        assert_eq!(stderr.matches("is on another machine").count(), 2, "{name}: {stderr}");
        assert!(stderr.contains("`--engine docker`") && stderr.contains("`--engine podman`"), "{name}: {stderr}");
        assert!(!stderr.contains("image"), "{name}: {stderr}");
    }
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new());
}

#[test]
fn an_engine_on_another_machine_that_does_not_answer_is_called_that() {
    let fixture = Fixture::new().with_recording_docker();
    let mut command = fixture.sandpen(["run", "--engine", "docker", "--image", "debian:12", "--", "true"]);
    let finished = command.env("DOCKER_HOST", "tcp://no-such-host.invalid:2375").finish();
    let stderr = finished.failure(44);
    assert!(
        stderr.contains("Docker at `tcp://no-such-host.invalid:2375` (env DOCKER_HOST) does not answer"),
        "{stderr}"
    );
    assert!(!stderr.contains("image"), "{stderr}");
}

#[test]
fn a_mount_that_controls_the_host_is_called_that() {
    let fixture = Fixture::new();
    for (mount, said) in [
        ("/:/x", "exposes the whole host"),
        ("/proc:/p", "exposes the host's processes"),
        ("/run:/r", "exposes sockets that control the host"),
        ("~:/h", "exposes your whole home directory"),
    ] {
        let finished = fixture.sandpen(["explain", "--engine", "native", "--mount", mount, "--", "true"]).finish();
        assert!(finished.success().contains(said) || finished.stderr.contains(said), "{mount}: {}", finished.stderr);
        assert!(!finished.stderr.contains("not installed"), "{}", finished.stderr);
    }
    let docker = Fixture::new().with_recording_docker();
    let finished = docker.sandpen(["explain", "--engine", "docker", "--mount", "/:/x", "--", "true"]).finish();
    finished.success();
    assert!(finished.stderr.contains("exposes the whole host"), "{}", finished.stderr);
    let from = ["/", "/proc/1", "/run", "~", "/var/run/docker.sock"];
    let mounts: Vec<String> = from.iter().map(|from| format!("{{ from = \"{from}\", to = \"/x\" }}")).collect();
    fixture.write("project/.sandpen/config.toml", &format!("mounts = [{}]\n", mounts.join(", ")));
    let finished = fixture.sandpen(["trust", "--yes"]).finish();
    let shown = format!("{}{}", finished.stdout, finished.stderr);
    assert_eq!(shown.matches("root on this machine").count(), from.len(), "{shown}");
}
