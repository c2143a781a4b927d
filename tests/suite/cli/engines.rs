//! If an engine cannot run, sandpen exits with 44 and a message with a remedy; `explain` warns and
//! exits with 0.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::support::{Fixture, binary, install_program};

const NO_DAEMON: &str = "\
sandpen: error: Docker does not answer at `unix:///nonexistent/docker.sock` (env DOCKER_HOST): its daemon is not running there
sandpen:   No such file or directory (os error 2)
hint: start Docker (`sudo systemctl start docker`, or Docker Desktop)
hint: or use another engine: --engine podman
";
const NO_DOCKER: &str = "\
sandpen: error: Docker is not installed: there is no `docker` on PATH
hint: install Docker
hint: or use another engine: --engine podman
";
const NO_PODMAN: &str = "\
sandpen: error: Podman is not installed: there is no `podman` on PATH
hint: install Podman
hint: or use another engine: --engine docker
";
const NONE: &str = "\
sandpen: error: no container engine is available
sandpen:   Docker is not installed: there is no `docker` on PATH
sandpen:   Podman is not installed: there is no `podman` on PATH
hint: install Docker or Podman: https://docs.docker.com/engine/install or https://podman.io/docs/installation
";
const DENIED: &str = "\
sandpen: error: cannot connect to Docker at `unix://[ROOT]/private.sock`
sandpen:   Permission denied (os error 13)
hint: use Podman or rootless Docker, which need no rights: https://docs.docker.com/engine/security/rootless
hint: or use another engine: --engine podman
";

/// Asserts that `run` fails with the message, and that `explain` shows the plan with the same
/// warning.
#[track_caller]
fn down(fixture: &Fixture, command: impl Fn(&str) -> Command, message: &str) {
    let stderr = fixture.fails_without_effect(44, command("run").args(["--", "true"]));
    assert_eq!(stderr, message);
    let finished = fixture.finish(command("explain").args(["--", "true"]));
    finished.success();
    // The warning has one line: the message, then the causes, separated by semicolons.
    let first = message.lines().next().and_then(|line| line.strip_prefix("sandpen: error: ")).expect("a message");
    let causes: Vec<&str> = message.lines().filter_map(|line| line.strip_prefix("sandpen:   ")).collect();
    let first = if causes.is_empty() { first.to_owned() } else { format!("{first}: {}", causes.join("; ")) };
    assert!(finished.stderr.starts_with(&format!("sandpen: warning: {first}\n")), "{}", finished.stderr);
    assert!(finished.stdout.contains("Command line\n"), "{}", finished.stdout);
    let finished = fixture.finish(command("explain").args(["--format", "json", "--", "true"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
    assert_eq!(json["warnings"][0], first);
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new(), "`explain` called the engine");
}

#[test]
fn r1_a_client_without_a_daemon() {
    let fixture = Fixture::new().with_recording_docker();
    let command = |subcommand: &str| {
        let mut command = fixture.sandpen([subcommand, "--engine", "docker"]);
        command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
        command
    };
    down(&fixture, command, NO_DAEMON);
}

#[test]
fn r1_a_daemon_that_is_gone_leaves_its_socket() {
    let fixture = Fixture::new().with_recording_docker();
    let socket = fixture.root.join("dead.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let command = |subcommand: &str| {
        let mut command = fixture.sandpen([subcommand, "--engine", "docker"]);
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        command
    };
    down(
        &fixture,
        command,
        "\
sandpen: error: Docker does not answer at `unix://[ROOT]/dead.sock` (env DOCKER_HOST): its daemon is not running there
sandpen:   Connection refused (os error 111)
hint: start Docker (`sudo systemctl start docker`, or Docker Desktop)
hint: or use another engine: --engine podman
",
    );
}

/// This user may not connect to the daemon. If root runs the tests, sandpen runs as uid 65534.
#[test]
fn r1_a_daemon_that_refuses_permission() {
    let fixture = Fixture::new().with_recording_docker();
    let socket = fixture.root.join("private.sock");
    let _daemon = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o000)).unwrap();
    // Other users may have no access to cargo's directory.
    let program = fixture.root.join("sandpen");
    install_program(binary(), &program);
    let is_root = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0;
    if is_root {
        for path in [&fixture.home, &fixture.project] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
    }
    let command = |subcommand: &str| {
        let like = fixture.sandpen([subcommand, "--engine", "docker"]);
        let mut command = Command::new(if is_root { "/usr/bin/setpriv".into() } else { program.clone() });
        if is_root {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&program);
        }
        command.args(like.get_args()).current_dir(&fixture.project).env_clear();
        command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        command
    };
    down(&fixture, command, DENIED);
}

