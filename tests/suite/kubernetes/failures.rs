//! Tests what is refused, and that each failure of the cluster has its own message.

use super::{pods_of, with_silent_kubectl};
use crate::support::{Engine, Fixture, IMAGE, RunToEnd};

fn refused(fixture: &Fixture, arguments: &[&str], code: i32, expected: &str) {
    let mut command = fixture.sandpen(["run", "--engine", "kubernetes"]);
    if !arguments.contains(&"--image") {
        command.args(["--image", IMAGE]);
    }
    let finished = command.args(arguments).args(["--", "true"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{arguments:?}: {}", finished.stderr);
    assert!(finished.stderr.contains(expected), "{arguments:?}: {}", finished.stderr);
}

#[test]
fn what_a_pod_cannot_have_is_refused_before_anything_is_sent() {
    let fixture = with_silent_kubectl();
    fixture.write("data/file", "");
    let data = format!("{}:/data:rw", fixture.home.join("data").display());
    let _socket = std::os::unix::net::UnixListener::bind(fixture.home.join("socket")).expect("socket");
    let socket = fixture.home.join("socket").display().to_string();
    let file = format!("{}:/etc/some.conf", fixture.home.join("data/file").display());
    for (arguments, expected) in [
        (&["--mount", &data][..], "cannot be writable inside"),
        (&["--mount", &socket], "is a socket, which cannot be copied"),
        (&["--mount", "/dev/null"], "is a device or a pipe, which cannot be copied"),
        (&["--mount", &file], "has no place in a pod"),
        (&["--publish", "3000"], "publishing ports is not possible with the engine `kubernetes`"),
        (&["--allow-host", "example.org"], "a filtered network is not possible with the engine `kubernetes`"),
        (&["--tmp", "host"], "the host's temporary directory is not possible"),
        (&["--git", "shared"], "the host's Git directory is not possible"),
        (&["--user", "image"], "the image's user is not possible"),
        (&["--engine-flag", "--x"], "a flag of the engine is not possible"),
        (&["--namespace", "A_b"], "is not the name of an object in Kubernetes"),
    ] {
        refused(&fixture, arguments, 2, expected);
    }
}

#[test]
fn without_kubectl_or_a_cluster_the_reason_is_named() {
    let mut fixture = with_silent_kubectl();
    refused(&fixture, &[], 44, "the cluster cannot be reached");
    let empty = fixture.root.join("empty");
    std::fs::create_dir(&empty).expect("directory");
    fixture.set("PATH", empty.to_str().expect("text"));
    refused(&fixture, &[], 44, "kubectl is not installed");
}

#[test]
fn doctor_asks_the_cluster() {
    let fixture = with_silent_kubectl();
    let doctor = |fixture: &Fixture| fixture.sandpen(["doctor", "--engine", "kubernetes", "--image", IMAGE]).finish();
    let silent = doctor(&fixture);
    assert_eq!(silent.code, Some(1));
    assert!(silent.stdout.contains("the cluster cannot be reached"), "{}", silent.stdout);
    if Engine::Kubernetes.is_available() {
        let fixture = Fixture::new().with_engine(Engine::Kubernetes);
        let found = doctor(&fixture).stdout;
        for text in ["Kubernetes v1.", "you may do all that sandpen needs", "the cluster would admit it"] {
            assert!(found.contains(text), "{text}: {found}");
        }
    }
}

#[test]
fn auto_never_leaves_this_machine() {
    let fixture = with_silent_kubectl();
    let finished = fixture.command("explain").args(["--image", "debian:12", "--format", "json"]).finish();
    assert_ne!(finished.json()["engine"]["name"], "kubernetes");
}

#[test]
fn each_failure_of_the_cluster_has_its_own_message() {
    if !Engine::Kubernetes.is_available() {
        return;
    }
    let fixture = Fixture::new().with_engine(Engine::Kubernetes);
    refused(&fixture, &["--image", "localhost/no-such-image"], 44, "the image `localhost/no-such-image");
    refused(&fixture, &["--namespace", "no-such"], 44, "you may not create pods in the namespace `no-such`");
    refused(&fixture, &["--context", "no-such"], 44, "kubectl has no cluster to use");
    assert_eq!(pods_of(&fixture), Vec::<serde_json::Value>::new());
    fixture.write(".config/sandpen/config.toml", "kubernetes.nodeSelector = [\"no=such\"]\n");
    refused(&fixture, &[], 44, "no node of the cluster takes the pod");
    assert_eq!(pods_of(&fixture), Vec::<serde_json::Value>::new());
}
