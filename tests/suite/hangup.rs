//! Tests that a sandbox ends when its terminal is gone, however sandpen was started, and that
//! nothing is left of it.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::ssh::sshd::Sshd;
use crate::support::pty::Pty;
use crate::support::{Engine, Fixture, RunToEnd, Running, binary, eventually, is_running};
use crate::{for_docker_and_native, for_every_engine};

for_every_engine!(a_hang_up_ends_the_guest);
// Each takes the grace period of ten seconds.
for_docker_and_native!(a_guest_that_ignores_the_hang_up_is_killed);

/// Ends itself when it gets SIGHUP.
const POLITE: &str = "#!/bin/sh\ntrap 'touch hung-up-$1; exit 0' HUP\ntouch started-$1\nwhile :; do sleep 0.1; done\n";
/// Ignores SIGHUP.
const STUBBORN: &str = "#!/bin/sh\ntrap '' HUP\ntouch started-$1\nexec sleep $1\n";

/// The ways to start sandpen, and to take its terminal away.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// sandpen leads the terminal's session, as in a terminal window that was opened for it.
    Leader,
    /// sandpen is a job of an interactive shell.
    Shell,
    /// sandpen is the child of a shell script, which ends by the hang-up.
    Script,
    /// sandpen is a member of a pipeline, and its stdout is not the terminal.
    Pipeline,
    /// sandpen is in another session than its terminal, so the kernel signals neither it nor the
    /// guest.
    OtherSession,
    TmuxPane,
    TmuxServer,
    /// The client of `ssh -tt` is killed.
    Ssh,
}

const WAYS: [Way; 8] =
    [Way::Leader, Way::Shell, Way::Script, Way::Pipeline, Way::OtherSession, Way::TmuxPane, Way::TmuxServer, Way::Ssh];

/// A guest in a terminal.
struct Session<'a> {
    fixture: &'a Fixture,
    way: Way,
    /// Occurs on the command lines of sandpen, the engine's client and the guest.
    mark: String,
    terminal: Terminal,
}

enum Terminal {
    Pty(Pty),
    /// Holds the last words of tmux's command line.
    Tmux(String),
    Ssh {
        client: Running,
        _sshd: Sshd,
    },
}

impl<'a> Session<'a> {
    fn start(fixture: &'a Fixture, way: Way, guest: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("4{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        fixture.write_script("project/guest", guest);
        let mut command = fixture.run();
        command.args(["--", "./guest", &mark]);
        let terminal = match way {
            Way::Leader => Terminal::Pty(Pty::leader(&command)),
            Way::Shell => {
                let mut pty = Pty::interactive(&command);
                pty.expect("[prompt] ");
                pty.send("$run\r");
                Terminal::Pty(pty)
            }
            Way::Script => Terminal::Pty(Pty::script("\"$@\"", &command)),
            Way::Pipeline => Terminal::Pty(Pty::script("\"$@\" | cat", &command)),
            Way::OtherSession => Terminal::Pty(Pty::script("setsid --wait \"$@\"", &command)),
            Way::TmuxPane => start_in_tmux(fixture, &mark, "kill-pane", &command),
            Way::TmuxServer => start_in_tmux(fixture, &mark, "kill-server", &command),
            Way::Ssh => start_over_ssh(fixture, &command),
        };
        let session = Session { fixture, way, mark, terminal };
        eventually(&format!("{way:?}: the guest runs"), || session.has_file("started"));
        session
    }

    fn has_file(&self, name: &str) -> bool {
        self.fixture.project.join(format!("{name}-{}", self.mark)).exists()
    }

    fn hang_up(&mut self) {
        match &mut self.terminal {
            Terminal::Pty(pty) => pty.hang_up(),
            Terminal::Tmux(how) => {
                tmux(self.fixture, &self.mark).arg(how).finish().success();
            }
            Terminal::Ssh { client, .. } => client.signal(Signal::KILL),
        }
    }

    /// Waits until neither sandpen nor the client nor the guest runs.
    #[track_caller]
    fn assert_gone(&self) {
        eventually(&format!("{:?}: nothing runs", self.way), || !is_running(&self.mark));
    }
}