#[test]
fn r1_no_docker_program() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.uninstall("docker");
    down(&fixture, |subcommand| fixture.sandpen([subcommand, "--engine", "docker"]), NO_DOCKER);
}

#[test]
fn r1_no_podman_program() {
    let fixture = Fixture::new().with_recording_docker();
    down(&fixture, |subcommand| fixture.sandpen([subcommand, "--engine", "podman"]), NO_PODMAN);
}

#[test]
fn r1_podmans_remote_service_does_not_answer() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let command = |subcommand: &str| {
        let mut command = fixture.sandpen([subcommand, "--engine", "podman"]);
        command.env("CONTAINER_HOST", "unix:///nonexistent/podman.sock");
        command
    };
    down(
        &fixture,
        command,
        "\
sandpen: error: Podman's remote service does not answer at CONTAINER_HOST
sandpen:   No such file or directory (os error 2)
hint: start it (`podman machine start`, or `podman system service`), or unset CONTAINER_HOST
hint: or use another engine: --engine docker
",
    );
}

#[test]
fn r1_no_engine_at_all() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.uninstall("docker");
    // An image needs a container engine, whether `auto` is explicit or the default.
    down(&fixture, |subcommand| fixture.sandpen([subcommand, "--engine", "auto", "--image", "debian"]), NONE);
    let command = |subcommand: &str| {
        let mut command = fixture.sandpen([subcommand]);
        command.env("LLXPRT_SANDBOX", "").env("SANDPEN_IMAGE", "debian");
        command
    };
    down(&fixture, command, NONE);
}

#[test]
fn r1_the_messages_differ_and_each_has_its_remedy() {
    let messages = [NONE, NO_DAEMON, NO_DOCKER, NO_PODMAN, DENIED];
    for (index, message) in messages.iter().enumerate() {
        assert!(message.contains("\nhint: "), "{message}");
        assert!(messages[..index].iter().all(|other| other.lines().next() != message.lines().next()));
    }
}

/// A hint must not suggest an engine that is not installed.
#[test]
fn r1_the_remedy_does_not_name_an_engine_that_is_not_there_either() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.uninstall("docker");
    let stderr =
        fixture.fails_without_effect(44, &mut fixture.sandpen(["run", "--engine", "auto", "--image", "debian"]));
    assert!(!stderr.contains("use another engine"), "{stderr}");
    fixture.install_recording("docker");
    let mut command = fixture.sandpen(["run", "--engine", "auto", "--image", "debian"]);
    assert_eq!(
        fixture.fails_without_effect(44, command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock")),
        "\
sandpen: error: no container engine is available
sandpen:   Docker does not answer at `unix:///nonexistent/docker.sock` (env DOCKER_HOST): its daemon is not running there: No such file or directory (os error 2)
sandpen:   Podman is not installed: there is no `podman` on PATH
hint: start Docker (`sudo systemctl start docker`, or Docker Desktop)
hint: install Podman
"
    );
}

