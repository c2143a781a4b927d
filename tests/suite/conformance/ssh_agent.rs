//! The SSH agent, a real one: forwarded or not reachable at all (R4, R5).

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::support::{Pen, Ran, RunToEnd, Running, eventually};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    r4_1_off_means_not_reachable,
    r4_2_without_an_agent_there_is_one_warning,
    r4_3_the_agent_answers_at_its_place,
    r4_4_on_off_and_unset_mean_what_they_did,
    an_agent_without_keys_is_named,
);
for_every_container_engine!(r5_2_the_socket_is_mounted_with_z_on_podman_only,);

/// A running ssh-agent of the test's user, with its socket where ssh-agent puts it: below /tmp.
struct Agent {
    socket: PathBuf,
    _process: Running,
    _directory: TempDir,
}

impl Agent {
    fn start(pen: &Pen) -> Self {
        let directory = tempfile::Builder::new().prefix("sandpen-agent-").tempdir_in("/tmp").expect("directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::chown(directory.path(), Some(pen.uid), Some(pen.gid)).expect("chown");
        let socket = directory.path().join("agent.socket");
        let process = Running::start(pen.host_command("ssh-agent").arg("-D").arg("-a").arg(&socket));
        eventually("ssh-agent makes its socket", || socket.exists());
        Agent { socket, _process: process, _directory: directory }
    }

    fn with_key(pen: &Pen) -> Self {
        let agent = Self::start(pen);
        let key = pen.outside("keys").join("key");
        let mut keygen = pen.host_command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "the key of the test", "-f"]).arg(&key).ran().ok();
        pen.host_command("ssh-add").env("SSH_AUTH_SOCK", &agent.socket).arg(&key).ran().ok();
        agent
    }

    /// Runs a script with nothing said about forwarding but these variables.
    fn run(&self, pen: &Pen, variables: &[(&str, &str)], options: &[&str], script: &str) -> Ran {
        let mut command = pen.run();
        command.env_remove("SANDPEN_SSH_AGENT").env("SSH_AUTH_SOCK", &self.socket).envs(variables.iter().copied());
        command.args(options).args(["--", "bash", "-c", script]).ran()
    }
}

const LIST: &str = "ssh-add -l | cut -d' ' -f3-; echo ${SSH_AUTH_SOCK-unset}";
const FORWARDED: &str = "the key of the test (ED25519)\n/ssh-agent";

fn r4_1_off_means_not_reachable(pen: &Pen) {
    let agent = Agent::with_key(pen);
    let script = "echo ${SSH_AUTH_SOCK-unset}; find / -path /proc -prune -o -type s -print 2>&-; ls -d /ssh-agent /tmp/* 2>&-; true";
    for name in ["SANDBOX_SSH_AGENT", "LLXPRT_SANDBOX_SSH_AGENT", "SANDPEN_SSH_AGENT"] {
        let ran = agent.run(pen, &[(name, "off")], &[], script);
        assert_eq!((ran.ok(), ran.stderr.as_str()), ("unset", ""), "{name}");
    }
    let ran = agent.run(pen, &[], &["--ssh-agent", "off"], script);
    assert_eq!(ran.ok(), "unset");
    // The host's temp directory holds the agent's socket: it is masked, or the user hears of it.
    let ran = agent.run(
        pen,
        &[],
        &["--ssh-agent", "off", "--tmp", "host"],
        &format!("SSH_AUTH_SOCK={} ssh-add -l", agent.socket.display()),
    );
    assert!(
        ran.code != Some(0) || ran.stderr.contains("sandpen: warning: "),
        "reached without a warning: {}",
        ran.stdout
    );
}

fn r4_2_without_an_agent_there_is_one_warning(pen: &Pen) {
    for (name, value) in
        [("SSH_AUTH_SOCK", ""), ("SSH_AUTH_SOCK", "/no/such/socket"), ("LLXPRT_SANDBOX_SSH_AGENT", "on")]
    {
        let mut command = pen.run();
        command.env_remove("SANDPEN_SSH_AGENT").env(name, value);
        let ran = command.args(["--", "bash", "-c", "echo ${SSH_AUTH_SOCK-unset}; ls /ssh-agent 2>&-; true"]).ran();
        assert_eq!(ran.ok(), "unset", "{name}={value}");
        assert_eq!(ran.stderr.lines().count(), 1, "one warning: {}", ran.stderr);
        assert!(ran.stderr.starts_with("sandpen: warning: ") && ran.stderr.contains("SSH_AUTH_SOCK"), "{}", ran.stderr);
    }
}

