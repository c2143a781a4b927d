//! A real SSH agent is either forwarded or unreachable (R4, R5).

use crate::support::{Finished, Fixture, RunToEnd, Running, eventually};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    with_agent:
    r4_1_off_means_not_reachable,
    r4_3_the_agent_answers_at_the_fixed_path,
    r4_4_on_off_and_unset_keep_their_meaning,
);
for_native_image!(with_agent: r4_3_the_agent_answers_at_the_fixed_path);
for_every_engine!(r4_2_without_an_agent_there_is_one_warning);
for_every_engine!(with_empty_agent: an_agent_without_keys_is_named);
for_every_container_engine!(with_agent: r5_2_the_socket_is_mounted_with_z_on_podman_only,);
for_every_engine!(
    with_agent:
    raw_gives_the_agents_own_socket,
    the_gate_also_serves_when_the_host_s_temp_directory_is_mounted,
    a_restarted_agent_is_used_again,
);

/// Runs a script with further variables in sandpen's environment.
fn run(fixture: &Fixture, variables: &[(&str, &str)], options: &[&str], script: &str) -> Finished {
    let mut command = fixture.run();
    command.envs(variables.iter().copied()).args(options).args(["--", "bash", "-c", script]).finish()
}

const LIST: &str = "ssh-add -l | cut -d' ' -f3-; echo ${SSH_AUTH_SOCK-unset}";
const FORWARDED: &str = "the key of the test (ED25519)\n/ssh-agent";

fn r4_1_off_means_not_reachable(fixture: &Fixture) {
    let script = "echo ${SSH_AUTH_SOCK-unset}; find / -path /proc -prune -o -type s -print 2>&-; ls -d /ssh-agent /tmp/* 2>&-; true";
    for name in ["SANDBOX_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDPEN_SSH_AGENT"] {
        let finished = run(fixture, &[(name, "off")], &[], script);
        assert_eq!((finished.success(), finished.stderr.as_str()), ("unset", ""), "{name}");
    }
    let finished = run(fixture, &[], &["--ssh-agent", "off"], script);
    assert_eq!(finished.success(), "unset");
    // The host's temp directory holds the agent's socket: it is masked, or there is a warning.
    let finished = run(
        fixture,
        &[],
        &["--ssh-agent", "off", "--tmp", "host"],
        &format!("SSH_AUTH_SOCK={} ssh-add -l", fixture.agent().socket.display()),
    );
    assert!(
        finished.code != Some(0) || finished.stderr.contains("sandpen: warning: "),
        "the agent is reachable, but there is no warning: {}",
        finished.stdout
    );
}

fn r4_2_without_an_agent_there_is_one_warning(fixture: &Fixture) {
    for (name, value) in
        [("SSH_AUTH_SOCK", ""), ("SSH_AUTH_SOCK", "/no/such/socket"), ("LLXPRT_SANDBOX_SSH_AGENT", "on")]
    {
        let mut command = fixture.run();
        command.env_remove("SANDPEN_SSH_AGENT").env(name, value);
        let finished =
            command.args(["--", "bash", "-c", "echo ${SSH_AUTH_SOCK-unset}; ls /ssh-agent 2>&-; true"]).finish();
        assert_eq!(finished.success(), "unset", "{name}={value}");
        if value != "on" && !fixture.engine().is_container() {
            // Without a remote that needs an agent, its absence is nothing to act on.
            assert_eq!(finished.stderr, "");
            continue;
        }
        assert_eq!(finished.stderr.lines().count(), 1, "there must be exactly one warning: {}", finished.stderr);
        assert!(
            finished.stderr.starts_with("sandpen: warning: ") && finished.stderr.contains("SSH_AUTH_SOCK"),
            "{}",
            finished.stderr
        );
    }
}

fn r4_3_the_agent_answers_at_the_fixed_path(fixture: &Fixture) {
    let finished = run(fixture, &[], &[], LIST);
    assert_eq!((finished.success(), finished.stderr.as_str()), (FORWARDED, ""));
    // The agent also signs.
    let script = "set -e; ssh-add -L > /tmp/key.pub; echo text > /tmp/text;
        ssh-keygen -q -Y sign -f /tmp/key.pub -n file /tmp/text; head -1 /tmp/text.sig";
    assert_eq!(run(fixture, &[], &[], script).success(), "-----BEGIN SSH SIGNATURE-----");
}

