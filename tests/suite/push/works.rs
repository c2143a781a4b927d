//! What works on every engine, over SSH, without an agent inside.

use super::server::{GitServer, bash};
use crate::support::{Fixture, RunToEnd, Running};
use crate::{for_docker_and_native, for_every_engine, for_kubernetes};

for_every_engine!(fetches_and_allowed_pushes_work, refused_pushes_change_nothing,);
for_kubernetes!(refused_pushes_change_nothing,);
for_docker_and_native!(a_command_of_exec_pushes, shallow_and_partial_clones_work, the_guest_has_no_other_way,);

fn fetches_and_allowed_pushes_work(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    server
        .fixture
        .host_command("bash")
        .arg("-c")
        .arg(format!(
            "cd '{0}.seed' && git commit -q --allow-empty -m second && git push -q '{0}' main",
            server.repository.display()
        ))
        .finish()
        .success();
    let script = format!(
        "set -e; git ls-remote -q origin main | cut -f 2; git fetch -q; git pull -q; git log -1 --format=%s
        git clone -q {} /tmp/clone; git -C /tmp/clone log -1 --format=%s
        git checkout -q -b agent/one; git commit -q --allow-empty -m pushed; git push -q origin agent/one
        git commit -q --allow-empty -m forward; git push -q origin agent/one
        git -c protocol.version=0 ls-remote -q origin agent/one | cut -f 2",
        server.url
    );
    let finished = bash(fixture, &["agent/*"], &script);
    assert_eq!(finished.success(), "refs/heads/main\nsecond\nsecond\nrefs/heads/agent/one", "{}", finished.stderr);
    assert_eq!(server.subject("agent/one"), "forward");
    assert!(fixture.sessions().is_empty(), "nothing is left: {:?}", fixture.sessions());
}

fn refused_pushes_change_nothing(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let before = server.refs();
    let script = "git commit -q --allow-empty -m new; git push origin main HEAD:agent/x; echo $?";
    let finished = bash(fixture, &["agent/*"], script);
    assert_eq!(finished.success(), "1", "{}", finished.stderr);
    let stderr = &finished.stderr;
    assert!(stderr.contains("[remote rejected] main -> main (sandpen: it needs --push 'main'"), "{stderr}");
    assert!(stderr.contains("HEAD -> agent/x (sandpen: not pushed, because another ref was refused)"), "{stderr}");
    assert_eq!(server.refs(), before);
}

fn a_command_of_exec_pushes(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let script = "echo started; exec sleep 1000";
    let mut sandbox =
        Running::start(fixture.run().args(["--name", "push-exec", "--push", "agent/*", "--", "bash", "-c", script]));
    assert_eq!(sandbox.line(), "started");
    let script = "git push -q origin HEAD:agent/exec";
    let finished = fixture.sandpen(["exec", "push-exec", "--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), "", "{}", finished.stderr);
    assert_eq!(server.subject("agent/exec"), "first");
    fixture.sandpen(["stop", "push-exec"]).finish().success();
}

fn shallow_and_partial_clones_work(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    let script = format!(
        "set -e; cd /tmp; git clone -q --depth 1 {0} shallow; cd shallow; git checkout -q -b agent/shallow
        git commit -q --allow-empty -m shallow; git push -q origin agent/shallow
        cd /tmp; git clone -q --filter=blob:none {0} partial; cd partial; cat file; git checkout -q -b agent/partial
        echo 2 >file; git commit -q -a -m partial; git push -q origin agent/partial",
        server.url
    );
    let finished = bash(fixture, &["agent/*"], &script);
    assert_eq!(finished.success(), "1", "{}", finished.stderr);
    assert_eq!([server.subject("agent/shallow"), server.subject("agent/partial")], ["shallow", "partial"]);
}

fn the_guest_has_no_other_way(fixture: &Fixture) {
    let server = GitServer::start(fixture);
    // The same repository by another spelling is reached without sandpen, and there is no key.
    let other = server.url.replace("127.0.0.1", "localhost");
    let script = format!("git ls-remote {other} >/dev/null 2>&1 && echo reached; ls /.sandpen/bin; ssh-add -l 2>&1");
    let finished = bash(fixture, &["agent/*"], &script);
    assert!(finished.stdout.starts_with("git-remote-sandpen\n"), "{}{}", finished.stdout, finished.stderr);
}
