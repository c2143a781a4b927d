//! Tests the text of `explain` and the answers of `explain --why`.

use std::fs;
use std::process::Command;

use crate::support::Fixture;
use crate::support::pty::Pty;

fn page(fixture: &Fixture, arguments: &[&str]) -> String {
    let mut command = fixture.sandpen(["explain"].iter().chain(arguments));
    fixture.finish(command.env("SSL_CERT_DIR", "/etc").env("ANTHROPIC_API_KEY", "hunter2")).success().to_owned()
}

/// Returns the title of the answer and its other lines, with runs of blanks as one blank.
#[track_caller]
fn why(fixture: &Fixture, thing: &str, options: &[&str]) -> (String, Vec<String>) {
    let mut command = fixture.sandpen(["explain", "--why", thing].iter().chain(options));
    let finished = fixture.finish(command.env("GH_TOKEN", "hunter2").env("EDITOR", "vi"));
    let text = finished.success().to_owned();
    assert!(!text.contains("hunter2"), "the output contains a secret: {text}");
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        // Paths are long here, so an effect may be on the line below its option.
        match lines.last_mut().filter(|_| line.starts_with("          ")) {
            Some(last) => *last = format!("{last} {words}"),
            None => lines.push(words),
        }
    }
    (lines.remove(0), lines)
}

#[test]
fn the_page_has_a_place_for_everything_a_person_asks_about() {
    let fixture = Fixture::new().with_recording_docker();
    fs::create_dir_all(fixture.home.join("data")).expect("data");
    let data = fixture.home.join("data").display().to_string();
    let text = page(&fixture, &["--agent", "claude", "--mount", &data, "--network", "proxied", "--", "true"]);
    let titles: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()).collect();
    let titles: Vec<&str> = titles.iter().map(|title| title.split(" – ").next().unwrap_or(title)).collect();
    assert_eq!(
        titles,
        [
            "Sandbox",
            "Workspace",
            "Your home",
            "Requested mounts",
            "Preset claude",
            "Private to the sandbox",
            "Environment",
            "Network",
            "Keys",
            "Limits",
            "SSH agent",
            "Git",
            "Command line"
        ],
        "{text}"
    );
    let preset = text.split("\nPreset claude").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("preset");
    assert!(preset.contains("[ROOT]/home/.claude") && preset.contains("ANTHROPIC_API_KEY (secret)"), "{preset}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn no_line_but_a_command_is_wider_than_the_page() {
    let fixture = Fixture::new().with_recording_docker();
    let text = page(&fixture, &["--agent", "llxprt", "--", "llxprt"]);
    let columns = text.split("\nCommand line").next().expect("a page").lines();
    // A value is never broken; one that is too long gets its own line.
    let wide: Vec<&str> =
        columns.filter(|line| line.chars().count() > 100 && line.split_whitespace().count() > 4).collect();
    assert_eq!(wide, Vec::<&str>::new());
}

#[test]
fn details_are_summed_up_unless_asked_for() {
    let fixture = Fixture::new().with_recording_docker();
    let (short, long) = (page(&fixture, &["--", "true"]), page(&fixture, &["-v", "--", "true"]));
    assert!(!short.contains("(default") && long.contains("(default, R2.1)"), "{long}");
    assert!(!short.contains("exit code") && long.contains("exit code"), "{long}");
    assert!(long.lines().count() > short.lines().count() + 4, "{long}");
}

#[test]
fn a_terminal_decides_the_width_and_has_colours_unless_it_wants_none() {
    let fixture = Fixture::new().with_recording_docker();
    let shown = |no_color: &str| {
        let mut command = fixture.sandpen(["explain", "--engine", "docker", "--", "true"]);
        command.env("TERM", "xterm").env("NO_COLOR", no_color);
        let mut pty = Pty::script("stty cols 72; \"$@\"", &command);
        pty.expect("[ended 0]");
        let said = pty.said();
        assert!(said.contains("Command line"), "{said}");
        said
    };
    let (coloured, plain) = (shown(""), shown("1"));
    assert!(coloured.contains("\u{1b}[1mSandbox\u{1b}[0m"), "{coloured:?}");
    assert!(!plain.contains('\u{1b}'), "{plain:?}");
    let lines = plain.split("Command line").nth(1).expect("a command line").lines();
    let command: Vec<&str> = lines.map(str::trim_end).filter(|line| line.starts_with("  ")).collect();
    assert!(command.len() > 3 && command[0].ends_with(" \\"), "{command:?}");
}

#[test]
fn why_a_path_is_inside_or_not() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("project/notes.txt", "");
    fixture.write(".ssh/id_ed25519", "");
    fixture.write(".gitconfig", "");
    fixture.write("data/deep/file", "");
    let data = fixture.home.join("data").display().to_string();
    let mount = format!("{data}:/data");
    for (thing, options, title, lines) in [
        ("notes.txt", vec![], "[ROOT]/home/project/notes.txt – inside, writable", vec!["why the working directory"]),
        (
            "~/.gitconfig",
            vec![],
            "[ROOT]/home/.gitconfig – inside, read-only",
            vec!["why your Git configuration", "from default, R3.1", "change no option changes this"],
        ),
        (
            "~/.ssh/id_ed25519",
            vec![],
            "[ROOT]/home/.ssh/id_ed25519 – not inside",
            vec![
                "why a private, empty home directory: yours stays outside",
                "change --ssh-agent on lets ssh use the keys without mounting them",
                "change --mount [ROOT]/home/.ssh/id_ed25519 mounts it read-only",
            ],
        ),
        (
            "~/data/deep/file",
            vec!["--mount", &mount],
            "[ROOT]/home/data/deep/file – inside as /data/deep/file, read-only",
            vec![
                "why requested",
                "from flag --mount",
                "change --mount [ROOT]/home/data/deep/file:rw makes it writable",
            ],
        ),
        ("/etc/passwd", vec![], "/etc/passwd – not inside: another file is at this path", vec!["from default"]),
        (
            "/opt/nothing",
            vec![],
            "/opt/nothing – not inside; it does not exist on the host",
            vec!["change no option changes this"],
        ),
    ] {
        let (said, rest) = why(&fixture, thing, &options);
        assert_eq!(said, title, "{thing}: {rest:?}");
        for line in lines {
            assert!(rest.iter().any(|said| said == line), "{thing}: no `{line}` in {rest:?}");
        }
    }
}

