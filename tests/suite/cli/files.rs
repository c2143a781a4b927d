//! An invalid file is refused with exit code 2, and the message names the file, the key, the value
//! and the expected form.

use crate::support::Fixture;

/// Each row has the text of a file and the parts that the message must contain: key, value, form.
const WRONG: &[(&str, &[&str])] = &[
    ("engine = \"lxc\"", &["`engine`", "`lxc`", "`docker`", "`podman`"]),
    ("image = \"A B\"", &["`image`", "`A B`", "`name:tag`"]),
    ("image = true", &["`image`", "`true`", "`name:tag`"]),
    ("mounts = [1]", &["`mounts[0]`", "`1`", "from"]),
    ("mounts = [\"/etc:rel\"]", &["`mounts[0]`", "`/etc:rel`", "absolute path"]),
    ("mounts = [{ to = \"/x\" }]", &["`mounts[0]`", "`from`"]),
    ("mounts = [{ from = \"/etc\", to = \"rel\" }]", &["/etc", "`rel`", "absolute path"]),
    ("mounts = [{ from = \"/etc\", mode = \"rx\" }]", &["`mounts[0].mode`", "`rx`", "`ro`", "`rw`"]),
    ("mounts = [{ from = \"/nowhere\" }]", &["`/nowhere`", "does not exist"]),
    ("env = [\"A\"]", &["`env`", "NAME"]),
    ("env = { A = [1] }", &["`env.A`", "a list", "a string"]),
    ("[env]\n\"A B\" = \"1\"", &["config.toml:2:", "`env.A B`", "NAME = "]),
    ("[env]\n\"A=B\" = \"1\"", &["`env.A=B`", "`A=B`"]),
    ("resources = 1", &["`resources`", "`1`", "{ cpus = 2"]),
    ("ports = [0]", &["`ports[0]`", "`0`", "1 to 65535"]),
    ("ports = 80", &["`ports`", "80", "["]),
    ("[resources]\ncpus = -1", &["`resources.cpus`", "`-1`", "`0.5`"]),
    ("[resources]\nmemory = \"x\"", &["`resources.memory`", "`x`", "`4g`"]),
    ("[resources]\npids = 0", &["`resources.pids`", "`0`", "1 to 4194304"]),
    ("network = \"maybe\"", &["`network`", "`maybe`", "`on`", "`off`", "`proxied`"]),
    ("allowHosts = [\"a b\"]", &["`allowHosts[0]`", "`a b`", "`HOST:PORT`"]),
    ("proxyCommand = 1", &["`proxyCommand`", "1", "string"]),
    ("sshAgent = \"yes\"", &["`sshAgent`", "`yes`", "`auto`"]),
    ("user = \"me\"", &["`user`", "`me`", "`host`", "`image`"]),
    ("tmp = \"own\"", &["`tmp`", "`own`", "`private`", "`host`"]),
    ("engineFlags = \"x\"", &["`engineFlags`", "\"x\"", "["]),
    ("includeDirs = \"x\"", &["`includeDirs`", "\"x\"", "["]),
    ("includeDirs = [\"/nowhere\"]", &["`/nowhere`", "not a directory"]),
    ("seatbeltProfile = 1", &["`seatbeltProfile`", "1", "string"]),
    ("agent = \"cluade\"", &["`cluade`", "did you mean `claude`?"]),
    ("git = \"on\"", &["`git`", "`on`", "`private`", "`shared`"]),
    ("guard = \"strict\"", &["unknown key `guard`", "`git = \"private\"`", "`git = \"shared\"`"]),
    ("allowHome = \"yes\"", &["`allowHome`", "yes", "`true` or `false`"]),
    ("strict = 1", &["`strict`", "1", "`true` or `false`"]),
];

/// Collects the missing parts of all cases, so that one run shows every failure.
#[track_caller]
fn holds(failures: &mut Vec<String>, stderr: &str, parts: &[&str], case: &str) {
    for part in parts.iter().filter(|part| !stderr.contains(**part)) {
        failures.push(format!("{case:?}: no {part} in: {stderr}"));
    }
}

