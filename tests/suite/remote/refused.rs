//! Tests what an engine on another machine cannot have. No machine is needed: all of it is refused before
//! anything is started.

use std::os::unix::net::UnixListener;

use crate::support::{Fixture, RunToEnd};

fn with_remote_docker() -> Fixture {
    let mut fixture = Fixture::new().with_recording_docker();
    fixture.set("DOCKER_HOST", "ssh://me@build.example");
    fixture
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let fixture = with_remote_docker();
    let outside = fixture.outside("data");
    std::fs::create_dir_all(&outside).expect("directory");
    let socket = outside.join("socket");
    let _listener = UnixListener::bind(&socket).expect("socket");
    let writable = format!("{}:/data:rw", outside.display());
    let of_socket = format!("{}:/socket", socket.display());
    for (options, said) in [
        (vec!["--mount", &writable], "cannot be writable inside"),
        (vec!["--mount", &of_socket], "is a socket"),
        (vec!["--mount", "/dev/null:/device"], "is a device"),
        (vec!["--publish", "3000"], "publishing ports is not possible"),
        (vec!["--network", "proxied", "--proxy-command", "proxy"], "a proxy command is not possible"),
        (vec!["--git", "shared"], "the host's Git directory is not possible"),
    ] {
        let mut command = fixture.sandpen(["run", "--engine", "docker", "--image", "debian:12"]);
        let stderr = fixture.usage_error(command.args(&options).args(["--", "true"]));
        assert!(stderr.contains(said), "{options:?}: {stderr}");
        assert!(stderr.contains("hint: "), "{options:?}: {stderr}");
    }
}

#[test]
fn auto_never_takes_it() {
    let fixture = with_remote_docker();
    let finished = fixture.sandpen(["run", "--engine", "auto", "--image", "debian:12", "--", "true"]).finish();
    let stderr = finished.failure(44);
    assert!(stderr.contains("is on another machine"), "{stderr}");
    assert!(stderr.contains("`--engine docker`"), "{stderr}");
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new());
}

#[test]
fn strict_refuses_copies() {
    let fixture = with_remote_docker();
    let command =
        ["run", "--strict", "--workspace", "live", "--engine", "docker", "--image", "debian:12", "--", "true"];
    let finished = fixture.sandpen(command).finish();
    assert!(finished.stderr.contains("a copy"), "{}", finished.stderr);
    assert_ne!(finished.code, Some(0));
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new());
}
