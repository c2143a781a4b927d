//! `sandpen doctor` reports a state on every line and a fix for every problem. It starts nothing,
//! writes nothing, and never hangs.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::for_every_engine;
use crate::support::{
    Engine, Finished, Fixture, RunToEnd, binary, install_program, is_root_or_skip, sandpen_without_home,
};

for_every_engine!(a_working_engine_is_ready);

/// Installs a `docker` that runs the given scripts for `info` and `image`, and records every call.
fn answering(info: &str, image: &str) -> Fixture {
    let fixture = Fixture::new().with_recording_docker();
    let calls = fixture.root.join("calls").display().to_string();
    fixture.install(
        "docker",
        &format!(
            "#!/bin/sh\n{{ printf '%s\\0' docker \"$@\"; printf '\\n\\0'; }} >>'{calls}'\n\
             case \"$1\" in info) {info};; image) {image};; version) exit 0;; *) exit 1;; esac\n"
        ),
    );
    fixture
}

const INFO: &str = r#"echo '{"ServerVersion":"29.1.3","MemTotal":2147483648,"NCPU":2,"Architecture":"x86_64","SecurityOptions":["name=rootless"]}'"#;
const IMAGE: &str = r#"echo '[{"Architecture":"amd64","Config":{}}]'"#;

#[track_caller]
fn doctor(fixture: &Fixture, arguments: &[&str]) -> (i32, Value) {
    let before = fixture.snapshot();
    let finished = fixture.finish(&mut fixture.sandpen(["doctor", "--format", "json"].iter().chain(arguments)));
    assert_eq!(fixture.snapshot(), before, "`doctor` changed a file");
    (
        finished.code.expect("an exit code"),
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished:?}")),
    )
}

#[track_caller]
fn check<'a>(report: &'a Value, group: &str, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    let found = checks.iter().find(|check| check["group"] == group && check["name"] == name);
    found.unwrap_or_else(|| panic!("no {group} {name} in {report:#}"))
}

#[track_caller]
fn assert_check(report: &Value, group: &str, name: &str, state: &str, text: &str, fix: Option<&str>) {
    let found = check(report, group, name);
    assert_eq!(found["state"], state, "{found:#}");
    assert!(found["text"].as_str().is_some_and(|found| found.contains(text)), "`{text}` is not in {found:#}");
    assert_eq!(found["fix"].as_str(), fix, "{found:#}");
}

fn a_working_engine_is_ready(fixture: &Fixture) {
    let mut command = fixture.command("doctor");
    command.args(["--format", "json"]);
    let report = command.finish().json();
    assert_eq!((&report["ready"], &report["engine"]), (&Value::Bool(true), &Value::from(fixture.engine().flag())));
    assert_check(&report, "engines", fixture.engine().flag(), "ok", "; chosen", None);
    if fixture.engine().is_container() {
        let kind = if fixture.engine().is_rootless() { ", rootless" } else { ", as root" };
        assert_check(&report, "engines", fixture.engine().flag(), "ok", kind, None);
        assert_check(&report, "sandbox", "image", "ok", ": present, ", None);
    }
    assert_eq!((fixture.sessions(), fixture.containers()), (Vec::<PathBuf>::new(), Vec::<String>::new()));
}

/// A sandbox cannot contain another one, so it serves as a machine without namespaces.
#[test]
fn a_kernel_that_forbids_namespaces_is_a_problem() {
    Fixture::on(Engine::Native, |fixture| {
        install_program(binary(), fixture.project.join("sandpen"));
        let finished = fixture.run().args(["--", "./sandpen", "doctor", "--engine", "native"]).finish();
        finished.failure(1);
        assert!(
            finished.stdout.contains("problem  engine        native: the native sandbox cannot be set up"),
            "{}",
            finished.stdout
        );
        assert!(
            finished.stdout.contains(
                "
Not ready: `sandpen run` cannot start. 1 problem, "
            ),
            "{}",
            finished.stdout
        );
    });
}

