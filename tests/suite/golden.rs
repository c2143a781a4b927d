//! Compares whole plans and command lines with files, for the same input on every engine.
//! UPDATE_GOLDEN=1 rewrites them.
//!
//! Everything that depends on the machine is set by hand: user, home, engines, agent. `[ROOT]`
//! replaces the fixture's directory.

mod handwritten_host;
mod rows;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sandpen::internals::{Purpose, Resolved, Terminal, explain_json, explain_text};
use sandpen::{Options, SessionId, View};

use handwritten_host::{Engine, HandwrittenHost};

/// The text of these engines' plans is compared, too.
const TEXTS: [Engine; 3] = [Engine::Docker, Engine::Native, Engine::NativeImage];

struct Scenario {
    name: &'static str,
    /// Writes files, sets variables, and returns the options.
    set_up: fn(&mut HandwrittenHost) -> Options,
    command: &'static [&'static str],
    engines: &'static [Engine],
}

const SCENARIOS: [Scenario; 11] = [
    Scenario { name: "minimal", engines: &Engine::ALL, set_up: |_| Options::default(), command: &["git", "status"] },
    Scenario {
        name: "everything",
        engines: &Engine::ALL,
        set_up: everything,
        command: &["llxprt", "--prompt", "two words"],
    },
    Scenario {
        name: "image-user",
        engines: &[
            Engine::Docker,
            Engine::DockerRootless,
            Engine::DockerMacos,
            Engine::Podman,
            Engine::PodmanRootless,
            Engine::NativeImage,
        ],
        set_up: |_| Options {
            user: Some("image".into()),
            image: Some("example.org:5000/node:22".into()),
            ..Options::default()
        },
        command: &["bash"],
    },
    Scenario {
        name: "network-off",
        engines: &Engine::ALL,
        set_up: |handwritten| {
            for cache in [".cache/pip", ".cargo/registry", ".npm/_cacache"] {
                fs::create_dir_all(handwritten.host.home.as_path().join(cache)).expect("cache");
            }
            Options { network: Some("off".into()), ..Options::default() }
        },
        command: &["make", "test"],
    },
    Scenario {
        name: "subdirectory",
        engines: &Engine::ALL,
        set_up: |handwritten| {
            let git_dir = handwritten.files.project.join(".git");
            for directory in ["objects", "refs/heads"] {
                fs::create_dir_all(git_dir.join(directory)).expect("repository");
            }
            fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").expect("HEAD");
            // The repository of another user would not be used.
            for path in [&handwritten.files.project, &git_dir] {
                chown(path, Some(handwritten.host.uid), None).expect("the tests run as root");
            }
            handwritten.change_to("home/project/src/deep");
            Options::default()
        },
        command: &[],
    },
    Scenario {
        name: "kept",
        engines: &[Engine::Docker, Engine::Podman, Engine::Native],
        set_up: |_| Options { name: Some("review-2".into()), keep: true, ..Options::default() },
        command: &["make"],
    },
    Scenario {
        name: "installed-tool",
        engines: &[Engine::Native],
        set_up: installed_tool,
        command: &["mytool", "--help"],
    },
    Scenario {
        name: "filtered",
        engines: &Engine::ALL,
        set_up: |_| Options {
            allow_hosts: vec!["*.example.org".into(), "github.com:22".into()],
            agent: Some("claude".into()),
            ..Options::default()
        },
        command: &["make", "test"],
    },
    Scenario {
        name: "own-proxy",
        engines: &[Engine::Docker, Engine::DockerMacos, Engine::PodmanRootless],
        set_up: |_| Options { proxy_command: Some("node 'my proxy.js' --port 8877".into()), ..Options::default() },
        command: &["make", "test"],
    },
    Scenario {
        name: "push",
        engines: &[Engine::Docker, Engine::PodmanRootless, Engine::Native],
        set_up: |handwritten| {
            let git_dir = handwritten.files.project.join(".git");
            for directory in ["objects", "refs/heads"] {
                fs::create_dir_all(git_dir.join(directory)).expect("repository");
            }
            fs::write(git_dir.join("HEAD"), "ref: refs/heads/main\n").expect("HEAD");
            let config =
                "[remote \"origin\"]\n\turl = git@example.org:me/app.git\n\tpushurl = https://example.org/app\n";
            fs::write(git_dir.join("config"), config).expect("config");
            for path in [&handwritten.files.project, &git_dir] {
                chown(path, Some(handwritten.host.uid), None).expect("the tests run as root");
            }
            Options { push: vec!["agent/*".into(), "-agent/*".into()], ..Options::default() }
        },
        command: &["claude"],
    },
    Scenario {
        name: "image",
        engines: &[Engine::NativeImage],
        set_up: |_| Options { image: Some("example.org:5000/node:22".into()), ..Options::default() },
        command: &["npm", "test"],
    },
];

