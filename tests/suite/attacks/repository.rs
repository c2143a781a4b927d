//! What a repository may try on the host before anything runs inside: 07–10, 19.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{IMAGE, Pen, Ran, RunToEnd, Running, comes_true, plain};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    attack_08_a_planted_agent_gets_no_preset,
    attack_09_an_untrusted_project_file_has_no_effect,
    attack_09_odd_project_files_do_not_hang,
    attack_09_other_project_files_have_no_effect_on_the_host,
    attack_19_links_do_not_lead_outside,
    attack_19_links_are_not_mounted,
);
for_every_container_engine!(
    attack_07_planted_host_programs_are_not_executed,
    attack_07_nor_those_in_a_presets_directory,
    attack_10_terminal_escapes_are_not_printed,
);

/// Writes a program that leaves a trace when it is executed on the host.
fn plant(pen: &Pen, file: impl AsRef<Path>) -> PathBuf {
    let trace = pen.root().join("executed");
    let file = pen.write(file, &format!("#!/bin/sh\necho \"$0\" >> '{}'\nexit 0\n", trace.display()));
    fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("chmod");
    file
}

#[track_caller]
fn assert_not_executed(pen: &Pen) {
    assert_eq!(fs::read_to_string(pen.root().join("executed")).unwrap_or_default(), "", "executed on the host");
}

/// The engine's clients, and what those look up on PATH themselves.
const HOST_PROGRAMS: &[&str] = &[
    "docker",
    "podman",
    "git",
    "ssh",
    "ssh-add",
    "sh",
    "conmon",
    "runc",
    "crun",
    "newuidmap",
    "newgidmap",
    "slirp4netns",
    "fuse-overlayfs",
    "catatonit",
    "docker-credential-x",
    "nsenter",
    "iptables",
    "id",
    "setpriv",
];

fn attack_07_planted_host_programs_are_not_executed(pen: &Pen) {
    let (included, mounted) = (pen.outside("included"), pen.outside("mounted"));
    for name in HOST_PROGRAMS {
        for place in ["project", "project/.venv/bin", "project/sub", "../included", "../mounted/bin"] {
            plant(pen, Path::new(place).join(name));
        }
    }
    symlink(pen.project.join(".venv/bin"), pen.root().join("link")).expect("link");
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let project = pen.project.display();
    let (link, root) = (pen.root().join("link"), pen.root());
    // Every way at once: the trace names the one that was taken.
    let front = format!(
        ":.:sub:./sub:.venv/bin:{project}/.venv/bin:{project}/../project/sub:{}:{}:{}/mounted/bin",
        link.display(),
        included.display(),
        root.display()
    );
    let mut command = pen.run();
    command.env("PATH", format!("{front}:{system}")).env("VIRTUAL_ENV", pen.project.join(".venv"));
    command.arg("--include-dir").arg(&included).arg("--mount").arg(&mounted);
    let ran = command.args(["--", "echo", "ran"]).ran();
    assert_not_executed(pen);
    assert_eq!(ran.ok(), "ran");
    // From a subdirectory of the repository, its other directories are mounted as well.
    pen.host_command("git").args(["init", "--quiet"]).ran().ok();
    let mut command = pen.run();
    command.current_dir(pen.project.join("sub")).env("PATH", format!("{project}/.venv/bin:{system}"));
    assert_eq!(command.args(["--", "echo", "ran"]).ran().ok(), "ran");
    assert_not_executed(pen);
    // With nothing else on PATH there is no engine: the planted one is not taken instead.
    let ran = pen.run().env("PATH", pen.project.join(".venv/bin")).args(["--", "echo", "ran"]).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(44), ""), "{}", ran.stderr);
    assert_not_executed(pen);
}

/// Some agents install themselves below their settings directory, which the guest can write to.
fn attack_07_nor_those_in_a_presets_directory(pen: &Pen) {
    plant(pen, Path::new(".claude/local").join(pen.engine.flag()));
    let local = pen.home.join(".claude/local");
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", local.display());
    let ran = pen.run().env("PATH", path).args(["--agent", "claude", "--", "echo", "ran"]).ran();
    assert_not_executed(pen);
    assert_eq!(ran.ok(), "ran");
}

