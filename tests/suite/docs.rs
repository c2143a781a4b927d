//! Checks the documentation: its sessions are run and compared, its requirements cite tests that
//! exist, and it names no other project's contact.
//!
//! A session is a fenced block that begins with "```console". A shell runs each `$ COMMAND`, which
//! continues on lines with `> `, in a new project; the lines that follow are its output. `...`
//! matches any lines, or any part of one. Runs of blanks count as one, because columns depend on
//! the length of paths. "```console,docker" needs that engine. In a session, HOME is `/home/me`,
//! the project is a Git repository with one commit, and an SSH agent holds one key.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Engine, Fixture, RunToEnd, SYSTEM_PATH, binary, install_program, is_root_or_skip};

/// Separates the output of the commands in a session.
const MARK: &str = "sandpen-docs-mark";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Block {
    /// Names the file and line in messages.
    place: String,
    language: String,
    engine: Option<String>,
    /// Holds the line above the block, which may explain why the block is not run.
    above: String,
    lines: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(repository().join("docs")).expect("docs").flatten().map(|entry| entry.path());
    let mut pages: Vec<PathBuf> = docs.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    pages.extend(["README.md", "SECURITY.md", "CONTRIBUTING.md"].map(|name| repository().join(name)));
    pages.sort();
    pages
}

fn all_blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    for page in pages() {
        let name = page.strip_prefix(repository()).expect("a page of the repository").display().to_string();
        let mut open: Option<Block> = None;
        let mut above = String::new();
        for (number, line) in read(&page).lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let mut words = language.split(',').map(str::trim);
                    let language = words.next().unwrap_or_default().to_owned();
                    let engine = words.next().map(str::to_owned);
                    let place = format!("{name}:{}", number + 1);
                    open = Some(Block { place, language, engine, above: above.clone(), lines: Vec::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.lines.push(line.to_owned()),
                (None, None) => {}
            }
            line.clone_into(&mut above);
        }
        assert!(open.is_none(), "{name}: a block is not closed");
    }
    blocks
}

/// Returns the blocks that contain sessions.
fn blocks() -> Vec<Block> {
    all_blocks().into_iter().filter(|block| block.language == "console").collect()
}

/// Each block with a command is run or has a comment that explains why it is not.
#[test]
fn every_documented_command_is_run_or_says_why_not() {
    for Block { place, language, above, lines, .. } in all_blocks() {
        match language.as_str() {
            "console" => {}
            // `the_page_shows_the_example` compares the block with the example, which is built and
            // run.
            "rust" => assert!(place.starts_with("docs/embedding.md:"), "{place}"),
            "sh" => {
                assert!(above.starts_with("<!-- not run: ") && above.ends_with(" -->"), "{place}: why is it not run?")
            }
            "text" => {
                let is_command = |line: &String| line.starts_with("$ ") || line.starts_with("sandpen ");
                assert!(!lines.iter().any(is_command), "{place}: a `text` block contains a command");
            }
            other => panic!("{place}: `{other}`"),
        }
    }
}

/// Links between pages have targets, headings included, and docs/README.md lists every page.
#[test]
fn every_link_leads_somewhere() {
    let anchor = |heading: &str| -> String {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    };
    for page in pages() {
        let text = read(&page);
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').map_or((target, None), |(file, it)| (file, Some(it)));
            let file = if file.is_empty() { page.clone() } else { page.parent().expect("directory").join(file) };
            assert!(file.exists(), "{}: {target}", page.display());
            if let Some(heading) = heading {
                let found = read(&file)
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line.trim_start_matches(['#', ' '])) == heading);
                assert!(found, "{}: {target}", page.display());
            }
        }
        let name = page.file_name().expect("name").to_string_lossy().into_owned();
        let index = read("docs/README.md");
        let is_listed = index.contains(&format!("]({name})")) || page.parent() != Some(&repository().join("docs"));
        assert!(is_listed || name == "README.md", "docs/README.md does not list {name}");
    }
    assert!(read("README.md").contains("](docs/README.md)"));
}

/// Messages that the documentation explains exist: the source contains their parts between `…`.
#[test]
fn every_message_that_is_explained_exists() {
    let page = read("docs/troubleshooting.md");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // A message may continue on the next line of the source.
    let source: String = sources("src").iter().map(|(_, text)| words(&text.replace("\\\n", ""))).collect();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| message"));
    let mut messages = 0;
    for row in rows {
        let shown = row.split('|').nth(1).unwrap_or_default();
        // A row with a parenthesis is about another program's message, or about no message.
        if shown.contains("(") {
            continue;
        }
        let message = quoted(shown).first().copied().unwrap_or_else(|| panic!("no message: {row}"));
        let parts = message.split('…').map(str::trim).filter(|part| part.len() > 3);
        for part in parts {
            assert!(source.contains(part), "the source does not contain `{part}`: {row}");
        }
        messages += 1;
    }
    assert!(messages >= 10, "{messages}");
}