/// Installs a tool below HOME that needs one version of node; another version must not be mounted.
fn installed_tool(handwritten: &mut HandwrittenHost) -> Options {
    for (file, content) in [
        ("v22/lib/node_modules/mytool/cli.js", "#!/usr/bin/env node\n"),
        ("v22/bin/node", "\x7fELF"),
        ("v18/bin/node", "\x7fELF"),
    ] {
        let file = format!(".nvm/versions/node/{file}");
        handwritten.files.write_script(file, content);
    }
    fs::create_dir_all(handwritten.files.home.join(".local/bin")).expect("directory");
    let link = "../../.nvm/versions/node/v22/lib/node_modules/mytool/cli.js";
    symlink(link, handwritten.files.home.join(".local/bin/mytool")).expect("link");
    let home = handwritten.files.home.display().to_string();
    handwritten.env("PATH", &format!("{home}/.local/bin:{home}/.nvm/versions/node/v22/bin:/usr/bin"));
    handwritten.env("LANG", "de_DE.UTF-8");
    Options::default()
}

/// Sets one of each option, file and variable.
fn everything(handwritten: &mut HandwrittenHost) -> Options {
    for file in
        [".gitconfig", ".config/git/config", ".gitignore_global", ".ssh/known_hosts", ".git-credentials", "adc.json"]
    {
        handwritten.files.write(file, "");
    }
    for directory in [
        ".config/llxprt-code",
        ".llxprt",
        ".config/gcloud",
        "project/.venv/bin",
        "project/node_modules/.bin",
        "project/lib",
        "library",
        "data",
        "dict",
        "misc",
    ] {
        fs::create_dir_all(handwritten.files.home.join(directory)).expect("directory");
    }
    handwritten.files.write("project/.llxprt/sandbox.bashrc", "");
    handwritten.files.write(
        ".config/sandpen/profiles/work.toml",
        "ports = [8080]\nmounts = [{ from = \"~/data\", to = \"/data\", mode = \"rw\" }]\n[resources]\npids = 300\n[env]\nFROM_PROFILE = \"yes\"\n",
    );
    let project = handwritten.files.project.display().to_string();
    for (name, value) in [
        ("PATH", format!("{project}/node_modules/.bin:/usr/bin")),
        ("PYTHONPATH", format!("{project}/lib:/usr/lib/python")),
        ("VIRTUAL_ENV", format!("{project}/.venv")),
        ("SANDBOX_MOUNTS", "~/dict:/dict".to_owned()),
        ("GOOGLE_APPLICATION_CREDENTIALS", handwritten.files.home.join("adc.json").display().to_string()),
    ] {
        handwritten.env(name, &value);
    }
    for (name, value) in [
        ("GEMINI_API_KEY", "hunter2"),
        ("GEMINI_MODEL", "gemini-pro"),
        ("GH_TOKEN", "hunter2"),
        ("GOOGLE_CLOUD_PROJECT", "project"),
        ("NODE_OPTIONS", "--max-old-space-size=4096"),
        ("TERM", "xterm-256color"),
        ("COLORTERM", "truecolor"),
        ("HTTPS_PROXY", "http://me:hunter2@proxy:3128"),
        ("NOT_ASKED_FOR", "hunter2"),
        ("SANDBOX_ENV", "PLAIN=plain value,DB_PASSWORD=hunter2"),
        ("SANDBOX_PORTS", "3000,61000"),
        ("SANDBOX_MEMORY", "2g"),
    ] {
        handwritten.env(name, value);
    }
    // The native engine has no command line to pass flags to, and refuses them.
    let mut engine_flags = Vec::new();
    if handwritten.engine != Engine::Native {
        handwritten.env("SANDBOX_FLAGS", "--shm-size 1g --label 'a b'");
        engine_flags.push("--annotation=x=y".into());
    }
    handwritten.host.terminal = Terminal { stdin: true, stdout: true, width: None };
    Options {
        profile: Some("work".into()),
        env: vec!["GH_TOKEN".into(), "FLAG=from flag".into(), "HTTPS_PROXY".into()],
        mounts: vec!["~/misc".into()],
        include_dirs: vec!["~/library".into()],
        cpus: Some("1.5".into()),
        engine_flags,
        ..Options::default()
    }
}

