//! What works over each version of Git's protocol, with each kind of clone, over SSH and HTTPS; and what
//! a server does that never answers.

use std::net::TcpListener;
use std::process::Stdio;

use super::http_server::HttpServer;
use super::server::{GitServer, bash, empty, ref_files};
use crate::support::{Engine, Fixture, RunToEnd, Running, eventually, is_running};

fn on_native(test: impl FnOnce(&Fixture)) {
    Fixture::on(Engine::Native, test);
}

/// Fetches, clones and pushes with each version that a client may prefer.
fn every_version(fixture: &Fixture, url: &str, subject: impl Fn(&str) -> String) {
    let script = format!(
        "set -e
        for version in 0 1 2; do
            git() {{ command git -c protocol.version=$version \"$@\"; }}
            git ls-remote -q origin main | cut -f 2; git fetch -q
            for kind in whole shallow partial; do
                case $kind in shallow) option=--depth=1 ;; partial) option=--filter=blob:none ;; *) option= ;; esac
                name=agent/$version-$kind; clone() {{ git -C /tmp/clone \"$@\"; }}
                rm -rf /tmp/clone; git clone -q $option {url} /tmp/clone; cat /tmp/clone/file
                clone commit -q --allow-empty -m new; clone push -q origin HEAD:$name
                clone commit -q --allow-empty -m \"$version $kind\"; git fetch -q
                clone push -q --atomic origin HEAD:$name HEAD:agent/both; clone push -q origin :agent/both
            done
        done"
    );
    let finished = bash(fixture, &["agent/*", "-agent/both"], &script);
    assert_eq!(finished.success(), ["refs/heads/main\n1\n1\n1"; 3].join("\n"), "{}", finished.stderr);
    for version in ["0", "1", "2"] {
        for kind in ["whole", "shallow", "partial"] {
            assert_eq!(subject(&format!("agent/{version}-{kind}")), format!("{version} {kind}"));
        }
    }
}

#[test]
fn every_version_of_the_protocol_works_over_ssh() {
    on_native(|fixture| {
        let server = GitServer::start(fixture);
        every_version(fixture, &server.url, |name| server.subject(name));
    });
}

/// sshd drops the variable that selects the version, so that the server uses the oldest one.
#[test]
fn a_server_of_the_oldest_version_works_over_ssh() {
    on_native(|fixture| {
        let server = GitServer::start_with(fixture, "");
        every_version(fixture, &server.url, |name| server.subject(name));
    });
}

#[test]
fn every_version_of_the_protocol_works_over_https() {
    on_native(|fixture| {
        let server = HttpServer::start(fixture);
        let tls = server.with_tls();
        fixture.host_command("git").args(["remote", "set-url", "origin", &tls.url]).finish().success();
        let config = std::fs::read_to_string(fixture.home.join(".gitconfig")).expect("the configuration");
        fixture.write(".gitconfig", &format!("{config}[http]\n\tsslCAInfo = {}\n", tls.authority.display()));
        every_version(fixture, &tls.url, |name| server.subject(name));
    });
}

#[test]
fn long_requests_are_compressed_over_http() {
    on_native(|fixture| {
        let server = HttpServer::start(fixture);
        let seed = format!(
            "cd '{0}.seed' && git commit -q --allow-empty -m second && git push -q '{0}' main",
            server.repository.display()
        );
        server.fixture.host_command("bash").args(["-c", &seed]).finish().success();
        let script = "set -e; for n in $(seq 200); do git commit -q --allow-empty -m $n; done
            git fetch -q; git log -1 --format=%s origin/main";
        assert_eq!(bash(fixture, &["agent/*"], script).success(), "second");
        let requests = server.requests.lock().expect("requests");
        assert!(requests.iter().any(|line| line.ends_with(" gzip")), "{requests:?}");
    });
}

/// The first push to an empty repository may make its default branch.
fn the_branch_that_becomes_the_default_must_be_named(fixture: &Fixture, server: (&Fixture, &std::path::Path)) {
    empty(server.0, server.1, "trunk");
    let before = ref_files(server.1);
    let finished = bash(fixture, &["*"], "git push -q origin HEAD:trunk");
    assert!(finished.stderr.contains("the default branch needs --push 'trunk'"), "{}", finished.stderr);
    assert_eq!(ref_files(server.1), before);
    let finished = bash(fixture, &["*"], "git push -q origin HEAD:agent/x");
    assert_eq!(finished.success(), "", "{}", finished.stderr);
    assert_eq!(bash(fixture, &["*", "trunk"], "git push -q origin HEAD:trunk").success(), "");
}

#[test]
fn attack_29_an_empty_repository_gets_no_default_branch_over_ssh() {
    on_native(|fixture| {
        let server = GitServer::start(fixture);
        the_branch_that_becomes_the_default_must_be_named(fixture, (&server.fixture, &server.repository));
    });
}

#[test]
fn attack_29_an_empty_repository_gets_no_default_branch_over_http() {
    on_native(|fixture| {
        let server = HttpServer::start(fixture);
        the_branch_that_becomes_the_default_must_be_named(fixture, (&server.fixture, &server.repository));
    });
}

/// A server of the oldest version does not say which branch HEAD names.
#[test]
fn attack_29_an_empty_repository_gets_no_branch_with_a_usual_name() {
    on_native(|fixture| {
        let server = GitServer::start_with(fixture, "");
        empty(&server.fixture, &server.repository, "main");
        let before = server.refs();
        let finished = bash(fixture, &["*"], "git push -q origin HEAD:main");
        assert!(finished.stderr.contains("the default branch needs --push 'main'"), "{}", finished.stderr);
        assert_eq!(server.refs(), before);
    });
}

#[test]
fn attack_29_no_program_is_left_when_a_server_never_answers() {
    on_native(|fixture| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        for (url, program) in [
            (format!("ssh://git@127.0.0.1:{port}/app.git"), format!(" -p {port} git@127.0.0.1")),
            (format!("http://127.0.0.1:{port}/app.git"), format!("http://127.0.0.1:{port}/app.git")),
        ] {
            fixture.host_command("git").args(["init", "-q", "."]).finish().success();
            fixture.host_command("git").args(["config", "remote.origin.url", &url]).finish().success();
            let script = "git ls-remote origin & git push origin HEAD:agent/x & echo started; read _";
            let mut command = fixture.run();
            command.args(["--push", "agent/*", "--", "bash", "-c", script]).stdin(Stdio::piped());
            let mut running = Running::start(&mut command);
            assert_eq!(running.line(), "started");
            eventually("the host's program waits for the server", || is_running(&program));
            running.close_stdin();
            running.finish();
            eventually("no program is left", || !is_running(&program));
        }
    });
}

#[test]
fn git_lfs_says_why_it_transfers_nothing() {
    on_native(|fixture| {
        let server = GitServer::start(fixture);
        // Git LFS starts the agent of the remote's URL, and reads its first line.
        let script = "set -e; name=$(git config lfs.sandpen::0.standaloneTransferAgent)
            program=$(git config lfs.customTransfer.$name.path); arguments=$(git config lfs.customTransfer.$name.args)
            echo '{\"event\":\"init\",\"operation\":\"upload\"}' | $program $arguments; echo $GIT_LFS_SKIP_SMUDGE";
        let finished = bash(fixture, &["agent/*"], script);
        let (answer, skip) = finished.success().split_once('\n').expect("two lines");
        let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
        assert_eq!(
            answer["error"]["message"],
            "sandpen: --push does not carry files of Git LFS: fetch and push them outside"
        );
        assert!(answer["error"]["code"].is_number() && skip == "1", "{answer} {skip}");
        drop(server);
    });
}
