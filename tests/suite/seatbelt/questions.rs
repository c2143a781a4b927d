//! Checks for each profile which operations it allows and denies.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;

use super::judge::{Object, Profile};
use super::profiles::{PROFILES, explain, host_options, parameters, profile, text};
use crate::support::Fixture;

/// Each name would break out of a quoted string in a profile.
const ODD: &[&str] = &[
    "two words",
    "quote\"d",
    "back\\slash",
    "(allow default)",
    "\") (allow default) (\"",
    "new\nline",
    "a;b",
    "#\"x",
    "dir=with=equals",
    "[a-z]*",
    "ünï",
];

fn may_read(profile: &Profile, path: &str) -> bool {
    profile.allows("file-read-data", Object::Path(path))
}

/// Returns whether the path is writable; every kind of write must have the same answer.
#[track_caller]
fn may_write(profile: &Profile, path: &str) -> bool {
    let answers = ["file-write-data", "file-write-create", "file-write-mode"]
        .map(|operation| profile.allows(operation, Object::Path(path)));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{path}: {answers:?}");
    answers[0]
}

fn may_connect(profile: &Profile, socket: &str) -> bool {
    profile.allows("network-outbound", Object::Unix(socket))
}

fn may_dial(profile: &Profile, address: &str) -> bool {
    profile.allows("network-outbound", Object::Address(address))
}

