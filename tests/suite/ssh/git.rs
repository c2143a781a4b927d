//! What it is all for: clone, commit and push over SSH from inside, with the host's known_hosts deciding whom to trust.

use super::rig::{Agent, Place, Sshd, keygen, public};
use crate::for_every_place;
use crate::support::{Engine, Pen, RunToEnd};

for_every_place!(git_clones_commits_and_pushes_over_ssh);

/// A Git server over SSH: sshd of the rig's ordinary user, and a bare repository.
struct Server {
    pen: Pen,
    sshd: Sshd,
    url: String,
}

impl Server {
    fn start() -> Self {
        let pen = Pen::new(Engine::PodmanRootless);
        let sshd = Sshd::start(&pen, "");
        let repository = pen.outside("server").join("repository.git");
        pen.host_command("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&repository).ran().ok();
        let user = std::env::var("SANDPEN_TEST_USER").expect("the rig's user");
        let url = format!("ssh://{user}@127.0.0.1:{}{}", sshd.port, repository.display());
        Server { pen, sshd, url }
    }

    fn log(&self) -> String {
        let mut git = self.pen.host_command("git");
        git.arg("-C").arg(self.pen.outside("server").join("repository.git"));
        git.args(["log", "--format=%an: %s", "main"]).ran().stdout.trim().to_owned()
    }
}

fn git_clones_commits_and_pushes_over_ssh(place: &Place) {
    if place.pen.engine == Engine::DockerRootless {
        // Its network is not the host's, where the server listens on the loopback; the agent itself is shown elsewhere.
        return;
    }
    let server = Server::start();
    let agent = Agent::empty(&place.pen);
    agent.add(&place.pen, &server.sshd.identity);
    place.pen.write(".gitconfig", "[user]\n\tname = Git User\n\temail = git@example.org\n");
    // Containers reach the host's loopback in the host's network only; the native engine shares it.
    let options: &[&str] = if place.native { &[] } else { &["--engine-flag=--network=host"] };
    let try_it = format!("git ls-remote {} 2>&1; echo $?", server.url);
    // Nobody vouches for the server.
    let ran = place.bash(Some(&agent), options, &try_it);
    assert!(ran.ok().contains("Host key verification failed") && ran.stdout.ends_with("128\n"), "{}", ran.stdout);
    // Somebody vouches for another one.
    let other = public(&keygen(&place.pen, "other-host-key", "other"));
    let other = other.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let known = server.sshd.known.split(' ').next().expect("a host").to_owned();
    place.pen.write(".ssh/known_hosts", &format!("{known} {other}\n"));
    let ran = place.bash(Some(&agent), options, &try_it);
    assert!(ran.ok().contains("Host key verification failed") && ran.stdout.ends_with("128\n"), "{}", ran.stdout);
    // The user has accepted this one.
    place.pen.write(".ssh/known_hosts", &server.sshd.known);
    let script = format!(
        "set -e; git clone -q {0} clone 2>/dev/null; cd clone; echo text >file; git add file; git commit -q -m first
        git push -q origin HEAD:main; cd ..; git clone -q {0} again; cat again/file",
        server.url
    );
    let ran = place.bash(Some(&agent), options, &script);
    assert_eq!(ran.ok(), "text", "{}", ran.stderr);
    assert_eq!(server.log(), "Git User: first");
    // Without the agent, the key is not there.
    let mut options = options.to_vec();
    options.extend(["--ssh-agent", "off"]);
    let ran = place.bash(Some(&agent), &options, &try_it);
    assert!(ran.ok().contains("Permission denied (publickey)"), "{}", ran.stdout);
}
