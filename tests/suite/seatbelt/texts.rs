//! Compares the command line and the six profiles with files. UPDATE_GOLDEN=1 rewrites them.

use std::fs;
use std::path::Path;

use super::profiles::{PROFILES, explain, text};
use crate::support::{Fixture, RunToEnd};

fn compare(name: &str, actual: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/seatbelt/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(file, actual).expect("golden file");
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    let differs = expected.lines().zip(actual.lines()).find(|(expected, actual)| expected != actual);
    assert!(
        expected == actual,
        "{name}: if the change is intended, set UPDATE_GOLDEN=1 and read the diff\n{differs:?}"
    );
}

fn fixture() -> Fixture {
    let fixture = Fixture::new().with_macos_seatbelt();
    for file in [".gitconfig", ".ssh/known_hosts", "library/x", "data/x"] {
        fixture.write(file, "");
    }
    fixture
}

const OPTIONS: &[&str] = &["--include-dir", "~/library", "--mount", "~/data", "--", "git", "log", "two words"];

#[test]
fn the_six_profiles() {
    let fixture = fixture();
    for name in PROFILES {
        let json = explain(&fixture, &[&["--seatbelt-profile", name], OPTIONS].concat());
        compare(&format!("{name}.sb"), &fixture.normalize(&text(&json)));
    }
}

#[test]
fn the_plan_and_the_command_line() {
    let fixture = fixture();
    let mut json = explain(&fixture, OPTIONS);
    // The program's path and the user differ between machines. The test above compares the rules.
    let helper = crate::support::binary().canonicalize().expect("binary").display().to_string();
    for key in ["host", "user", "steps"] {
        json[key] = serde_json::Value::Null;
    }
    json["env"]
        .as_array_mut()
        .expect("env")
        .retain(|entry| !["USER", "LOGNAME"].contains(&entry["name"].as_str().expect("name")));
    let text = serde_json::to_string_pretty(&json).expect("JSON").replace(&helper, "[SANDPEN]");
    compare("plan.json", &(fixture.normalize(&text) + "\n"));
}

/// `run` must use the profile that `explain` shows.
#[test]
fn the_profile_that_is_run_is_the_one_that_is_explained() {
    let fixture = fixture();
    let explained = text(&explain(&fixture, &["--network", "off", "--", "true"]));
    let finished = fixture.run().args(["--network", "off", "--", "true"]).finish();
    finished.success();
    let written = fs::read_to_string(fixture.root.join("profile.sb")).expect("profile");
    let rules: String = written
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with(';'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(rules, explained);
}

#[test]
fn no_golden_file_is_left_over() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/seatbelt/golden");
    let names = fs::read_dir(directory)
        .expect("golden files")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("name"));
    let mut known: Vec<String> = PROFILES.iter().map(|name| format!("{name}.sb")).collect();
    known.push("plan.json".into());
    assert_eq!(names.filter(|name| !known.contains(name)).collect::<Vec<_>>(), Vec::<String>::new());
}
