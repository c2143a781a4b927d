//! Tests the commands other than `run` and `explain`, and the short forms of `run`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{Finished, Fixture};

#[test]
fn short_forms_are_run() {
    let fixture = Fixture::new().with_recording_docker();
    for (arguments, rest) in [
        (&["run", "--", "git", "status"][..], &["git", "status"][..]),
        (&["run", "git", "status"], &["git", "status"]),
        (&["--", "git", "status"], &["git", "status"]),
        (&["--env", "A=1", "--", "git", "status"], &["git", "status"]),
        (&["run", "--env", "A=1", "ls", "--env", "-q"], &["ls", "--env", "-q"]),
        (&["--", "--", "x"], &["--", "x"]),
        (&["run"], &[]),
        (&[], &[]),
    ] {
        let finished = fixture.finish(&mut fixture.sandpen(arguments));
        assert_eq!(
            (finished.code, finished.stdout.as_str(), finished.stderr.as_str()),
            (Some(0), "", ""),
            "{arguments:?}"
        );
        let call = fixture.calls().pop().unwrap();
        let guest = call.iter().position(|word| word == "guest").expect("the helper");
        assert_eq!(call[guest + 2..], *rest, "{arguments:?}");
        assert_eq!(call[..3], ["docker", "run", "--rm"]);
    }
}

#[test]
fn help_and_version_are_data() {
    let fixture = Fixture::new().with_recording_docker();
    for arguments in [&["--help"][..], &["-h"], &["run", "--help"], &["explain", "-h"], &["profile", "--help"]] {
        let finished = fixture.finish(&mut fixture.sandpen(arguments));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        assert!(finished.stdout.contains("Usage: sandpen"), "{}", finished.stdout);
    }
    let finished = fixture.finish(&mut fixture.sandpen(["--version"]));
    assert_eq!(
        (finished.code, finished.stdout.as_str(), finished.stderr.as_str()),
        (Some(0), concat!("sandpen ", env!("CARGO_PKG_VERSION"), "\n"), "")
    );
}

/// New users copy the examples of the help, so each must work.
#[test]
fn the_examples_in_the_help_work() {
    let fixture = Fixture::new().with_recording_docker();
    let help = fixture.finish(&mut fixture.sandpen(["--help"])).stdout;
    let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  sandpen ")).collect();
    assert!(examples.len() >= 3, "{help}");
    for example in examples {
        let words = example.split("  ").next().unwrap_or_default().split_whitespace();
        let finished = fixture.finish(&mut fixture.sandpen(words));
        assert_eq!(finished.code, Some(0), "{example}: {}", finished.stderr);
    }
}

#[test]
fn profiles_are_listed_and_located() {
    let fixture = Fixture::new().with_recording_docker();
    let data = |arguments: &[&str]| {
        let finished = fixture.finish(&mut fixture.sandpen(arguments));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        finished.stdout
    };
    assert_eq!(data(&["profile", "list"]), "dev\noffline\nsafe\ntight\n");
    assert_eq!(data(&["profile", "path"]), "[ROOT]/home/.config/sandpen/profiles\n");
    fixture.write(".config/sandpen/profiles/mine.json", "{ \"network\": \"off\" }");
    fixture.write(".config/sandpen/profiles/dev.toml", "# mine\n");
    fixture.write(".config/sandpen/profiles/README.md", "no profile");
    assert_eq!(data(&["profile", "list"]), "dev\nmine\noffline\nsafe\ntight\n");
    let moved = fixture.finish(fixture.sandpen(["profile", "path"]).env("XDG_CONFIG_HOME", "/elsewhere"));
    assert_eq!(moved.stdout, "/elsewhere/sandpen/profiles\n");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["profile"])),
        "\
sandpen: error: `sandpen profile` needs a subcommand
hint: known commands: `sandpen profile list`, `sandpen profile show`, `sandpen profile init`, `sandpen profile schema`, `sandpen profile path`
"
    );
}

