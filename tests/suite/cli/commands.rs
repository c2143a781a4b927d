//! The commands beside `run` and `explain`, and the short forms of `run`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::world::World;
use crate::support::Ran;

#[test]
fn short_forms_are_run() {
    let world = World::new();
    for (arguments, rest) in [
        (&["run", "--", "git", "status"][..], &["git", "status"][..]),
        (&["run", "git", "status"], &["git", "status"]),
        (&["--", "git", "status"], &["git", "status"]),
        (&["--cpus", "1", "--", "git", "status"], &["git", "status"]),
        (&["run", "--cpus", "1", "ls", "--cpus", "-q"], &["ls", "--cpus", "-q"]),
        (&["--", "--", "x"], &["--", "x"]),
        (&["run"], &[]),
        (&[], &[]),
    ] {
        let ran = world.ran(&mut world.sandpen(arguments));
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""), "{arguments:?}");
        let call = world.calls().pop().unwrap();
        let guest = call.iter().position(|word| word == "guest").expect("the helper");
        assert_eq!(call[guest + 2..], *rest, "{arguments:?}");
        assert_eq!(call[..3], ["docker", "run", "--rm"]);
    }
}

#[test]
fn help_and_version_are_data() {
    let world = World::new();
    for arguments in [&["--help"][..], &["-h"], &["run", "--help"], &["explain", "-h"], &["profile", "--help"]] {
        let ran = world.ran(&mut world.sandpen(arguments));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout.contains("Usage: sandpen"), "{}", ran.stdout);
    }
    let ran = world.ran(&mut world.sandpen(["--version"]));
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (Some(0), concat!("sandpen ", env!("CARGO_PKG_VERSION"), "\n"), "")
    );
}

/// The help must not offer what is refused: the first example is what a newcomer types.
#[test]
fn the_examples_in_the_help_work() {
    let world = World::new();
    let help = world.ran(&mut world.sandpen(["--help"])).stdout;
    let examples: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  sandpen ")).collect();
    assert!(examples.len() >= 3, "{help}");
    for example in examples {
        let words = example.split("  ").next().unwrap_or_default().split_whitespace();
        let ran = world.ran(&mut world.sandpen(words));
        assert_eq!(ran.code, Some(0), "{example}: {}", ran.stderr);
    }
}

#[test]
fn profiles_are_listed_and_located() {
    let world = World::new();
    let data = |arguments: &[&str]| {
        let ran = world.ran(&mut world.sandpen(arguments));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        ran.stdout
    };
    assert_eq!(data(&["profile", "list"]), "dev\noffline\nsafe\ntight\n");
    assert_eq!(data(&["profile", "path"]), "[ROOT]/home/.config/sandpen/profiles\n");
    world.write(".config/sandpen/profiles/mine.json", "{ \"network\": \"off\" }");
    world.write(".config/sandpen/profiles/dev.toml", "# mine\n");
    world.write(".config/sandpen/profiles/README.md", "no profile");
    assert_eq!(data(&["profile", "list"]), "dev\nmine\noffline\nsafe\ntight\n");
    let moved = world.ran(world.sandpen(["profile", "path"]).env("XDG_CONFIG_HOME", "/elsewhere"));
    assert_eq!(moved.stdout, "/elsewhere/sandpen/profiles\n");
    assert_eq!(
        world.refused(&mut world.sandpen(["profile"])),
        "\
sandpen: error: `sandpen profile` needs a command of its own
hint: there are `sandpen profile list`, `sandpen profile show`, `sandpen profile init`, `sandpen profile schema`, `sandpen profile path`
"
    );
}

