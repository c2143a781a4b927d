//! Tests attacks on the host by the content of a repository, before anything runs inside: 07–10,
//! 19.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Finished, Fixture, IMAGE, RunToEnd, Running, holds_within, sandpen_without_home};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    attack_08_a_planted_agent_gets_no_preset,
    attack_09_an_untrusted_project_file_has_no_effect,
    attack_09_odd_project_files_do_not_hang,
    attack_09_other_project_files_have_no_effect_on_the_host,
    attack_19_links_do_not_lead_outside,
    attack_19_links_are_not_mounted,
);
for_native_image!(attack_19_links_do_not_lead_outside, attack_19_links_are_not_mounted);
for_every_container_engine!(
    attack_07_planted_host_programs_are_not_executed,
    attack_07_programs_in_a_presets_directory_are_not_executed,
    attack_10_terminal_escapes_are_not_printed,
);

/// Writes a program that leaves a trace when it is executed on the host.
fn plant(fixture: &Fixture, file: impl AsRef<Path>) -> PathBuf {
    let trace = fixture.root.join("executed");
    fixture.write_script(file, &format!("#!/bin/sh\necho \"$0\" >> '{}'\nexit 0\n", trace.display()))
}

#[track_caller]
fn assert_not_executed(fixture: &Fixture) {
    assert_eq!(
        fs::read_to_string(fixture.root.join("executed")).unwrap_or_default(),
        "",
        "a planted program was executed on the host"
    );
}

/// sandpen starts some of these programs, and the engines' clients look up others on PATH.
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

fn attack_07_planted_host_programs_are_not_executed(fixture: &Fixture) {
    let (included, mounted) = (fixture.outside("included"), fixture.outside("mounted"));
    for name in HOST_PROGRAMS {
        for place in ["project", "project/.venv/bin", "project/sub", "../included", "../mounted/bin"] {
            plant(fixture, Path::new(place).join(name));
        }
    }
    symlink(fixture.project.join(".venv/bin"), fixture.root.join("link")).expect("link");
    let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let project = fixture.project.display();
    let (link, root) = (fixture.root.join("link"), &fixture.root);
    // All ways are tried at once; the trace names the program that was executed.
    let front = format!(
        ":.:sub:./sub:.venv/bin:{project}/.venv/bin:{project}/../project/sub:{}:{}:{}/mounted/bin",
        link.display(),
        included.display(),
        root.display()
    );
    let mut command = fixture.run();
    command.env("PATH", format!("{front}:{system}")).env("VIRTUAL_ENV", fixture.project.join(".venv"));
    command.arg("--include-dir").arg(&included).arg("--mount").arg(&mounted);
    let finished = command.args(["--", "echo", "ran"]).finish();
    assert_not_executed(fixture);
    assert_eq!(finished.success(), "ran");
    // From a subdirectory of the repository, its other directories are mounted as well.
    fixture.host_command("git").args(["init", "--quiet"]).finish().success();
    let mut command = fixture.run();
    command.current_dir(fixture.project.join("sub")).env("PATH", format!("{project}/.venv/bin:{system}"));
    assert_eq!(command.args(["--", "echo", "ran"]).finish().success(), "ran");
    assert_not_executed(fixture);
    // Without a trusted directory on PATH there is no engine; sandpen must not use the planted one.
    let finished = fixture.run().env("PATH", fixture.project.join(".venv/bin")).args(["--", "echo", "ran"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(44), ""), "{}", finished.stderr);
    assert_not_executed(fixture);
}

/// Some agents install themselves below their settings directory, which the guest can write to.
fn attack_07_programs_in_a_presets_directory_are_not_executed(fixture: &Fixture) {
    plant(fixture, Path::new(".claude/local").join(fixture.engine().flag()));
    let local = fixture.home.join(".claude/local");
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", local.display());
    let finished = fixture.run().env("PATH", path).args(["--agent", "claude", "--", "echo", "ran"]).finish();
    assert_not_executed(fixture);
    assert_eq!(finished.success(), "ran");
}

fn attack_08_a_planted_agent_gets_no_preset(fixture: &Fixture) {
    let script = "#!/bin/sh\necho ${ANTHROPIC_API_KEY-no key}; ls -A ~\n";
    for place in ["project/claude", "project/bin/claude"] {
        fixture.write_script(place, script);
    }
    fixture.write(".claude/credentials", "secret");
    let path =
        format!("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{}/bin", fixture.project.display());
    let absolute = fixture.project.join("claude").display().to_string();
    for command in ["./claude", "claude", "bin/claude", &absolute] {
        let finished =
            fixture.run().env("ANTHROPIC_API_KEY", "the key").env("PATH", &path).args(["--", command]).finish();
        assert_eq!(finished.success(), "no key\nproject", "{command}");
        assert!(finished.stderr.contains("sandpen: warning: "), "there is no warning: {command}: {}", finished.stderr);
    }
}

