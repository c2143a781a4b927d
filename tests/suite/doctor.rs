//! `sandpen doctor`: every line has a state and every trouble its fix; it starts nothing, writes nothing, and always ends.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::world::World;
use crate::for_every_engine;
use crate::support::{Pen, Ran, RunToEnd, binary, plain};

for_every_engine!(a_working_engine_is_ready);

/// Docker's answers: `info` as given, an image that is there, and a note of every call.
fn answering(info: &str, image: &str) -> World {
    let world = World::new();
    let calls = world.root.join("calls").display().to_string();
    world.program(
        "docker",
        &format!(
            "#!/bin/sh\n{{ printf '%s\\0' docker \"$@\"; printf '\\n\\0'; }} >>'{calls}'\n\
             case \"$1\" in info) {info};; image) {image};; *) exit 1;; esac\n"
        ),
    );
    world
}

const INFO: &str = r#"echo '{"ServerVersion":"29.1.3","MemTotal":2147483648,"NCPU":2,"Architecture":"x86_64","SecurityOptions":["name=rootless"]}'"#;
const IMAGE: &str = r#"echo '[{"Architecture":"amd64","Config":{}}]'"#;

#[track_caller]
fn doctor(world: &World, arguments: &[&str]) -> (i32, Value) {
    let before = world.tree();
    let ran = world.ran(&mut world.sandpen(["doctor", "--format", "json"].iter().chain(arguments)));
    assert_eq!(world.tree(), before, "it wrote something");
    (ran.code.expect("an exit code"), serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}")))
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

fn a_working_engine_is_ready(pen: &Pen) {
    let mut command = pen.sandpen();
    command.args(["doctor", "--format", "json", "--engine", pen.engine.flag()]);
    if pen.engine.is_container() {
        command.args(["--image", crate::support::IMAGE]);
    }
    let ran = command.ran();
    let report: Value = serde_json::from_str(ran.ok()).expect("JSON");
    assert_eq!((&report["ready"], &report["engine"]), (&Value::Bool(true), &Value::from(pen.engine.flag())));
    assert_check(&report, "engines", pen.engine.flag(), "ok", "; chosen", None);
    if pen.engine.is_container() {
        let kind = if pen.engine.is_rootless() { ", rootless" } else { ", as root" };
        assert_check(&report, "engines", pen.engine.flag(), "ok", kind, None);
        assert_check(&report, "sandbox", "image", "ok", ": here, ", None);
    }
    assert_eq!((pen.sessions(), pen.containers()), (Vec::<PathBuf>::new(), Vec::<String>::new()));
}

/// Inside a sandbox no further one can be made: the one machine without namespaces that every test run has.
#[test]
fn a_kernel_that_forbids_namespaces_is_a_problem() {
    Pen::on(crate::support::Engine::Native, |pen| {
        std::fs::copy(binary(), pen.project.join("sandpen")).expect("copy");
        let ran = pen.run().args(["--", "./sandpen", "doctor", "--engine", "native"]).ran();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.stdout.contains("problem  engine        native: the native sandbox cannot be set up"),
            "{}",
            ran.stdout
        );
        assert!(
            ran.stdout.contains(
                "
Not ready: `sandpen run` cannot start. 1 problem, "
            ),
            "{}",
            ran.stdout
        );
    });
}