/// The table of presets lists every directory of every built-in preset.
#[test]
fn every_built_in_preset_is_on_its_page() {
    let page = read("docs/presets.md");
    for entry in fs::read_dir(repository().join("src/config/presets")).expect("presets").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "toml") {
            let name = path.file_stem().expect("name").to_string_lossy().into_owned();
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("docs/presets.md has no row for {name}"));
            for directory in read(&path).lines().filter_map(|line| line.strip_prefix("path = \"")) {
                let directory = directory.trim_end_matches('"');
                let is_shown = row.contains(&format!("`{directory}`"))
                    || directory.starts_with("~/Library/") && row.contains("`~/Library`");
                assert!(is_shown, "docs/presets.md: {name} has {directory}");
            }
        }
    }
}

/// Runs the commands of a block in a new home and project.
struct Session {
    fixture: Fixture,
}

impl Session {
    fn new(engine: Option<Engine>) -> Self {
        let fixture = match engine {
            Some(engine) => Fixture::new().with_engine(engine),
            None => Fixture::new(),
        };
        install_program(binary(), fixture.root.join("bin/sandpen"));
        Session { fixture }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.fixture.host_command(program);
        command.env_remove("SANDPEN_SSH_AGENT").env("LC_ALL", "C");
        command.env("PATH", format!("{}:{SYSTEM_PATH}", self.fixture.root.join("bin").display()));
        if self.fixture.uid == 0 {
            command.env("USER", "me");
        }
        // Homes are longer here than `/home/me`, so a wider page keeps lines from breaking.
        command.env("COLUMNS", "140");
        command
    }

    /// Runs the commands in one shell and returns the output of each.
    fn play(&self, commands: &[&str]) -> Vec<String> {
        let mut script = String::from(
            "exec 2>&1\n\
             mkdir -p ~/.ssh && ssh-keygen -q -t ed25519 -N '' -C me@example.org -f ~/.ssh/id_ed25519 && ssh-add -q ~/.ssh/id_ed25519\n\
             git config --global user.name Me && git config --global user.email me@example.org\n\
             git config --global init.defaultBranch main\n\
             git init --quiet && echo hello > notes.txt && git add . && git commit --quiet -m 'First notes'\n",
        );
        for command in commands {
            script += &format!("printf '\\n%s\\n' {MARK}\n{command}\n");
        }
        // The agent ends with the shell.
        let finished = self.command("ssh-agent").args(["sh", "-c", &script]).finish();
        // Messages about waiting depend on the speed of the machine.
        let is_wait = |line: &&str| line.starts_with("sandpen: waiting for ");
        let said: Vec<&str> = finished.stdout.split('\n').filter(|line| !is_wait(line)).collect();
        let said = self.normalize(&said.join("\n"));
        said.split(&format!("\n{MARK}\n")).skip(1).map(str::to_owned).collect()
    }

    fn normalize(&self, text: &str) -> String {
        text.replace(&self.fixture.home.display().to_string(), "/home/me")
            .replace(&self.fixture.root.join("bin").display().to_string(), "/usr/local/bin")
    }
}

fn blanks_as_one(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a line matches; `...` matches any part of it.
fn line_matches(pattern: &str, line: &str) -> bool {
    let (pattern, line) = (blanks_as_one(pattern), blanks_as_one(line));
    let mut parts = pattern.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns whether lines match; a line `...` matches any number of them.
fn lines_match(pattern: &[&str], lines: &[&str]) -> bool {
    match pattern.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skipped| lines_match(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, others)| line_matches(first, line) && lines_match(rest, others))
        }
    }
}

#[test]
fn the_pattern_of_sessions_can_fail() {
    let matches = |pattern: &str, text: &str| {
        lines_match(&pattern.lines().collect::<Vec<_>>(), &text.lines().collect::<Vec<_>>())
    };
    assert!(matches("a\n...\nd", "a\nb\nc\nd") && matches("a\n...\nb", "a\nb") && matches("a  b ... d", "a b  c d"));
    assert!(
        !matches("a\n...\nd", "a\nb") && !matches("a", "a\nb") && !matches("a ... d", "a b c") && !matches("", "a")
    );
}

fn engine_named(name: &str) -> Option<Engine> {
    let engines = [Engine::Native, Engine::Docker, Engine::Podman, Engine::PodmanRootless];
    engines.into_iter().find(|engine| engine.name() == name)
}