fn attack_09_an_untrusted_project_file_has_no_effect(fixture: &Fixture) {
    fixture.write("secret", "hunter2");
    let file = |extra: &str| {
        let home = fixture.home.display();
        format!("mounts = [{{ from = \"{home}/secret\", to = \"/stolen\" }}]\n[env]\nFROM_PROJECT = \"1\"\n{extra}")
    };
    fixture.write("project/.sandpen/config.toml", &file(""));
    let script = "cat /stolen 2>&-; echo ${FROM_PROJECT-no effect}";
    let ignored = |finished: Finished| {
        assert_eq!(finished.success(), "no effect");
        assert!(
            finished.stderr.contains("sandpen: warning: ") && finished.stderr.contains(".sandpen/config.toml"),
            "{}",
            finished.stderr
        );
    };
    ignored(fixture.bash(script));
    fixture.sandpen(["trust"]).finish().success();
    let finished = fixture.bash(script);
    assert_eq!((finished.success(), finished.stderr.as_str()), ("hunter21", ""));
    // If the guest changes the file, the next launch ignores it again.
    let more = "echo 'MORE = \"1\"' >> .sandpen/config.toml";
    fixture.bash(more).success();
    ignored(fixture.bash(script));
    // Trust applies to this path only.
    let other = fixture
        .write("other/.sandpen/config.toml", &file(""))
        .parent()
        .and_then(Path::parent)
        .expect("parent")
        .to_owned();
    let mut command = fixture.run();
    ignored(command.current_dir(other).args(["--", "bash", "-c", script]).finish());
}

fn attack_09_odd_project_files_do_not_hang(fixture: &Fixture) {
    let secret = fixture.write("secret", "[env]\nHUNTER2 = \"1\"\nhunter2\n");
    let config = fixture.project.join(".sandpen/config.toml");
    fixture.write("project/.sandpen/other", "");
    let plants: [(&str, &dyn Fn()); 5] = [
        ("a FIFO", &|| assert!(fixture.host_command("mkfifo").arg(&config).status().expect("mkfifo").success())),
        ("a link to a secret", &|| symlink(&secret, &config).expect("link")),
        ("a link to /dev/zero", &|| symlink("/dev/zero", &config).expect("link")),
        ("a directory", &|| fs::create_dir(&config).expect("directory")),
        ("a huge file", &|| fs::File::create(&config).and_then(|file| file.set_len(1 << 40)).expect("file")),
    ];
    for (what, plant) in plants {
        plant();
        for arguments in
            [&["trust"][..], &["run", "--engine", fixture.engine().flag(), "--image", IMAGE, "--", "printenv"]]
        {
            let mut running = Running::start(&mut fixture.sandpen(arguments));
            let finished = running.finish();
            assert!(
                matches!(finished.code, Some(0 | 2)),
                "{what}, {arguments:?}: {:?} {}",
                finished.code,
                finished.stderr
            );
            let said = format!("{}{}", finished.stdout, finished.stderr);
            assert!(!said.contains("hunter2") && !said.contains("HUNTER2"), "{what}, {arguments:?}: {said}");
        }
        fs::remove_file(&config).or_else(|_| fs::remove_dir(&config)).expect("remove");
    }
}

pub(crate) fn attack_09_other_project_files_have_no_effect_on_the_host(fixture: &Fixture) {
    for name in [".env", ".sandpen/.env", ".llxprt/.env", ".gemini/.env"] {
        fixture.write(
            Path::new("project").join(name),
            "SANDPEN_IMAGE=planted\nSANDBOX_ENV=FROM_ENV=1\nFROM_ENV=1\nSANDBOX_MOUNTS=/:/host\n",
        );
    }
    fixture.write("project/.sandpen/sandbox.Dockerfile", "FROM scratch\nRUN planted\n");
    fixture.write("project/.llxprt/sandbox-macos-custom.sb", "(version 1)(allow default)\n");
    let trace = fixture.root.join("executed");
    fixture.write(
        "project/.sandpen/sandbox.bashrc",
        &format!("{{ echo x > '{}'; }} 2>&-; export INSIDE=$SANDBOX\n", trace.display()),
    );
    let finished = fixture
        .bash("echo ${FROM_ENV-no effect}; [ \"$INSIDE\" = \"$SANDBOX\" ] && echo inside; ls -d /host 2>&-; true");
    assert_eq!((finished.success(), finished.stderr.as_str()), ("no effect\ninside", ""));
    assert_not_executed(fixture);
}