fn r4_3_the_agent_answers_at_its_place(pen: &Pen) {
    let agent = Agent::with_key(pen);
    let ran = agent.run(pen, &[], &[], LIST);
    assert_eq!((ran.ok(), ran.stderr.as_str()), (FORWARDED, ""));
    // It does not only list: it signs.
    let script = "set -e; ssh-add -L > /tmp/key.pub; echo text > /tmp/text;
        ssh-keygen -q -Y sign -f /tmp/key.pub -n file /tmp/text; head -1 /tmp/text.sig";
    assert_eq!(agent.run(pen, &[], &[], script).ok(), "-----BEGIN SSH SIGNATURE-----");
}

fn r4_4_on_off_and_unset_mean_what_they_did(pen: &Pen) {
    let agent = Agent::with_key(pen);
    let off = "unset";
    for (variables, expected) in [
        (&[("LLXPRT_SANDBOX_SSH_AGENT", "on")][..], FORWARDED),
        (&[("SANDBOX_SSH_AGENT", "auto")], FORWARDED),
        (&[("LLXPRT_SANDBOX_SSH_AGENT", "off"), ("SANDBOX_SSH_AGENT", "on")], off),
        (&[("LLXPRT_SANDBOX_SSH_AGENT", ""), ("SANDBOX_SSH_AGENT", "off")], off),
        (&[("SANDPEN_PROFILE", "safe")], off),
    ] {
        assert_eq!(agent.run(pen, variables, &[], LIST).ok(), expected, "{variables:?}");
    }
    assert_eq!(agent.run(pen, &[("LLXPRT_SANDBOX_SSH_AGENT", "off")], &["--ssh-agent", "on"], LIST).ok(), FORWARDED);
}

fn r5_2_the_socket_is_mounted_with_z_on_podman_only(pen: &Pen) {
    let agent = Agent::with_key(pen);
    let mut command = pen.sandpen();
    command.env_remove("SANDPEN_SSH_AGENT").env("SSH_AUTH_SOCK", &agent.socket);
    command.args(["explain", "--format", "json", "--engine", pen.engine.flag(), "--image", crate::support::IMAGE]);
    let ran = command.args(["--", "true"]).ran();
    let explained: serde_json::Value = serde_json::from_str(ran.ok()).expect("JSON");
    assert_eq!(explained["ssh"]["state"], "forwarded");
    assert_eq!((&explained["ssh"]["strategy"], &explained["ssh"]["keys"]), (&"mount".into(), &1.into()));
    let argv: Vec<&str> = explained["argv"].as_array().expect("argv").iter().filter_map(|word| word.as_str()).collect();
    let volume = format!("{}:/ssh-agent", agent.socket.display());
    let (expected, requirement) = match pen.engine.flag() {
        "podman" => (format!("{volume}:z"), "R5.2"),
        _ => (volume, "R5.1"),
    };
    assert!(argv.contains(&expected.as_str()), "{argv:?}");
    let mounts = explained["mounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|mount| mount["target"] == "/ssh-agent").expect("the agent's mount");
    assert_eq!(mount["requirement"], requirement);
    // Never a directory of the user's own.
    let others = mounts.iter().filter(|mount| mount["target"] != "/ssh-agent");
    assert!(others.into_iter().all(|mount| mount["options"] == serde_json::json!([])), "{mounts:?}");
}

fn an_agent_without_keys_is_named(pen: &Pen) {
    let agent = Agent::start(pen);
    let ran = agent.run(pen, &[], &[], "ssh-add -l; echo $SSH_AUTH_SOCK");
    assert!(ran.ok().ends_with("/ssh-agent"), "{}", ran.stdout);
    assert!(ran.stderr.contains("sandpen: warning: ") && ran.stderr.contains("`ssh-add`"), "{}", ran.stderr);
}