/// `auto` selects the native engine without an image, and a container engine with one.
#[test]
fn auto_takes_native_without_an_image_and_docker_with_one() {
    let fixture = Fixture::new().with_recording_docker();
    let explain = |arguments: &[&str]| fixture.explain_normalized(arguments, &[("LLXPRT_SANDBOX", "")]);
    for arguments in [&["--", "true"][..], &["--engine", "auto"], &["--agent", "claude"]] {
        let json = explain(arguments);
        let reason = json["engine"]["reason"].as_str().unwrap();
        if reason.contains("native cannot run here") {
            let must = std::env::var("ENGINES_MUST_WORK").unwrap_or_default();
            assert!(!must.split(',').any(|engine| engine == "native"), "{reason}");
            assert_eq!(json["engine"]["name"], "docker");
            continue;
        }
        assert_eq!((json["engine"]["name"].as_str(), &json["image"]), (Some("native"), &serde_json::Value::Null));
        assert_eq!(reason, "no image is set, so the host's tools are used");
        assert!(json["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{json:#}");
    }
    for (arguments, image) in [
        (&["--image", "debian"][..], "debian"),
        (&["--engine", "auto", "--image", "debian"], "debian"),
        (&["--", "llxprt"], "ghcr.io/vybestack/llxprt-code/sandbox:0.11.0"),
    ] {
        let json = explain(arguments);
        assert_eq!((&json["engine"]["name"], &json["image"]["reference"]), (&"docker".into(), &image.into()));
        assert_eq!(
            json["engine"]["reason"],
            format!("the image `{image}` needs a container engine; Docker is available")
        );
    }
    assert_eq!(fixture.calls(), Vec::<Vec<String>>::new());
}

/// The program on PATH is what the user means; the image of its preset is for a container engine
/// that is named.
#[test]
fn an_installed_command_is_preferred_to_the_image_of_its_preset() {
    let fixture = Fixture::new().with_recording_docker();
    let explain = |arguments: &[&str]| fixture.explain_normalized(arguments, &[("LLXPRT_SANDBOX", "")]);
    let image = "us-docker.pkg.dev/gemini-code-dev/gemini-cli/sandbox:0.61.0";
    assert_eq!(explain(&["--", "gemini"])["image"]["reference"], image);
    fixture.install("gemini", "#!/bin/sh\n");
    let json = explain(&["--", "gemini"]);
    if !json["engine"]["reason"].as_str().is_some_and(|reason| reason.contains("native cannot run here")) {
        assert_eq!((json["engine"]["name"].as_str(), &json["image"]), (Some("native"), &serde_json::Value::Null));
    }
    assert_eq!(explain(&["--engine", "docker", "--", "gemini"])["image"]["reference"], image);
    assert_eq!(explain(&["--image", "debian", "--", "gemini"])["engine"]["name"], "docker");
}

#[test]
fn native_has_no_command_line_and_names_a_missing_image() {
    let fixture = Fixture::new().with_recording_docker();
    for command in ["run", "explain"] {
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen([command, "--engine", "native", "--engine-flag", "x"])),
            "\
sandpen: error: flag --engine-flag: the engine `native` has no command line for `x`
hint: drop it, or use `--engine docker` or `--engine podman`
"
        );
    }
    let mut command = fixture.sandpen(["run", "--engine", "native", "--image", "localhost/none", "--", "true"]);
    let finished = fixture.finish(&mut command);
    assert!(
        finished.stderr.contains("native cannot run here") || finished.stderr.contains("the image `localhost/none`"),
        "{}",
        finished.stderr
    );
    finished.failure(44);
}

#[test]
fn auto_takes_docker_then_podman() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let image = ["--engine", "auto", "--image", "debian"];
    let json = fixture.explain_normalized(&image, &[]);
    assert_eq!(json["engine"]["name"], "docker");
    assert!(json["engine"]["reason"].as_str().is_some_and(|reason| reason.contains("Docker is available")), "{json:#}");
    let json = fixture.explain_normalized(&image, &[("DOCKER_HOST", "unix:///nonexistent/docker.sock")]);
    assert_eq!(json["engine"]["name"], "podman");
    let reason = json["engine"]["reason"].as_str().unwrap();
    assert!(reason.contains("Podman is available, Docker is not"), "{reason}");
    let mut command = fixture.sandpen(["run"].iter().chain(&image).chain(&["--", "true"]));
    let finished = fixture.finish(command.env("DOCKER_HOST", "unix:///nonexistent/docker.sock"));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    assert_eq!(fixture.calls().iter().map(|call| call[0].as_str()).collect::<Vec<_>>(), ["podman"]);
}

/// If the engine that `auto` chose fails to launch, sandpen exits with 44 and tries no other.
#[test]
fn auto_tries_no_second_engine() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let mut command = fixture.sandpen(["run", "--engine", "auto", "--image", "debian", "--", "true"]);
    let finished = fixture.finish(command.env("EXIT_CODE", "125"));
    finished.failure(44);
    assert!(!fixture.calls().is_empty());
    assert!(fixture.calls().iter().all(|call| call[0] == "docker"), "{:?}", fixture.calls());
}