/// It sets a title, clears the screen, sets a colour with a one-byte escape, and reverses text.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{9b}31m\u{202e}";

#[track_caller]
fn assert_escaped(finished: &Finished, what: &dyn std::fmt::Debug) {
    let said = format!("{}{}", finished.stdout, finished.stderr);
    let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!said.chars().any(acts), "{what:?} printed {said:?}");
    assert!(
        ["\\u{1b}", "\\u001b"].iter().any(|escaped| said.contains(escaped)),
        "{what:?} did not show the escaped text: {said:?}"
    );
}

fn attack_10_terminal_escapes_are_not_printed(fixture: &Fixture) {
    let file = fixture.write(format!("evil {EVIL}/.sandpen/config.toml"), &format!("\"key{EVIL}\" = 1\n"));
    let project = file.parent().and_then(Path::parent).expect("parent");
    let (value, no_such) = (format!("A=value {EVIL}"), format!("/no/such/{EVIL}"));
    let say = |arguments: &[&str]| {
        assert_escaped(&fixture.sandpen(arguments).current_dir(project).finish(), &arguments);
    };
    let with_engine = |verb: &str, arguments: &[&str]| {
        say(&[&[verb, "--engine", fixture.engine().flag(), "--image", IMAGE], arguments].concat());
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

#[test]
fn attack_10_the_argument_parser_prints_no_terminal_escapes() {
    for arguments in [&["run", "--engine", EVIL][..], &[EVIL], &["profile", "show", EVIL]] {
        let finished = sandpen_without_home(Path::new("/")).args(arguments).finish();
        assert_eq!(finished.code, Some(2), "{arguments:?}: {}", finished.stderr);
        let acts = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!finished.stderr.chars().any(acts), "{arguments:?} printed {:?}", finished.stderr);
    }
}

pub(crate) fn attack_19_links_do_not_lead_outside(fixture: &Fixture) {
    let secret = fixture.outside("beside").join("secret");
    fs::write(&secret, "hunter2").expect("file");
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o666)).expect("chmod");
    let project = |name: &str| fixture.project.join(name);
    symlink(&secret, project("file-link")).expect("link");
    symlink(fixture.outside("beside"), project("directory-link")).expect("link");
    symlink("../../beside/secret", project("relative-link")).expect("link");
    symlink("/proc/1/root", project("root-link")).expect("link");
    let script = format!(
        r#"cat file-link directory-link/secret relative-link root-link{0} 2>&-
        for link in file-link directory-link/secret relative-link root-link{0}; do (echo pwned > $link) 2>&-; done; true"#,
        secret.display()
    );
    let finished = fixture.bash(&script);
    assert!(!finished.stdout.contains("hunter2"), "{}", finished.stdout);
    assert_eq!(fs::read_to_string(&secret).expect("file"), "hunter2");
}

fn attack_19_links_are_not_mounted(fixture: &Fixture) {
    let beside = fixture.outside("beside");
    fs::write(beside.join("secret"), "hunter2").expect("file");
    symlink(&beside, fixture.project.join("link")).expect("link");
    for arguments in [
        &["--mount", "./link"][..],
        &["--mount", "./link:/x"],
        &["--include-dir", "link"],
        &["--mount", "./link/secret:/x"],
    ] {
        let finished = fixture.run().args(arguments).args(["--", "cat", "/x", "/x/secret", "link/secret"]).finish();
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{arguments:?}: {}", finished.stderr);
    }
    // A linked Python environment is left out, with a warning.
    let finished =
        fixture.run().env("VIRTUAL_ENV", fixture.project.join("link")).args(["--", "cat", "link/secret"]).finish();
    assert!(
        finished.code == Some(1) && finished.stdout.is_empty() && finished.stderr.contains("sandpen: warning: "),
        "{finished:?}"
    );
    // A linked shell file is read inside, where its target does not exist.
    fs::create_dir(fixture.project.join(".sandpen")).expect("directory");
    symlink(beside.join("secret"), fixture.project.join(".sandpen/sandbox.bashrc")).expect("link");
    let finished = fixture.bash("true");
    assert!(!finished.stderr.contains("hunter2"), "{}", finished.stderr);
    assert!(holds_within(Duration::ZERO, || fixture.sessions().is_empty()));
}