#[test]
fn every_profile_allows_and_denies_what_it_promises() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let include = fixture.write("more/x", "").parent().expect("parent").display().to_string();
    let at = |below: &str| fixture.home_path(below);
    for name in PROFILES {
        let json = explain(&fixture, &["--seatbelt-profile", name, "--include-dir", &include, "--", "true"]);
        let tmp = parameters(&json)["TMP_DIR"].clone();
        let cache = parameters(&json)["CACHE_DIR"].clone();
        let profile = Profile::read(&text(&json), parameters(&json));
        // Only the promised paths are writable.
        for (path, expected) in [
            (at("project/src/main.rs"), true),
            (at("project"), true),
            (at("project/.git/config"), true),
            (at("project/.git/refs/heads/hooks"), true),
            (at("more/x"), true),
            (format!("{tmp}/x"), true),
            (format!("{cache}/x"), true),
            ("/dev/null".into(), true),
            ("/dev/ttys003".into(), true),
            ("/dev/disk0".into(), false),
            (at("project/.git/hooks/pre-commit"), false),
            (at("project/.git/hooks"), false),
            (at("project/.GIT/Hooks/pre-commit"), false),
            (at("project/.git/modules/lib/sub/hooks/post-checkout"), false),
            (at("project/.git/worktrees/w/hooks/x"), false),
            (at("project/vendor/dep/.git/hooks/x"), false),
            (at("more/.git/hooks/x"), false),
            (at("projects"), false),
            (at("x"), false),
            (at(".gitconfig"), false),
            (at(".zshrc"), false),
            (at(".zprofile"), false),
            (at(".bashrc"), false),
            (at(".bash_profile"), false),
            (at(".profile"), false),
            (at(".config/fish/config.fish"), false),
            (at(".config/git/config"), false),
            (at(".npm/_npx/x"), false),
            (at(".cache/pre-commit/x"), false),
            (at(".ssh/id_ed25519"), false),
            (at(".ssh/authorized_keys"), false),
            (at("Library/LaunchAgents/x.plist"), false),
            (at(".config/sandpen/config.toml"), false),
            (at(".local/state/sandpen/trust/x"), false),
            (at(".local/state/sandpen/sessions/SESSION/profile.sb"), false),
            (at(".local/state/sandpen/sessions/SESSION/owner"), false),
            (at(".local/state/sandpen/sessions/other/tmp/x"), false),
            ("/usr/bin/x".into(), false),
            ("/private/tmp/x".into(), false),
            ("/Applications/x".into(), false),
            ("/private/etc/hosts".into(), false),
        ] {
            assert_eq!(may_write(&profile, &path), expected, "{name}: write {path}");
        }
        // No profile lets the guest read secrets; only the permissive ones let it read the rest of
        // the home.
        let permissive = name.starts_with("permissive");
        for (path, expected) in [
            (at("project/src/main.rs"), true),
            (at("more/x"), true),
            (format!("{tmp}/x"), true),
            ("/usr/bin/git".into(), true),
            ("/private/etc/hosts".into(), true),
            (at("notes.txt"), permissive),
            (at(".zshrc"), permissive),
            (at(".ssh/id_ed25519"), false),
            (at(".ssh/config"), false),
            (at(".aws/credentials"), false),
            (at(".gnupg/private-keys-v1.d/x"), false),
            (at(".git-credentials"), false),
            (at(".config/gh/hosts.yml"), false),
            (at(".netrc"), false),
            (at(".docker/config.json"), false),
            (at("Library/Keychains/login.keychain-db"), false),
            (at("Library/Application Support/Google/Chrome/Default/Cookies"), false),
            (at("Library/Application Support/Firefox/Profiles/x/logins.json"), false),
            (at(".config/sandpen/profiles/work.toml"), false),
            (at(".local/state/sandpen/sessions/other/tmp/x"), false),
        ] {
            assert_eq!(may_read(&profile, &path), expected, "{name}: read {path}");
        }
        assert!(profile.allows("file-read-metadata", Object::Path(&at(".local/state/sandpen/sessions"))), "{name}");
        // The guest can connect only to its own sockets.
        for (socket, expected) in [
            (at("project/server.sock"), true),
            (format!("{tmp}/x"), true),
            (format!("{cache}/x"), false),
            ("/private/var/run/mDNSResponder".into(), name.ends_with("open")),
            ("/private/var/run/docker.sock".into(), false),
            (at(".docker/run/docker.sock"), false),
            (at(".colima/default/docker.sock"), false),
            (at(".orbstack/run/docker.sock"), false),
            (at(".rd/docker.sock"), false),
            (at(".lima/default/sock/docker.sock"), false),
            (at(".local/share/containers/podman/machine/podman.sock"), false),
            ("/private/var/folders/x/y/T/podman/podman-machine-default-api.sock".into(), false),
            ("/private/tmp/com.apple.launchd.x/Listeners".into(), false),
            (at(".ssh/agent/s.x"), false),
            (at(".gnupg/S.gpg-agent"), false),
            (at("project/docker.sock"), false),
        ] {
            assert_eq!(may_connect(&profile, &socket), expected, "{name}: connect {socket}");
        }
        assert!(profile.allows("network-bind", Object::Unix(&at("project/server.sock"))), "{name}");
        assert!(!profile.allows("network-bind", Object::Unix("/private/var/run/x")), "{name}");
        for (address, expected) in [
            ("localhost:8877", !name.ends_with("closed")),
            ("localhost:8878", name.ends_with("open")),
            ("example.org:8877", name.ends_with("open")),
            ("example.org:443", name.ends_with("open")),
        ] {
            assert_eq!(may_dial(&profile, address), expected, "{name}: dial {address}");
        }
        let listens = profile.allows("network-bind", Object::Address("localhost:3000"));
        assert_eq!(listens, name.ends_with("open"), "{name}: listen");
        // No system service acts for the guest, and it cannot signal other processes.
        for operation in
            ["appleevent-send", "lsopen", "job-creation", "user-preference-write", "file-link", "file-mount"]
        {
            assert!(!profile.allows(operation, Object::Nothing), "{name}: {operation}");
        }
        for service in
            ["com.apple.coreservices.launchservicesd", "com.apple.coreservices.appleevents", "com.apple.xpc.smd"]
        {
            assert!(!profile.allows("mach-lookup", Object::Name(service)), "{name}: {service}");
        }
        assert_eq!(profile.allows("mach-lookup", Object::Name("com.apple.SecurityServer")), permissive, "{name}");
        assert!(!profile.allows("sysctl-read", Object::Name("kern.procargs2")), "{name}");
        assert!(profile.allows("sysctl-read", Object::Name("hw.ncpu")), "{name}");
        assert!(profile.allows("process-exec", Object::Path("/usr/bin/git")), "{name}");
        assert!(profile.allows("signal", Object::Process { own: true }), "{name}");
        assert!(!profile.allows("signal", Object::Process { own: false }), "{name}");
        assert!(!profile.allows("mach-priv-task-port", Object::Process { own: false }), "{name}");
        // Attack 03: the guest can move neither the repository nor the hooks in it.
        for (path, expected) in [
            ("project/x", true),
            ("project/.git/index.lock", true),
            ("project/.git", false),
            ("project", false),
            ("more", false),
            ("more/.git", false),
        ] {
            assert_eq!(profile.allows("file-write-unlink", Object::Path(&at(path))), expected, "{name}: move {path}");
        }
    }
}