/// Returns the plan as JSON and as text, as `explain` prints them.
fn explained(scenario: &Scenario, engine: Engine) -> (String, String) {
    let mut handwritten = HandwrittenHost::new(engine);
    let mut options = (scenario.set_up)(&mut handwritten);
    options.engine = Some(engine.setting().to_string());
    let command: Vec<OsString> = scenario.command.iter().map(OsString::from).collect();
    let mut resolved = Resolved::on(handwritten.host.clone(), &options, command, Purpose::Run).expect("facts");
    handwritten.replace_facts(&mut resolved, scenario.name == "everything");
    let id = resolved.config.name.as_ref().map(|name| SessionId::named(&name.value).as_example());
    let (plan, launch) = resolved.plan(id.unwrap_or_else(SessionId::placeholder)).expect("plan");
    let json = explain_json(&handwritten.host, &plan, &launch).expect("JSON");
    (handwritten.normalize(&json), handwritten.normalize(&explain_text(&plan, &launch, View::default())))
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/golden").join(name)
}

/// Compares with the file, or rewrites it.
fn compare(name: &str, actual: &str, failures: &mut Vec<String>) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file(name), actual).expect("golden file");
        return;
    }
    let expected = fs::read_to_string(file(name)).unwrap_or_default();
    if expected != actual {
        let difference =
            expected.lines().zip(actual.lines()).enumerate().find(|(_, (expected, actual))| expected != actual);
        let (line, (expected, actual)) = difference.unwrap_or((expected.lines().count(), ("(end)", "(end)")));
        failures.push(format!("{name}:{}:\n  expected {expected}\n  but got  {actual}", line + 1));
    }
}

/// Compares the plans of a scenario on all of its engines.
fn check(scenario: &Scenario) {
    let mut failures = Vec::new();
    for engine in scenario.engines.iter().copied() {
        let (json, text) = explained(scenario, engine);
        assert!(!json.contains("hunter2") && !text.contains("hunter2"), "a plan contains a secret");
        compare(&format!("{}.{}.json", scenario.name, engine.name()), &json, &mut failures);
        if TEXTS.contains(&engine) {
            compare(&format!("{}.{}.txt", scenario.name, engine.name()), &text, &mut failures);
        }
    }
    assert!(
        failures.is_empty(),
        "if the change is intended, set UPDATE_GOLDEN=1 and read the diff:\n{}",
        failures.join("\n")
    );
}

#[test]
fn docker_allows_no_nested_sandboxes_where_apparmor_denies_their_mounts() {
    let warnings = |apparmor: bool| {
        let handwritten = HandwrittenHost::new(Engine::Docker);
        let options = Options { engine: Some("docker".into()), ..Options::default() };
        let host = handwritten.host.clone();
        let mut resolved = Resolved::on(host, &options, vec!["codex".into()], Purpose::Run).expect("facts");
        handwritten.replace_facts(&mut resolved, false);
        resolved.facts.apparmor = apparmor;
        let (plan, launch) = resolved.plan(SessionId::placeholder()).expect("plan");
        let json = explain_json(&handwritten.host, &plan, &launch).expect("JSON");
        assert_eq!(json.contains("seccomp="), !apparmor, "{json}");
        plan.warnings.iter().filter(|warning| warning.text.contains("codex's own sandbox")).count()
    };
    assert_eq!((warnings(false), warnings(true)), (0, 1));
}

#[test]
fn minimal() {
    check(&SCENARIOS[0]);
}

#[test]
fn everything_at_once() {
    check(&SCENARIOS[1]);
}

#[test]
fn image_user() {
    check(&SCENARIOS[2]);
}

#[test]
fn filtered_network() {
    check(&SCENARIOS[7]);
}

#[test]
fn a_proxy_of_the_users_own() {
    check(&SCENARIOS[8]);
}

#[test]
fn network_off() {
    check(&SCENARIOS[3]);
}

#[test]
fn subdirectory_of_a_repository() {
    check(&SCENARIOS[4]);
}

#[test]
fn native_shows_what_an_installed_tool_needs() {
    check(&SCENARIOS[6]);
}

#[test]
fn pushes_by_rule() {
    check(&SCENARIOS[9]);
}

#[test]
fn an_image_without_an_engine() {
    check(&SCENARIOS[10]);
}

#[test]
fn named_and_kept() {
    check(&SCENARIOS[5]);
}

#[test]
fn no_golden_file_is_left_over() {
    let mut known: Vec<String> = Vec::new();
    for scenario in &SCENARIOS {
        let engines = || scenario.engines.iter();
        known.extend(engines().map(|engine| format!("{}.{}.json", scenario.name, engine.name())));
        let texts = engines().filter(|engine| TEXTS.contains(engine));
        known.extend(texts.map(|engine| format!("{}.{}.txt", scenario.name, engine.name())));
    }
    let names = fs::read_dir(file(""))
        .expect("golden files")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("a name"));
    let strange: Vec<String> = names.filter(|name| !name.ends_with(".rs") && !known.contains(name)).collect();
    assert_eq!(strange, Vec::<String>::new());
}
