//! Tests accepted and refused working directories, and messages about mounts.

use std::fs;
use std::os::unix::fs::symlink;

use super::entry;
use crate::support::Fixture;

#[test]
fn the_root_directory_is_refused_always() {
    let fixture = Fixture::new().with_recording_docker();
    let message = "\
sandpen: error: the working directory is `/`: a sandbox over the whole host protects nothing
hint: change to the directory of your project
";
    for flags in [&["run"][..], &["run", "--allow-home"], &["explain"], &["explain", "--allow-home"]] {
        assert_eq!(fixture.usage_error(fixture.sandpen(flags).current_dir("/")), message);
    }
}

#[test]
fn the_home_and_what_is_above_it_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    for (directory, name) in [(&fixture.home, "[ROOT]/home"), (&fixture.root, "[ROOT]")] {
        let message = format!(
            "sandpen: error: the working directory `{name}` contains your whole home directory, including keys and credentials\n\
             hint: change to the directory of your project, or pass --allow-home\n"
        );
        for command in ["run", "explain"] {
            assert_eq!(fixture.usage_error(fixture.sandpen([command]).current_dir(directory)), message);
        }
    }
}

#[test]
fn the_home_under_another_name_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    symlink(&fixture.home, fixture.root.join("link")).unwrap();
    let stderr = fixture.usage_error(
        fixture.sandpen(["run"]).current_dir(fixture.root.join("link")).env("PWD", fixture.root.join("link")),
    );
    assert!(stderr.contains("contains your whole home"), "{stderr}");
    let stderr =
        fixture.usage_error(fixture.sandpen(["run"]).current_dir(&fixture.home).env("HOME", fixture.root.join("link")));
    assert!(stderr.contains("contains your whole home"), "{stderr}");
}

#[test]
fn sandpens_own_configuration_behind_a_link_is_refused() {
    for link in [".config", ".local", ".local/state"] {
        let fixture = Fixture::new().with_recording_docker();
        fixture.write_config("");
        let dotfiles = fixture.home.join("dotfiles");
        let (old, new) = (fixture.home.join(link), dotfiles.join("kept"));
        fs::create_dir_all(&dotfiles).unwrap();
        fs::create_dir_all(&old).unwrap();
        fs::rename(&old, &new).unwrap();
        symlink(&new, &old).unwrap();
        let stderr = fixture.usage_error(fixture.sandpen(["run"]).current_dir(&dotfiles));
        assert!(stderr.contains("sandpen's configuration"), "{link}: {stderr}");
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", "~/dotfiles:/d:rw"]));
        assert!(stderr.contains("sandpen's configuration"), "{link}: {stderr}");
    }
}

#[test]
fn sandpens_own_configuration_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("");
    let message = |directory: &str| {
        format!(
            "sandpen: error: the working directory `{directory}` contains sandpen's configuration, which the guest must not change\n\
             hint: change to the directory of your project, or pass --allow-home\n"
        )
    };
    for directory in ["home/.config", "home/.config/sandpen"] {
        let stderr = fixture.usage_error(fixture.sandpen(["run"]).current_dir(fixture.root.join(directory)));
        assert_eq!(stderr, message(&format!("[ROOT]/{directory}")));
    }
    // The same goes for directories below it, because profiles are configuration.
    let profiles = fixture.home.join(".config/sandpen/profiles");
    fs::create_dir_all(&profiles).unwrap();
    let stderr = fixture.usage_error(fixture.sandpen(["run"]).current_dir(&profiles));
    assert!(stderr.contains("sandpen's configuration"), "{stderr}");
    let state = fixture.home.join(".local/state/sandpen/trust");
    fs::create_dir_all(&state).unwrap();
    let stderr = fixture.usage_error(fixture.sandpen(["run"]).current_dir(&state));
    assert!(stderr.contains("sandpen's configuration"), "{stderr}");
}