/// Each odd name is home, project, include directory and mount at once. The rules must be the same
/// as for a plain name.
#[test]
fn special_characters_in_paths_do_not_change_the_rules() {
    let mut plain: Vec<String> = Vec::new();
    for name in ["plain"].iter().chain(ODD) {
        let fixture = Fixture::new().with_macos_seatbelt().with_home_named(name);
        let project = fixture.project.join(name);
        let more: Vec<String> =
            (0..7).map(|number| fixture.root.join(format!("{name}{number}")).display().to_string()).collect();
        for directory in more.iter().map(std::path::Path::new).chain([project.as_path()]) {
            fs::create_dir_all(directory).expect("directory");
        }
        for (number, profile) in PROFILES.into_iter().enumerate() {
            let mut explain = fixture.command("explain");
            explain.current_dir(&project).args(["--format", "json", "--seatbelt-profile", profile]);
            explain.args(host_options(profile));
            explain.args(more.iter().flat_map(|directory| ["--include-dir", directory]));
            let output = explain.args(["--", "true"]).output().expect("explain");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let json = serde_json::from_slice(&output.stdout).expect("JSON");
            let text = text(&json);
            if *name == "plain" {
                plain.push(text.clone());
            }
            assert_eq!(text, plain[number], "{profile} {name}: the rules depend on a name");
            let judged = Profile::read(&text, parameters(&json));
            let inside = project.join("x").display().to_string();
            assert!(may_write(&judged, &inside) && may_read(&judged, &inside), "{profile} {name}");
            for directory in &more {
                assert!(may_write(&judged, &format!("{directory}/x")), "{profile} {directory}");
            }
            for outside in [
                fixture.home_path("x"),
                fixture.home_path(".zshrc"),
                fixture.home_path(".ssh/id_ed25519"),
                "/x".into(),
                format!("{}{}", project.display(), "x"),
            ] {
                assert!(!may_write(&judged, &outside), "{profile} {name}: {outside}");
            }
            assert!(!may_read(&judged, &fixture.home_path(".ssh/id_ed25519")), "{profile} {name}");
            assert_eq!(may_dial(&judged, "example.org:443"), profile.ends_with("open"));
        }
    }
}

/// Even if the whole home is writable, files that the host runs later are not.
#[test]
fn an_open_home_keeps_its_start_up_files() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let mut explain = fixture.command("explain");
    let output = explain.current_dir(&fixture.home).args(["--format", "json", "--allow-home", "--", "true"]).output();
    let json = serde_json::from_slice(&output.expect("explain").stdout).expect("JSON");
    let profile = Profile::read(&text(&json), parameters(&json));
    assert!(may_write(&profile, &fixture.home_path("notes.txt")));
    for file in [
        ".gitconfig",
        ".zshrc",
        ".bashrc",
        ".config/fish/config.fish",
        ".config/sandpen/config.toml",
        ".ssh/id_ed25519",
    ] {
        assert!(!may_write(&profile, &fixture.home_path(file)), "{file}");
    }
    assert!(!may_read(&profile, &fixture.home_path(".ssh/id_ed25519")));
    assert!(!may_connect(&profile, &fixture.home_path(".docker/run/docker.sock")));
    assert!(!may_connect(&profile, &fixture.home_path(".colima/docker.sock")));
}