#[test]
fn completions_parse_in_their_shells() {
    let fixture = Fixture::new().with_recording_docker();
    for shell in ["bash", "zsh", "fish"] {
        let finished = fixture.finish(&mut fixture.sandpen(["completions", shell]));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        for name in ["explain", "network", "allow-host"] {
            assert!(finished.stdout.contains(name), "{shell} does not complete {name}");
        }
        // Only bash exists on every machine; the other shells are checked if they are installed.
        let Some(program) = ["/bin", "/usr/bin"]
            .map(|bin| format!("{bin}/{shell}"))
            .into_iter()
            .find(|file| fs::exists(file).is_ok_and(|there| there))
        else {
            assert_ne!(shell, "bash", "bash is missing");
            continue;
        };
        let checked = piped(Command::new(program).arg("-n"), &finished.stdout);
        assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{shell}");
    }
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["completions", "tcsh"])),
        "\
sandpen: error: argument SHELL: `tcsh` is not valid
hint: expected `bash`, `elvish`, `fish`, `powershell` or `zsh`
"
    );
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["completions"])),
        "sandpen: error: `<SHELL>` is missing\nhint: usage: sandpen completions <SHELL>\n"
    );
}

/// The pages contain the text of the help, including the options of `run`.
#[test]
fn the_manual_pages_render() {
    let fixture = Fixture::new().with_recording_docker();
    for (command, title, words) in [
        (&["man"][..], ".TH sandpen 1", &["network", "sandpen\\-explain", "Exit codes"][..]),
        (&["man", "run"], ".TH sandpen-run 1", &["ssh\\-agent", "LLXPRT_SANDBOX_NETWORK", "sshAgent"]),
        (&["man", "profile", "show"], ".TH sandpen-profile-show 1", &["sandpen profile show", "origin"]),
    ] {
        let finished = fixture.finish(&mut fixture.sandpen(command));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
        assert!(finished.stdout.contains(title), "{}", finished.stdout);
        for word in words {
            assert!(finished.stdout.contains(word), "{word} is not in {}", finished.stdout);
        }
        assert!(!finished.stdout.contains("assume"), "the page shows a hidden option");
        for renderer in
            ["/usr/bin/groff", "/usr/bin/mandoc"].into_iter().filter(|file| fs::exists(file).is_ok_and(|there| there))
        {
            let arguments: &[&str] =
                if renderer.ends_with("groff") { &["-man", "-Tascii", "-ww"] } else { &["-T", "ascii"] };
            let page = piped(Command::new(renderer).args(arguments), &finished.stdout);
            assert!(page.code == Some(0) && page.stdout.len() > 1000, "{renderer}: {}", page.stderr);
        }
    }
    let finished = fixture.finish(&mut fixture.sandpen(["man", "--dir", "pages"]));
    let pages = fs::read_dir(fixture.home.join("project/pages")).unwrap().count();
    assert_eq!(finished.stderr, format!("sandpen: wrote {pages} manual pages to pages\n"));
    assert!(pages > 15, "{pages}");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["man", "expalin"])),
        "sandpen: error: argument COMMAND: there is no command `expalin`\nhint: did you mean `explain`?\n"
    );
}

/// `-h` fits on two screens; `--help` also lists the variables, the keys and the defaults.
#[test]
fn help_is_short_or_long() {
    let fixture = Fixture::new().with_recording_docker();
    for command in ["run", "explain", "doctor"] {
        let help = |flag| fixture.finish(&mut fixture.sandpen([command, flag])).stdout;
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() < 84 && long.lines().count() > 2 * short.lines().count(), "{command}");
        for words in ["LLXPRT_SANDBOX_NETWORK", "In files: resources.memory", "Default: private."] {
            assert!(long.contains(words) && !short.contains(words), "{command} --help: {words}");
        }
        assert!(short.contains("Examples:") && long.contains("Examples:"), "{command}");
    }
}

fn piped(command: &mut Command, input: &str) -> Finished {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    output.into()
}