#[test]
fn completions_parse_in_their_shells() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = world.ran(&mut world.sandpen(["completions", shell]));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        for name in ["explain", "network", "allow-host"] {
            assert!(ran.stdout.contains(name), "{shell} does not complete {name}");
        }
        // Only bash is on every machine; the others are checked where they are.
        let Some(program) = ["/bin", "/usr/bin"]
            .map(|bin| format!("{bin}/{shell}"))
            .into_iter()
            .find(|file| fs::exists(file).is_ok_and(|there| there))
        else {
            assert_ne!(shell, "bash", "bash is missing");
            continue;
        };
        let checked = piped(Command::new(program).arg("-n"), &ran.stdout);
        assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{shell}");
    }
    assert_eq!(
        world.refused(&mut world.sandpen(["completions", "tcsh"])),
        "\
sandpen: error: argument SHELL: `tcsh` is not known
hint: expected `bash`, `elvish`, `fish`, `powershell` or `zsh`
"
    );
    assert_eq!(
        world.refused(&mut world.sandpen(["completions"])),
        "sandpen: error: `<SHELL>` is missing\nhint: usage: sandpen completions <SHELL>\n"
    );
}

/// The pages hold what the help holds, the options of `run` above all.
#[test]
fn the_manual_pages_render() {
    let world = World::new();
    for (command, title, words) in [
        (&["man"][..], ".TH sandpen 1", &["network", "sandpen\\-explain", "Exit codes"][..]),
        (&["man", "run"], ".TH sandpen-run 1", &["ssh\\-agent", "LLXPRT_SANDBOX_NETWORK", "sshAgent"]),
        (&["man", "profile", "show"], ".TH sandpen-profile-show 1", &["sandpen profile show", "origin"]),
    ] {
        let ran = world.ran(&mut world.sandpen(command));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout.contains(title), "{}", ran.stdout);
        for word in words {
            assert!(ran.stdout.contains(word), "{word} is not in {}", ran.stdout);
        }
        assert!(!ran.stdout.contains("assume"), "hidden things show");
        for renderer in
            ["/usr/bin/groff", "/usr/bin/mandoc"].into_iter().filter(|file| fs::exists(file).is_ok_and(|there| there))
        {
            let arguments: &[&str] =
                if renderer.ends_with("groff") { &["-man", "-Tascii", "-ww"] } else { &["-T", "ascii"] };
            let page = piped(Command::new(renderer).args(arguments), &ran.stdout);
            assert!(page.code == Some(0) && page.stdout.len() > 1000, "{renderer}: {}", page.stderr);
        }
    }
    let ran = world.ran(&mut world.sandpen(["man", "--dir", "pages"]));
    let pages = fs::read_dir(world.home.join("project/pages")).unwrap().count();
    assert_eq!(ran.stderr, format!("sandpen: wrote {pages} manual pages to pages\n"));
    assert!(pages > 15, "{pages}");
    assert_eq!(
        world.refused(&mut world.sandpen(["man", "expalin"])),
        "sandpen: error: argument COMMAND: there is no command `expalin`\nhint: did you mean `explain`?\n"
    );
}

/// `-h` fits on a screen or two; `--help` knows the variables, the keys and the defaults.
#[test]
fn help_is_short_or_long() {
    let world = World::new();
    for command in ["run", "explain", "doctor"] {
        let help = |flag| world.ran(&mut world.sandpen([command, flag])).stdout;
        let (short, long) = (help("-h"), help("--help"));
        assert!(short.lines().count() < 75 && long.lines().count() > 2 * short.lines().count(), "{command}");
        for words in ["LLXPRT_SANDBOX_NETWORK", "In files: resources.memory", "Default: review."] {
            assert!(long.contains(words) && !short.contains(words), "{command} --help: {words}");
        }
        assert!(short.contains("Examples:") && long.contains("Examples:"), "{command}");
    }
}

