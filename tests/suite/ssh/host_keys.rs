//! `--ssh-host` with each kind of server key, authorities, restricted keys and several keys in the agent,
//! with real sshd, ssh-agent and OpenSSH.

use std::fs;
use std::path::PathBuf;

use super::sshd::Sshd;
use crate::support::{Engine, Finished, Fixture, KEY_COMMENT, RunToEnd, Running, eventually, public_key};

fn on_native(test: impl FnOnce(&Fixture)) {
    Fixture::on_prepared(Engine::Native, Fixture::with_agent, test);
}

/// A server and the command by which the guest logs in.
struct Server {
    sshd: Sshd,
    fixture: Fixture,
}

impl Server {
    /// Starts a server with a key of this kind; the agent has a key that may log in.
    fn start(client: &Fixture, kind: &[&str], extra: impl Fn(&Fixture, &PathBuf) -> String) -> Self {
        let fixture = Fixture::new().with_engine(Engine::PodmanRootless);
        let key = fixture.outside("keys").join("server");
        let mut keygen = fixture.host_command("ssh-keygen");
        keygen.args(["-q", "-N", "", "-t"]).args(kind).arg("-f").arg(&key).finish().success();
        let extra = extra(&fixture, &key);
        let sshd = Sshd::start_with(&fixture, &extra, &key);
        client.agent().add_key(client, &sshd.identity);
        Server { sshd, fixture }
    }

    fn plain(client: &Fixture, kind: &[&str]) -> Self {
        Self::start(client, kind, |_, _| String::new())
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.sshd.port)
    }

    fn login(&self, options: &str) -> String {
        let user = self.fixture.user_name();
        let port = self.sshd.port;
        format!("ssh -o BatchMode=yes {options} -p {port} {user}@127.0.0.1 echo in 2>&1 || echo refused")
    }
}

fn run(fixture: &Fixture, hosts: &[&str], script: &str) -> Finished {
    let mut command = fixture.run();
    for host in hosts {
        command.args(["--ssh-host", host]);
    }
    command.args(["-v", "--", "bash", "-c", script]).finish()
}

#[test]
fn servers_with_each_kind_of_key_are_verified() {
    on_native(|fixture| {
        for kind in
            [&["ecdsa", "-b", "521"][..], &["ecdsa", "-b", "384"], &["ecdsa", "-b", "256"], &["rsa", "-b", "3072"]]
        {
            let server = Server::plain(fixture, kind);
            fixture.write(".ssh/known_hosts", &server.sshd.known);
            let finished = run(fixture, &[&server.host()], &server.login(""));
            assert_eq!(finished.success(), "in", "{kind:?} {}", finished.stderr);
            let destination = format!("{}@{}", server.fixture.user_name(), server.host());
            let line = format!("the SSH agent signed 1 time: {destination} (1)");
            assert!(finished.stderr.contains(&line), "{line}: {}", finished.stderr);
        }
    });
}

#[test]
fn a_server_with_a_certificate_is_known_by_its_authority() {
    on_native(|fixture| {
        let server = Server::start(fixture, &["ed25519"], |server, key| {
            let authority = server.outside("keys").join("authority");
            let sign =
                "ssh-keygen -q -N '' -t ed25519 -f \"$1\" && ssh-keygen -q -s \"$1\" -h -I id -n 127.0.0.1 \"$2.pub\"";
            server.host_command("sh").args(["-c", sign, "sh"]).arg(&authority).arg(key).finish().success();
            format!("HostCertificate {}-cert.pub", key.display())
        });
        let line =
            |start: &str, name: &str| format!("{start} {}\n", public_key(&server.fixture.outside("keys").join(name)));
        let trusted = format!("@cert-authority [127.0.0.1]:{}", server.sshd.port);
        fixture.write(".ssh/known_hosts", &line(&trusted, "authority"));
        let finished = run(fixture, &[&server.host()], &server.login(""));
        assert_eq!(finished.success(), "in", "{}", finished.stderr);
        // Another authority, and a revoked one: the guest's ssh does not check, the gate does.
        server.fixture.make_key("other", "other");
        let revoked = [line(&trusted, "authority"), line("@revoked *", "authority")].concat();
        for known in [line(&trusted, "other"), revoked] {
            fixture.write(".ssh/known_hosts", &known);
            let login = server.login("-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null");
            let finished = run(fixture, &[&server.host()], &login);
            assert!(finished.success().ends_with("refused"), "{known}: {}", finished.stdout);
            assert!(
                finished.stderr.contains("known_hosts has the server's key for no allowed destination (--ssh-host)"),
                "{}",
                finished.stderr
            );
        }
    });
}

