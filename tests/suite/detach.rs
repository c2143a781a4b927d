//! Tests `run --detach` and `attach`: a sandbox without a terminal of the caller, to whose screen the
//! caller comes back.

use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, Running, User, eventually, signal};
use crate::{for_docker_and_native, for_every_engine, for_kubernetes};
use rustix::process::Signal;

mod many;
mod screens;

for_every_engine!(
    a_screen_is_left_and_found_again,
    the_exit_code_and_the_last_screen_stay,
    a_second_terminal_takes_over_or_watches,
    stop_ends_a_detached_sandbox,
    a_killed_launcher_leaves_nothing,
);

for_kubernetes!(
    a_screen_is_left_and_found_again,
    the_exit_code_and_the_last_screen_stay,
    a_command_that_does_not_start_is_reported,
    stop_ends_a_detached_sandbox,
);

for_docker_and_native!(
    the_callers_terminal_may_hang_up,
    a_launcher_that_is_killed_while_attached_leaves_nothing,
    a_launcher_that_is_killed_while_it_starts_leaves_nothing,
    attaching_while_the_guest_ends_shows_how_it_ended,
    a_command_that_does_not_start_is_reported,
    what_a_hostile_guest_prints_stays_on_its_screen,
);

/// Paints a full screen and answers every line.
const PAINTER: &str = "#!/bin/bash
printf '\\e[?1049h\\e[2J\\e[5;10H\\e[31mpainted-%s\\e[0m\\e[8;1H' $((40 + 2))
while read line; do
    [ \"$line\" = end ] && exit 7
    printf '\\e[10;3Hread-<%s> %s\\e[8;1H' \"$line\" \"$(stty size)\"
done
";

fn start(fixture: &Fixture) -> String {
    // Not again: a sandbox that was started before may still have to open the script.
    if !fixture.project.join("painter").exists() {
        fixture.write_script("project/painter", PAINTER);
    }
    let mut command = fixture.run();
    command.args(["--detach", "--", "./painter"]);
    let id = command.finish().success().trim().to_owned();
    assert!(!id.is_empty() && !id.contains(char::is_whitespace), "{id:?}");
    id
}

fn state(fixture: &Fixture, id: &str) -> Option<String> {
    let list = fixture.sandpen(["ps", "--all", "--format", "json"]).finish().json();
    let entry = list.as_array()?.iter().find(|entry| entry["id"] == *id)?.clone();
    Some(entry["state"].as_str()?.to_owned())
}

fn attach(fixture: &Fixture, id: &str, options: &[&str]) -> Pty {
    let mut command = fixture.sandpen(["attach", id]);
    command.args(options);
    Pty::start(&command)
}

pub fn a_screen_is_left_and_found_again(fixture: &Fixture) {
    let id = start(fixture);
    assert_eq!(state(fixture, &id).as_deref(), Some("detached"));
    let mut pty = attach(fixture, &id, &[]);
    pty.expect("painted-42");
    eventually("the sandbox is attached", || state(fixture, &id).as_deref() == Some("running"));
    // An engine's client passes the size on some time later.
    eventually("the guest has the size of the terminal", || {
        pty.send("one\r");
        pty.said().contains("read-<one> 30 100")
    });
    pty.resize(40, 120);
    eventually("the guest has the new size", || {
        pty.send("two\r");
        pty.said().contains("40 120")
    });
    pty.send("\u{1d}d");
    pty.expect("[ended 0]");
    assert!(!pty.is_raw());
    eventually("the sandbox is detached", || state(fixture, &id).as_deref() == Some("detached"));
    // A new terminal shows what is on the screen, in its colours.
    let mut pty = attach(fixture, &id, &[]);
    pty.expect("painted-42");
    pty.expect("read-<two>");
    let size = |size| std::num::NonZeroU16::new(size).expect("not 0");
    let mut screen = vt100::Parser::new(size(30), size(100), 0);
    screen.process(pty.said().as_bytes());
    let cell = screen.screen().cell(4, 9).expect("a cell");
    assert_eq!((cell.contents(), cell.fgcolor()), ("p", vt100::Color::Idx(1)));
    assert!(screen.screen().alternate_screen());
    pty.send("end\r");
    pty.expect("[ended 7]");
    assert_pruned(fixture);
}

fn the_exit_code_and_the_last_screen_stay(fixture: &Fixture) {
    let mut command = fixture.run();
    command.args(["-d", "--", "bash", "-c", "echo last-$((40 + 2)); exit 9"]);
    let id = command.finish().success().trim().to_owned();
    eventually("the sandbox has ended", || state(fixture, &id).as_deref() == Some("ended"));
    let finished = fixture.sandpen(["attach", &id]).finish();
    assert!(finished.failure(9).contains("exit code 9"), "{}", finished.stderr);
    assert!(finished.stdout.contains("last-42"), "{}", finished.stdout);
    assert!(!fixture.sandpen(["ps"]).finish().success().contains(&id));
    assert!(fixture.sandpen(["ps", "--all"]).finish().success().contains("ended (9)"));
    assert_pruned(fixture);
}

fn a_second_terminal_takes_over_or_watches(fixture: &Fixture) {
    let id = start(fixture);
    let mut first = attach(fixture, &id, &[]);
    first.expect("painted-42");
    let mut watcher = attach(fixture, &id, &["--read-only"]);
    watcher.expect("painted-42");
    watcher.send("ignored\r");
    first.send("typed\r");
    watcher.expect("read-<typed>");
    let mut second = attach(fixture, &id, &[]);
    second.expect("painted-42");
    first.expect("[ended 0]");
    second.send("other\r");
    watcher.expect("read-<other>");
    assert!(!watcher.said().contains("ignored") && !second.said().contains("ignored"));
    second.send("end\r");
    second.expect("[ended 7]");
    watcher.expect("[ended 7]");
}

fn stop_ends_a_detached_sandbox(fixture: &Fixture) {
    let id = start(fixture);
    fixture.sandpen(["stop", &id]).finish().success();
    assert_eq!(state(fixture, &id).as_deref(), Some("ended"));
}

fn a_killed_launcher_leaves_nothing(fixture: &Fixture) {
    let id = start(fixture);
    let pid = launcher(fixture);
    signal(pid, Signal::KILL);
    eventually("the launcher is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    eventually("everything is removed", || {
        fixture.sandpen(["ps", "--all"]).finish();
        state(fixture, &id).is_none() && fixture.sessions().is_empty()
    });
}

