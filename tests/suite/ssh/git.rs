//! Clones, commits and pushes over SSH from a sandbox. The host's known_hosts decides which servers
//! are trusted.

use super::sshd::Sshd;
use crate::for_every_engine;
use crate::support::{Engine, Finished, Fixture, RunToEnd, public_key};

for_every_engine!(with_agent: git_clones_commits_and_pushes_over_ssh);

/// Runs a Git server over SSH: the sshd of an ordinary user, and a bare repository.
struct Server {
    fixture: Fixture,
    sshd: Sshd,
    url: String,
}

impl Server {
    fn start() -> Self {
        let fixture = Fixture::new().with_engine(Engine::PodmanRootless);
        let sshd = Sshd::start(&fixture, "");
        let repository = fixture.outside("server").join("repository.git");
        fixture.host_command("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&repository).finish().success();
        let url = format!("ssh://{}@127.0.0.1:{}{}", fixture.user_name(), sshd.port, repository.display());
        Server { fixture, sshd, url }
    }

    fn log(&self) -> String {
        let mut git = self.fixture.host_command("git");
        git.arg("-C").arg(self.fixture.outside("server").join("repository.git"));
        git.args(["log", "--format=%an: %s", "main"]).finish().stdout.trim().to_owned()
    }
}

fn bash(fixture: &Fixture, options: &[&str], script: &str) -> Finished {
    fixture.run().args(options).args(["--", "bash", "-c", script]).finish()
}

fn git_clones_commits_and_pushes_over_ssh(fixture: &Fixture) {
    if fixture.engine() == Engine::DockerRootless {
        // Rootless Docker has a network namespace from which the server on the host's loopback
        // cannot be reached; other tests cover the agent.
        return;
    }
    let server = Server::start();
    fixture.agent().add_key(fixture, &server.sshd.identity);
    fixture.write(".gitconfig", "[user]\n\tname = Git User\n\temail = git@example.org\n");
    // Containers reach the host's loopback only with the host's network; the native engine shares
    // it.
    let options: &[&str] = if fixture.engine().is_container() { &["--engine-flag=--network=host"] } else { &[] };
    let try_it = format!("git ls-remote {} 2>&1; echo $?", server.url);
    // ssh refuses a server whose key is unknown.
    let finished = bash(fixture, options, &try_it);
    assert!(
        finished.success().contains("Host key verification failed") && finished.stdout.ends_with("128\n"),
        "{}",
        finished.stdout
    );
    // The known key of another server does not help.
    let other = public_key(&fixture.make_key("other-host-key", "other"));
    let other = other.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let known = server.sshd.known.split(' ').next().expect("a host").to_owned();
    fixture.write(".ssh/known_hosts", &format!("{known} {other}\n"));
    let finished = bash(fixture, options, &try_it);
    assert!(
        finished.success().contains("Host key verification failed") && finished.stdout.ends_with("128\n"),
        "{}",
        finished.stdout
    );
    // The user has accepted the key of this server.
    fixture.write(".ssh/known_hosts", &server.sshd.known);
    let script = format!(
        "set -e; git clone -q {0} clone 2>/dev/null; cd clone; echo text >file; git add file; git commit -q -m first
        git push -q origin HEAD:main; cd ..; git clone -q {0} again; cat again/file",
        server.url
    );
    let finished = bash(fixture, options, &script);
    assert_eq!(finished.success(), "text", "{}", finished.stderr);
    assert_eq!(server.log(), "Git User: first");
    // Without the agent, ssh has no key.
    let mut options = options.to_vec();
    options.extend(["--ssh-agent", "off"]);
    let finished = bash(fixture, &options, &try_it);
    assert!(finished.success().contains("Permission denied (publickey)"), "{}", finished.stdout);
}
