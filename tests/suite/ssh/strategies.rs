//! The agent reaches the guest by a mount, by Docker Desktop's socket, or by a tunnel, depending on
//! the platform and the engine.

use super::podman_machine::PodmanMachine;
use crate::support::{Engine, Fixture, KEY_COMMENT, RunToEnd, Shim};

fn argv(plan: &serde_json::Value) -> Vec<String> {
    let words = plan["argv"].as_array().expect("argv").iter();
    words.map(|word| word.as_str().expect("text").to_owned()).collect()
}

#[test]
fn docker_on_linux_mounts_the_socket_without_a_tunnel() {
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, |fixture| {
        let plan = fixture.explain(&["--ssh-agent", "raw"]);
        let argv = argv(&plan);
        assert!(argv.contains(&format!("{}:/ssh-agent", fixture.agent().socket.display())), "{argv:?}");
        assert!(argv.contains(&"SSH_AUTH_SOCK=/ssh-agent".to_owned()), "{argv:?}");
        assert_eq!(plan["ssh"]["strategy"], "mount");
    });
}

#[test]
fn podman_on_linux_mounts_the_socket_relabelled_without_a_tunnel() {
    Fixture::on_prepared(Engine::Podman, Fixture::with_agent, |fixture| {
        let plan = fixture.explain(&["--ssh-agent", "raw"]);
        let argv = argv(&plan);
        assert!(argv.contains(&format!("{}:/ssh-agent:z", fixture.agent().socket.display())), "{argv:?}");
        assert_eq!((&plan["ssh"]["strategy"], argv[1].as_str()), (&"mount".into(), "run"));
    });
}

fn on_a_mac_with_docker(system: &str) -> Option<serde_json::Value> {
    let mut plan = None;
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, |fixture| {
        let shim = Shim::new(fixture, "docker", &format!("case $1 in info) echo '{system}'; exit ;; esac"));
        plan = Some(fixture.explain_with(&["--assume-host", "macos", "--", "true"], &[("PATH", &shim.path())]));
    });
    plan
}

#[test]
fn docker_desktop_on_macos_mounts_its_own_agent_socket() {
    let Some(plan) = on_a_mac_with_docker("Docker Desktop") else { return };
    assert!(argv(&plan).contains(&"/run/host-services/ssh-auth.sock:/ssh-agent".to_owned()), "{plan}");
}

#[test]
fn docker_desktop_cannot_mount_the_gate() {
    let Some(plan) = on_a_mac_with_docker("Docker Desktop") else { return };
    assert_eq!((&plan["ssh"]["gate"], &plan["ssh"]["strategy"]), (&false.into(), &"host-service".into()));
    assert_eq!(plan["downgrades"][0]["kind"], "ssh-agent", "{}", plan["downgrades"]);
}

#[test]
fn rules_without_the_gate_are_refused() {
    Fixture::on_prepared(Engine::Native, Fixture::with_agent, |fixture| {
        for rule in [&["--ssh-host", "github.com"][..], &["--ssh-confirm"]] {
            let finished = fixture.run().args(["--ssh-agent", "raw"]).args(rule).args(["--", "true"]).finish();
            assert!(finished.failure(2).contains("cannot be enforced with `--ssh-agent raw`"), "{}", finished.stderr);
        }
    });
}

#[test]
fn on_linux_the_gate_is_mounted() {
    for engine in [Engine::Docker, Engine::Podman, Engine::Native] {
        Fixture::on_prepared(engine, Fixture::with_agent, |fixture| {
            for mode in ["auto", "on"] {
                let plan = fixture.explain(&["--ssh-agent", mode]);
                assert_eq!((&plan["ssh"]["gate"], &plan["ssh"]["strategy"]), (&true.into(), &"relay".into()));
                assert!(!plan["argv"].to_string().contains(&fixture.agent().socket.display().to_string()), "{plan}");
            }
        });
    }
}

#[test]
fn other_docker_on_macos_warns_and_mounts_nothing() {
    let Some(plan) = on_a_mac_with_docker("Alpine Linux v3.20") else { return };
    assert!(plan["warnings"].to_string().contains("SSH agent forwarding is unavailable"), "{plan}");
    assert!(!argv(&plan).iter().any(|word| word.contains("/ssh-agent")), "{plan}");
}

#[test]
fn podman_on_macos_opens_a_tunnel_and_mounts_its_socket() {
    PodmanMachine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        assert!(tunnel.command_line.contains("ssh -F /dev/null") && tunnel.directory.exists(), "{tunnel:?}");
        running.write("list\n");
        assert!(running.line().contains(KEY_COMMENT));
        running.close_stdin();
        running.finish();
        tunnel.assert_gone();
    });
}

#[test]
fn podman_on_macos_fails_if_the_tunnel_fails() {
    PodmanMachine::without_podman("DisableForwarding yes", |machine| {
        machine.assert_refused(&machine.sh("true").finish(), &["the SSH tunnel into the Podman machine"]);
    });
}

#[test]
fn with_the_agent_off_nothing_is_mounted_on_any_platform() {
    for engine in [Engine::Docker, Engine::Podman] {
        Fixture::on_prepared(engine, Fixture::with_agent, |fixture| {
            for host in ["linux", "macos"] {
                let off = [("LLXPRT_SANDBOX_SSH_AGENT", "off")];
                let plan = fixture.explain_with(&["--assume-host", host], &off);
                assert!(!argv(&plan).iter().any(|word| word.contains("ssh-agent") || word.contains("SSH_AUTH_SOCK")));
                assert_eq!(plan["ssh"]["state"], "off");
            }
        });
    }
}

#[test]
fn without_an_agent_there_is_a_warning_and_no_mount() {
    for engine in [Engine::Docker, Engine::Podman] {
        Fixture::on_prepared(engine, Fixture::with_agent, |fixture| {
            for host in ["linux", "macos"] {
                let plan = fixture.explain_with(&["--assume-host", host], &[("SSH_AUTH_SOCK", "")]);
                assert!(plan["warnings"].to_string().contains("SSH_AUTH_SOCK is not set"), "{plan}");
                assert!(!argv(&plan).iter().any(|word| word.contains("/ssh-agent")));
            }
        });
    }
}
