//! R7: tests a working tunnel into a Podman machine, end to end.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

use super::podman_machine::{CONNECTION, PodmanMachine};
use super::relay::shipped;
use crate::support::{KEY_COMMENT, RunToEnd, Shim, is_root_or_skip, is_running};

const LIST: &str = "echo $SSH_AUTH_SOCK; ssh-add -l | cut -d' ' -f3-";

fn listed() -> String {
    format!("/ssh-agent\n{KEY_COMMENT} (ED25519)")
}

#[test]
fn r7_1_r7_5_r4_3_the_guest_in_the_machine_lists_the_hosts_keys() {
    PodmanMachine::on(|machine| {
        let mut command = machine.command("run");
        // The user's ssh configuration would break the tunnel if ssh read it.
        machine.fixture.write(".ssh/config", "Host *\n  ProxyCommand false\n  Port 1\n");
        let finished = command.args(["-v", "--", "sh", "-c", LIST]).finish();
        assert_eq!(finished.success(), listed(), "{}", finished.stderr);
        let line =
            finished.stderr.lines().find(|line| line.starts_with("sandpen: SSH tunnel: ssh ")).expect("the command");
        for word in ["-R /tmp/sandpen-", "StrictHostKeyChecking=no", "-F /dev/null", "ExitOnForwardFailure=yes"] {
            assert!(line.contains(word), "{line}");
        }
        assert!(line.contains(&format!("-i {}", machine.sshd.identity.display())), "{line}");
        assert!(finished.stderr.contains(&format!("podman --connection {CONNECTION} run ")), "{}", finished.stderr);
        assert_eq!(machine.fixture.sessions().len(), 0);
    });
}

#[test]
fn r7_5_with_the_helper_beside_the_program_and_the_hosts_user() {
    PodmanMachine::on(|machine| {
        let mut shipped = shipped(&machine.fixture, &machine.command("run"));
        // The user is neither root nor in the image (R7.5), and only the guest can have set this
        // exit code.
        let script = format!("id -u; {LIST}; echo text >made; exit 125");
        let finished = shipped.args(["--user", "host", "--", "sh", "-c", &script]).finish();
        finished.failure(125);
        assert_eq!(finished.stdout, format!("{}\n{}\n", machine.fixture.uid, listed()), "{}", finished.stderr);
        assert_eq!(fs::metadata(machine.fixture.project.join("made")).expect("made").uid(), machine.fixture.uid);
    });
}

#[test]
fn r7_two_sandboxes_at_once_have_a_socket_each() {
    PodmanMachine::on(|machine| {
        let (mut first, one) = machine.start(&[]);
        let (mut second, two) = machine.start(&[]);
        assert_ne!(one.directory, two.directory);
        first.close_stdin();
        assert_eq!(first.finish().code, Some(7));
        one.assert_gone();
        // The other tunnel still works.
        second.write("list\n");
        assert!(second.line().contains(KEY_COMMENT));
        second.close_stdin();
        assert_eq!(second.finish().code, Some(7));
        two.assert_gone();
    });
}

#[test]
fn r7_2_default_single_and_named_connections_are_chosen_and_pinned() {
    PodmanMachine::on(|machine| {
        let (uri, identity) = (machine.uri(), Some(&machine.sshd.identity));
        let (wrong, none) = (machine.uri_at(1), None);
        // The only connection is used without a default.
        machine.connections(&[("only", &uri, identity)], None);
        let finished = machine.sh(LIST).finish();
        assert_eq!(finished.success(), listed(), "{}", finished.stderr);
        // The default is used among several.
        machine.connections(&[("a", &wrong, none), ("z", &uri, identity)], Some("z"));
        assert_eq!(machine.sh(LIST).finish().success(), listed());
        // CONTAINER_CONNECTION overrides the default. If CONTAINER_HOST is set, too, its service
        // must answer.
        let mut command = machine.sh(LIST);
        machine.connections(&[("a", &wrong, none), ("z", &uri, identity)], Some("a"));
        let finished = command.env("CONTAINER_CONNECTION", "z").env("CONTAINER_HOST", "unix:///no/such.sock").finish();
        assert_eq!(finished.code, Some(44), "sandpen launched on a service that does not answer: {}", finished.stderr);
        let mut command = machine.sh(LIST);
        assert_eq!(command.env("CONTAINER_CONNECTION", "z").finish().success(), listed());
    });
}