#[test]
fn allow_home_permits_it_with_a_warning() {
    let fixture = Fixture::new().with_recording_docker();
    let warning = "sandpen: warning: the guest can change everything in your home directory, including shell start-up files and sandpen's configuration: nothing protects the host\n";
    let finished = fixture.finish(fixture.sandpen(["run", "--allow-home", "--", "true"]).current_dir(&fixture.home));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), warning));
    let call = fixture.calls().remove(0);
    assert!(call.contains(&"[ROOT]/home:[ROOT]/home".to_owned()), "{call:?}");
    fixture.write_config("allowHome = true");
    let finished = fixture.finish(fixture.sandpen(["run", "--", "true"]).current_dir(&fixture.home));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), warning));
}

#[test]
fn a_directory_that_is_gone_is_said_to_be_gone() {
    let fixture = Fixture::new().with_recording_docker();
    let gone = fixture.root.join("gone");
    fs::create_dir(&gone).unwrap();
    let script = format!("cd '{0}' && /bin/rmdir '{0}' && exec \"$@\"", gone.display());
    let mut command = std::process::Command::new("/bin/sh");
    command.env_clear().env("HOME", &fixture.home).env("PATH", "/nowhere");
    command.args(["-c", &script, "sh"]).arg(crate::support::binary()).arg("run");
    let finished = fixture.finish(&mut command);
    assert_eq!(
        (finished.code, finished.stderr.as_str()),
        (
            Some(2),
            "\
sandpen: error: the current directory cannot be determined
sandpen:   No such file or directory (os error 2)
hint: it may have been deleted: change to an existing directory
"
        )
    );
}

#[test]
fn a_missing_mount_source_is_refused() {
    let fixture = Fixture::new().with_recording_docker();
    let message = |origin: &str, from: &str| {
        format!(
            "sandpen: error: {origin}: `{from}` does not exist on the host\nhint: expected an existing FROM in FROM[:TO[:ro|rw]]\n"
        )
    };
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", "/nowhere:/x"]));
    assert_eq!(stderr, message("flag --mount", "/nowhere"));
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", "~/nowhere:/x"]));
    assert_eq!(stderr, message("flag --mount", "~/nowhere"));
    let stderr = fixture.usage_error(fixture.sandpen(["run"]).env("SANDBOX_MOUNTS", "/nowhere"));
    assert_eq!(stderr, message("env SANDBOX_MOUNTS", "/nowhere"));
    fixture.write_config("mounts = [{ from = \"/nowhere\" }]");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
    assert_eq!(stderr, message("config [ROOT]/home/.config/sandpen/config.toml", "/nowhere"));
}

#[test]
fn a_mount_cannot_replace_the_sandboxs_own_directories() {
    let fixture = Fixture::new().with_recording_docker();
    for target in ["/", "/.sandpen", "/.sandpen/x"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", &format!("/etc:{target}")]));
        assert_eq!(
            stderr,
            format!(
                "sandpen: error: flag --mount: `/etc` cannot be mounted at `{target}`, which sandpen uses itself\n"
            )
        );
    }
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", "/etc:/a/../.sandpen"]));
    assert!(stderr.contains("`/a/../.sandpen` contains `..`"), "{stderr}");
}

#[test]
fn sandpens_own_files_cannot_be_mounted_writable() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("");
    for source in ["~/.config", "~", "~/.config/sandpen", "~/.config/sandpen/config.toml"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--mount", &format!("{source}:/x:rw")]));
        assert!(stderr.contains("sandpen's configuration, which the guest must not change"), "{source}: {stderr}");
    }
}

#[test]
fn a_link_out_of_the_workspace_is_not_followed() {
    let fixture = Fixture::new().with_recording_docker();
    symlink("/etc", fixture.project.join("link")).unwrap();
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run", "--mount", "link:/x"])),
        "\
sandpen: error: flag --mount: `link` is a link out of the workspace, and the guest could have created it
hint: to mount it anyway, name its target: /etc
"
    );
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run", "--include-dir", "link"])),
        "\
sandpen: error: flag --include-dir: `link` is a link out of the workspace, and the guest could have created it
hint: to include it anyway, name its target: --include-dir /etc
"
    );
}

