//! Git and ssh work through the proxy: the helper inside is ssh's ProxyCommand.

use crate::for_every_engine;
use crate::ssh::sshd::Sshd;
use crate::support::{Engine, Fixture, RunToEnd};

for_every_engine!(git_clones_and_pushes_over_ssh_through_the_proxy);

fn git_clones_and_pushes_over_ssh_through_the_proxy(fixture: &Fixture) {
    // sshd runs as an ordinary user, independent of the user that runs sandpen.
    let host = Fixture::new().with_engine(Engine::PodmanRootless);
    let sshd = Sshd::start(&host, "");
    let repository = host.outside("server").join("repository.git");
    host.host_command("git").args(["init", "-q", "--bare", "-b", "main"]).arg(&repository).finish().success();
    let url = format!("ssh://{}@127.0.0.1:{}{}", host.user_name(), sshd.port, repository.display());
    fixture.write(".ssh/known_hosts", &sshd.known);
    fixture.write(".gitconfig", "[user]\n\tname = Git User\n\temail = git@example.org\n");
    let key = std::fs::read_to_string(&sshd.identity).expect("a key");
    fixture.write("project/key", &key);
    let rule = format!("127.0.0.1:{}", sshd.port);
    let script = format!(
        "set -e; chmod 600 key; export GIT_SSH_COMMAND=\"ssh -i $PWD/key\"
        git clone -q {url} clone 2>/dev/null; cd clone; echo text >file; git add file; git commit -q -m first
        git push -q origin HEAD:main; cd ..; git clone -q {url} again; cat again/file"
    );
    let finished = fixture.run().args(["--allow-host", &rule, "--", "bash", "-c", &script]).finish();
    assert_eq!(finished.success(), "text", "{}", finished.stderr);
    // Another host is refused, and ssh prints the reason.
    let finished = fixture.run().args(["--allow-host", &rule, "--", "ssh", "evil.example"]).finish();
    finished.failure(255);
    let line = "sandpen: evil.example:22: the host is not allowed; `--allow-host evil.example:22` would allow it";
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
}