#[test]
fn r1_a_missing_image_is_44_with_its_name_and_where_to_ask() {
    let fixture = Fixture::new().with_recording_docker();
    let finished =
        fixture.finish(fixture.sandpen(["run", "--image", "example.org/x:1", "--", "true"]).env("EXIT_CODE", "125"));
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (Some(44), "", "\
sandpen: error: the sandbox image `example.org/x:1` is missing and could not be pulled
hint: check the image's name (flag --image), your network connection and your login at its registry (`docker pull example.org/x:1`)
hint: if it should exist, ask at https://github.com/vybestack/llxprt-code/discussions
"));
    let finished =
        fixture.finish(fixture.sandpen(["run", "--image", "localhost/x", "--", "true"]).env("EXIT_CODE", "125"));
    assert_eq!(
        (finished.code, finished.stderr.as_str()),
        (
            Some(44),
            "\
sandpen: error: the sandbox image `localhost/x` is missing and could not be pulled
hint: it is a local image, which is never pulled: build it first with `sandpen build`
hint: if it should exist, ask at https://github.com/vybestack/llxprt-code/discussions
"
        )
    );
}

#[test]
fn r1_another_architecture_is_44_and_a_message_of_its_own() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install(
        "docker",
        "#!/bin/sh\ncase $1 in image) echo '[{\"Architecture\":\"s390x\"}]'; exit 0;; esac\nexit 125\n",
    );
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--image", "x", "--", "true"]));
    assert_eq!(finished.code, Some(44));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    assert_eq!(
        finished.stderr,
        format!(
            "\
sandpen: error: the image `x` is for the architecture s390x, and this machine is {arch}
hint: pull the right one: `docker pull --platform linux/{arch} x`
hint: or install an emulator on the host: `apt-get install qemu-user-static binfmt-support`
"
        )
    );
}

#[test]
fn any_other_failure_of_the_engine_is_44() {
    let fixture = Fixture::new().with_recording_docker();
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    fixture.install(
        "docker",
        &format!("#!/bin/sh\ncase $1 in image) echo '[{{\"Architecture\":\"{arch}\"}}]'; exit 0;; esac\necho 'docker: no space left' >&2\nexit 125\n"),
    );
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--", "true"]));
    assert_eq!(
        (finished.code, finished.stderr.as_str()),
        (
            Some(44),
            "\
docker: no space left
sandpen: error: docker could not start the sandbox; see its output above
hint: `sandpen explain` shows the exact command line; so does `-v` at the launch
"
        )
    );
}

#[test]
fn the_session_leaves_nothing_behind() {
    let fixture = Fixture::new().with_recording_docker();
    for code in ["0", "7", "125"] {
        fixture.finish(fixture.sandpen(["run", "--", "true"]).env("EXIT_CODE", code));
        let sessions = fixture.home.join(".local/state/sandpen/sessions");
        assert_eq!(fs::read_dir(sessions).map(Iterator::count).unwrap_or(0), 0, "after exit code {code}");
    }
}

/// sandpen exits with the guest's exit code, even if that code has a meaning for sandpen itself.
#[test]
fn the_guests_exit_code_is_sandpens() {
    let fixture = Fixture::new().with_recording_docker();
    for code in [0, 1, 2, 44, 124, 255] {
        let finished = fixture.finish(fixture.sandpen(["run", "--", "true"]).env("EXIT_CODE", code.to_string()));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(code), ""));
    }
}

#[test]
fn strict_makes_a_downgrade_an_error() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.install_recording("podman");
    let arguments = ["--engine", "podman", "--memory", "64m"];
    let json = fixture.explain_normalized(&arguments, &[]);
    if json["downgrades"].as_array().is_some_and(Vec::is_empty) {
        // As root every limit can be enforced, so `--strict` has no effect.
        let finished =
            fixture.finish(&mut fixture.sandpen(["run", "--strict"].iter().chain(&arguments).chain(&["--", "true"])));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        return;
    }
    let stderr = fixture.fails_without_effect(
        44,
        &mut fixture.sandpen(["run", "--strict"].iter().chain(&arguments).chain(&["--", "true"])),
    );
    assert!(stderr.starts_with("sandpen: error: memory 64m (flag --memory) cannot be enforced here\n"), "{stderr}");
}