#[test]
fn revoked_host_keys_of_the_configuration_are_refused() {
    on_native(|fixture| {
        let server = Server::plain(fixture, &["ed25519"]);
        fixture.write(".ssh/known_hosts", &server.sshd.known);
        let login = server.login("-F none -o StrictHostKeyChecking=no");
        assert_eq!(run(fixture, &[&server.host()], &login).success(), "in");
        let key = public_key(&server.fixture.outside("keys").join("server"));
        let list = fixture.write(".ssh/revoked", &format!("{key}\n"));
        fixture.write(".ssh/config", &format!("Host *\n\tRevokedHostKeys {}\n", list.display()));
        // ssh on the host reads the configuration of the user's home in the user database.
        let ssh = format!("#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n", fixture.home.join(".ssh/config").display());
        let directory = fixture.outside("bin");
        fixture.write_script(directory.join("ssh"), &ssh);
        std::os::unix::fs::symlink("/usr/bin/ssh-keygen", directory.join("ssh-keygen")).expect("a link");
        let mut command = fixture.run();
        command.env("PATH", format!("{}:{}", directory.display(), crate::support::SYSTEM_PATH));
        let finished = command.args(["--ssh-host", &server.host(), "--", "bash", "-c", &login]).finish();
        assert!(finished.success().ends_with("refused"), "{} {}", finished.stdout, finished.stderr);
    });
}

#[test]
fn keys_that_are_restricted_to_a_server_go_on_working() {
    on_native(|fixture| {
        let server = Server::plain(fixture, &["ed25519"]);
        let known = fixture.write(".ssh/known_hosts", &server.sshd.known);
        let name = format!("[127.0.0.1]:{}", server.sshd.port);
        let add = format!(
            "ssh-add -q -D; ssh-add -q -H '{}' -h '{name}' '{}'",
            known.display(),
            server.sshd.identity.display()
        );
        let mut command = fixture.host_command("sh");
        command.env("SSH_AUTH_SOCK", &fixture.agent().socket).args(["-c", &add]).finish().success();
        for hosts in [&[][..], &[&*server.host()]] {
            let finished = run(fixture, hosts, &server.login(""));
            assert_eq!(finished.success(), "in", "{hosts:?} {}", finished.stderr);
        }
    });
}

#[test]
fn keys_that_no_allowed_server_accepts_are_not_listed() {
    on_native(|fixture| {
        let server = Server::plain(fixture, &["ed25519"]);
        fixture.write(".ssh/known_hosts", &server.sshd.known);
        let list = "ssh-add -l | cut -d' ' -f3-";
        let both = run(fixture, &[&server.host()], list);
        assert!(both.success().contains(KEY_COMMENT) && both.stdout.contains("machine"), "{}", both.stdout);
        fixture.write(".ssh/only.pub", &format!("{}\n", public_key(&server.sshd.identity)));
        let config =
            format!("Host *\n\tIdentitiesOnly yes\n\tIdentityFile {}\n", fixture.home.join(".ssh/only").display());
        let config = fixture.write(".ssh/config", &config);
        let directory = fixture.outside("bin");
        fixture.write_script(
            directory.join("ssh"),
            &format!("#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n", config.display()),
        );
        let mut command = fixture.run();
        command.env("PATH", format!("{}:{}", directory.display(), crate::support::SYSTEM_PATH));
        let finished = command.args(["--ssh-host", &server.host(), "--", "bash", "-c", list]).finish();
        assert_eq!(finished.success(), "machine (ED25519)", "{}", finished.stderr);
    });
}

#[test]
fn git_reaches_the_allowed_one_of_two_servers() {
    on_native(|fixture| {
        let servers = [(); 2].map(|()| Server::plain(fixture, &["ed25519"]));
        fixture.write(".ssh/known_hosts", &format!("{}{}", servers[0].sshd.known, servers[1].sshd.known));
        let list = |server: &Server| {
            let repository = crate::push::server::make_repository(&server.fixture, "app.git");
            let user = server.fixture.user_name();
            format!(
                "git ls-remote -q ssh://{user}@{}{} main 2>&1 | grep -o 'refs/heads/main\\|denied'",
                server.host(),
                repository.display()
            )
        };
        let script = format!("{}; {}", list(&servers[0]), list(&servers[1]));
        let finished = run(fixture, &[&servers[0].host()], &script);
        assert_eq!(finished.success(), "refs/heads/main\ndenied", "{}", finished.stderr);
    });
}

#[test]
fn there_is_no_thread_or_process_before_the_first_use() {
    on_native(|fixture| {
        let mut command = fixture.run();
        command.stdin(std::process::Stdio::piped());
        command.args(["--", "bash", "-c", "echo up; read _; ssh-add -l >/dev/null && echo listed; read _"]);
        let mut running = Running::start(&mut command);
        assert_eq!(running.line(), "up");
        let pid = running.pid();
        let has_thread = || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            names.any(|name| name.trim() == "ssh-agent")
        };
        assert!(!has_thread());
        let children = running.children_of_all_threads().len();
        running.write("\n");
        assert_eq!(running.line(), "listed");
        eventually("the gate has a thread", has_thread);
        assert_eq!(running.children_of_all_threads().len(), children, "it needs no process");
        running.close_stdin();
        running.finish();
    });
}
