//! Tests Podman on another machine, reached by CONTAINER_HOST and by a named connection.

use super::machine::with_podman;
use crate::support::RunToEnd;

#[test]
fn a_workspace_is_copied_and_the_command_runs_there() {
    with_podman(|machine, fixture| {
        fixture.write("project/file", "text\n");
        let finished =
            fixture.run().args(["--network", "off", "--", "sh", "-c", "cat file; id -u; cat; exit 5"]).finish();
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(5), "text\n1000\n"), "{}", finished.stderr);
        machine.assert_empty(fixture);
    });
}

#[test]
fn a_named_connection_selects_it() {
    with_podman(|machine, fixture| {
        let add = ["system", "connection", "add", "far", &machine.endpoint(fixture.engine())];
        let own = std::env::var("CONTAINERS_CONF").ok().and_then(|file| std::fs::read_to_string(file).ok());
        let settings = fixture.write("../keys/containers.conf", &own.unwrap_or_default());
        let mut command = fixture.host_command("podman");
        command.env_remove("CONTAINER_HOST").env("CONTAINERS_CONF", &settings).args(add).finish().success();
        let mut run = fixture.run();
        run.env_remove("CONTAINER_HOST").env("CONTAINERS_CONF", &settings).env("CONTAINER_CONNECTION", "far");
        let finished = run.args(["-v", "--network", "off", "--", "echo", "there"]).finish();
        assert_eq!(finished.success(), "there", "{}", finished.stderr);
        assert!(finished.stderr.contains("podman --connection far run "), "{}", finished.stderr);
    });
}
