//! The eight test cases at the end of the seeds' overview, in their order.

use super::rig::{Agent, KEY, Machine, Place, Shim};
use crate::support::{Engine, IMAGE, Pen, RunToEnd};

fn argv(plan: &serde_json::Value) -> Vec<String> {
    let words = plan["argv"].as_array().expect("argv").iter();
    words.map(|word| word.as_str().expect("text").to_owned()).collect()
}

#[test]
fn seed_1_linux_docker_mounts_directly_without_a_tunnel() {
    Place::on(Engine::Docker, |place| {
        let agent = Agent::with_key(&place.pen);
        let plan = place.explain(Some(&agent), &[], &[]);
        let argv = argv(&plan);
        assert!(argv.contains(&format!("{}:/ssh-agent", agent.socket.display())), "{argv:?}");
        assert!(argv.contains(&"SSH_AUTH_SOCK=/ssh-agent".to_owned()), "{argv:?}");
        assert_eq!(plan["ssh"]["strategy"], "mount");
    });
}

#[test]
fn seed_2_linux_podman_mounts_with_z_without_a_tunnel() {
    Place::on(Engine::Podman, |place| {
        let agent = Agent::with_key(&place.pen);
        let plan = place.explain(Some(&agent), &[], &[]);
        let argv = argv(&plan);
        assert!(argv.contains(&format!("{}:/ssh-agent:z", agent.socket.display())), "{argv:?}");
        assert_eq!((&plan["ssh"]["strategy"], argv[1].as_str()), (&"mount".into(), "run"));
    });
}

fn on_a_mac_with_docker(system: &str) -> Option<serde_json::Value> {
    let mut plan = None;
    Pen::on(Engine::Docker, |pen| {
        let agent = Agent::with_key(pen);
        let shim = Shim::new(pen, "docker", &format!("case $1 in info) echo '{system}'; exit ;; esac"));
        let mut command = pen.sandpen();
        command.env_remove("SANDPEN_SSH_AGENT").env("SSH_AUTH_SOCK", &agent.socket).env("PATH", shim.path());
        command.args(["explain", "--format", "json", "--assume-host", "macos", "--engine", "docker", "--image", IMAGE]);
        plan = Some(serde_json::from_str(command.args(["--", "true"]).ran().ok()).expect("JSON"));
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
    Machine::on(|machine| {
        let (mut running, tunnel) = machine.start(&[]);
        assert!(tunnel.command_line.contains("ssh -F /dev/null") && tunnel.directory.exists(), "{tunnel:?}");
        running.write("list\n");
        assert!(running.line().contains(KEY));
        running.close_stdin();
        running.ran();
        tunnel.assert_gone();
    });
}

#[test]
fn seed_6_macos_podman_with_a_failing_tunnel_is_fatal() {
    Machine::without_podman("DisableForwarding yes", |machine| {
        machine.assert_refused(&machine.sh("true").ran(), &["the SSH tunnel into the Podman machine"]);
    });
}

#[test]
fn seed_7_switched_off_nothing_is_mounted_on_any_platform() {
    for engine in [Engine::Docker, Engine::Podman] {
        Place::on(engine, |place| {
            let agent = Agent::with_key(&place.pen);
            for host in ["linux", "macos"] {
                let off = [("LLXPRT_SANDBOX_SSH_AGENT", "off")];
                let plan = place.explain(Some(&agent), &["--assume-host", host], &off);
                assert!(!argv(&plan).iter().any(|word| word.contains("ssh-agent") || word.contains("SSH_AUTH_SOCK")));
                assert_eq!(plan["ssh"]["state"], "off");
            }
        });
    }
}

#[test]
fn seed_8_without_a_socket_there_is_a_warning_and_no_mount() {
    for engine in [Engine::Docker, Engine::Podman] {
        Place::on(engine, |place| {
            for host in ["linux", "macos"] {
                let plan = place.explain(None, &["--assume-host", host], &[]);
                assert!(plan["warnings"].to_string().contains("SSH_AUTH_SOCK is not set"), "{plan}");
                assert!(!argv(&plan).iter().any(|word| word.contains("/ssh-agent")));
            }
        });
    }
}
