//! Options without an effect on an engine are refused, never ignored.

use crate::support::Fixture;

#[test]
fn engines_of_another_platform() {
    let fixture = Fixture::new().with_recording_docker();
    for command in ["run", "explain"] {
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen([command, "--engine", "sandbox-exec"])),
            "\
sandpen: error: flag --engine: `sandbox-exec` exists on macOS only
hint: use `docker`, `podman` or `auto`
"
        );
    }
}

#[test]
fn a_seatbelt_profile_is_for_seatbelt() {
    let fixture = Fixture::new().with_recording_docker();
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run", "--seatbelt-profile", "x"])),
        "\
sandpen: error: flag --seatbelt-profile: the engine `docker` has no Seatbelt profiles
hint: drop it, or use `--engine sandbox-exec` on macOS
"
    );
}

/// llxprt users may have set this variable; a container ignores it.
#[test]
fn a_seatbelt_profile_in_the_environment_does_not_stop_a_container() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(
        fixture.sandpen(["run", "--engine", "docker", "--", "true"]).env("SEATBELT_PROFILE", "permissive-open"),
    );
    finished.success();
}