#[test]
fn the_page_is_aligned_and_ends_with_the_verdict() {
    let world = answering(INFO, IMAGE);
    let ran = world.ran(&mut world.sandpen(["doctor", "--memory", "4g", "--cpus", "4"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{ran:?}");
    let start = "\
Sandbox
  ok       engine        docker: chosen explicitly; no other engine is tried (env LLXPRT_SANDBOX)
  ok       image         docker.io/library/buildpack-deps:bookworm-scm: here, amd64
  warning  memory        4g asked for (flag --memory), docker has 2.0g
                         fix: ask for less with --memory
  problem  cpus          4 asked for (flag --cpus), docker has 2
                         fix: ask for less: --cpus 2

Engines
  ok       docker        29.1.3, rootless, 2.0g of memory, 2 CPUs; chosen
  -        podman        not installed
";
    assert!(ran.stdout.starts_with(start), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\nNot ready: `sandpen run` cannot start. 1 problem, 1 warning.\n"), "{}", ran.stdout);
    let ran = world.ran(&mut world.sandpen(["doctor", "--memory", "2g", "--cpus", "2"]));
    assert!(ran.ok().ends_with("\nReady: `sandpen run` starts on docker."), "{}", ran.stdout);
}

#[test]
fn it_asks_and_starts_nothing() {
    let world = answering(INFO, IMAGE);
    let (code, _) = doctor(&world, &[]);
    assert_eq!(code, 0);
    let calls = world.calls();
    let words: Vec<&str> = calls.iter().map(|call| call[1].as_str()).collect();
    assert_eq!(words, ["info", "image"]);
}

#[test]
fn an_engine_that_hangs_does_not_hang_it() {
    let world = answering("exec /bin/sleep 30", "exec /bin/sleep 30");
    let start = Instant::now();
    let (code, report) = doctor(&world, &[]);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert_eq!((code, &report["ready"]), (1, &Value::Bool(false)));
    let fix = Some("start the daemon there, or: unset DOCKER_HOST");
    assert_check(&report, "sandbox", "engine", "problem", "it does not answer within 5 s", fix);
}

#[test]
fn what_an_engine_says_instead_of_an_answer_is_shown() {
    for (script, said) in [
        ("echo noise >&2; echo 'permission denied on something' >&2; exit 1", "permission denied on something"),
        ("echo '{\"ServerErrors\":[\"no daemon here\"]}'", "no daemon here"),
        ("echo hello", "not the JSON"),
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
fn nothing_installed_is_said_and_nothing_crashes() {
    let world = World::new();
    world.uninstall("docker");
    let (code, report) = doctor(&world, &[]);
    assert_eq!(code, 1);
    let fix = Some("install Docker: https://docs.docker.com/engine/install");
    assert_check(&report, "sandbox", "engine", "problem", "Docker is not installed", fix);
    for name in ["docker", "podman", "sandbox-exec"] {
        assert_eq!(check(&report, "engines", name)["state"], "note", "{name}");
    }
    assert_eq!(check(&report, "git", "git")["state"], "note");
    // No variable at all, not even HOME and PATH.
    let ran =
        Ran::from(plain(&world.project).env_clear().args(["doctor", "--engine", "podman"]).output().expect("starts"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("fix: install Podman: https://podman.io/docs/installation"), "{}", ran.stdout);
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
    assert_check(&report, "sandbox", "image", "warning", "made for s390x", fix);
}

#[test]
fn every_configuration_file_is_judged() {
    let world = answering(INFO, IMAGE);
    world.config("network = \"off\"\n");
    world.write(".config/sandpen/profiles/mine.toml", "netwrok = \"off\"\n");
    world.write(".config/sandpen/profiles/other.json", "{\"network\": \"off\"}");
    world.write(".config/sandpen/presets/agent.toml", "name = \"agent\"\nimagee = 1\n");
    world.write("project/.sandpen/config.toml", "network = \"on\"\n");
    let (code, report) = doctor(&world, &[]);
    assert_eq!(code, 0);
    assert_check(&report, "files", "yours", "ok", "config.toml: valid", None);
    assert_check(&report, "files", "profile mine", "warning", "unknown key `netwrok`", Some("did you mean `network`?"));
    assert_check(&report, "files", "profile other", "ok", "not used now", None);
    assert_check(&report, "files", "preset agent", "warning", "unknown key `imagee`", Some("did you mean `image`?"));
    assert_check(&report, "files", "the project's", "warning", "until you trust it", Some("sandpen trust"));
    // What stops `run` is a problem, and it is told once.
    let (code, report) = doctor(&world, &["--profile", "mine"]);
    assert_eq!(code, 1);
    assert_check(&report, "files", "profile mine", "problem", "unknown key `netwrok`", Some("did you mean `network`?"));
    let problems = report["checks"].as_array().expect("checks").iter().filter(|check| check["state"] == "problem");
    assert_eq!(problems.count(), 1, "{report:#}");
    // So is a wrong option, and the engines are judged all the same.
    let (code, report) = doctor(&world, &["--memory", "lots"]);
    assert_eq!((code, &report["engine"]), (1, &Value::Null));
    assert_eq!(check(&report, "sandbox", "options")["state"], "problem");
    assert_eq!(check(&report, "engines", "docker")["state"], "ok");
}

#[test]
fn settings_of_git_that_only_work_outside() {
    let world = answering(INFO, IMAGE);
    world.program("git", "#!/bin/sh\nexec /usr/bin/git \"$@\"\n");
    world.write(".gitconfig", "[core]\n\tfsmonitor = true\n[gpg]\n\tprogram = /opt/gpg\n");
    let (code, report) = doctor(&world, &[]);
    assert_eq!(code, 0);
    assert_check(&report, "git", "git", "ok", "/git", None);
    assert_check(&report, "git", "core.fsmonitor", "note", "`true` in [ROOT]/home/.gitconfig", None);
    assert_check(&report, "git", "gpg.program", "warning", "`/opt/gpg` in [ROOT]/home/.gitconfig", None);
    let (_, report) = doctor(&world, &["--guard", "off"]);
    assert_check(&report, "git", "guard", "warning", "switched off by flag --guard", Some("--guard review"));
}

/// An agent that says how many keys it has, to everyone who asks.
fn agent(world: &World, keys: u8) -> PathBuf {
    let path = world.root.join(format!("agent-{keys}"));
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
fn the_agent_and_its_keys() {
    let world = answering(INFO, IMAGE);
    let start = Some("eval \"$(ssh-agent)\" && ssh-add");
    let asked = |socket: Option<PathBuf>| {
        let mut command = world.sandpen(["doctor", "--format", "json"]);
        command.env_remove("SANDPEN_SSH_AGENT").envs(socket.map(|socket| ("SSH_AUTH_SOCK", socket)));
        serde_json::from_str::<Value>(world.ran(&mut command).ok()).expect("JSON")
    };
    assert_check(&asked(None), "ssh", "agent", "warning", "is not set", start);
    assert_check(&asked(Some("/nowhere".into())), "ssh", "agent", "warning", "does not exist", start);
    assert_check(&asked(Some(agent(&world, 0))), "ssh", "agent", "warning", "holds no keys", Some("ssh-add"));
    let report = asked(Some(agent(&world, 2)));
    assert_check(&report, "ssh", "agent", "ok", "holds 2 keys", None);
    assert_check(&report, "ssh", "forwarding", "ok", "its socket, directly", None);
    let (_, report) = doctor(&world, &[]);
    assert_check(&report, "ssh", "agent", "note", "switched off by env SANDPEN_SSH_AGENT", None);
}

#[test]
fn leftovers_are_counted_and_prune_removes_them() {
    let world = answering(INFO, IMAGE);
    let (_, report) = doctor(&world, &[]);
    assert_check(&report, "leftovers", "stale", "ok", "nothing", None);
    world.write(".local/state/sandpen/sessions/0123456789ab/session.json", "{}");
    world.write(".local/state/sandpen/sessions/0123456789ab/owner", "");
    let (code, report) = doctor(&world, &[]);
    assert_eq!(code, 0);
    assert_check(&report, "leftovers", "stale", "warning", "1 sandbox whose sandpen was killed", Some("sandpen prune"));
    world.ran(&mut world.sandpen(["prune"])).ok();
    assert_check(&doctor(&world, &[]).1, "leftovers", "stale", "ok", "nothing", None);
}
