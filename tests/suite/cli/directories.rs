//! Which directories sandpen opens a sandbox over, which it refuses, and what it says of mounts.

use std::fs;
use std::os::unix::fs::symlink;

use super::world::{World, entry};

#[test]
fn the_root_directory_is_refused_always() {
    let world = World::new();
    let message = "\
sandpen: error: the working directory is `/`: a sandbox over the whole host protects nothing
hint: change to the directory of your project
";
    for flags in [&["run"][..], &["run", "--allow-home"], &["explain"], &["explain", "--allow-home"]] {
        assert_eq!(world.refused(world.sandpen(flags).current_dir("/")), message);
    }
}

#[test]
fn the_home_and_what_is_above_it_is_refused() {
    let world = World::new();
    for (directory, name) in [(&world.home, "[ROOT]/home"), (&world.root, "[ROOT]")] {
        let message = format!(
            "sandpen: error: the working directory `{name}` contains your whole home directory, including keys and credentials\n\
             hint: change to the directory of your project, or pass --allow-home\n"
        );
        for command in ["run", "explain"] {
            assert_eq!(world.refused(world.sandpen([command]).current_dir(directory)), message);
        }
    }
}

#[test]
fn the_home_under_another_name_is_refused() {
    let world = World::new();
    symlink(&world.home, world.root.join("link")).unwrap();
    let stderr =
        world.refused(world.sandpen(["run"]).current_dir(world.root.join("link")).env("PWD", world.root.join("link")));
    assert!(stderr.contains("contains your whole home"), "{stderr}");
    let stderr = world.refused(world.sandpen(["run"]).current_dir(&world.home).env("HOME", world.root.join("link")));
    assert!(stderr.contains("contains your whole home"), "{stderr}");
}

#[test]
fn sandpens_own_configuration_behind_a_link_is_refused() {
    for link in [".config", ".local", ".local/state"] {
        let world = World::new();
        world.config("");
        let dotfiles = world.home.join("dotfiles");
        let (old, new) = (world.home.join(link), dotfiles.join("kept"));
        fs::create_dir_all(&dotfiles).unwrap();
        fs::create_dir_all(&old).unwrap();
        fs::rename(&old, &new).unwrap();
        symlink(&new, &old).unwrap();
        let stderr = world.refused(world.sandpen(["run"]).current_dir(&dotfiles));
        assert!(stderr.contains("sandpen's configuration"), "{link}: {stderr}");
        let stderr = world.refused(&mut world.sandpen(["run", "--mount", "~/dotfiles:/d:rw"]));
        assert!(stderr.contains("sandpen's configuration"), "{link}: {stderr}");
    }
}

#[test]
fn sandpens_own_configuration_is_refused() {
    let world = World::new();
    world.config("");
    let message = |directory: &str| {
        format!(
            "sandpen: error: the working directory `{directory}` contains sandpen's configuration, which the guest must not change\n\
             hint: change to the directory of your project, or pass --allow-home\n"
        )
    };
    for directory in ["home/.config", "home/.config/sandpen"] {
        let stderr = world.refused(world.sandpen(["run"]).current_dir(world.root.join(directory)));
        assert_eq!(stderr, message(&format!("[ROOT]/{directory}")));
    }
    // Below it, too: profiles are configuration.
    let profiles = world.home.join(".config/sandpen/profiles");
    fs::create_dir_all(&profiles).unwrap();
    let stderr = world.refused(world.sandpen(["run"]).current_dir(&profiles));
    assert!(stderr.contains("sandpen's configuration"), "{stderr}");
    let state = world.home.join(".local/state/sandpen/trust");
    fs::create_dir_all(&state).unwrap();
    let stderr = world.refused(world.sandpen(["run"]).current_dir(&state));
    assert!(stderr.contains("sandpen's configuration"), "{stderr}");
}

#[test]
fn allow_home_permits_it_with_a_warning() {
    let world = World::new();
    let warning = "sandpen: warning: the guest can change everything in your home directory, including shell start-up files and sandpen's configuration: nothing protects the host\n";
    let ran = world.ran(world.sandpen(["run", "--allow-home", "--", "true"]).current_dir(&world.home));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), warning));
    let call = world.calls().remove(0);
    assert!(call.contains(&"[ROOT]/home:[ROOT]/home".to_owned()), "{call:?}");
    world.config("allowHome = true");
    let ran = world.ran(world.sandpen(["run", "--", "true"]).current_dir(&world.home));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), warning));
}

