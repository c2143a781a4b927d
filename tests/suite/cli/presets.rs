//! Errors in the user's own presets name the file, and `explain` shows everything that a preset
//! exposes.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::Fixture;

const MINE: &str = ".config/sandpen/presets/mine.toml";

/// Each row has the text below `name = "mine"` and the parts that the message must contain.
const WRONG: &[(&str, &[&str])] = &[
    ("secrets = [\"MINE_KEY=hunter2\"]", &["mine.toml:2:12: key `secrets[0]`", "`MINE_KEY=…`", "`MINE_API_KEY`"]),
    ("variables = [\"A B\"]", &["key `variables[0]`", "`A B` is not a variable's name"]),
    ("credential_files = [\"\"]", &["key `credential_files[0]`", "not a variable's name"]),
    ("hosts = [\"https://x\"]", &["key `hosts[0]`", "`https://x`"]),
    ("image_home = \"home\"", &["key `image_home`", "`home` is not a path inside", "`/home/node`"]),
    (
        "directories = [{ path = \"/etc\", reason = \"x\" }]",
        &["key `directories[0].path`", "`/etc`", "does not start with `~/`"],
    ),
    ("directories = [{ path = \"~/../x\", reason = \"x\" }]", &["`~/../x`", "must not contain `..`"]),
    ("directories = [{ path = \"~/\", reason = \"x\" }]", &["`~/`", "your whole home"]),
    (
        "directories = [{ path = \"~/.ssh\", reason = \"x\" }]",
        &["`~/.ssh` is not a directory of an agent", "use `--mount`"],
    ),
    (
        "directories = [{ path = \"~/.config\", reason = \"x\" }]",
        &["`~/.config` is not a directory of an agent", "use `--mount`"],
    ),
    ("directories = [{ path = \"~/.mine\" }]", &["the key `reason` is missing"]),
    ("directories = [{ path = \"~/.mine\", reason = \"x\", mode = \"rx\" }]", &["key `directories[0].mode`", "`rx`"]),
    (
        "directories = [{ path = \"~/.mine\", mode = \"rw\", reason = \"x\" }, { path = \"~/.mine/in\", reason = \"x\" }]",
        &["`[ROOT]/home/.mine/in` is in `[ROOT]/home/.mine`, which the agent can write to", "hint: leave it out"],
    ),
];

#[test]
fn a_wrong_preset_names_file_key_and_form() {
    let fixture = Fixture::new().with_recording_docker();
    let mut failures = Vec::new();
    for (text, parts) in WRONG {
        fixture.write(MINE, &format!("name = \"mine\"\n{text}\n"));
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--agent", "mine", "--", "true"]));
        for part in parts.iter().chain(&["[ROOT]/home/.config/sandpen/presets/mine.toml"]) {
            if !stderr.contains(part) {
                failures.push(format!("{text}: no {part} in: {stderr}"));
            }
        }
        assert!(!stderr.contains("hunter2"), "the message contains a secret value: {stderr}");
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn a_preset_has_the_name_of_its_file() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(MINE, "name = \"yours\"\n");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run", "--agent", "mine", "--", "true"])),
        "\
sandpen: error: [ROOT]/home/.config/sandpen/presets/mine.toml: key `name`: `yours` is not the file's name
hint: expected `mine`, the command that it is for; or rename the file
"
    );
}

#[test]
fn sandpens_own_files_are_no_agents_wherever_they_are() {
    let fixture = Fixture::new().with_recording_docker();
    let preset = "name = \"mine\"\n[[directories]]\npath = \"~/elsewhere\"\nreason = \"x\"\n";
    fixture.write("elsewhere/sandpen/presets/mine.toml", preset);
    let mut command = fixture.sandpen(["run", "--agent", "mine", "--", "true"]);
    let stderr = fixture.usage_error(command.env("XDG_CONFIG_HOME", fixture.home.join("elsewhere")));
    assert!(stderr.contains("`[ROOT]/home/elsewhere` holds sandpen's own files"), "{stderr}");
}

/// Otherwise a guest that can write to the workspace could choose what is mounted.
#[test]
fn a_link_in_the_workspace_is_not_followed_for_a_preset() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(".secret/key", "hunter2");
    fixture.write(MINE, "name = \"mine\"\n[[directories]]\npath = \"~/project/.mine\"\nreason = \"x\"\n");
    symlink(fixture.home.join(".secret"), fixture.project.join(".mine")).expect("link");
    let command = &mut fixture.sandpen(["explain", "--agent", "mine", "--format", "json", "--", "true"]);
    let finished = fixture.finish(command).stdout;
    assert!(!finished.contains("home/.secret"), "{finished}");
    assert!(finished.contains("is a link in the workspace, so the preset `mine` does not mount it"), "{finished}");
}

#[test]
fn explain_shows_all_that_a_preset_exposes() {
    let fixture = Fixture::new().with_recording_docker();
    fs::create_dir(fixture.home.join(".mine")).expect("directory");
    let certificate = fixture.write("certificate.pem", "x");
    let preset = "name = \"mine\"\nsecrets = [\"MINE_PASS\"]\nvariables = [\"MINE_MODEL\"]\ncredential_files = [\"MINE_CERTIFICATE\"]\n\
                  hosts = [\"api.mine.example:443\"]\n[[directories]]\npath = \"~/.mine\"\nmode = \"rw\"\nreason = \"what mine remembers\"\n";
    fixture.write(MINE, preset);
    let mut command = fixture.sandpen(["explain", "--network", "proxied", "--agent", "mine", "--", "true"]);
    command.env("MINE_PASS", "hunter2").env("MINE_MODEL", "large").env("MINE_CERTIFICATE", &certificate);
    let text = fixture.finish(&mut command).stdout;
    for line in [
        "rw   [ROOT]/home/.mine what mine remembers",
        "ro   [ROOT]/home/certificate.pem the file that MINE_CERTIFICATE names",
        "env  MINE_PASS (secret) mine needs it",
        "env  MINE_MODEL large mine reads it",
        "allowed  api.mine.example:443 preset mine",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_there = text.lines().any(|shown| shown.split_whitespace().collect::<Vec<_>>() == words);
        assert!(is_there, "no {line} in:\n{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

/// Editors leave backup files beside the presets.
#[test]
fn only_toml_files_are_presets() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(MINE, "name = \"mine\"\n");
    fixture.write(".config/sandpen/presets/mine.toml~", "");
    fixture.write(".config/sandpen/presets/notes.txt", "");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--agent", "minf", "--", "true"]));
    assert!(stderr.contains("hint: known presets: llxprt, gemini, claude, codex, aider, opencode, copilot, qwen, amp, goose, cursor-agent, crush, mine, none\n"), "{stderr}");
}
