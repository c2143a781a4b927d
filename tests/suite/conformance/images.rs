//! Images: missing ones (R1), foreign ones, entry points, digests.

use crate::for_every_container_engine;
use crate::support::{Engine, IMAGE, Pen, Ran, RunToEnd};

for_every_container_engine!(
    r1_1_a_missing_image_is_explained,
    r1_2_no_other_projects_contact_is_shown,
    an_image_for_another_machine_is_named_as_such,
    an_entrypoint_does_not_swallow_the_command,
    a_digest_names_an_image,
);

const SUPPORT: &str = "https://github.com/vybestack/llxprt-code/discussions";

fn on_image(pen: &Pen, image: &str, command: &[&str]) -> Ran {
    let mut sandpen = pen.sandpen();
    sandpen.args(["run", "--engine", pen.engine.flag(), "--image", image, "--"]).args(command).ran()
}

/// Never pulled; a registry that refuses; a digest nobody has.
fn missing_images() -> [String; 4] {
    let digest = format!("localhost/sandpen-test@sha256:{}", "0".repeat(64));
    ["localhost/no-such-image:1.2".into(), "127.0.0.1:1/no/such:image".into(), "llxprt-code-sandbox".into(), digest]
}

fn r1_1_a_missing_image_is_explained(pen: &Pen) {
    for image in missing_images() {
        let ran = on_image(pen, &image, &["true"]);
        assert_eq!(ran.code, Some(44), "{image}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("sandpen: error: the sandbox image `{image}` is missing")),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.lines().any(|line| line.starts_with("hint: ") && line.ends_with(SUPPORT)), "{}", ran.stderr);
        assert!(ran.stderr.matches("hint: ").count() >= 2, "what to check, and where to ask: {}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }
    assert_eq!(pen.sessions(), Vec::<std::path::PathBuf>::new());
    assert_eq!(pen.containers(), Vec::<String>::new());
}

fn r1_2_no_other_projects_contact_is_shown(pen: &Pen) {
    for image in missing_images() {
        let said = on_image(pen, &image, &["true"]).stderr;
        for foreign in ["gemini-cli-dev", "google", "gemini", "@"] {
            assert!(!said.replace(&image, "").to_lowercase().contains(foreign), "{foreign}: {said}");
        }
        let addresses: Vec<&str> = said.split_whitespace().filter(|word| word.contains("://")).collect();
        // The engine itself may name the registry it asked.
        let foreign: Vec<_> =
            addresses.iter().filter(|address| **address != SUPPORT && !address.contains("127.0.0.1:1/")).collect();
        assert!(foreign.is_empty(), "{image}: {foreign:?}\n{said}");
    }
}

fn an_image_for_another_machine_is_named_as_such(pen: &Pen) {
    let ran = on_image(pen, "localhost/sandpen-arm64", &["true"]);
    assert_eq!(ran.code, Some(44), "{}", ran.stderr);
    assert!(ran.stderr.contains("`localhost/sandpen-arm64` is for"), "{}", ran.stderr);
    assert!(ran.stderr.contains("hint: ") && !ran.stderr.contains("is missing"), "{}", ran.stderr);
}

fn an_entrypoint_does_not_swallow_the_command(pen: &Pen) {
    let image = "localhost/sandpen-entrypoint";
    assert_eq!(on_image(pen, image, &["sh", "-c", "echo ran $1", "sh", "it"]).ok(), "ran it");
    assert_eq!(on_image(pen, image, &[]).ok(), "", "a shell at the end of its input");
}

fn a_digest_names_an_image(pen: &Pen) {
    let inspected = pen.client().args(["image", "inspect", "--format", "{{json .RepoDigests}}", IMAGE]).ran();
    let digests: Vec<String> = serde_json::from_str(inspected.ok()).expect("JSON");
    match digests.first() {
        Some(digest) => assert_eq!(on_image(pen, digest, &["echo", "ran"]).ok(), "ran"),
        // Docker gives a digest to what came from a registry only, and there is none here.
        None => assert!(matches!(pen.engine, Engine::Docker | Engine::DockerRootless)),
    }
}