fn the_callers_terminal_may_hang_up(fixture: &Fixture) {
    fixture.write_script("project/painter", PAINTER);
    let mut command = fixture.run();
    command.args(["--detach", "--name", "hung-up", "--", "./painter"]);
    let mut caller = Pty::script("\"$@\"", &command);
    caller.expect("hung-up");
    caller.expect("[ended 0]");
    caller.hang_up();
    let mut pty = attach(fixture, "hung-up", &[]);
    pty.expect("painted-42");
    // The terminal of a client may hang up as well.
    pty.hang_up();
    eventually("the sandbox is detached", || state(fixture, "hung-up").as_deref() == Some("detached"));
    let mut pty = attach(fixture, "hung-up", &[]);
    pty.expect("painted-42");
    pty.send("end\r");
    pty.expect("[ended 7]");
}

/// Returns the launchers of all sandboxes.
fn launchers(fixture: &Fixture) -> Vec<u32> {
    let list = fixture.sandpen(["ps", "--format", "json"]).finish().json();
    let pids = list.as_array().expect("a list").iter().filter_map(|entry| entry["pid"].as_u64());
    pids.map(|pid| u32::try_from(pid).expect("a pid")).collect()
}

/// Returns the launcher of the only sandbox.
fn launcher(fixture: &Fixture) -> u32 {
    let launchers = launchers(fixture);
    assert_eq!(launchers.len(), 1, "{launchers:?}");
    launchers[0]
}

/// Removes what has ended. `attach` returns before a launcher that takes long to exit.
#[track_caller]
fn assert_pruned(fixture: &Fixture) {
    eventually("everything is removed", || {
        fixture.sandpen(["prune"]).finish().success();
        fixture.sessions().is_empty() && fixture.containers().is_empty()
    });
}