impl Drop for Session<'_> {
    /// Kills what a failed test left running.
    fn drop(&mut self) {
        if let Terminal::Tmux(_) = self.terminal {
            let _ = tmux(self.fixture, &self.mark).arg("kill-server").output();
        }
        if thread::panicking() {
            for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
                let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                let pid = process.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
                if let (true, Some(pid)) = (line.ends_with(format!("{}\0", self.mark).as_bytes()), pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    }
}

fn start_in_tmux(fixture: &Fixture, mark: &str, how: &str, command: &Command) -> Terminal {
    let mut tmux = tmux(fixture, mark);
    tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", &shell_line(command)])
        .finish()
        .success();
    Terminal::Tmux(how.to_owned())
}

/// Returns a command of tmux with a server for this mark only.
fn tmux(fixture: &Fixture, mark: &str) -> Command {
    let mut command = fixture.host_command("tmux");
    command.env("TMUX_TMPDIR", &fixture.root).arg("-S").arg(fixture.root.join(format!("tmux-{mark}")));
    command
}

fn start_over_ssh(fixture: &Fixture, command: &Command) -> Terminal {
    let sshd = Sshd::start(fixture, "");
    let known_hosts = fixture.write("../keys/known_hosts", &sshd.known);
    let mut ssh = fixture.host_command("ssh");
    ssh.args(["-tt", "-F", "none", "-o", "BatchMode=yes", "-o"])
        .arg(format!("UserKnownHostsFile={}", known_hosts.display()));
    ssh.arg("-i").arg(&sshd.identity).args(["-p", &sshd.port.to_string(), "-l", fixture.user_name(), "127.0.0.1"]);
    let line = format!("cd {} && {}", fixture.project.display(), shell_line(command));
    Terminal::Ssh { client: Running::start(ssh.arg(line).stdin(Stdio::piped())), _sshd: sshd }
}

/// Returns sandpen's command line with its environment, for a shell of the fixture's user that is
/// replaced by it.
fn shell_line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    let variables = variables.map(|(name, value)| format!("{name}={value}"));
    // Programs that change the user come first.
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words =
        words.skip_while(|word| *word != binary().as_os_str()).map(|word| word.to_str().expect("text").to_owned());
    let line: Vec<String> =
        ["exec", "env", "-i"].map(str::to_owned).into_iter().chain(variables).chain(words).collect();
    assert!(!line.iter().any(|word| word.contains([' ', '\'', '"', '$'])), "words that need quotes: {line:?}");
    line.join(" ")
}

/// Returns the ways that the fixture's user has.
fn ways(fixture: &Fixture) -> impl Iterator<Item = Way> {
    // Only root's sshd can give a terminal to its user.
    let has_ssh = fixture.uid == 0;
    WAYS.into_iter().filter(move |way| has_ssh || !matches!(way, Way::Ssh))
}

#[track_caller]
fn assert_nothing_left(fixture: &Fixture) {
    eventually("nothing is left", || fixture.containers().is_empty() && fixture.sessions().is_empty());
}

fn a_hang_up_ends_the_guest(fixture: &Fixture) {
    for way in ways(fixture) {
        let mut session = Session::start(fixture, way, POLITE);
        session.hang_up();
        session.assert_gone();
        // Podman's client sometimes ends with its terminal, or by a SIGHUP that it gets itself, before it has
        // passed the signal on. sandpen then removes the container at once.
        if fixture.engine().flag() != "podman" {
            assert!(session.has_file("hung-up"), "{way:?}: the guest was killed without SIGHUP");
        }
        assert_nothing_left(fixture);
    }
}

fn a_guest_that_ignores_the_hang_up_is_killed(fixture: &Fixture) {
    let mut sessions: Vec<Session> = ways(fixture).map(|way| Session::start(fixture, way, STUBBORN)).collect();
    for session in &mut sessions {
        session.hang_up();
    }
    for session in &sessions {
        session.assert_gone();
    }
    assert_nothing_left(fixture);
}

/// A shell resumes its stopped jobs when it ends by the hang-up.
#[test]
fn a_hang_up_ends_a_stopped_guest_native() {
    Fixture::on(Engine::Native, |fixture| {
        let mut session = Session::start(fixture, Way::Shell, POLITE);
        if let Terminal::Pty(pty) = &mut session.terminal {
            pty.send("\u{1a}");
            pty.expect("Stopped");
        }
        session.hang_up();
        session.assert_gone();
        assert_nothing_left(fixture);
    });
}