/// Runs every session that names this engine; `None` selects the sessions without an engine.
fn sessions_of(name: Option<&str>) {
    let engine = name.map(|name| engine_named(name).expect("an engine"));
    // The documentation shows rootful engines as root, and rootless ones as a user without access
    // to Docker.
    let is_possible = |engine: Engine| engine.is_available() && is_root_or_skip("sessions of the documentation");
    if engine.is_some_and(|engine| !is_possible(engine)) {
        return;
    }
    let mut failures = Vec::new();
    for block in blocks().iter().filter(|block| block.engine.as_deref() == name) {
        let starts: Vec<usize> = (0..block.lines.len()).filter(|at| block.lines[*at].starts_with("$ ")).collect();
        // A shell prompts for the rest of a command with `> `.
        let further = |at: usize| block.lines[at + 1..].iter().map_while(|line| line.strip_prefix("> "));
        let commands: Vec<String> = starts
            .iter()
            .map(|at| [&block.lines[*at][2..]].into_iter().chain(further(*at)).collect::<Vec<_>>().join("\n"))
            .collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        assert!(commands.iter().any(|command| command.contains("sandpen")), "{}: no command runs sandpen", block.place);
        let said = Session::new(engine).play(&commands);
        for (number, command) in commands.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(block.lines.len());
            let first = starts[number] + 1 + further(starts[number]).count();
            let expected: Vec<&str> = block.lines[first..end].iter().map(String::as_str).collect();
            let actual = said.get(number).map_or("(it did not run)", |said| said.trim_end());
            if !lines_match(&expected, &actual.lines().collect::<Vec<_>>()) {
                let expected = expected.join("\n");
                failures.push(format!("{}: $ {command}\n--- shown\n{expected}\n--- said\n{actual}", block.place));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn sessions_without_an_engine() {
    sessions_of(None);
}

#[test]
fn sessions_on_native() {
    sessions_of(Some("native"));
}

#[test]
fn sessions_on_docker() {
    sessions_of(Some("docker"));
}

#[test]
fn sessions_on_podman() {
    sessions_of(Some("podman"));
}

#[test]
fn sessions_on_rootless_podman() {
    sessions_of(Some("podman-rootless"));
}

/// A session with a misspelt engine would never be run.
#[test]
fn every_session_is_run_by_a_test() {
    let blocks = blocks();
    assert!(blocks.iter().any(|block| block.place.starts_with("README.md")), "the README shows no session");
    for block in &blocks {
        assert!(
            block.engine.as_deref().is_none_or(|name| engine_named(name).is_some()),
            "{}: `{:?}`",
            block.place,
            block.engine
        );
    }
}

/// Each entry is the number of a requirement and of its clauses.
const CLAUSES: [(u32, u32); 7] = [(1, 2), (2, 1), (3, 7), (4, 4), (5, 2), (6, 2), (7, 11)];

/// docs/attacks.md numbers this many attacks.
const ATTACKS: u32 = 27;

/// Returns the path and text of every Rust file below a directory.
fn sources(directory: &str) -> Vec<(PathBuf, String)> {
    let mut open = vec![repository().join(directory)];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                found.push((path.clone(), read(&path)));
            }
        }
    }
    found
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_requirement_leads_to_code_and_to_tests() {
    let page = read("docs/requirements.md");
    let sources: Vec<(PathBuf, String)> = ["src", "tests/suite"].into_iter().flat_map(sources).collect();
    for (requirement, clauses) in CLAUSES {
        for clause in 1..=clauses {
            let row = format!("| R{requirement}.{clause} |");
            let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row `{row}`"));
            let columns: Vec<&str> = row.trim_matches('|').split('|').collect();
            let [_, _, code, tests] = columns[..] else { panic!("not four columns: {row}") };
            assert!(!quoted(code).is_empty() && !quoted(tests).is_empty(), "the row cites no code or no test: {row}");
        }
    }
    let is_name = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let attacks = read("docs/attacks.md");
    for line in page.lines().chain(attacks.lines()).filter(|line| line.starts_with('|')) {
        let columns: Vec<&str> = line.trim_matches('|').split('|').collect();
        let tests = quoted(columns.last().unwrap_or(&""));
        for cited in columns.iter().flat_map(|column| quoted(column)) {
            // A place is a path, or a path and a name in that file.
            if let Some((path, name)) = cited.split_once("::").filter(|(path, _)| path.starts_with("src/")) {
                assert!(read(path).contains(name), "`{cited}`: there is no `{name}` in it");
            } else if ["src/", "tests/", "scripts/", "docs/"].iter().any(|root| cited.starts_with(root)) {
                assert!(repository().join(cited).exists(), "`{cited}` does not exist");
            } else if tests.contains(&cited) {
                let is_there = sources.iter().any(|(_, text)| text.contains(&format!("fn {cited}(")));
                assert!(is_name(cited) && is_there, "`{cited}` is cited, but no such test exists");
            }
        }
    }
}

/// Returns the file and the name of every function in the sources and the tests.
fn functions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (path, text) in ["src", "tests/suite"].into_iter().flat_map(sources) {
        let file = path.strip_prefix(repository()).expect("a source").display().to_string();
        let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
        found.extend(names.map(|name| (file.clone(), name.to_owned())));
    }
    found
}

