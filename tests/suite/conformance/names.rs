//! Paths with everything a path may hold: what an engine can carry arrives, what it cannot is refused with exit 2.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::support::{Pen, Ran, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(odd_names_can_be_mounted, odd_names_can_be_the_working_directory, command_arguments_arrive_unchanged,);
for_every_container_engine!(what_an_engine_cannot_carry_is_refused,);

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
fn read_all(pen: &Pen, names: &[&str]) -> Ran {
    let mounts = names.iter().map(|name| {
        let from = serde_json::to_string(&pen.root().join("odd").join(name)).expect("JSON");
        format!("{{\"from\": {from}}}")
    });
    let profile = format!("{{\"mounts\": [{}]}}", mounts.collect::<Vec<_>>().join(","));
    pen.write(".config/sandpen/profiles/odd.json", &profile);
    let mut command = pen.run();
    command.args(["--profile", "odd", "--", "bash", "-c", r#"for path; do cat "$path/file"; done"#, "bash"]);
    command.args(names.iter().map(|name| pen.root().join("odd").join(name))).ran()
}

fn odd_names_can_be_mounted(pen: &Pen) {
    for (number, name) in ODD.iter().enumerate() {
        fs::write(pen.outside("odd").join(name).join("file"), "").unwrap_or_default();
        fs::create_dir_all(pen.root().join("odd").join(name)).expect("directory");
        fs::write(pen.root().join("odd").join(name).join("file"), format!("{number} ")).expect("file");
    }
    let together = read_all(pen, ODD);
    let expected: String = (0..ODD.len()).map(|number| format!("{number} ")).collect();
    if together.code == Some(0) && together.stdout == expected {
        return;
    }
    // One by one, to name the culprits.
    let failures = ODD.iter().enumerate().filter_map(|(number, name)| {
        let ran = read_all(pen, &[name]);
        (ran.stdout != format!("{number} ")).then(|| format!("{name:?}: {:?} {}", ran.code, ran.stderr))
    });
    panic!("{}", failures.collect::<Vec<_>>().join("\n"));
}

fn odd_names_can_be_the_working_directory(pen: &Pen) {
    for name in ["-a, b'\"\\ ü$x", "col:on", "new\nline"] {
        let project = pen.write(format!("{name}/file"), "content").parent().expect("parent").to_owned();
        let mut command = pen.run();
        command.current_dir(&project);
        let ran = command.args(["--", "bash", "-c", "cat file && pwd && echo x > new"]).ran();
        assert_eq!(ran.ok(), format!("content{}", project.display()), "{name:?}");
        assert!(project.join("new").exists(), "{name:?}");
    }
    assert_eq!(pen.sessions(), Vec::<PathBuf>::new());
}

fn what_an_engine_cannot_carry_is_refused(pen: &Pen) {
    let stopped = |code: i32, ran: Ran, part: &str| {
        assert_eq!(ran.code, Some(code), "{part}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("sandpen: error: ") && ran.stderr.contains(part), "{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    };
    let refused = |ran: Ran, part: &str| stopped(2, ran, part);
    let not_utf8 = OsStr::from_bytes(b"not-\xff-utf8");
    fs::create_dir(pen.outside("odd").join(not_utf8)).expect("directory");
    let mut command = pen.run();
    stopped(44, command.current_dir(pen.root().join("odd").join(not_utf8)).args(["--", "true"]).ran(), "not UTF-8");
    refused(pen.run().args([OsStr::new("--"), OsStr::new("echo"), not_utf8]).ran(), "not UTF-8");
    fs::create_dir(pen.root().join("odd/a:b,c")).expect("directory");
    fs::write(pen.root().join("odd/a:b,c/file"), "both").expect("file");
    let both = read_all(pen, &["a:b,c"]);
    match pen.engine.flag() {
        // Podman 4.3 splits `--mount` at every comma, and `--volume` at every colon.
        "podman" => refused(both, "a:b,c"),
        _ => assert_eq!(both.ok(), "both"),
    }
    // On the command line a colon separates.
    refused(pen.run().args(["--mount", "/a:/b:/c:/d", "--", "true"]).ran(), "config file");
    refused(pen.run().args(["--mount", "/no/such/directory", "--", "true"]).ran(), "does not exist");
    assert_eq!(pen.sessions(), Vec::<PathBuf>::new(), "nothing was written");
}

fn command_arguments_arrive_unchanged(pen: &Pen) {
    let mut arguments: Vec<&str> = ODD.to_vec();
    arguments.extend(["", "-", "--", "--help", "-v", "line\n", "{\"owner\":false}"]);
    let ran = pen.run().args(["--", "printf", "<%s>"]).args(&arguments).ran();
    let expected: String = arguments.iter().map(|argument| format!("<{argument}>")).collect();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.stdout, expected);
}