#[test]
fn build_without_a_dockerfile_says_where_it_looked() {
    let fixture = Fixture::new().with_recording_docker();
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["build"])),
        "\
sandpen: error: there is no `.sandpen/sandbox.Dockerfile` or `.llxprt/sandbox.Dockerfile` to build
hint: write one, name another with -f FILE, or build an agent's image: sandpen build --agent claude
"
    );
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["build", "-f", "nowhere"])),
        "\
sandpen: error: flag --file: `[ROOT]/home/project/nowhere` is not a file
hint: expected a Dockerfile
"
    );
    let stderr = fixture.usage_error(&mut fixture.sandpen(["build", "--agent", "cluade"]));
    assert!(stderr.contains("hint: did you mean `claude`?"), "{stderr}");
    fixture.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["build", "-t", "A B"])),
        "\
sandpen: error: flag --tag: `A B` is not an image reference
hint: expected `name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case
"
    );
    for command in ["run", "explain"] {
        fs::remove_dir_all(fixture.project.join(".sandpen")).ok();
        let stderr = fixture.usage_error(fixture.sandpen([command]).env("BUILD_SANDBOX", "1"));
        assert!(stderr.contains("env BUILD_SANDBOX") && stderr.contains("sandbox.Dockerfile"), "{stderr}");
    }
}

#[test]
fn build_calls_the_engine_and_says_how_to_run_the_image() {
    let fixture = Fixture::new().with_recording_docker();
    let file = fixture.write("project/.llxprt/sandbox.Dockerfile", "FROM x\n");
    let finished = fixture.finish(&mut fixture.sandpen(["build", "-t", "mine:1"]));
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(0), ""));
    assert_eq!(finished.stderr, "sandpen: built mine:1; run it with: sandpen run --image mine:1 -- CMD\n");
    let file = fixture.normalize(&file.display().to_string());
    assert_eq!(
        fixture.calls(),
        [["docker", "build", "--file", file.as_str(), "--tag", "mine:1", "[ROOT]/home/project"].map(str::to_owned)]
    );
    let finished = fixture.finish(fixture.sandpen(["build"]).env("EXIT_CODE", "1"));
    assert_eq!(finished.code, Some(44));
    assert!(finished.stderr.contains("could not be built; see the output of docker above"), "{}", finished.stderr);
}

/// `build` needs a container engine, even if `auto` would select the native engine for the project.
#[test]
fn build_finds_a_container_engine_when_none_is_named() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    let finished = fixture.finish(fixture.sandpen(["build", "-t", "mine:1"]).env_remove("LLXPRT_SANDBOX"));
    assert_eq!((finished.code, fixture.calls().len()), (Some(0), 1), "{}", finished.stderr);
    assert_eq!(fixture.calls()[0][..2], ["docker", "build"]);
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["build", "--engine", "native"])),
        "\
sandpen: error: flag --engine: the engine `native` has no images to build
hint: use `--engine docker` or `--engine podman`
"
    );
}

#[test]
fn build_sandbox_builds_first_and_runs_what_was_built() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    let finished = fixture.finish(fixture.sandpen(["run", "--", "true"]).env("BUILD_SANDBOX", "1"));
    finished.success();
    let calls = fixture.calls();
    assert_eq!(calls.iter().map(|call| call[1].as_str()).collect::<Vec<_>>(), ["build", "run"]);
    let tag = calls[0][calls[0].iter().position(|word| word == "--tag").unwrap() + 1].clone();
    assert!(calls[1].contains(&tag), "{calls:?}");
    let json = fixture.explain_normalized(&[], &[("BUILD_SANDBOX", "1")]);
    assert_eq!((&json["image"]["reference"], &json["image"]["from"]), (&tag.into(), &"env BUILD_SANDBOX".into()));
    let reason = json["image"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("buil") && reason.contains("sandbox.Dockerfile"),
        "the reason does not mention the build: {reason}"
    );
}