#[test]
fn doctor_prints_an_aligned_page_that_ends_with_the_result() {
    if !is_root_or_skip("sandpen as root on Docker") {
        return;
    }
    let fixture = answering(INFO, IMAGE);
    let finished = fixture.finish(&mut fixture.sandpen(["doctor", "--memory", "4g", "--cpus", "4"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(1), ""), "{finished:?}");
    let start = "\
Sandbox
  ok       engine        docker: chosen explicitly; no other engine is tried (env LLXPRT_SANDBOX)
  ok       image         docker.io/library/buildpack-deps:bookworm-scm: present, amd64
  warning  memory        4g requested (flag --memory), docker has 2.0g
                         fix: request less with --memory
  problem  cpus          4 requested (flag --cpus), docker has 2
                         fix: request less: --cpus 2

Engines
  ok       docker        29.1.3, rootless, 2.0g of memory, 2 CPUs; chosen
  -        podman        not installed
";
    assert!(finished.stdout.starts_with(start), "{}", finished.stdout);
    assert!(
        finished.stdout.ends_with("\nNot ready: `sandpen run` cannot start. 1 problem, 1 warning.\n"),
        "{}",
        finished.stdout
    );
    let finished = fixture.finish(&mut fixture.sandpen(["doctor", "--memory", "2g", "--cpus", "2"]));
    assert!(finished.success().ends_with("\nReady: `sandpen run` starts on docker."), "{}", finished.stdout);
}

#[test]
fn doctor_queries_the_engine_and_starts_nothing() {
    let fixture = answering(INFO, IMAGE);
    let (code, _) = doctor(&fixture, &[]);
    assert_eq!(code, 0);
    let calls = fixture.calls();
    let words: Vec<&str> = calls.iter().map(|call| call[1].as_str()).collect();
    assert_eq!(words, ["info", "image"]);
}

#[test]
fn a_hanging_engine_does_not_hang_doctor() {
    let fixture = answering("exec /bin/sleep 30", "exec /bin/sleep 30");
    let start = Instant::now();
    let (code, report) = doctor(&fixture, &[]);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!((code, &report["ready"]), (1, &Value::Bool(false)));
    let fix = Some("start the daemon there, or: unset DOCKER_HOST");
    assert_check(&report, "sandbox", "engine", "problem", "it does not answer within 5 s", fix);
}

#[test]
fn doctor_shows_the_error_of_an_engine() {
    for (script, said) in [
        ("echo noise >&2; echo 'permission denied on something' >&2; exit 1", "permission denied on something"),
        ("echo '{\"ServerErrors\":[\"no daemon here\"]}'", "no daemon here"),
        ("echo hello", "not the expected JSON"),
    ] {
        let (code, report) = doctor(&answering(script, "exit 1"), &[]);
        assert_eq!(code, 1);
        assert!(
            check(&report, "sandbox", "engine")["text"].as_str().is_some_and(|text| text.contains(said)),
            "{report:#}"
        );
    }
}

#[test]
fn doctor_reports_that_no_engine_is_installed() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.uninstall("docker");
    let (code, report) = doctor(&fixture, &[]);
    assert_eq!(code, 1);
    let fix = Some("install Docker: https://docs.docker.com/engine/install");
    assert_check(&report, "sandbox", "engine", "problem", "Docker is not installed", fix);
    for name in ["docker", "podman", "sandbox-exec"] {
        assert_eq!(check(&report, "engines", name)["state"], "note", "{name}");
    }
    assert_eq!(check(&report, "git", "git")["state"], "note");
    // `doctor` also works without any variable, even without HOME and PATH.
    let finished = Finished::from(
        sandpen_without_home(&fixture.project)
            .env_clear()
            .args(["doctor", "--engine", "podman"])
            .output()
            .expect("starts"),
    );
    finished.failure(1);
    assert!(
        finished.stdout.contains("fix: install Podman: https://podman.io/docs/installation"),
        "{}",
        finished.stdout
    );
}