fn attack_08_a_planted_agent_gets_no_preset(pen: &Pen) {
    let script = "#!/bin/sh\necho ${ANTHROPIC_API_KEY-no key}; ls -A ~\n";
    for place in ["project/claude", "project/bin/claude"] {
        fs::set_permissions(pen.write(place, script), PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    pen.write(".claude/credentials", "secret");
    let path = format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{}/bin", pen.project.display());
    let absolute = pen.project.join("claude").display().to_string();
    for command in ["./claude", "claude", "bin/claude", &absolute] {
        let ran = pen.run().env("ANTHROPIC_API_KEY", "the key").env("PATH", &path).args(["--", command]).ran();
        assert_eq!(ran.ok(), "no key\nproject", "{command}");
        assert!(ran.stderr.contains("sandpen: warning: "), "the user hears of it: {command}: {}", ran.stderr);
    }
}

fn attack_09_an_untrusted_project_file_has_no_effect(pen: &Pen) {
    pen.write("secret", "hunter2");
    let file = |extra: &str| {
        let home = pen.home.display();
        format!("mounts = [{{ from = \"{home}/secret\", to = \"/stolen\" }}]\n[env]\nFROM_PROJECT = \"1\"\n{extra}")
    };
    pen.write("project/.sandpen/config.toml", &file(""));
    let script = "cat /stolen 2>&-; echo ${FROM_PROJECT-no effect}";
    let ignored = |ran: Ran| {
        assert_eq!(ran.ok(), "no effect");
        assert!(
            ran.stderr.contains("sandpen: warning: ") && ran.stderr.contains(".sandpen/config.toml"),
            "{}",
            ran.stderr
        );
    };
    ignored(pen.bash(script));
    pen.sandpen().arg("trust").ran().ok();
    let ran = pen.bash(script);
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("hunter21", ""));
    // A change inside, at the next launch: ignored again.
    let more = "echo 'MORE = \"1\"' >> .sandpen/config.toml";
    pen.bash(more).ok();
    ignored(pen.bash(script));
    // Trust is for this place only.
    let other =
        pen.write("other/.sandpen/config.toml", &file("")).parent().and_then(Path::parent).expect("parent").to_owned();
    let mut command = pen.run();
    ignored(command.current_dir(other).args(["--", "bash", "-c", script]).ran());
}

fn attack_09_odd_project_files_do_not_hang(pen: &Pen) {
    let secret = pen.write("secret", "[env]\nHUNTER2 = \"1\"\nhunter2\n");
    let config = pen.project.join(".sandpen/config.toml");
    pen.write("project/.sandpen/other", "");
    let plants: [(&str, &dyn Fn()); 5] = [
        ("a FIFO", &|| assert!(pen.host_command("mkfifo").arg(&config).status().expect("mkfifo").success())),
        ("a link to a secret", &|| symlink(&secret, &config).expect("link")),
        ("a link to /dev/zero", &|| symlink("/dev/zero", &config).expect("link")),
        ("a directory", &|| fs::create_dir(&config).expect("directory")),
        ("a huge file", &|| fs::File::create(&config).and_then(|file| file.set_len(1 << 40)).expect("file")),
    ];
    for (what, plant) in plants {
        plant();
        for arguments in [&["trust"][..], &["run", "--engine", pen.engine.flag(), "--image", IMAGE, "--", "printenv"]] {
            let mut running = Running::start(pen.sandpen().args(arguments));
            let ran = running.ran();
            assert!(matches!(ran.code, Some(0 | 2)), "{what}, {arguments:?}: {:?} {}", ran.code, ran.stderr);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("hunter2") && !said.contains("HUNTER2"), "{what}, {arguments:?}: {said}");
        }
        fs::remove_file(&config).or_else(|_| fs::remove_dir(&config)).expect("remove");
    }
}

fn attack_09_other_project_files_have_no_effect_on_the_host(pen: &Pen) {
    for name in [".env", ".sandpen/.env", ".llxprt/.env", ".gemini/.env"] {
        pen.write(
            Path::new("project").join(name),
            "SANDPEN_IMAGE=planted\nSANDBOX_ENV=FROM_ENV=1\nFROM_ENV=1\nSANDBOX_MOUNTS=/:/host\n",
        );
    }
    pen.write("project/.sandpen/sandbox.Dockerfile", "FROM scratch\nRUN planted\n");
    pen.write("project/.llxprt/sandbox-macos-custom.sb", "(version 1)(allow default)\n");
    let trace = pen.root().join("executed");
    pen.write(
        "project/.sandpen/sandbox.bashrc",
        &format!("{{ echo x > '{}'; }} 2>&-; export INSIDE=$SANDBOX\n", trace.display()),
    );
    let ran =
        pen.bash("echo ${FROM_ENV-no effect}; [ \"$INSIDE\" = \"$SANDBOX\" ] && echo inside; ls -d /host 2>&-; true");
    assert_eq!((ran.ok(), ran.stderr.as_str()), ("no effect\ninside", ""));
    assert_not_executed(pen);
}