/// Fails unless `page` cites every function that `is_named` selects.
#[track_caller]
fn assert_cited(page: &str, is_named: impl Fn(&str) -> bool) {
    let text = read(page);
    let cited: BTreeSet<&str> = quoted(&text).into_iter().collect();
    let missing: Vec<String> = functions()
        .into_iter()
        .filter(|(_, name)| is_named(name) && !cited.contains(name.as_str()))
        .map(|(file, name)| format!("{file}: {name}"))
        .collect();
    assert!(missing.is_empty(), "not in {page}:\n{}", missing.join("\n"));
}

/// Tests named after a requirement start with its number, as in `r7_2_`.
#[test]
fn every_test_of_a_requirement_is_cited() {
    assert_cited("docs/requirements.md", |name| matches!(name.as_bytes(), [b'r', b'1'..=b'7', b'_', ..]));
}

#[test]
fn every_attack_has_a_row_and_every_test_of_one_is_cited() {
    let page = read("docs/attacks.md");
    for number in 1..=ATTACKS {
        let row = format!("| {number:02} |");
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("no row `{row}`"));
        let columns: Vec<&str> = row.trim_matches('|').split('|').collect();
        let [_, _, _, tests] = columns[..] else { panic!("not four columns: {row}") };
        assert!(!quoted(tests).is_empty(), "no test is cited: {row}");
    }
    assert_cited("docs/attacks.md", |name| name.starts_with("attack_"));
}

/// Returns the path and content of every text file of the repository.
fn texts() -> Vec<(PathBuf, String)> {
    let mut open = vec![repository().to_owned()];
    let mut found = Vec::new();
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).expect("directory").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().expect("file type");
            if kind.is_dir() && name != ".git" && !name.to_string_lossy().starts_with("target") {
                open.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(&path)
            {
                found.push((path, text));
            }
        }
    }
    found
}

/// Returns the words that look like an address: `NAME@DOMAIN` with letters only after the last dot.
fn mail_addresses(text: &str) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '@' | '.' | '-' | '_' | '+');
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', '-']));
    let is_address = |word: &&str| {
        word.split_once('@').is_some_and(|(name, domain)| {
            let last = domain.rsplit('.').next().unwrap_or_default();
            !name.is_empty() && domain.contains('.') && last.len() >= 2 && last.chars().all(|c| c.is_ascii_alphabetic())
        })
    };
    words.filter(is_address).map(str::to_owned).collect()
}

#[test]
fn r1_2_no_file_names_another_projects_contact() {
    // The address is joined here, so that this file does not contain it either.
    let upstream = ["gemini-cli-dev", "google.com"].join("@");
    assert_eq!(mail_addresses(&format!("write to {upstream}.")), [upstream]);
    assert_eq!(mail_addresses("core@127.0.0.1 name@sha256:ab a@b @c.de"), Vec::<String>::new());
    // RFC 2606 reserves these names; OpenSSH's names of extensions look like addresses.
    let reserved = ["example.org", "example.com", "proxy.invalid", "openssh.com"];
    let ours = "https://github.com/vybestack/llxprt-code/discussions";
    for (path, text) in texts() {
        let foreign: Vec<String> = mail_addresses(&text)
            .into_iter()
            .filter(|address| !reserved.iter().any(|domain| address.ends_with(&format!("@{domain}"))))
            .filter(|address| !address.ends_with(".example") && !address.eq_ignore_ascii_case("git@github.com"))
            .collect();
        assert_eq!(foreign, Vec::<String>::new(), "{}", path.display());
        for place in ["discussions", "issues"] {
            let pattern = format!("/{place}");
            for (at, _) in text.match_indices(&pattern) {
                let start =
                    text[..at].rfind(|c: char| c.is_whitespace() || "`\"'<(".contains(c)).map_or(0, |at| at + 1);
                let address = &text[start..at + pattern.len()];
                assert!(!address.contains("://") || address == ours, "{}: {address}", path.display());
            }
        }
    }
}
