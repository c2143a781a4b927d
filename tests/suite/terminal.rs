//! Tests real programs on the guest's terminal, which the native engine relays itself.

use std::process::Command;

use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, Running, eventually, skip};
use crate::{for_docker_and_native, for_every_engine};

for_every_engine!(answers_to_queries_do_not_reach_the_shell);
for_docker_and_native!(attack_27_what_is_left_unfinished_takes_nothing_of_the_shell);

/// Returns whether a program is installed on the host, whose programs a native sandbox has.
fn is_installed(fixture: &Fixture, program: &str) -> bool {
    fixture.host_command("sh").args(["-c", &format!("command -v {program}")]).finish().code == Some(0)
}

fn run(fixture: &Fixture, words: &[&str]) -> Command {
    let mut command = fixture.run();
    command.env("TERM", "xterm-256color").args(["--env", "TERM=xterm-256color", "--"]).args(words);
    command
}

/// Shows what was said on a terminal of its own.
fn screen(pty: &Pty) -> vt100::Parser {
    let size = |size| std::num::NonZeroU16::new(size).expect("not 0");
    let mut screen = vt100::Parser::new(size(30), size(100), 0);
    screen.process(pty.said().as_bytes());
    screen
}

#[track_caller]
fn assert_usual(pty: &Pty) {
    assert_eq!(pty.settings(), pty.initial_settings);
    assert!(!screen(pty).screen().alternate_screen());
}

/// Starts a program, waits for what it shows, sends keys, and waits for its end.
fn check(fixture: &Fixture, words: &[&str], shown: &str, keys: &[&str]) {
    if !is_installed(fixture, words[0]) {
        skip(words[0], "it is not installed");
        return;
    }
    let mut pty = Pty::start(&run(fixture, words));
    eventually(&format!("{words:?} shows `{shown}`"), || screen(&pty).screen().contents().contains(shown));
    for key in keys {
        pty.send(key);
    }
    pty.expect("[ended 0]");
    assert_usual(&pty);
}

#[test]
fn full_screen_programs_work() {
    Fixture::on(Engine::Native, |fixture| {
        let lines: String = (0..200).map(|line| format!("line {line}\n")).collect();
        fixture.write("project/text", &lines);
        check(fixture, &["vim", "-u", "NONE", "text"], "line 28", &["ddGo", "typed \u{1b}", ":wq\r"]);
        let text = std::fs::read_to_string(fixture.project.join("text")).expect("a file");
        if is_installed(fixture, "vim") {
            assert!(text.starts_with("line 1\n") && text.ends_with("line 199\ntyped \n"), "{text}");
        }
        check(fixture, &["less", "text"], "line 28", &["G", "q"]);
        check(fixture, &["htop"], "PID", &["q"]);
        check(fixture, &["script", "-qec", "tty; read _", "/dev/null"], "/dev/pts/", &["\r"]);
        check(fixture, &["tmux", "-L", "inside", "-f", "/dev/null", "new", "sh"], "[0]", &["exit\r"]);
    });
}

/// A shell inside has jobs of its own.
#[test]
fn a_shell_inside_has_job_control() {
    Fixture::on(Engine::Native, |fixture| {
        let mut pty = Pty::start(&run(fixture, &["bash", "--norc", "--noprofile", "-i"]));
        pty.send("PS1='[in''side] '\r");
        pty.expect("[inside] ");
        pty.send("bash -c 'while read line; do echo got-$line-$((40 + 2)); done'\r");
        // Keys that come before the command are the shell's.
        let answers = |pty: &mut Pty, word: &str| {
            eventually(&format!("it answers `{word}`"), || {
                pty.send(&format!("{word}\r"));
                pty.said().contains(&format!("got-{word}-42"))
            });
        };
        answers(&mut pty, "first");
        pty.send("\u{1a}");
        pty.expect("Stopped");
        pty.expect("[inside] ");
        pty.send("fg\r");
        answers(&mut pty, "second");
        pty.send("\u{3}");
        pty.expect("[inside] ");
        pty.send("exit 0\r");
        pty.expect("[ended 0]");
        assert_usual(&pty);
    });
}

/// Starts a sandbox for commands of `exec`; returns its id as well.
fn start_sleeping(fixture: &Fixture) -> (Running, String) {
    let mut running =
        Running::start(fixture.run().args(["--", "bash", "-c", "echo ${SANDBOX#sandpen-}; exec sleep 300"]));
    let id = running.line();
    (running, id)
}