/// A title, a cleared screen, a colour in one byte, reversed text.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";

#[track_caller]
fn assert_escaped(ran: &Ran, what: &dyn std::fmt::Debug) {
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.chars().any(acts), "{what:?} printed {said:?}");
    assert!(["\\u{1b}", "\\u001b"].iter().any(|escaped| said.contains(escaped)), "{what:?} did not name it: {said:?}");
}

fn attack_10_terminal_escapes_are_not_printed(pen: &Pen) {
    let file = pen.write(format!("evil {EVIL}/.sandpen/config.toml"), &format!("\"key{EVIL}\" = 1\n"));
    let project = file.parent().and_then(Path::parent).expect("parent");
    let (value, no_such) = (format!("A=value {EVIL}"), format!("/no/such/{EVIL}"));
    let say = |arguments: &[&str]| {
        let mut command = pen.sandpen();
        assert_escaped(&command.current_dir(project).args(arguments).ran(), &arguments);
    };
    let with_engine = |verb: &str, arguments: &[&str]| {
        say(&[&[verb, "--engine", pen.engine.flag(), "--image", IMAGE], arguments].concat());
    };
    with_engine("explain", &["--env", &value, "--", "echo", EVIL]);
    with_engine("explain", &["--format", "json", "--env", &value, "--", "echo", EVIL]);
    with_engine("run", &["-v", "--env", &value, "--", "true"]);
    with_engine("run", &["--", EVIL]);
    with_engine("run", &["--mount", &no_such, "--", "true"]);
    say(&["run", "--image", EVIL]);
    say(&["run", "--agent", EVIL]);
    say(&["trust"]);
}

/// What the parser of the command line says is printed, too.
#[test]
fn attack_10_nor_by_the_parser_of_the_command_line() {
    for arguments in [&["run", "--engine", EVIL][..], &[EVIL], &["profile", "show", EVIL]] {
        let ran = plain(Path::new("/")).args(arguments).ran();
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!ran.stderr.chars().any(acts), "{arguments:?} printed {:?}", ran.stderr);
    }
}

fn attack_19_links_do_not_lead_outside(pen: &Pen) {
    let secret = pen.outside("beside").join("secret");
    fs::write(&secret, "hunter2").expect("file");
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o666)).expect("chmod");
    let project = |name: &str| pen.project.join(name);
    symlink(&secret, project("file-link")).expect("link");
    symlink(pen.outside("beside"), project("directory-link")).expect("link");
    symlink("../../beside/secret", project("relative-link")).expect("link");
    symlink("/proc/1/root", project("root-link")).expect("link");
    let script = format!(
        r#"cat file-link directory-link/secret relative-link root-link{0} 2>&-
        for link in file-link directory-link/secret relative-link root-link{0}; do (echo pwned > $link) 2>&-; done; true"#,
        secret.display()
    );
    let ran = pen.bash(&script);
    assert!(!ran.stdout.contains("hunter2"), "{}", ran.stdout);
    assert_eq!(fs::read_to_string(&secret).expect("file"), "hunter2");
}

fn attack_19_links_are_not_mounted(pen: &Pen) {
    let beside = pen.outside("beside");
    fs::write(beside.join("secret"), "hunter2").expect("file");
    symlink(&beside, pen.project.join("link")).expect("link");
    for arguments in [
        &["--mount", "./link"][..],
        &["--mount", "./link:/x"],
        &["--include-dir", "link"],
        &["--mount", "./link/secret:/x"],
    ] {
        let ran = pen.run().args(arguments).args(["--", "cat", "/x", "/x/secret", "link/secret"]).ran();
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", ran.stderr);
    }
    // As a Python environment it is left out, with a word.
    let ran = pen.run().env("VIRTUAL_ENV", pen.project.join("link")).args(["--", "cat", "link/secret"]).ran();
    assert!(ran.code == Some(1) && ran.stdout.is_empty() && ran.stderr.contains("sandpen: warning: "), "{ran:?}");
    // As a shell file it is read inside, where it leads nowhere.
    fs::create_dir(pen.project.join(".sandpen")).expect("directory");
    symlink(beside.join("secret"), pen.project.join(".sandpen/sandbox.bashrc")).expect("link");
    let ran = pen.bash("true");
    assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    assert!(comes_true(Duration::ZERO, || pen.sessions().is_empty()));
}
