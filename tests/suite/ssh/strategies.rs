//! How the agent reaches the guest on every platform and engine: by a mount, by Docker Desktop's socket, or by a tunnel.

use super::podman_machine::PodmanMachine;
use crate::support::{Engine, Fixture, KEY_COMMENT, RunToEnd, Shim};

fn argv(plan: &serde_json::Value) -> Vec<String> {
    let words = plan["argv"].as_array().expect("argv").iter();
    words.map(|word| word.as_str().expect("text").to_owned()).collect()
}

#[test]
fn seed_1_linux_docker_mounts_directly_without_a_tunnel() {
    Fixture::on_prepared(Engine::Docker, Fixture::with_agent, |fixture| {
        let plan = fixture.explain(&[]);
        let argv = argv(&plan);
        assert!(argv.contains(&format!("{}:/ssh-agent", fixture.agent().socket.display())), "{argv:?}");
        assert!(argv.contains(&"SSH_AUTH_SOCK=/ssh-agent".to_owned()), "{argv:?}");
        assert_eq!(plan["ssh"]["strategy"], "mount");
    });
}

#[test]
fn seed_2_linux_podman_mounts_with_z_without_a_tunnel() {
    Fixture::on_prepared(Engine::Podman, Fixture::with_agent, |fixture| {
        let plan = fixture.explain(&[]);
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
fn seed_3_macos_docker_desktop_mounts_the_magic_socket() {
    let Some(plan) = on_a_mac_with_docker("Docker Desktop") else { return };
    assert!(argv(&plan).contains(&"/run/host-services/ssh-auth.sock:/ssh-agent".to_owned()), "{plan}");
}

#[test]
fn seed_4_macos_docker_without_desktop_warns_and_mounts_nothing() {
    let Some(plan) = on_a_mac_with_docker("Alpine Linux v3.20") else { return };
    assert!(plan["warnings"].to_string().contains("SSH agent forwarding is unavailable"), "{plan}");
    assert!(!argv(&plan).iter().any(|word| word.contains("/ssh-agent")), "{plan}");
}

#[test]
fn seed_5_macos_podman_spawns_polls_and_mounts() {
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
fn seed_6_macos_podman_with_a_failing_tunnel_is_fatal() {
    PodmanMachine::without_podman("DisableForwarding yes", |machine| {
        machine.assert_refused(&machine.sh("true").finish(), &["the SSH tunnel into the Podman machine"]);
    });
}

#[test]
fn seed_7_switched_off_nothing_is_mounted_on_any_platform() {
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
fn seed_8_without_a_socket_there_is_a_warning_and_no_mount() {
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