#[test]
fn why_a_variable_is_set_or_not() {
    let fixture = Fixture::new().with_recording_docker();
    for (thing, options, title, lines) in [
        (
            "EDITOR",
            vec![],
            "EDITOR – not set inside, unless the image sets it",
            vec!["change --env EDITOR passes the host's value, as a secret"],
        ),
        (
            "GH_TOKEN",
            vec![],
            "GH_TOKEN – not set inside, and it looks like a secret, unless the image sets it",
            vec!["from default"],
        ),
        (
            "GH_TOKEN",
            vec!["--env", "GH_TOKEN"],
            "GH_TOKEN – set inside as a secret: never shown and not on a command line",
            vec!["from flag --env"],
        ),
        (
            "NOT_THERE",
            vec![],
            "NOT_THERE – set neither inside nor on the host, unless the image sets it",
            vec!["change --env NOT_THERE=VALUE sets a value"],
        ),
        (
            "not_there",
            vec![],
            "not_there – neither a program on PATH nor a variable that is set, unless the image sets it",
            vec!["change --env not_there=VALUE sets a value"],
        ),
        ("LEVEL", vec!["--env", "LEVEL=3"], "LEVEL – set inside: 3", vec!["why requested"]),
    ] {
        let (said, rest) = why(&fixture, thing, &options);
        assert_eq!(said, title, "{rest:?}");
        for line in lines {
            assert!(rest.iter().any(|said| said == line), "{thing}: no `{line}` in {rest:?}");
        }
    }
}

#[test]
fn why_a_host_is_reached_or_not() {
    let fixture = Fixture::new().with_recording_docker();
    for (thing, options, title, line) in [
        (
            "github.com",
            vec![],
            "github.com – reachable if the host can reach it",
            "change --network off disables the network",
        ),
        (
            "github.com",
            vec!["--network", "off"],
            "github.com – not reachable",
            "change --network proxied --allow-host github.com allows this host",
        ),
        (
            "github.com",
            vec!["--allow-host", "*.github.com"],
            "github.com – refused by the proxy",
            "change --allow-host github.com allows it",
        ),
        (
            "api.github.com",
            vec!["--allow-host", "*.github.com"],
            "api.github.com – reachable through the proxy, on port 443",
            "from flag --allow-host",
        ),
        (
            "github.com:22",
            vec!["--allow-host", "github.com"],
            "github.com:22 – refused by the proxy",
            "change --allow-host github.com:22 allows it",
        ),
        (
            "api.anthropic.com",
            vec!["--agent", "claude", "--network", "proxied"],
            "api.anthropic.com – reachable through the proxy, on port 443",
            "from preset claude",
        ),
        (
            "x.org",
            vec!["--proxy-command", "mine"],
            "x.org – your proxy decides",
            "why the proxy command decides about every host",
        ),
    ] {
        let (said, rest) = why(&fixture, thing, &options);
        assert_eq!(said, title, "{rest:?}");
        assert!(rest.iter().any(|said| said == line), "{thing} {options:?}: no `{line}` in {rest:?}");
    }
}

/// Applies each offered option and expects the answer to change.
#[test]
fn the_options_that_why_offers_work() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write("data/file", "");
    for (thing, options) in [
        ("~/data", vec![]),
        ("EDITOR", vec![]),
        ("github.com", vec!["--network", "off"]),
        ("github.com", vec!["--allow-host", "example.org"]),
    ] {
        let asked = |options: &[String]| {
            let mut command = fixture.sandpen(["explain", "--format", "json", "--why", thing]);
            let finished = fixture.finish(command.args(options).env("EDITOR", "vi"));
            let json = finished.json();
            json["answers"][0].clone()
        };
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let answer = asked(&options);
        assert_eq!(answer["inside"], false, "{answer}");
        for change in answer["change"].as_array().expect("changes") {
            let option =
                change["option"].as_str().expect("an option").replace("[ROOT]", &fixture.root.display().to_string());
            // An offered network policy replaces the current one.
            let replaces = option.starts_with("--network");
            let with = options.iter().filter(|_| !replaces).cloned().chain(option.split(' ').map(str::to_owned));
            assert_eq!(asked(&with.collect::<Vec<_>>())["inside"], true, "{thing}: {option}");
        }
    }
}

#[test]
fn why_refuses_what_is_no_path_variable_or_host() {
    let fixture = Fixture::new().with_recording_docker();
    for thing in ["", "a b", "*.example.org", "-x"] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["explain", &format!("--why={thing}")]));
        assert!(stderr.contains("is neither a path nor a program, a variable or a host"), "{thing}: {stderr}");
    }
}

#[test]
fn nothing_in_an_answer_drives_the_terminal() {
    let fixture = Fixture::new().with_recording_docker();
    let mut command: Command = fixture.sandpen(["explain", "--why", "/x\u{1b}[31m"]);
    let finished = fixture.finish(&mut command);
    assert!(!finished.stdout.contains('\u{1b}') && finished.stdout.contains("\\u{1b}"), "{}", finished.stdout);
}