fn r4_4_on_off_and_unset_keep_their_meaning(fixture: &Fixture) {
    let off = "unset";
    for (variables, expected) in [
        (&[("LLXPRT_SANDBOX_SSH_AGENT", "on")][..], FORWARDED),
        (&[("SANDBOX_SSH_AGENT", "auto")], FORWARDED),
        (&[("LLXPRT_SANDBOX_SSH_AGENT", "off"), ("SANDBOX_SSH_AGENT", "on")], off),
        (&[("LLXPRT_SANDBOX_SSH_AGENT", ""), ("SANDBOX_SSH_AGENT", "off")], off),
        (&[("SANDPEN_PROFILE", "safe")], off),
    ] {
        assert_eq!(run(fixture, variables, &[], LIST).success(), expected, "{variables:?}");
    }
    assert_eq!(run(fixture, &[("LLXPRT_SANDBOX_SSH_AGENT", "off")], &["--ssh-agent", "on"], LIST).success(), FORWARDED);
}

fn r5_2_the_socket_is_mounted_with_z_on_podman_only(fixture: &Fixture) {
    let explained = fixture.explain(&["--ssh-agent", "raw", "--", "true"]);
    assert_eq!(explained["ssh"]["state"], "forwarded");
    assert_eq!(explained["ssh"]["gate"], false);
    assert_eq!((&explained["ssh"]["strategy"], &explained["ssh"]["keys"]), (&"mount".into(), &1.into()));
    let argv: Vec<&str> = explained["argv"].as_array().expect("argv").iter().filter_map(|word| word.as_str()).collect();
    let volume = format!("{}:/ssh-agent", fixture.agent().socket.display());
    let (expected, requirement) = match fixture.engine().flag() {
        "podman" => (format!("{volume}:z"), "R5.2"),
        _ => (volume, "R5.1"),
    };
    assert!(argv.contains(&expected.as_str()), "{argv:?}");
    let mounts = explained["mounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["target"] == "/ssh-agent").expect("the agent's mount");
    assert_eq!(mount["requirement"], requirement);
    // `z` would relabel the user's own directories.
    let others = mounts.iter().filter(|mount| mount["target"] != "/ssh-agent");
    assert!(others.into_iter().all(|mount| mount["options"] == serde_json::json!([])), "{mounts:?}");
}

fn an_agent_without_keys_is_named(fixture: &Fixture) {
    let finished = run(fixture, &[], &[], "ssh-add -l; echo $SSH_AUTH_SOCK");
    assert!(finished.success().ends_with("/ssh-agent"), "{}", finished.stdout);
    assert!(
        finished.stderr.contains("sandpen: warning: ") && finished.stderr.contains("`ssh-add`"),
        "{}",
        finished.stderr
    );
}

fn raw_gives_the_agents_own_socket(fixture: &Fixture) {
    let finished = run(fixture, &[], &["--ssh-agent", "raw"], "ssh-add -q -D 2>&1; ssh-add -l");
    assert_eq!(finished.stdout.trim(), "The agent has no identities.", "{}", finished.stderr);
}

fn the_gate_also_serves_when_the_host_s_temp_directory_is_mounted(fixture: &Fixture) {
    let own = fixture.agent().socket.display().to_string();
    let script = format!("{LIST}; SSH_AUTH_SOCK={own} ssh-add -l >&2; true");
    let finished = run(fixture, &[], &["--tmp", "host"], &script);
    assert_eq!(finished.success(), FORWARDED);
    assert!(!finished.stderr.contains("ED25519"), "the agent's own socket is reachable: {}", finished.stderr);
}

fn a_restarted_agent_is_used_again(fixture: &Fixture) {
    let script = "ssh-add -l >/dev/null; echo listed; read; ssh-add -l | cut -d' ' -f3-";
    let mut command = fixture.run();
    command.args(["--", "bash", "-c", script]).stdin(std::process::Stdio::piped());
    let mut running = Running::start(&mut command);
    assert_eq!(running.line(), "listed");
    fixture.agent().process.signal(rustix::process::Signal::TERM);
    let socket = fixture.agent().socket.clone();
    eventually("the agent has removed its socket", || !socket.exists());
    let _second = Running::start(fixture.host_command("ssh-agent").arg("-D").arg("-a").arg(&socket));
    eventually("another agent answers", || socket.exists());
    fixture.agent().add_key(fixture, &fixture.outside("keys").join("user-key"));
    running.write("\n");
    assert_eq!(running.line(), "the key of the test (ED25519)");
    running.finish().success();
}
