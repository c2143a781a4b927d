//! Unknown names are refused with exit code 2, and the message suggests the most similar known
//! name.

use crate::support::Fixture;

#[test]
fn an_unknown_profile_names_who_asked_for_it() {
    let fixture = Fixture::new().with_recording_docker();
    let known = "hint: known profiles: dev, offline, safe, tight; yours are in [ROOT]/home/.config/sandpen/profiles\n";
    let near = format!("there is no profile `offlin`\nhint: did you mean `offline`?\n{known}");
    let by_flag = fixture.usage_error(&mut fixture.sandpen(["run", "--profile", "offlin"]));
    let by_variable = fixture.usage_error(fixture.sandpen(["run"]).env("SANDPEN_PROFILE", "offlin"));
    for (stderr, origin) in [(by_flag, "flag --profile"), (by_variable, "env SANDPEN_PROFILE")] {
        assert!(stderr.ends_with(&near), "{stderr}");
        assert!(stderr.contains(origin), "no origin: {stderr}");
    }
    let stderr = fixture.usage_error(&mut fixture.sandpen(["profile", "show", "xyzzy"]));
    assert_eq!(stderr, format!("sandpen: error: argument NAME: there is no profile `xyzzy`\n{known}"));
}

#[test]
fn a_profile_is_a_name_and_never_a_path() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/evil.toml", "network = \"on\"\n");
    for name in ["../evil", "/etc/passwd", "./evil", ".evil", "evil.toml", "evil"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", "--profile", name]));
        assert!(stderr.contains(&format!("there is no profile `{name}`")), "{stderr}");
    }
}

#[test]
fn an_unknown_preset_names_who_asked_for_it() {
    let fixture = Fixture::new().with_recording_docker();
    let rest = "there is no preset for an agent `cluade`\nhint: did you mean `claude`?\nhint: known presets: llxprt, gemini, claude, codex, aider, opencode, copilot, qwen, amp, goose, cursor-agent, crush, none\n";
    let by_flag = fixture.usage_error(&mut fixture.sandpen(["run", "--agent", "cluade"]));
    fixture.write_config("agent = \"cluade\"");
    let by_file = fixture.usage_error(&mut fixture.sandpen(["run"]));
    for (stderr, origin) in [(by_flag, "flag --agent"), (by_file, "[ROOT]/home/.config/sandpen/config.toml")] {
        assert!(stderr.ends_with(rest), "{stderr}");
        assert!(stderr.contains(origin), "no origin: {stderr}");
    }
}

#[test]
fn an_own_profile_and_preset_are_among_the_known() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write(".config/sandpen/profiles/mine.toml", "");
    fixture.write(".config/sandpen/presets/mine.toml", "name = \"mine\"");
    for flag in ["--profile", "--agent"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", flag, "mien"]));
        assert!(stderr.contains("did you mean `mine`?"), "{flag}: {stderr}");
    }
}

#[test]
fn a_misspelt_choice_is_answered_with_the_nearest() {
    let fixture = Fixture::new().with_recording_docker();
    for (flag, wrong, near) in
        [("--engine", "dockr", "docker"), ("--engine", "pdoman", "podman"), ("--network", "of", "off")]
    {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["run", flag, wrong]));
        assert!(stderr.contains(&format!("\nhint: did you mean `{near}`?\nhint: expected ")), "{stderr}");
    }
    // The same goes for variables and files.
    let stderr = fixture.usage_error(fixture.sandpen(["run"]).env("SANDPEN_ENGINE", "dockr"));
    assert!(stderr.contains("did you mean `docker`?"), "{stderr}");
    fixture.write_config("engine = \"dockr\"");
    let stderr = fixture.usage_error(&mut fixture.sandpen(["run"]));
    assert!(stderr.contains("did you mean `docker`?"), "{stderr}");
}

#[test]
fn a_misspelt_flag_is_answered_with_the_nearest() {
    let fixture = Fixture::new().with_recording_docker();
    for (wrong, near) in
        [("--netwrok", "--network"), ("--mounts", "--mount"), ("--pid", "--pids"), ("--allowhost", "--allow-host")]
    {
        for command in [&["run"][..], &["explain"], &[]] {
            let stderr = fixture.usage_error(&mut fixture.sandpen(command.iter().chain(&[wrong, "x"])));
            assert_eq!(stderr, format!("sandpen: error: unknown flag `{wrong}`\nhint: did you mean `{near}`?\n"));
        }
    }
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["run", "--xyzzy"])),
        "sandpen: error: unknown flag `--xyzzy`\nhint: flags of the command inside go after it, or after `--`\n"
    );
    for command in ["run", "explain", "doctor"] {
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen([command, "--guard", "strict"])),
            "sandpen: error: unknown flag `--guard`\n\
             hint: `--guard` is gone: use `--git private` (the default) or `--git shared`\n"
        );
    }
}

#[test]
fn a_misspelt_command_is_answered_with_the_nearest() {
    let fixture = Fixture::new().with_recording_docker();
    for (wrong, near) in [("rnu", "run"), ("explian", "explain"), ("profiles", "profile"), ("bild", "build")] {
        let stderr = fixture.usage_error(&mut fixture.sandpen([wrong]));
        assert_eq!(
            stderr,
            format!(
                "sandpen: error: `{wrong}` is not a sandpen command\n\
                 hint: did you mean `{near}`?\nhint: to run it inside: sandpen -- {wrong}\n"
            )
        );
    }
}

/// New users often type `sandpen ls`, so the message must show the correct command.
#[test]
fn a_command_without_run_is_told_how_to_run_it() {
    let fixture = Fixture::new().with_recording_docker();
    for (command, line) in [
        (&["ls"][..], "ls"),
        (&["git", "status"], "git status"),
        (&["git", "commit", "-m", "two words"], "git commit -m 'two words'"),
    ] {
        assert_eq!(
            fixture.usage_error(&mut fixture.sandpen(command)),
            format!(
                "sandpen: error: `{}` is not a sandpen command\nhint: to run it inside: sandpen -- {line}\n",
                command[0]
            )
        );
    }
    for (command, message) in [
        (
            &["--cpus", "1", "git", "status"][..],
            "sandpen: error: unexpected argument `git`\nhint: to run it inside: sandpen --cpus 1 -- git status\n",
        ),
        (
            &["--cpus", "1", "run", "ls"],
            "sandpen: error: unexpected argument `run`\nhint: the command comes first: sandpen run --cpus 1 ls\n",
        ),
        (&["trust", "a", "b"], "sandpen: error: unexpected argument `b`\nhint: usage: sandpen trust [OPTIONS] [DIR]\n"),
    ] {
        assert_eq!(fixture.usage_error(&mut fixture.sandpen(command)), message);
    }
}

#[test]
fn profile_names_an_unknown_action() {
    let fixture = Fixture::new().with_recording_docker();
    assert_eq!(
        fixture.usage_error(&mut fixture.sandpen(["profile", "lst"])),
        "\
sandpen: error: `lst` is not a command of `sandpen profile`
hint: did you mean `list`?
hint: known commands: `sandpen profile list`, `sandpen profile show`, `sandpen profile init`, `sandpen profile schema`, `sandpen profile path`
"
    );
}