#[track_caller]
fn assert_nothing_left(fixture: &Fixture) {
    eventually("everything is removed", || {
        fixture.sandpen(["ps", "--all"]).finish();
        fixture.sessions().is_empty() && fixture.containers().is_empty()
    });
}

fn a_launcher_that_is_killed_while_attached_leaves_nothing(fixture: &Fixture) {
    let id = start(fixture);
    let mut pty = attach(fixture, &id, &[]);
    pty.expect("painted-42");
    eventually("`ps` shows it", || fixture.sandpen(["ps"]).finish().success().contains("attached"));
    signal(launcher(fixture), Signal::KILL);
    pty.expect("[ended 44]");
    assert!(!pty.is_raw() && pty.said().contains("was killed"), "{}", pty.said());
    assert_nothing_left(fixture);
}

fn a_launcher_that_is_killed_while_it_starts_leaves_nothing(fixture: &Fixture) {
    let mut command = fixture.run();
    command.args(["--detach", "--", "sleep", "300"]);
    let mut caller = Running::start(&mut command);
    // The session's directory is the first that the launcher makes.
    eventually("the launcher starts", || !fixture.sessions().is_empty());
    let launchers = caller.children();
    for launcher in &launchers {
        signal(*launcher, Signal::KILL);
    }
    let finished = caller.finish();
    // It may have started the command just before.
    assert!(matches!(finished.code, Some(0 | 137)), "{finished:?}");
    if launchers.is_empty() {
        // The caller has left before it could be killed.
        fixture.sandpen(["stop", "--all", "--time", "0"]).finish().success();
        fixture.sandpen(["prune"]).finish().success();
    }
    assert_nothing_left(fixture);
}

fn attaching_while_the_guest_ends_shows_how_it_ended(fixture: &Fixture) {
    for delay in ["0", "0.1", "0.3"] {
        let script = format!("echo last-$((40 + 2)); sleep {delay}; exit 9");
        let id = fixture.run().args(["-d", "--", "bash", "-c", &script]).finish().success().trim().to_owned();
        let mut clients: Vec<Pty> = (0..4).map(|_| attach(fixture, &id, &["--read-only"])).collect();
        for client in &mut clients {
            client.expect("last-42");
            client.expect("[ended 9]");
            assert!(!client.is_raw());
        }
    }
    assert_pruned(fixture);
}

/// Prints what a terminal keeps, answers, or waits for the end of.
const ODD_ESCAPES: &str = r#"#!/bin/bash
printf '\e]52;c;c3RvbGVu\a\e]0;a\x01title\a\e]8;;file:///etc/passwd\alink\e]8;;\a'
printf '\e[5i\e[4i\e[21t\e[6n\e[c\eP$qm\e\\\e[?1000;1003;1006;2004h\e[20h\e#8\e[!p'
printf '\e[99999999999999999999;1H\e[2147483647X\e[65535b\e[1000000000@\e[0;0r\e[?3h\xff\xfe\xc3('
head -c 300000 /dev/zero | tr '\0' x | sed 's/^/\x1b]0;/'
printf '\x18\e[0m\e[2J\e[3;5Hshown-%s' $((40 + 2))
printf '\eP'
head -c 300000 /dev/zero | tr '\0' y
# The answer comes when everything before was read.
stty -icanon -echo
printf '\e[5n'
until [[ $answer == *'[0' ]]; do IFS= read -r -d n answer; done
stty icanon echo
printf '\ePunfinished'
touch printed
while read -r line; do case $line in *end) exit 7 ;; esac; done
"#;