/// Files that the host runs at the next commit are read-only, even if the configuration moves them.
#[test]
fn attack_04_hooks_that_the_configuration_names_are_read_only() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let git = |words: &[&str]| {
        let done = Command::new("git").args(words).current_dir(&fixture.project).env("HOME", &fixture.home).status();
        assert!(done.expect("git").success());
    };
    git(&["init", "--quiet"]);
    git(&["config", "core.hooksPath", "tools/hooks"]);
    fixture.write("project/tools/hooks/pre-commit", "");
    for name in PROFILES {
        let profile = profile(&fixture, &["--seatbelt-profile", name, "--", "true"]);
        assert!(!may_write(&profile, &fixture.home_path("project/tools/hooks/pre-commit")), "{name}");
        assert!(may_write(&profile, &fixture.home_path("project/tools/other")), "{name}");
    }
}

#[test]
fn an_explicit_mount_opens_exactly_that_path() {
    let fixture = Fixture::new().with_macos_seatbelt();
    fixture.write(".ssh/id_deploy", "");
    fixture.write(".gitconfig", "");
    fixture.write(".ssh/known_hosts", "");
    fixture.write("data/x", "");
    fixture.write(".config/fish/config.fish", "");
    let socket = fixture.root.join("docker.sock").display().to_string();
    let _daemon = UnixListener::bind(&socket).expect("socket");
    for name in ["permissive-open", "restrictive-closed"] {
        let fish = format!("~/.config/fish:{}:rw", fixture.home_path(".config/fish"));
        let options =
            ["--seatbelt-profile", name, "--mount", "~/.ssh/id_deploy", "--mount", "~/data", "--mount", &fish];
        let with_socket = ["--mount", &format!("{socket}:{socket}:rw"), "--", "true"];
        let profile = profile(&fixture, &[&options[..], &with_socket].concat());
        assert!(may_read(&profile, &fixture.home_path(".ssh/id_deploy")), "{name}");
        assert!(!may_write(&profile, &fixture.home_path(".ssh/id_deploy")), "{name}");
        assert!(!may_read(&profile, &fixture.home_path(".ssh/id_ed25519")), "{name}");
        // R3 demands the Git configuration; known_hosts holds the accepted host keys.
        assert!(
            may_read(&profile, &fixture.home_path(".gitconfig"))
                && !may_write(&profile, &fixture.home_path(".gitconfig")),
            "{name}"
        );
        assert!(may_read(&profile, &fixture.home_path(".ssh/known_hosts")), "{name}");
        assert!(
            may_read(&profile, &fixture.home_path("data/x")) && !may_write(&profile, &fixture.home_path("data/x")),
            "{name}"
        );
        assert!(may_write(&profile, &fixture.home_path(".config/fish/config.fish")), "{name}");
        assert!(may_connect(&profile, &socket), "{name}");
    }
}

/// R4: the agent's own socket is open with `raw` only, and else closed even inside a writable
/// directory; sandpen's is open where the agent is forwarded.
#[test]
fn r4_the_agents_socket_follows_the_setting() {
    let fixture = Fixture::new().with_macos_seatbelt();
    let socket = fixture.project.join("agent.s");
    let agent = UnixListener::bind(&socket).expect("socket");
    // The agent answers that it holds no keys.
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut peer in agent.incoming().flatten() {
            let mut request = [0; 5];
            let _ = peer.read_exact(&mut request).and_then(|()| peer.write_all(&[0, 0, 0, 5, 12, 0, 0, 0, 0]));
        }
    });
    let socket = socket.display().to_string();
    for name in PROFILES {
        for (setting, expected) in [("raw", true), ("auto", false), ("on", false), ("off", false)] {
            let mut explain = fixture.command("explain");
            explain.env("SSH_AUTH_SOCK", &socket).args(["--format", "json", "--ssh-agent", setting]);
            let output = explain
                .args(host_options(name))
                .args(["--seatbelt-profile", name, "--", "true"])
                .output()
                .expect("explain");
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let profile = Profile::read(&text(&json), parameters(&json));
            assert_eq!(may_connect(&profile, &socket), expected, "{name} {setting}");
            match json["ssh"]["socket"].as_str() {
                Some(gate) if ["auto", "on"].contains(&setting) => {
                    assert!(gate != socket && may_connect(&profile, gate), "{name} {setting} {gate}");
                }
                other => assert_eq!(other, expected.then_some(socket.as_str()), "{name} {setting}"),
            }
        }
    }
}
