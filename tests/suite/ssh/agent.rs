//! R4 and R5: tests whether and how the agent is forwarded on Linux, and that `off` makes it
//! unreachable.

use std::os::unix::net::UnixListener;

use crate::for_every_engine;
use crate::support::{Engine, Fixture, KEY_COMMENT, RunToEnd};

for_every_engine!(
    with_agent:
    r4_1_and_attack_12_off_leaves_no_way_to_the_agent,
    r4_1_a_socket_in_a_mounted_directory_is_covered,
    r4_3_and_r5_the_guest_lists_and_uses_the_hosts_keys,
);

/// Tries to reach an agent at every socket: in the file system, in the roots of other processes, in
/// the abstract namespace and behind open files.
const HUNT: &str = r#"
for socket in $(find / /proc/[0-9]*/root -xdev -type s 2>/dev/null) $(find /tmp /run /var /home /dev -type s 2>/dev/null) "$1"; do
    SSH_AUTH_SOCK=$socket timeout 2 ssh-add -l >/dev/null 2>&1 && echo "reached: $socket"
done
for link in /proc/[0-9]*/fd/*; do
    case $(readlink "$link" 2>/dev/null) in socket:*) [ "${link%/fd/*}" = /proc/$$ ] && echo "open: $link" ;; esac
done
perl -MSocket -e '
    open my $list, "<", "/proc/net/unix"; while (<$list>) { next unless /@(\S*pen-agent\S*)/;
    socket my $s, AF_UNIX, SOCK_STREAM, 0; print "abstract: $1\n" if connect $s, pack("S a*", AF_UNIX, "\0$1"); }'
echo "${SSH_AUTH_SOCK-unset}"; ls -d /ssh-agent 2>/dev/null; true"#;

fn r4_1_and_attack_12_off_leaves_no_way_to_the_agent(fixture: &Fixture) {
    let socket = fixture.agent().socket.display().to_string();
    let mut command = fixture.run();
    // A connection to the agent that sandpen inherits must not reach the guest.
    command.args(["--ssh-agent", "off", "--", "bash", "-c", HUNT, "hunt", &socket]);
    let connection = std::os::unix::net::UnixStream::connect(&fixture.agent().socket).expect("connect");
    rustix::io::fcntl_setfd(&connection, rustix::io::FdFlags::empty()).expect("inherited");
    let finished = command.finish();
    assert_eq!((finished.success(), finished.stderr.as_str()), ("unset", ""));
}

fn r4_1_a_socket_in_a_mounted_directory_is_covered(fixture: &Fixture) {
    let script = format!("SSH_AUTH_SOCK={} ssh-add -l; ls -d {0}", fixture.agent().socket.display());
    // The host's whole temp directory is mounted; the link shows that real paths count.
    let link = fixture.outside("links").join("agent");
    std::os::unix::fs::symlink(&fixture.agent().socket, &link).expect("link");
    let mut command = fixture.run();
    command.env("SSH_AUTH_SOCK", &link).args(["--ssh-agent", "off", "--tmp", "host", "--", "bash", "-c", &script]);
    let finished = command.finish();
    assert!(
        finished.success().ends_with("/agent") && !finished.stdout.contains(KEY_COMMENT),
        "{} {}",
        finished.stdout,
        finished.stderr
    );
}

fn r4_3_and_r5_the_guest_lists_and_uses_the_hosts_keys(fixture: &Fixture) {
    let script =
        "set -e; echo $SSH_AUTH_SOCK; ssh-add -l | cut -d' ' -f3-; cd /tmp; ssh-add -L >key.pub; echo text >text
        ssh-keygen -q -Y sign -f key.pub -n file text; head -1 text.sig";
    let finished = fixture.bash(script);
    let expected = format!("/ssh-agent\n{KEY_COMMENT} (ED25519)\n-----BEGIN SSH SIGNATURE-----");
    assert_eq!((finished.success(), finished.stderr.as_str()), (expected.as_str(), ""));
}

/// Runs a test on decisions that need no sandbox: `explain` shows them.
fn planned(test: impl FnOnce(&Fixture)) {
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, test);
}

#[test]
fn r4_1_every_spelling_of_off_switches_it_off() {
    planned(|fixture| {
        for name in ["SANDPEN_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT"] {
            let plan = fixture.explain_with(&[], &[(name, "off")]);
            assert_eq!((&plan["ssh"]["state"], &plan["ssh"]["strategy"]), (&"off".into(), &"none".into()), "{name}");
            assert!(plan["ssh"]["reason"].as_str().is_some_and(|reason| reason.contains(name)), "{}", plan["ssh"]);
            assert!(!plan["argv"].to_string().contains("ssh-agent"), "{name}: {}", plan["argv"]);
        }
        for options in [&["--ssh-agent", "off"][..], &["--profile", "safe"], &["--profile", "tight"]] {
            assert_eq!(fixture.explain(options)["ssh"]["state"], "off", "{options:?}");
        }
        // `off` without an agent causes no warning.
        let plan = fixture.explain_with(&[], &[("SSH_AUTH_SOCK", ""), ("SANDBOX_SSH_AGENT", "off")]);
        assert_eq!(plan["warnings"], serde_json::json!([]));
    });
}

#[test]
fn r4_1_r4_4_the_effective_value_decides_where_variables_disagree() {
    planned(|fixture| {
        let (long, short, own) = ("LLXPRT_SANDBOX_SSH_AGENT", "SANDBOX_SSH_AGENT", "SANDPEN_SSH_AGENT");
        for (options, env, state) in [
            (&[][..], &[][..], "forwarded"),
            (&[], &[(long, "on")], "forwarded"),
            (&[], &[(short, "on")], "forwarded"),
            (&[], &[(long, "auto")], "forwarded"),
            (&[], &[(long, "off"), (short, "on")], "off"),
            (&[], &[(long, "on"), (short, "off")], "forwarded"),
            (&[], &[(long, ""), (short, "off")], "off"),
            (&[], &[(own, "on"), (long, "off"), (short, "off")], "forwarded"),
            (&[], &[(own, "off"), (long, "on")], "off"),
            (&["--ssh-agent", "on"], &[(long, "off")], "forwarded"),
            (&["--ssh-agent", "off"], &[(long, "on")], "off"),
            (&["--ssh-agent", "on", "--profile", "safe"], &[], "forwarded"),
        ] {
            let plan = fixture.explain_with(options, env);
            assert_eq!(plan["ssh"]["state"], state, "{options:?} {env:?}");
        }
        let finished = fixture.command("explain").env(long, "perhaps").finish();
        assert!(finished.code == Some(2) && finished.stderr.contains(long), "{}", finished.stderr);
    });
}

#[test]
fn r4_2_three_ways_to_have_no_agent_are_three_warnings() {
    planned(|fixture| {
        let nobody = fixture.outside("agent").join("nobody");
        drop(UnixListener::bind(&nobody).expect("a socket without a listener"));
        let mute = fixture.outside("agent").join("mute");
        let listener = UnixListener::bind(&mute).expect("a listener that never answers");
        let paths = [&nobody, &mute].map(|path| path.display().to_string());
        let mut seen = Vec::new();
        for (socket, words) in [
            ("", "SSH_AUTH_SOCK is not set"),
            ("/no/such/socket", "names `/no/such/socket`, which does not exist"),
            (&paths[0], "(Connection refused"),
            (&paths[1], "(no answer within 2 s)"),
        ] {
            for mode in ["auto", "on"] {
                let plan = fixture.explain_with(&["--ssh-agent", mode], &[("SSH_AUTH_SOCK", socket)]);
                let warnings = plan["warnings"].as_array().expect("warnings");
                let text = warnings.first().and_then(|text| text.as_str()).unwrap_or_default().to_owned();
                assert_eq!(warnings.len(), 1, "{mode} {socket}: {warnings:?}");
                assert!(text.contains(words) && text.contains("ssh-agent off"), "{text}");
                assert_eq!(plan["ssh"]["state"], "skipped");
                assert!(!plan["argv"].to_string().contains("/ssh-agent"), "{}", plan["argv"]);
                seen.push(text);
            }
        }
        seen.dedup();
        assert_eq!(seen.len(), 4, "{seen:?}");
        drop(listener);
        // The sandbox starts without the agent.
        let finished =
            fixture.run().env_remove("SSH_AUTH_SOCK").args(["--", "sh", "-c", "echo ${SSH_AUTH_SOCK-unset}"]).finish();
        assert_eq!(finished.success(), "unset");
        assert_eq!(finished.stderr.matches("sandpen: warning: ").count(), 1, "{}", finished.stderr);
    });
}

#[test]
fn r4_2_an_agent_without_keys_is_forwarded_with_a_warning() {
    Fixture::on_prepared(Engine::Docker, Fixture::with_empty_agent, |fixture| {
        let plan = fixture.explain(&[]);
        assert_eq!((&plan["ssh"]["state"], &plan["ssh"]["keys"]), (&"forwarded".into(), &0.into()));
        let warnings = plan["warnings"].to_string();
        assert!(warnings.contains("holds no keys") && warnings.contains("`ssh-add`"), "{warnings}");
    });
}

#[test]
fn r4_3_the_variable_inside_is_not_up_to_the_user() {
    planned(|fixture| {
        let finished = fixture.run().args(["--env", "SSH_AUTH_SOCK", "--", "sh", "-c", "echo $SSH_AUTH_SOCK"]).finish();
        assert_eq!(finished.success(), "/ssh-agent");
        assert!(
            finished.stderr.contains("flag --env: SSH_AUTH_SOCK is always /ssh-agent inside"),
            "{}",
            finished.stderr
        );
    });
}

#[test]
fn r5_1_r5_2_the_mount_is_relabelled_on_podman_only() {
    for (engine, options, requirement) in [
        (Engine::Docker, serde_json::json!([]), "R5.1"),
        (Engine::DockerRootless, serde_json::json!([]), "R5.1"),
        (Engine::Podman, serde_json::json!(["z"]), "R5.2"),
        (Engine::PodmanRootless, serde_json::json!(["z"]), "R5.2"),
    ] {
        Fixture::on_prepared(engine, Fixture::with_agent, |fixture| {
            let plan = fixture.explain(&["--ssh-agent", "raw"]);
            let mounts = plan["mounts"].as_array().expect("mounts");
            let mount = mounts.iter().find(|mount| mount["target"] == "/ssh-agent").expect("the mount");
            assert_eq!(mount["source"], fixture.agent().socket.display().to_string());
            assert_eq!((&mount["options"], &mount["requirement"]), (&options, &requirement.into()));
            let suffix = if requirement == "R5.2" { ":z" } else { "" };
            let volume = format!("{}:/ssh-agent{suffix}", fixture.agent().socket.display());
            assert!(plan["argv"].as_array().expect("argv").contains(&volume.into()), "{}", plan["argv"]);
        });
    }
}

#[test]
fn r5_1_an_image_user_that_the_agent_refuses_is_warned_of() {
    Fixture::on_docker_as_ordinary_user(Fixture::with_agent, |fixture| {
        // The user of this image is neither root nor the host's user.
        let image = "localhost/sandpen-test-nobody:latest";
        let commit = format!(
            "id=$(docker create {} true) && docker commit --change 'USER 65534' $id {image} && docker rm $id",
            crate::support::IMAGE
        );
        fixture.host_command("sh").args(["-c", &commit]).finish().success();
        let mut command = fixture.run_image(image);
        command.args(["--user", "image", "--ssh-agent", "raw", "--", "sh", "-c"]);
        let finished = command.arg("id -u; ssh-add -l || echo refused").finish();
        // sandpen's own socket serves every user inside.
        let mut command = fixture.run_image(image);
        let gate = command.args(["--user", "image", "--", "sh", "-c", "ssh-add -l | cut -d' ' -f3-"]).finish();
        assert_eq!((gate.success(), gate.stderr.as_str()), (format!("{KEY_COMMENT} (ED25519)").as_str(), ""));
        fixture.client().args(["rmi", image]).finish().success();
        assert_eq!(finished.success(), "65534\nrefused");
        assert!(finished.stderr.contains("sandpen: warning: the guest is the image's user"), "{}", finished.stderr);
        assert!(finished.stderr.contains(&format!("only accepts uid {} and root", fixture.uid)), "{}", finished.stderr);
    });
}