#[test]
fn r7_2_a_connection_without_a_key_uses_the_agent_as_podman_does() {
    PodmanMachine::on(|machine| {
        machine.fixture.agent().add_key(&machine.fixture, &machine.sshd.identity);
        machine.connections(&[(CONNECTION, &machine.uri(), None)], Some(CONNECTION));
        let finished = machine.sh("ssh-add -l | wc -l").finish();
        assert_eq!(finished.success(), "2", "{}", finished.stderr);
    });
}

#[test]
fn r7_3_sockets_of_dead_sandboxes_go_and_others_stay() {
    if !is_root_or_skip("files of another user") {
        return;
    }
    PodmanMachine::on(|machine| {
        let plant = |name: &str, owner: &str| {
            let directory = PathBuf::from(format!("/tmp/sandpen-{name}-{}", std::process::id()));
            fs::create_dir(&directory).expect("plant");
            fs::write(directory.join("owner"), owner).expect("plant");
            for path in [&directory, &directory.join("owner")] {
                std::os::unix::fs::chown(path, Some(machine.fixture.uid), Some(machine.fixture.gid)).expect("chown");
            }
            directory
        };
        // No process can have the first id; sshd, of the same user, has the second.
        let dead = plant("dead", "4194305");
        let live = plant("live", &machine.sshd.process.pid().to_string());
        let foreign = plant("foreign", "4194305");
        std::os::unix::fs::chown(foreign.join("owner"), Some(0), Some(0)).expect("chown");
        let landing = PathBuf::from(format!("/tmp/sandpen-old-{}.sock", std::process::id()));
        drop(std::os::unix::net::UnixListener::bind(&landing).expect("plant"));
        std::os::unix::fs::chown(&landing, Some(machine.fixture.uid), Some(machine.fixture.gid)).expect("chown");
        Command::new("touch").args(["-d", "2 hours ago"]).arg(&landing).finish().success();
        machine.sh("true").finish().success();
        let left = fs::remove_file(&landing).is_ok();
        let found = [&dead, &live, &foreign].map(|path| path.exists());
        for path in [&dead, &live, &foreign] {
            let _ = fs::remove_dir_all(path);
        }
        assert_eq!((found, left), ([false, true, true], false));
    });
}

#[test]
fn r7_5_the_socket_cannot_be_guessed_in_the_machine() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        let meta = fs::metadata(&tunnel.directory).expect("directory");
        assert_eq!(meta.permissions().mode() & 0o777, 0o711, "others may enter the directory, but not list it");
        assert!(!tunnel.landing.exists());
        // Only the owner can list the directory, and the socket's name is not that of the session.
        let names: Vec<_> = fs::read_dir(&tunnel.directory).expect("as root").flatten().collect();
        let socket = names.iter().find(|entry| entry.path().extension().is_some()).expect("the socket").path();
        assert!(!tunnel.directory.to_string_lossy().contains(&*socket.file_stem().expect("name").to_string_lossy()));
        running.close_stdin();
        running.finish();
    });
}

#[test]
fn r7_a_rootful_machine_and_the_hosts_user() {
    // Rootful Podman refuses keep-id, so `--user` alone selects the host's uid.
    PodmanMachine::without_podman("", |machine| {
        let uri = format!("ssh://root@127.0.0.1:{}/run/podman/podman.sock", machine.sshd.port);
        machine.connections(&[("root", &uri, Some(&machine.sshd.identity))], Some("root"));
        let plan =
            machine.command("explain").args(["--format", "json", "--user", "host", "--", "true"]).finish().json();
        let argv = plan["argv"].to_string();
        assert_eq!(plan["user"]["how"], "host");
        assert!(
            !argv.contains("keep-id") && argv.contains(&format!("\"--user\",\"{}:", machine.fixture.uid)),
            "{argv}"
        );
    });
}

