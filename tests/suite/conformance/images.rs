//! Tests missing images (R1), images for other architectures, entry points and digests.

use crate::for_every_container_engine;
use crate::support::{Engine, Finished, Fixture, IMAGE, RunToEnd};

for_every_container_engine!(
    r1_1_a_missing_image_is_explained,
    r1_2_no_other_projects_contact_is_shown,
    an_image_for_another_machine_is_named_as_such,
    an_entrypoint_does_not_swallow_the_command,
    a_digest_names_an_image,
);

const SUPPORT: &str = "https://github.com/vybestack/llxprt-code/discussions";

fn on_image(fixture: &Fixture, image: &str, command: &[&str]) -> Finished {
    let mut sandpen = fixture.run_image(image);
    sandpen.args(["--"]).args(command).finish()
}

/// These images are never pulled, refused by their registry, or have a digest that does not exist.
fn missing_images() -> [String; 4] {
    let digest = format!("localhost/sandpen-test@sha256:{}", "0".repeat(64));
    ["localhost/no-such-image:1.2".into(), "127.0.0.1:1/no/such:image".into(), "llxprt-code-sandbox".into(), digest]
}

fn r1_1_a_missing_image_is_explained(fixture: &Fixture) {
    for image in missing_images() {
        let finished = on_image(fixture, &image, &["true"]);
        assert_eq!(finished.code, Some(44), "{image}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(&format!("sandpen: error: the sandbox image `{image}` is missing")),
            "{}",
            finished.stderr
        );
        assert!(
            finished.stderr.lines().any(|line| line.starts_with("hint: ") && line.ends_with(SUPPORT)),
            "{}",
            finished.stderr
        );
        assert!(
            finished.stderr.matches("hint: ").count() >= 2,
            "one hint must name a check and one the support page: {}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "");
    }
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
    assert_eq!(fixture.containers(), Vec::<String>::new());
}

fn r1_2_no_other_projects_contact_is_shown(fixture: &Fixture) {
    for image in missing_images() {
        let said = on_image(fixture, &image, &["true"]).stderr;
        for foreign in ["gemini-cli-dev", "google", "gemini", "@"] {
            assert!(!said.replace(&image, "").to_lowercase().contains(foreign), "{foreign}: {said}");
        }
        let addresses: Vec<&str> = said.split_whitespace().filter(|word| word.contains("://")).collect();
        // The engine's own message may contain the registry's address.
        let foreign: Vec<_> =
            addresses.iter().filter(|address| **address != SUPPORT && !address.contains("127.0.0.1:1/")).collect();
        assert!(foreign.is_empty(), "{image}: {foreign:?}\n{said}");
    }
}

fn an_image_for_another_machine_is_named_as_such(fixture: &Fixture) {
    let finished = on_image(fixture, "localhost/sandpen-arm64", &["true"]);
    finished.failure(44);
    assert!(finished.stderr.contains("`localhost/sandpen-arm64` is for"), "{}", finished.stderr);
    assert!(finished.stderr.contains("hint: ") && !finished.stderr.contains("is missing"), "{}", finished.stderr);
}

fn an_entrypoint_does_not_swallow_the_command(fixture: &Fixture) {
    let image = "localhost/sandpen-entrypoint";
    assert_eq!(on_image(fixture, image, &["sh", "-c", "echo ran $1", "sh", "it"]).success(), "ran it");
    assert_eq!(on_image(fixture, image, &[]).success(), "", "without a command, a shell runs and ends with its input");
}

fn a_digest_names_an_image(fixture: &Fixture) {
    let inspected = fixture.client().args(["image", "inspect", "--format", "{{json .RepoDigests}}", IMAGE]).finish();
    let digests: Vec<String> = serde_json::from_str(inspected.success()).expect("JSON");
    match digests.first() {
        Some(digest) => assert_eq!(on_image(fixture, digest, &["echo", "ran"]).success(), "ran"),
        // Docker assigns a digest only to an image from a registry, and no registry runs here.
        None => assert!(matches!(fixture.engine(), Engine::Docker | Engine::DockerRootless)),
    }
}