/// The terminal that attaches gets the text of the screen: nothing for the clipboard, no query and no
/// title with control characters.
fn what_a_hostile_guest_prints_stays_on_its_screen(fixture: &Fixture) {
    fixture.write_script("project/odd", ODD_ESCAPES);
    let id = fixture.run().args(["-d", "--", "./odd"]).finish().success().trim().to_owned();
    // What a guest prints while a terminal is attached reaches it unchanged, as without a sandbox.
    eventually("it has printed everything", || fixture.project.join("printed").exists());
    for keys in ["\u{1d}d", "end\r"] {
        let mut pty = attach(fixture, &id, &[]);
        pty.expect("shown-42");
        let said = pty.said();
        for hostile in ["]52;", "[6n", "[c", "[5i", "[21t", "$q", "file://", "\u{1}"] {
            assert!(!said.contains(hostile), "{hostile:?} in {said:?}");
        }
        assert!(said.len() < 16 << 10, "{} bytes", said.len());
        // The guest has not ended its last sequence, which must not take what follows.
        pty.send(keys);
        pty.expect(if keys.starts_with('e') { "[ended 7]" } else { "[ended 0]" });
        assert_eq!(pty.settings(), pty.initial_settings);
    }
    let text = fixture.sandpen(["attach", &id]).finish().failure(7).to_owned();
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

/// Not even where the directories above the session's are open to all.
#[test]
fn another_user_cannot_attach() {
    use std::os::unix::fs::PermissionsExt;
    Fixture::on(Engine::NativeRoot, |fixture| {
        let id = start(fixture);
        let session = fixture.sessions().pop().expect("a session");
        for directory in session.ancestors().skip(1).take_while(|path| path.starts_with(&fixture.root)) {
            std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).expect("permissions");
        }
        let socket = session.join("attach");
        let connect = || {
            let script = "use Socket; socket(S, PF_UNIX, SOCK_STREAM, 0); connect(S, sockaddr_un($ARGV[0])) \
                or do { print \"$!\"; exit 3 }; print sysread(S, $x, 1) ? 'served' : 'closed'";
            let mut perl = User::ordinary().command("/usr/bin/perl");
            perl.env_clear().args(["-e", script]).arg(&socket).finish().stdout
        };
        assert_eq!(connect(), "Permission denied");
        let mut command = User::ordinary().command(crate::support::binary());
        command.env_clear().env("HOME", &fixture.home).env("PATH", "/usr/bin:/bin").current_dir("/");
        command.args(["attach", &id]).finish().failure(44);
        // With all permissions the launcher itself looks who connects.
        for path in [&session, &socket] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("permissions");
        }
        assert_eq!(connect(), "closed");
        fixture.sandpen(["stop", &id]).finish().success();
    });
}

/// The path of the socket is longer than an address of a socket may be.
#[test]
fn a_long_path_of_the_session_is_no_obstacle() {
    Fixture::on(Engine::Native, |fixture| {
        let state = fixture.outside(&"d".repeat(120));
        let id = {
            let mut command = fixture.run();
            command.env("XDG_STATE_HOME", &state).args(["-d", "--", "bash", "-c", "echo far-$((40 + 2)); read _"]);
            command.finish().success().trim().to_owned()
        };
        let mut command = fixture.sandpen(["attach", &id]);
        command.env("XDG_STATE_HOME", &state);
        let mut pty = Pty::start(&command);
        pty.expect("far-42");
        pty.send("\r");
        pty.expect("[ended 0]");
    });
}

/// Nobody reads what the guest writes, and the launcher keeps only the screen.
#[test]
fn a_flood_takes_no_memory_of_the_launcher() {
    Fixture::on(Engine::Native, |fixture| {
        let id = fixture.run().args(["-d", "--", "yes"]).finish().success().trim().to_owned();
        let launcher = launcher(fixture);
        let field = |file: &str, name: &str| -> u64 {
            let text = std::fs::read_to_string(format!("/proc/{launcher}/{file}")).expect("a process");
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            line.trim().trim_end_matches(" kB").parse().expect("a number")
        };
        eventually("much was read", || field("io", "rchar:") > 4 << 20);
        let memory = field("status", "VmRSS:");
        assert!(memory < 64 << 10, "{memory} kB");
        fixture.sandpen(["stop", &id]).finish().success();
    });
}

pub fn a_command_that_does_not_start_is_reported(fixture: &Fixture) {
    let mut command = fixture.run();
    command.args(["--detach", "--network", "nonsense", "--", "true"]);
    let finished = command.finish();
    assert!(finished.failure(2).contains("nonsense"), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(fixture.sessions().is_empty());
    fixture.sandpen(["attach", "nothing"]).finish().failure(44);
    let mut command = fixture.run();
    command.args(["--detach", "--", "no-such-command"]);
    let finished = command.finish();
    assert!(finished.failure(127).contains("no-such-command"), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(fixture.sessions().is_empty());
}