#[test]
fn explain_shows_the_tunnel_and_starts_nothing() {
    PodmanMachine::without_podman("", |machine| {
        let shim = Shim::new(&machine.fixture, "podman", "");
        let ssh = Shim::new(&machine.fixture, "ssh", "exit 1");
        let mut command = machine.command("explain");
        let plan = command.env("PATH", shim.path()).args(["--format", "json", "--", "true"]).finish().json();
        assert_eq!((&plan["ssh"]["state"], &plan["ssh"]["strategy"]), (&"forwarded".into(), &"tunnel".into()));
        assert!(plan["ssh"]["pending"].to_string().contains("accepts the tunnel"), "{}", plan["ssh"]);
        assert!(plan["ssh"]["reason"].to_string().contains(CONNECTION), "{}", plan["ssh"]);
        let argv = plan["argv"].as_array().expect("argv");
        assert_eq!(argv[..4], ["podman", "--connection", CONNECTION, "run"].map(serde_json::Value::from));
        let mount = plan["mounts"].as_array().expect("mounts").iter().find(|mount| mount["target"] == "/ssh-agent");
        assert_eq!(mount.expect("the mount")["requirement"], "R7.5");
        let text = machine.command("explain").env("PATH", shim.path()).args(["--", "true"]).finish();
        assert!(
            text.success().contains("ssh -F /dev/null") && text.stdout.contains("accepts the tunnel"),
            "{}",
            text.stdout
        );
        // `explain` queried Podman, but ran neither a container nor ssh.
        let calls = ssh.calls();
        assert!(!calls.iter().any(|call| call.contains(" run ") || call.contains("-R")), "{calls:?}");
        assert!(!is_running(&format!("{}:/tmp/sandpen-", machine.sshd.port)));
        assert_eq!(fs::read_dir(machine.fixture.home.join(".local")).map(Iterator::count).unwrap_or(0), 0);
    });
}

#[test]
fn r4_1_off_opens_no_tunnel() {
    PodmanMachine::on(|machine| {
        for name in ["LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT"] {
            let shim = Shim::new(&machine.fixture, "ssh", "exit 1");
            let mut command = machine.sh("echo ${SSH_AUTH_SOCK-unset}; ls /ssh-agent 2>/dev/null; true");
            let finished = command.env(name, "off").env("PATH", shim.path()).finish();
            assert_eq!(finished.success(), "unset", "{}", finished.stderr);
            assert_eq!(shim.calls(), [""; 0]);
        }
    });
}

#[test]
fn r7_4_a_talkative_login_does_not_hide_readiness() {
    // A shell's start-up file in the machine may print such lines.
    let sshd = "ForceCommand echo hello; echo ready-made; exec sh -c \"$SSH_ORIGINAL_COMMAND\"";
    PodmanMachine::with(sshd, true, |machine| {
        let finished = machine.sh(LIST).finish();
        assert_eq!(finished.success(), listed(), "{}", finished.stderr);
    });
}

/// The image's user has another uid than the user of the machine, who is mapped to it.
#[test]
fn r7_an_images_own_user_writes_to_the_project_and_signs() {
    PodmanMachine::on(|machine| {
        let fixture = &machine.fixture;
        assert_ne!(fixture.uid, 1000, "the test needs another uid than that of the image's user");
        let mut command = fixture.run_image("localhost/sandpen-node");
        command.env("CONTAINERS_CONF", fixture.outside("keys").join("containers.conf"));
        command.env("SANDBOX_SSH_AGENT", "raw").args(["--assume-host", "macos", "--", "sh", "-c"]);
        command
            .arg("id -un; ssh-add -l | wc -l; echo mine > written && mkdir -p below && touch below/file; echo $HOME");
        let finished = command.finish();
        assert_eq!(finished.success(), "node\n1\n/home/node", "{}", finished.stderr);
        for path in ["written", "below", "below/file"] {
            let meta = std::fs::metadata(fixture.project.join(path)).expect("it was written");
            assert_eq!(std::os::unix::fs::MetadataExt::uid(&meta), fixture.uid, "{path}");
        }
    });
}
