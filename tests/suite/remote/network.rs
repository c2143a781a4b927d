//! Tests the proxy for sandboxes on another machine: their connections come over the channel to this one.

use std::process::Command;

use super::machine::{with_docker, with_podman};
use crate::network::{filter, outer_address};
use crate::secrets::rig::{Rig, VALUE};
use crate::support::RunToEnd;

#[test]
fn listed_servers_of_this_machine_are_reached_and_no_others() {
    with_docker(|_, fixture| {
        filter::a_listed_server_is_reached_and_no_other(fixture);
        filter::exec_uses_the_same_filter(fixture);
        filter::many_connections_at_once(fixture);
    });
}

#[test]
fn a_filtered_container_has_no_other_way_out() {
    with_podman(|_, fixture| {
        filter::a_listed_server_is_reached_and_no_other(fixture);
        let script = format!(
            "ls /sys/class/net; (exec 3<>/dev/tcp/{}/22) 2>&1 | grep -q unreachable && echo unreachable",
            outer_address()
        );
        let finished = fixture.run().args(["--allow-host", "example.org", "--", "bash", "-c", &script]).finish();
        assert_eq!(finished.success(), "lo\nunreachable", "{}", finished.stderr);
    });
}

#[test]
fn a_key_is_set_on_this_machine_and_the_variable_is_a_placeholder() {
    with_docker(|_, fixture| {
        let rig = Rig::start(fixture);
        let libraries = fixture.outside("libraries");
        let copy = format!("cp $(ldd /usr/bin/curl | grep -o '/[^ ]*') {}", libraries.display());
        Command::new("sh").args(["-c", &copy]).finish().success();
        let script = "echo $A_TEST_KEY; LD_LIBRARY_PATH=/host-libraries /usr/local/bin/curl-host -sS \
                      -H \"Authorization: Bearer $A_TEST_KEY\" https://api.vendor.example/a";
        let mut command = fixture.run();
        command.envs(rig.host()).args(["--secret", "A_TEST_KEY@api.vendor.example"]);
        command.args(["--mount", "/usr/bin/curl:/usr/local/bin/curl-host"]);
        command.args(["--mount", &format!("{}:/host-libraries", libraries.display())]);
        let finished = command.args(["--", "bash", "-c", script]).finish();
        let placeholder = finished.success().lines().next().expect("a line");
        assert!(placeholder.starts_with("sk-test-") && placeholder != VALUE, "{placeholder}");
        assert!(!finished.stdout.contains(VALUE) && !finished.stderr.contains(VALUE), "{finished:?}");
        let requests = rig.requests();
        assert!(requests[0].contains(&format!("authorization: Bearer {VALUE}\r\n")), "{requests:?}");
    });
}