/// Users name a neighbouring directory as `../lib`, as in a shell; sandpen resolves the path.
#[test]
fn neighbours_can_be_named_relative_to_the_working_directory() {
    let fixture = Fixture::new().with_recording_docker();
    fs::create_dir(fixture.home.join("lib")).unwrap();
    let lib = fixture.home.join("lib").display().to_string();
    let mut failures = Vec::new();
    for arguments in [["--include-dir", "../lib"], ["--mount", "../lib:/lib2"], ["--mount", "../lib"]] {
        let finished = fixture.finish(&mut fixture.sandpen(["explain", "--format", "json"].iter().chain(&arguments)));
        if finished.code == Some(0) {
            let json: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
            assert_eq!(
                entry(&json, "mounts", "source", "[ROOT]/home/lib")["from"],
                format!("flag {}", arguments[0]),
                "{lib}"
            );
        } else {
            failures.push(format!("{arguments:?}: {}", finished.stderr));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn included_directories_are_refused_as_working_directories_are() {
    let fixture = Fixture::new().with_recording_docker();
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--include-dir", "/"]));
    assert!(stderr.contains("the included directory is `/`"), "{stderr}");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--include-dir", "~"]));
    assert!(stderr.contains("the included directory `[ROOT]/home` contains your whole home"), "{stderr}");
}

#[test]
fn a_repository_that_is_too_wide_is_not_mounted() {
    let fixture = Fixture::new().with_recording_docker();
    fs::create_dir(fixture.home.join(".git")).unwrap();
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--", "true"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), "\
sandpen: warning: the repository that contains the working directory is not mounted: its root `[ROOT]/home` contains too much to be mounted; Git may not work inside
"));
}

#[test]
fn an_engines_socket_is_mounted_with_a_warning() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen([
        "run",
        "--mount",
        &format!("{}:/x", fixture.root.join("docker.sock").display()),
        "--",
        "true",
    ]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), "\
sandpen: warning: flag --mount: `[ROOT]/docker.sock` gives the guest control over a container engine, and through it over the host
"));
}

#[test]
fn the_network_and_ports_contradict_each_other() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("network = \"off\"");
    for (arguments, variables, message) in [
        (
            &["--network", "off", "--publish", "80"][..],
            &[][..],
            "\
sandpen: error: flag --publish: port 80 cannot be published with the network off
hint: the network is off because of: flag --network
",
        ),
        (
            &["--profile", "safe"],
            &[("SANDBOX_PORTS", "80,81")],
            "\
sandpen: error: env SANDBOX_PORTS: port 80 cannot be published with the network off
hint: the network is off because of: profile safe
",
        ),
        (
            &["--publish", "80"],
            &[],
            "\
sandpen: error: flag --publish: port 80 cannot be published with the network off
hint: the network is off because of: config [ROOT]/home/.config/sandpen/config.toml
",
        ),
        (
            &["--network", "off", "--allow-host", "example.org"],
            &[],
            "\
sandpen: error: flag --allow-host asks for a filtered network, but flag --network says `off`
hint: use `--network proxied`, or drop one of the two
",
        ),
        (
            &["--allow-host", "example.org"],
            &[("SANDBOX_NETWORK", "on")],
            "\
sandpen: error: flag --allow-host asks for a filtered network, but env SANDBOX_NETWORK says `on`
hint: use `--network proxied`, or drop one of the two
",
        ),
        (
            &["--network", "on"],
            &[("LLXPRT_SANDBOX_PROXY_COMMAND", "proxy")],
            "\
sandpen: error: env LLXPRT_SANDBOX_PROXY_COMMAND asks for a filtered network, but flag --network says `on`
hint: use `--network proxied`, or drop one of the two
",
        ),
        (
            &["--network", "on", "--proxy-command", "proxy"],
            &[],
            "\
sandpen: error: flag --proxy-command asks for a filtered network, but flag --network says `on`
hint: use `--network proxied`, or drop one of the two
",
        ),
    ] {
        for command in ["run", "explain"] {
            let mut command = fixture.sandpen([command].iter().chain(arguments));
            assert_eq!(
                fixture.usage_error(command.envs(variables.iter().copied())),
                message,
                "{arguments:?} {variables:?}"
            );
        }
    }
}
