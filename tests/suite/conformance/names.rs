//! Paths with special characters are mounted if the engine can; otherwise they are refused with
//! exit code 2.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::support::{Finished, Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(odd_names_can_be_mounted, odd_names_can_be_the_working_directory, command_arguments_arrive_unchanged,);
for_native_image!(odd_names_can_be_mounted, odd_names_can_be_the_working_directory);
for_every_container_engine!(names_that_an_engine_cannot_mount_are_refused,);

const ODD: &[&str] = &[
    "a b",
    " leading and trailing ",
    "a,b",
    "a:b",
    "a:ro",
    "double\"quote",
    "single'quote",
    "new\nline",
    "tab\tand\rreturn",
    "-dash",
    "--privileged",
    "ünïcödé 日本語",
    "back\\slash",
    "a=b",
    "$(id) `id` $HOME",
    "%s %20 #x ;& | * ? [x] {y} ~",
    "\u{1b}[31mred",
];

/// Mounts directories at their own paths and reads the file in each.
fn read_all(fixture: &Fixture, names: &[&str]) -> Finished {
    let mounts = names.iter().map(|name| {
        let from = serde_json::to_string(&fixture.root.join("odd").join(name)).expect("JSON");
        format!("{{\"from\": {from}}}")
    });
    let profile = format!("{{\"mounts\": [{}]}}", mounts.collect::<Vec<_>>().join(","));
    fixture.write(".config/sandpen/profiles/odd.json", &profile);
    let mut command = fixture.run();
    command.args(["--profile", "odd", "--", "bash", "-c", r#"for path; do cat "$path/file"; done"#, "bash"]);
    command.args(names.iter().map(|name| fixture.root.join("odd").join(name))).finish()
}

fn odd_names_can_be_mounted(fixture: &Fixture) {
    for (number, name) in ODD.iter().enumerate() {
        fs::write(fixture.outside("odd").join(name).join("file"), "").unwrap_or_default();
        fs::create_dir_all(fixture.root.join("odd").join(name)).expect("directory");
        fs::write(fixture.root.join("odd").join(name).join("file"), format!("{number} ")).expect("file");
    }
    let together = read_all(fixture, ODD);
    let expected: String = (0..ODD.len()).map(|number| format!("{number} ")).collect();
    if together.code == Some(0) && together.stdout == expected {
        return;
    }
    // Each name is tried alone, to report the ones that fail.
    let failures = ODD.iter().enumerate().filter_map(|(number, name)| {
        let finished = read_all(fixture, &[name]);
        (finished.stdout != format!("{number} ")).then(|| format!("{name:?}: {:?} {}", finished.code, finished.stderr))
    });
    panic!("{}", failures.collect::<Vec<_>>().join("\n"));
}

fn odd_names_can_be_the_working_directory(fixture: &Fixture) {
    for name in ["-a, b'\"\\ ü$x", "col:on", "new\nline"] {
        let project = fixture.write(format!("{name}/file"), "content").parent().expect("parent").to_owned();
        let mut command = fixture.run();
        command.current_dir(&project);
        let finished = command.args(["--", "bash", "-c", "cat file && pwd && echo x > new"]).finish();
        assert_eq!(finished.success(), format!("content{}", project.display()), "{name:?}");
        assert!(project.join("new").exists(), "{name:?}");
    }
    assert_eq!(fixture.sessions(), Vec::<PathBuf>::new());
}

fn names_that_an_engine_cannot_mount_are_refused(fixture: &Fixture) {
    let refused = |finished: Finished, part: &str| {
        assert_eq!(finished.code, Some(2), "{part}: {}", finished.stderr);
        assert!(
            finished.stderr.starts_with("sandpen: error: ") && finished.stderr.contains(part),
            "{}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "");
    };
    let not_utf8 = OsStr::from_bytes(b"not-\xff-utf8");
    fs::create_dir(fixture.outside("odd").join(not_utf8)).expect("directory");
    let mut command = fixture.run();
    refused(command.current_dir(fixture.root.join("odd").join(not_utf8)).args(["--", "true"]).finish(), "not UTF-8");
    refused(fixture.run().args([OsStr::new("--"), OsStr::new("echo"), not_utf8]).finish(), "not UTF-8");
    fs::create_dir(fixture.root.join("odd/a:b,c")).expect("directory");
    fs::write(fixture.root.join("odd/a:b,c/file"), "both").expect("file");
    let both = read_all(fixture, &["a:b,c"]);
    match fixture.engine().flag() {
        // Podman 4.3 splits `--mount` at every comma, and `--volume` at every colon.
        "podman" => refused(both, "a:b,c"),
        _ => assert_eq!(both.success(), "both"),
    }
    // On the command line a colon separates the parts of a mount.
    refused(fixture.run().args(["--mount", "/a:/b:/c:/d", "--", "true"]).finish(), "config file");
    refused(fixture.run().args(["--mount", "/no/such/directory", "--", "true"]).finish(), "does not exist");
    assert_eq!(fixture.sessions(), Vec::<PathBuf>::new(), "a session directory remains");
}

fn command_arguments_arrive_unchanged(fixture: &Fixture) {
    let mut arguments: Vec<&str> = ODD.to_vec();
    arguments.extend(["", "-", "--", "--help", "-v", "line\n", "{\"owner\":false}"]);
    let finished = fixture.run().args(["--", "printf", "<%s>"]).args(&arguments).finish();
    let expected: String = arguments.iter().map(|argument| format!("<{argument}>")).collect();
    finished.success();
    assert_eq!(finished.stdout, expected);
}