/// A terminal answers queries by itself. If an answer came after the guest's end, the shell would
/// take it for what the user types.
fn answers_to_queries_do_not_reach_the_shell(fixture: &Fixture) {
    fixture.write_script("project/asker", "#!/bin/bash\nprintf 'asked\\e[21t\\e[6n\\e[c'\n");
    let (_running, id) = start_sleeping(fixture);
    let mut run = fixture.run();
    run.args(["--", "./asker"]);
    for command in [run, fixture.sandpen(["exec", &id, "--", "./asker"])] {
        let mut pty = Pty::interactive(&command);
        pty.expect("[prompt] ");
        pty.send("$run\r");
        pty.expect("asked");
        // This one is sandpen's own.
        pty.expect("\u{1b}[5n");
        pty.send("\u{1b}]lecho stolen-$((40 + 2))\u{1b}\\\r\u{1b}[1;1R\u{1b}[?6c\u{1b}[0n");
        pty.expect("[prompt] ");
        pty.send("echo clean-$((40 + 2))\r");
        pty.expect("clean-42");
        let said = pty.said();
        assert!(!said.contains("stolen") && !said.contains("1;1R"), "{said:?}");
    }
}

/// Sequences without an end, for the clipboard, the title, pictures and the cursor, and reports of the
/// mouse and of the focus.
const LEFT: [&str; 6] =
    [r"\e]52;c;c3RvbGVu", r"\e]0;title", r"\ePq#0;2;0;0;0", r"\e_Gf=24;", r"\e[12;", r"\e[?1003;1006h\e[?1004h"];

/// Keeps what would be copied.
#[derive(Default)]
struct Clipboard(Vec<u8>);

impl vt100::Callbacks for Clipboard {
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], data: &[u8]) {
        self.0.extend_from_slice(data);
    }
}

fn attack_27_what_is_left_unfinished_takes_nothing_of_the_shell(fixture: &Fixture) {
    let cases: String =
        LEFT.iter().enumerate().map(|(number, left)| format!("{number}) printf 'left{left}';;\n")).collect();
    fixture.write_script("project/leaver", &format!("#!/bin/bash\ncase $1 in\n{cases}esac\n"));
    let (_running, id) = start_sleeping(fixture);
    let mut run = fixture.run();
    run.args(["--", "./leaver"]);
    for command in [run, fixture.sandpen(["exec", &id, "--", "./leaver"])] {
        let mut pty = Pty::interactive(&command);
        for number in 0..LEFT.len() {
            pty.expect("[prompt] ");
            pty.send(&format!("$run {number}\r"));
            pty.expect("left");
            pty.expect("[prompt] ");
            pty.send(&format!("echo clean-{number}-$((40 + 2))\r"));
            pty.expect(&format!("clean-{number}-42"));
        }
        let size = |size| std::num::NonZeroU16::new(size).expect("not 0");
        let mut terminal = vt100::Parser::new_with_callbacks(size(60), size(100), 0, Clipboard::default());
        terminal.process(pty.said().as_bytes());
        let shown = terminal.screen().contents();
        for number in 0..LEFT.len() {
            assert!(shown.contains(&format!("\nclean-{number}-42")), "{number}: {shown}");
        }
        assert_eq!(terminal.screen().mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        assert!(pty.said().contains("\u{1b}[?1004l"));
        let copied = String::from_utf8_lossy(&terminal.callbacks().0).into_owned();
        assert!(copied.is_empty() || copied == "c3RvbGVu", "{copied}");
    }
}

/// A guest that changes the size, or is told of changes, as fast as it can.
#[test]
fn a_storm_of_resizes_ends_with_the_right_size() {
    Fixture::on(Engine::Native, |fixture| {
        let script = "echo ready; trap : WINCH; while read -r line; do echo size-$(stty size | tr ' ' x); done";
        let mut pty = Pty::start(&run(fixture, &["bash", "-c", script]));
        pty.expect("ready");
        for number in 0..500_u16 {
            pty.resize(20 + number % 30, 80 + number % 50);
        }
        pty.resize(33, 77);
        eventually("the guest has the last size", || {
            pty.send("\r");
            pty.said().contains("size-33x77")
        });
        pty.send("\u{4}");
        pty.expect("[ended ");
        assert_eq!(pty.settings(), pty.initial_settings);
    });
}