#[test]
fn a_directory_that_is_gone_is_said_to_be_gone() {
    let world = World::new();
    let gone = world.root.join("gone");
    fs::create_dir(&gone).unwrap();
    let script = format!("cd '{0}' && /bin/rmdir '{0}' && exec \"$@\"", gone.display());
    let mut command = std::process::Command::new("/bin/sh");
    command.env_clear().env("HOME", &world.home).env("PATH", "/nowhere");
    command.args(["-c", &script, "sh"]).arg(crate::support::binary()).arg("run");
    let ran = world.ran(&mut command);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
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
    let world = World::new();
    let message = |origin: &str, from: &str| {
        format!(
            "sandpen: error: {origin}: `{from}` does not exist on the host\nhint: expected an existing FROM in FROM[:TO[:ro|rw]]\n"
        )
    };
    let stderr = world.refused(&mut world.sandpen(["run", "--mount", "/nowhere:/x"]));
    assert_eq!(stderr, message("flag --mount", "/nowhere"));
    let stderr = world.refused(&mut world.sandpen(["run", "--mount", "~/nowhere:/x"]));
    assert_eq!(stderr, message("flag --mount", "~/nowhere"));
    let stderr = world.refused(world.sandpen(["run"]).env("SANDBOX_MOUNTS", "/nowhere"));
    assert_eq!(stderr, message("env SANDBOX_MOUNTS", "/nowhere"));
    world.config("mounts = [{ from = \"/nowhere\" }]");
    let stderr = world.refused(&mut world.sandpen(["run"]));
    assert_eq!(stderr, message("config [ROOT]/home/.config/sandpen/config.toml", "/nowhere"));
}

#[test]
fn what_belongs_to_the_sandbox_cannot_be_a_target() {
    let world = World::new();
    for target in ["/", "/.sandpen", "/.sandpen/x"] {
        let stderr = world.refused(&mut world.sandpen(["run", "--mount", &format!("/etc:{target}")]));
        assert_eq!(
            stderr,
            format!(
                "sandpen: error: flag --mount: `/etc` cannot be mounted at `{target}`, which sandpen uses itself\n"
            )
        );
    }
    let stderr = world.refused(&mut world.sandpen(["run", "--mount", "/etc:/a/../.sandpen"]));
    assert!(stderr.contains("`/a/../.sandpen` contains `..`"), "{stderr}");
}

#[test]
fn sandpens_own_files_cannot_be_mounted_writable() {
    let world = World::new();
    world.config("");
    for source in ["~/.config", "~", "~/.config/sandpen", "~/.config/sandpen/config.toml"] {
        let stderr = world.refused(&mut world.sandpen(["run", "--mount", &format!("{source}:/x:rw")]));
        assert!(stderr.contains("sandpen's configuration, which the guest must not change"), "{source}: {stderr}");
    }
}

#[test]
fn a_link_out_of_the_workspace_is_not_followed() {
    let world = World::new();
    symlink("/etc", world.project.join("link")).unwrap();
    assert_eq!(
        world.refused(&mut world.sandpen(["run", "--mount", "link:/x"])),
        "\
sandpen: error: flag --mount: `link` is a link out of the workspace, and the guest could have created it
hint: to mount it anyway, name its target: /etc
"
    );
    assert_eq!(
        world.refused(&mut world.sandpen(["run", "--include-dir", "link"])),
        "\
sandpen: error: flag --include-dir: `link` is a link out of the working directory
hint: to include it anyway, name its target: --include-dir /etc
"
    );
}

/// `../lib` is how a neighbour is named in a shell; its real path is what is meant.
#[test]
fn neighbours_can_be_named_relative_to_the_working_directory() {
    let world = World::new();
    fs::create_dir(world.home.join("lib")).unwrap();
    let lib = world.home.join("lib").display().to_string();
    let mut failures = Vec::new();
    for arguments in [["--include-dir", "../lib"], ["--mount", "../lib:/lib2"], ["--mount", "../lib"]] {
        let ran = world.ran(&mut world.sandpen(["explain", "--format", "json"].iter().chain(&arguments)));
        if ran.code == Some(0) {
            let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            assert_eq!(
                entry(&json, "mounts", "source", "[ROOT]/home/lib")["from"],
                format!("flag {}", arguments[0]),
                "{lib}"
            );
        } else {
            failures.push(format!("{arguments:?}: {}", ran.stderr));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn included_directories_are_refused_as_working_directories_are() {
    let world = World::new();
    let stderr = world.refused(&mut world.sandpen(["run", "--include-dir", "/"]));
    assert!(stderr.contains("the included directory is `/`"), "{stderr}");
    let stderr = world.refused(&mut world.sandpen(["run", "--include-dir", "~"]));
    assert!(stderr.contains("the included directory `[ROOT]/home` contains your whole home"), "{stderr}");
}

#[test]
fn a_repository_that_is_too_wide_is_not_mounted() {
    let world = World::new();
    fs::create_dir(world.home.join(".git")).unwrap();
    let ran = world.ran(&mut world.sandpen(["run", "--", "true"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "\
sandpen: warning: the repository that contains the working directory is not mounted: its root `[ROOT]/home` contains too much to be mounted; Git may not work inside
"));
}

#[test]
fn an_engines_socket_is_mounted_with_a_warning() {
    let world = World::new();
    let ran = world.ran(&mut world.sandpen([
        "run",
        "--mount",
        &format!("{}:/x", world.root.join("docker.sock").display()),
        "--",
        "true",
    ]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), "\
sandpen: warning: flag --mount: `[ROOT]/docker.sock` gives the guest control over a container engine, and through it over the host
"));
}

#[test]
fn the_network_and_ports_contradict_each_other() {
    let world = World::new();
    world.config("network = \"off\"");
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
            let mut command = world.sandpen([command].iter().chain(arguments));
            assert_eq!(world.refused(command.envs(variables.iter().copied())), message, "{arguments:?} {variables:?}");
        }
    }
}