#[test]
fn a_wrong_value_in_the_users_file_names_file_key_value_and_form() {
    let fixture = Fixture::new().with_recording_docker();
    let mut failures = Vec::new();
    for (text, parts) in WRONG {
        fixture.write_config(text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--", "true"]));
        holds(&mut failures, &stderr, parts, text);
        holds(&mut failures, &stderr, &["[ROOT]/home/.config/sandpen/config.toml"], text);
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn no_message_about_a_file_speaks_of_rust() {
    let fixture = Fixture::new().with_recording_docker();
    let mut failures = Vec::new();
    for (text, _) in WRONG {
        fixture.write_config(text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--", "true"]));
        for jargon in ["variant", "struct ", "sequence", "invalid type", " map", "field", "untagged"] {
            if stderr.contains(jargon) {
                failures.push(format!("{jargon:?} in: {stderr}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join(""));
}

#[test]
fn a_wrong_value_in_a_profile_names_its_file() {
    let fixture = Fixture::new().with_recording_docker();
    let json = "{\n  \"network\": \"maybe\"\n}";
    for (name, text, place) in [("a.toml", "\nnetwork = \"maybe\"", "a.toml:2:11"), ("b.json", json, "b.json:2:14")] {
        fixture.write(format!(".config/sandpen/profiles/{name}"), text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--profile", &name[..1]]));
        let expected = format!(
            "sandpen: error: [ROOT]/home/.config/sandpen/profiles/{place}: key `network`: `maybe` is not a network policy\n\
             hint: expected `on`, `off` or `proxied`\n"
        );
        assert_eq!(stderr, expected);
    }
}

/// The message is the same for a file as for a flag.
#[test]
fn a_misspelt_choice_and_its_reason_are_lines_of_their_own() {
    let fixture = Fixture::new().with_recording_docker();
    for (text, message) in [
        (
            "engine = \"dockr\"",
            "1:10: key `engine`: `dockr` is not an engine\nhint: did you mean `docker`?\nhint: expected `auto`, `docker`, `podman`, `sandbox-exec`, `native` or `kubernetes`\n",
        ),
        (
            "allowHosts = [\"https://a.org/b\"]",
            "1:15: key `allowHosts[0]`: `https://a.org/b` is not an allowed host\nsandpen:   write the host only: `a.org`\nhint: expected `HOST`, `HOST:PORT` or `*.example.org`; names in ASCII, IPv6 in brackets\n",
        ),
    ] {
        fixture.write_config(text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
        assert_eq!(stderr, format!("sandpen: error: [ROOT]/home/.config/sandpen/config.toml:{message}"));
    }
}

#[test]
fn an_empty_value_in_a_file_means_not_set() {
    let fixture = Fixture::new().with_recording_docker();
    let plain = fixture.explain_normalized(&["--", "true"], &[]);
    for key in
        ["engine", "image", "network", "proxyCommand", "sshAgent", "user", "tmp", "seatbeltProfile", "agent", "git"]
    {
        fixture.write_config(&format!("{key} = \"\""));
        assert_eq!(fixture.explain_normalized(&["--", "true"], &[]), plain, "{key}");
    }
    fixture.write_config("[resources]\ncpus = \"\"\nmemory = \"\"\npids = \"\"");
    assert_eq!(fixture.explain_normalized(&["--", "true"], &[]), plain);
    fixture.write_config("");
    fixture.write(".config/sandpen/profiles/p.json", "{\"image\": null, \"network\": \"\"}");
    assert_eq!(fixture.explain_normalized(&["--profile", "p", "--", "true"], &[]), plain);
}

#[test]
fn a_wrong_value_in_a_trusted_project_file_names_the_file() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/.sandpen/config.toml", "netwrok = \"off\"\n");
    // An invalid file cannot be trusted.
    let stderr = fixture.usage_error(&mut fixture.sandpen(["trust"]));
    assert!(stderr.starts_with("sandpen: error: [ROOT]/home/project/.sandpen/config.toml:1:1: "), "{stderr}");
    assert!(stderr.ends_with("hint: did you mean `network`?\n"), "{stderr}");
    // Without trust the file has no effect, even if it is invalid.
    let finished = fixture.finish(&mut fixture.sandpen(["run", "--", "true"]));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), "\
sandpen: warning: the project file `[ROOT]/home/project/.sandpen/config.toml` is not trusted and has no effect: read it, then run `sandpen trust`
"));
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    let fixture = Fixture::new().with_recording_docker();
    for (text, place, wrong, near) in [
        ("netwrok = \"on\"", "1:1", "netwrok", Some("network")),
        ("\n[resources]\ncpu = 1", "3:1", "cpu", Some("cpus")),
        ("mounts = [{ from = \"/etc\", too = \"/x\" }]", "1:28", "too", Some("to")),
        ("sshagent = \"on\"", "1:1", "sshagent", Some("sshAgent")),
        ("xyzzy = 1", "1:1", "xyzzy", None),
    ] {
        fixture.write_config(text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
        let start = format!("sandpen: error: [ROOT]/home/.config/sandpen/config.toml:{place}: ");
        assert!(stderr.starts_with(&start) && stderr.contains(&format!("`{wrong}`")), "{stderr}");
        let hint = near.map_or(String::new(), |near| format!("hint: did you mean `{near}`?\n"));
        assert!(stderr.ends_with(&hint) && stderr.contains("did you mean") == near.is_some(), "{stderr}");
    }
}

#[test]
fn a_file_that_is_not_toml_or_json_names_the_place() {
    let fixture = Fixture::new().with_recording_docker();
    for (text, place) in [("engine = ", ":1:10: "), ("network = \"on\"\n[[[", ":2:"), ("a = 1\na = 2", ":")] {
        fixture.write_config(text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
        assert!(
            stderr.starts_with(&format!("sandpen: error: [ROOT]/home/.config/sandpen/config.toml{place}")),
            "{stderr}"
        );
    }
    fixture.write_config("");
    fixture.write(".config/sandpen/profiles/p.json", "{\"network\": ");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--profile", "p"]));
    assert!(stderr.starts_with("sandpen: error: [ROOT]/home/.config/sandpen/profiles/p.json:1:"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let fixture = Fixture::new().with_recording_docker();
    std::fs::create_dir_all(fixture.home.join(".config/sandpen/config.toml")).expect("a directory replaces the file");
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run"])),
        "\
sandpen: error: cannot read the configuration file `[ROOT]/home/.config/sandpen/config.toml`
sandpen:   Is a directory (os error 21)
"
    );
    let fixture = Fixture::new().with_recording_docker();
    std::fs::create_dir_all(fixture.home.join(".config/sandpen")).expect("directory");
    std::fs::write(fixture.home.join(".config/sandpen/config.toml"), b"image = \"\xff\"").expect("write");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
    assert!(stderr.contains("cannot read the configuration file") && stderr.contains("UTF-8"), "{stderr}");
}

#[test]
fn an_own_preset_with_a_mistake_is_named() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(".config/sandpen/presets/mine.toml", "name = \"mine\"\nimgae = \"x\"\n");
    for arguments in [["run", "--agent", "mine"], ["run", "--", "mine"]] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(arguments));
        assert_eq!(
            stderr,
            "\
sandpen: error: [ROOT]/home/.config/sandpen/presets/mine.toml:2:1: unknown key `imgae`
hint: did you mean `image`?
"
        );
    }
    for (text, message) in [
        (
            "name = \"mine\"\n[[directories]]\npath = \"~/x\"\nmode = \"rx\"\nreason = \"x\"\n",
            "4:8: key `directories[0].mode`: `rx` is not a mode\nhint: expected `ro` or `rw`\n",
        ),
        ("image = \"x\"\n", "1:1: the key `name` is missing\n"),
        ("name = 1\n", "1:8: key `name`: `1` has the wrong type\nhint: expected a string\n"),
    ] {
        fixture.write(".config/sandpen/presets/mine.toml", text);
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--agent", "mine"]));
        assert_eq!(stderr, format!("sandpen: error: [ROOT]/home/.config/sandpen/presets/mine.toml:{message}"));
    }
}

#[test]
fn project_files_that_are_no_text_files_are_refused() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/.sandpen/config.toml", &" ".repeat((1 << 20) + 1));
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run"])),
        "\
sandpen: error: `[ROOT]/home/project/.sandpen/config.toml` is not a text file of at most 1 MiB
"
    );
}