fn piped(command: &mut Command, input: &str) -> Ran {
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
    let world = World::new();
    assert_eq!(
        world.refused(&mut world.sandpen(["build"])),
        "\
sandpen: error: there is no `.sandpen/sandbox.Dockerfile` or `.llxprt/sandbox.Dockerfile` to build
hint: write one, name another with -f FILE, or build an agent's image: sandpen build --agent claude
"
    );
    assert_eq!(
        world.refused(&mut world.sandpen(["build", "-f", "nowhere"])),
        "\
sandpen: error: flag --file: `[ROOT]/home/project/nowhere` is not a file
hint: expected a Dockerfile
"
    );
    let stderr = world.refused(&mut world.sandpen(["build", "--agent", "cluade"]));
    assert!(stderr.contains("hint: did you mean `claude`?"), "{stderr}");
    world.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    assert_eq!(
        world.refused(&mut world.sandpen(["build", "-t", "A B"])),
        "\
sandpen: error: flag --tag: `A B` is not an image reference
hint: expected `name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case
"
    );
    for command in ["run", "explain"] {
        fs::remove_dir_all(world.project.join(".sandpen")).ok();
        let stderr = world.refused(world.sandpen([command]).env("BUILD_SANDBOX", "1"));
        assert!(stderr.contains("env BUILD_SANDBOX") && stderr.contains("sandbox.Dockerfile"), "{stderr}");
    }
}

#[test]
fn build_calls_the_engine_and_says_how_to_run_the_image() {
    let world = World::new();
    let file = world.write("project/.llxprt/sandbox.Dockerfile", "FROM x\n");
    let ran = world.ran(&mut world.sandpen(["build", "-t", "mine:1"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""));
    assert_eq!(ran.stderr, "sandpen: built mine:1; run it with: sandpen run --image mine:1 -- CMD\n");
    let file = world.neutral(&file.display().to_string());
    assert_eq!(
        world.calls(),
        [["docker", "build", "--file", file.as_str(), "--tag", "mine:1", "[ROOT]/home/project"].map(str::to_owned)]
    );
    let ran = world.ran(world.sandpen(["build"]).env("EXIT_CODE", "1"));
    assert_eq!(ran.code, Some(44));
    assert!(ran.stderr.contains("could not be built; see the output of docker above"), "{}", ran.stderr);
}

/// Building takes a container engine, also where the project itself would run on the host's own tools.
#[test]
fn build_finds_a_container_engine_when_none_is_named() {
    let world = World::new();
    world.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    let ran = world.ran(world.sandpen(["build", "-t", "mine:1"]).env_remove("LLXPRT_SANDBOX"));
    assert_eq!((ran.code, world.calls().len()), (Some(0), 1), "{}", ran.stderr);
    assert_eq!(world.calls()[0][..2], ["docker", "build"]);
    assert_eq!(
        world.refused(&mut world.sandpen(["build", "--engine", "native"])),
        "\
sandpen: error: flag --engine: the engine `native` has no images to build
hint: use `--engine docker` or `--engine podman`
"
    );
}

/// The row "Dev sandbox build" of the seeds' table.
#[test]
fn build_sandbox_builds_first_and_runs_what_was_built() {
    let world = World::new();
    world.write("project/.sandpen/sandbox.Dockerfile", "FROM x\n");
    let ran = world.ran(world.sandpen(["run", "--", "true"]).env("BUILD_SANDBOX", "1"));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let calls = world.calls();
    assert_eq!(calls.iter().map(|call| call[1].as_str()).collect::<Vec<_>>(), ["build", "run"]);
    let tag = calls[0][calls[0].iter().position(|word| word == "--tag").unwrap() + 1].clone();
    assert!(calls[1].contains(&tag), "{calls:?}");
    let json = world.explain(&[], &[("BUILD_SANDBOX", "1")]);
    assert_eq!((&json["image"]["reference"], &json["image"]["from"]), (&tag.into(), &"env BUILD_SANDBOX".into()));
    let reason = json["image"]["reason"].as_str().unwrap();
    assert!(
        reason.contains("buil") && reason.contains("sandbox.Dockerfile"),
        "the reason does not say that it is built: {reason}"
    );
}
