//! An agent's files stay the same inside and outside, except for what the agent obeys on the host.

use std::fs;

use crate::for_every_engine;
use crate::support::{Fixture, RunToEnd, Running, eventually};

for_every_engine!(
    a_file_that_is_replaced_on_either_side_stays_one_file,
    logins_come_out_and_settings_do_not,
    a_link_in_place_of_a_file_leads_nowhere,
    what_is_left_in_the_home_is_named,
    a_command_that_asks_for_it_is_started_again,
    a_command_that_always_asks_is_ended,
    the_host_name_is_the_machines,
);

const PRESET: &str = r#"
name = "mine"
restart_on = 199

[[directories]]
path = "~/.mine"
mode = "rw"
create = true
own = true
shared = ["login", "sessions/"]
obeyed = ["settings", "hooks"]
reason = "what mine remembers"

[[directories]]
path = "~/.mine.json"
mode = "rw"
content = "{}"
shared_keys = ["account", "projects.*.history"]
obeyed = ["servers"]
reason = "mine's account"
"#;

fn mine(fixture: &Fixture, script: &str) -> std::process::Command {
    fixture.write(".config/sandpen/presets/mine.toml", PRESET);
    let mut command = fixture.run();
    command.args(["--agent", "mine", "--", "bash", "-c", script]);
    command
}

fn read(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.home.join(path)).unwrap_or_default()
}

/// Replaces a file as agents do.
fn replace(fixture: &Fixture, path: &str, content: &str) {
    fixture.write(format!("{path}.new"), content);
    fs::rename(fixture.home.join(format!("{path}.new")), fixture.home.join(path)).expect("renamed");
}

fn a_file_that_is_replaced_on_either_side_stays_one_file(fixture: &Fixture) {
    let script = "cd; set -e; cat .mine.json; echo
        echo '{\"account\":1}' >.mine.json.new; mv .mine.json.new .mine.json
        echo one >.mine/login.new; mv .mine/login.new .mine/login
        until grep -q '\"account\": *2' .mine.json && grep -q two .mine/login; do sleep 0.1; done
        echo three >.mine/login.new; mv .mine/login.new .mine/login; echo seen";
    let mut running = Running::start(&mut mine(fixture, script));
    assert_eq!(running.line(), "{}");
    let has = |path: &str, text: &str| read(fixture, path).contains(text);
    eventually("the guest's files come out", || has(".mine.json", "\"account\": 1") && has(".mine/login", "one"));
    replace(fixture, ".mine.json", "{\"account\": 2}");
    replace(fixture, ".mine/login", "two\n");
    assert_eq!(running.line(), "seen");
    running.finish().success();
    assert_eq!(read(fixture, ".mine/login"), "three\n");
    let again = mine(fixture, "cat ~/.mine.json ~/.mine/login").finish();
    let words: Vec<&str> = again.success().split_whitespace().collect();
    assert_eq!(words, ["{", "\"account\":", "2", "}three"], "the state is kept");
}

fn logins_come_out_and_settings_do_not(fixture: &Fixture) {
    fixture.write(".mine/settings", "host\n");
    fixture.write(".mine/hooks/start", "host\n");
    let first =
        mine(fixture, "mkdir ~/.mine/sessions/1; cat ~/.mine/settings ~/.mine/hooks/start; echo x >~/.mine/own")
            .finish();
    assert_eq!((first.success(), first.stderr.as_str()), ("host\nhost", ""), "an agent's first files are not reported");
    let script = "cd ~/.mine; echo evil >settings; echo evil >hooks/start || echo refused; echo evil >hooks2
        echo '{\"account\":1,\"servers\":{\"x\":\"evil\"},\"projects\":{\"/p\":{\"history\":[1],\"trust\":true}}}' >~/.mine.json";
    let second = mine(fixture, script).finish();
    assert_eq!(second.success(), "refused");
    for name in ["/.mine/settings (inside: ", "`servers` in ", "for sandboxes only"] {
        assert!(second.stderr.contains(name), "{name}: {}", second.stderr);
    }
    assert!(fixture.home.join(".mine/sessions/1").is_dir());
    assert_eq!(read(fixture, ".mine/settings") + &read(fixture, ".mine/hooks/start"), "host\nhost\n");
    assert!(!fixture.home.join(".mine/hooks2").exists() && !fixture.home.join(".mine/own").exists());
    let out: serde_json::Value = serde_json::from_str(&read(fixture, ".mine.json")).expect("JSON");
    assert_eq!(out, serde_json::json!({ "account": 1, "projects": { "/p": { "history": [1] } } }));
    // Sandboxes keep their own, until the host's changes.
    assert_eq!(mine(fixture, "cat ~/.mine/settings; grep -c trust ~/.mine.json").finish().success(), "evil\n1");
    fixture.write(".mine/settings", "new\n");
    assert_eq!(mine(fixture, "cat ~/.mine/settings").finish().success(), "new");
}

fn a_link_in_place_of_a_file_leads_nowhere(fixture: &Fixture) {
    let secret = fixture.write("secret", "{\"account\":\"secret\"}");
    let script = format!(
        "cd; ln -sf {0} .mine/login; ln -sf {0} .mine.json; rm -rf .mine/settings; ln -s {0} .mine/settings",
        secret.display()
    );
    for _ in 0..2 {
        mine(fixture, &script).finish().success();
        assert_eq!(read(fixture, ".mine.json"), "{}");
        assert!(!fixture.home.join(".mine/login").exists());
        assert_eq!(fs::read_to_string(&secret).expect("the file"), "{\"account\":\"secret\"}");
    }
}

fn what_is_left_in_the_home_is_named(fixture: &Fixture) {
    let quiet = fixture.bash("mkdir -p ~/.cache/x; echo x >~/.cache/x/y; echo x >~/.bash_history");
    assert_eq!((quiet.success(), quiet.stderr.as_str()), ("", ""));
    let finished =
        fixture.bash("mkdir -p ~/.tool ~/.local/share/tool; echo x >~/.tool/auth; echo x >~/.local/share/tool/db");
    let expected = "sandpen: left in the sandbox's own home, and gone: ~/.local/share/tool, ~/.tool; to keep it: ";
    assert!(finished.stderr.starts_with(expected), "{}", finished.stderr);
    assert_eq!(mine(fixture, "echo x >~/.tool").finish().stderr, "");
}

fn a_command_that_asks_for_it_is_started_again(fixture: &Fixture) {
    let script = "cd ~/.mine; echo x >>login; echo $(wc -l <login); test $(wc -l <login) = 3 || exit 199; exit 7";
    let finished = mine(fixture, script).finish();
    assert_eq!((finished.failure(7), finished.stdout.as_str()), ("", "1\n2\n3\n"));
}

fn a_command_that_always_asks_is_ended(fixture: &Fixture) {
    let finished = mine(fixture, "echo start; exit 199").finish();
    assert!(finished.failure(199).contains("asked too often"), "{}", finished.stderr);
    assert_eq!(finished.stdout.lines().count(), 11);
}

fn the_host_name_is_the_machines(fixture: &Fixture) {
    let machine = fixture.host_command("hostname").finish();
    for _ in 0..2 {
        assert_eq!(fixture.bash("hostname; cat /etc/hostname").success(), format!("{0}\n{0}", machine.success()));
    }
}