#[test]
fn an_image_is_here_or_pulled_or_built_or_foreign() {
    let missing = answering(INFO, "exit 1");
    let (code, report) = doctor(&missing, &["--image", "debian:12"]);
    assert_eq!(code, 0);
    assert_check(&report, "sandbox", "image", "note", "the first run pulls it", Some("docker pull debian:12"));
    let (code, report) = doctor(&missing, &["--image", "localhost/sandpen/claude"]);
    assert_eq!(code, 1);
    assert_check(&report, "sandbox", "image", "problem", "never pulled", Some("sandpen build --agent claude"));
    let foreign = answering(INFO, r#"echo '[{"Architecture":"s390x"}]'"#);
    let (code, report) = doctor(&foreign, &["--image", "debian:12"]);
    assert_eq!(code, 0);
    let fix = Some("docker pull --platform linux/amd64 debian:12");
    assert_check(&report, "sandbox", "image", "warning", "built for s390x", fix);
}

#[test]
fn doctor_checks_every_configuration_file() {
    let fixture = answering(INFO, IMAGE);
    fixture.write_config("network = \"off\"\n");
    fixture.write(".config/sandpen/profiles/mine.toml", "netwrok = \"off\"\n");
    fixture.write(".config/sandpen/profiles/other.json", "{\"network\": \"off\"}");
    fixture.write(".config/sandpen/presets/agent.toml", "name = \"agent\"\nimagee = 1\n");
    fixture.write("project/.sandpen/config.toml", "network = \"on\"\n");
    let (code, report) = doctor(&fixture, &[]);
    assert_eq!(code, 0);
    assert_check(&report, "files", "user file", "ok", "config.toml: valid", None);
    assert_check(&report, "files", "profile mine", "warning", "unknown key `netwrok`", Some("did you mean `network`?"));
    assert_check(&report, "files", "profile other", "ok", "not in use", None);
    assert_check(&report, "files", "preset agent", "warning", "unknown key `imagee`", Some("did you mean `image`?"));
    assert_check(&report, "files", "project file", "warning", "until you trust it", Some("sandpen trust"));
    // An error that stops `run` is a problem, and is reported once.
    let (code, report) = doctor(&fixture, &["--profile", "mine"]);
    assert_eq!(code, 1);
    assert_check(&report, "files", "profile mine", "problem", "unknown key `netwrok`", Some("did you mean `network`?"));
    let problems = report["checks"].as_array().expect("checks").iter().filter(|check| check["state"] == "problem");
    assert_eq!(problems.count(), 1, "{report:#}");
    // The same goes for an invalid option; the engines are still checked.
    let (code, report) = doctor(&fixture, &["--memory", "lots"]);
    assert_eq!((code, &report["engine"]), (1, &Value::Null));
    assert_eq!(check(&report, "sandbox", "options")["state"], "problem");
    assert_eq!(check(&report, "engines", "docker")["state"], "ok");
}

#[test]
fn doctor_lists_git_settings_that_only_work_on_the_host() {
    let fixture = answering(INFO, IMAGE);
    fixture.install("git", "#!/bin/sh\nexec /usr/bin/git \"$@\"\n");
    fixture.write(".gitconfig", "[core]\n\tfsmonitor = true\n[gpg]\n\tprogram = /opt/gpg\n");
    let (code, report) = doctor(&fixture, &[]);
    assert_eq!(code, 0);
    assert_check(&report, "git", "git", "ok", "/git", None);
    assert_check(&report, "git", "core.fsmonitor", "note", "`true` in [ROOT]/home/.gitconfig", None);
    assert_check(&report, "git", "gpg.program", "warning", "`/opt/gpg` in [ROOT]/home/.gitconfig", None);
    let (_, report) = doctor(&fixture, &["--git", "shared"]);
    assert_check(&report, "git", "shared", "warning", "shared by flag --git", Some("--git private"));
}

/// Starts an agent that answers every request with this number of keys.
fn agent(fixture: &Fixture, keys: u8) -> PathBuf {
    let path = fixture.root.join(format!("agent-{keys}"));
    let listener = UnixListener::bind(&path).expect("socket");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read_exact(&mut [0; 5]);
            let _ = client.write_all(&[0, 0, 0, 5, 12, 0, 0, 0, keys]);
        }
    });
    path
}

#[test]
fn doctor_reports_the_agent_and_its_keys() {
    let fixture = answering(INFO, IMAGE);
    let start = Some("eval \"$(ssh-agent)\" && ssh-add");
    let asked = |socket: Option<PathBuf>| {
        let mut command = fixture.sandpen(["doctor", "--format", "json"]);
        command.env_remove("SANDPEN_SSH_AGENT").envs(socket.map(|socket| ("SSH_AUTH_SOCK", socket)));
        fixture.finish(&mut command).json()
    };
    assert_check(&asked(None), "ssh", "agent", "warning", "is not set", start);
    assert_check(&asked(Some("/nowhere".into())), "ssh", "agent", "warning", "does not exist", start);
    assert_check(&asked(Some(agent(&fixture, 0))), "ssh", "agent", "warning", "holds no keys", Some("ssh-add"));
    let report = asked(Some(agent(&fixture, 2)));
    assert_check(&report, "ssh", "agent", "ok", "holds 2 keys", None);
    assert_check(&report, "ssh", "forwarding", "ok", "through a socket of sandpen", None);
    let (_, report) = doctor(&fixture, &[]);
    assert_check(&report, "ssh", "agent", "note", "disabled by env SANDPEN_SSH_AGENT", None);
}

#[test]
fn doctor_counts_leftovers_and_prune_removes_them() {
    let fixture = answering(INFO, IMAGE);
    let (_, report) = doctor(&fixture, &[]);
    assert_check(&report, "leftovers", "stale", "ok", "none", None);
    fixture.write(".local/state/sandpen/sessions/0123456789ab/session.json", "{}");
    fixture.write(".local/state/sandpen/sessions/0123456789ab/owner", "");
    let (code, report) = doctor(&fixture, &[]);
    assert_eq!(code, 0);
    assert_check(
        &report,
        "leftovers",
        "stale",
        "warning",
        "1 sandbox whose launcher was killed",
        Some("sandpen prune"),
    );
    fixture.finish(&mut fixture.sandpen(["prune"])).success();
    assert_check(&doctor(&fixture, &[]).1, "leftovers", "stale", "ok", "none", None);
}
