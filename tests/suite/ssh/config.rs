//! Tests that the user's configuration of ssh works inside, without what only works outside.

use super::sshd::Sshd;
use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd, public_key};

for_every_engine!(with_agent: aliases_work_inside_as_outside);

/// Writes a configuration as users have it, with an alias for the server in an included file.
fn configure(fixture: &Fixture, user: &str, sshd: &Sshd) {
    fixture.write(".ssh/known_hosts_work", &sshd.known);
    fixture.write(".ssh/work", "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n");
    fixture.write(".ssh/work.pub", &format!("{}\n", public_key(&sshd.identity)));
    fixture.write(
        ".ssh/config",
        "Include conf.d/*\nMatch exec \"true\"\n  User wrong\nHost *\n  ControlMaster auto\n  ControlPath ~/.ssh/master-%h\n  \
         IdentityAgent ~/.ssh/agent\n  ProxyCommand no-such-program %h\n  UnknownKeyword yes\n",
    );
    let alias = format!(
        "Host gitbox\n  HostName 127.0.0.1\n  Port {}\n  User {user}\n  IdentityFile ~/.ssh/work\n  IdentitiesOnly yes\n  \
         UserKnownHostsFile ~/.ssh/known_hosts_work\n",
        sshd.port
    );
    fixture.write(".ssh/conf.d/work", &alias);
}

fn aliases_work_inside_as_outside(fixture: &Fixture) {
    let host = Fixture::new().with_engine(Engine::PodmanRootless);
    let sshd = Sshd::start(&host, "");
    fixture.agent().add_key(fixture, &sshd.identity);
    configure(fixture, host.user_name(), &sshd);
    let mut networks: Vec<Vec<String>> = vec![vec!["--allow-host".into(), format!("127.0.0.1:{}", sshd.port)]];
    match fixture.engine() {
        // The host's loopback cannot be reached from its network namespace.
        Engine::DockerRootless => {}
        engine if engine.is_container() => networks.push(vec!["--engine-flag=--network=host".into()]),
        _ => networks.push(Vec::new()),
    }
    for options in networks {
        let script = "ssh gitbox echo reached; ls ~/.ssh; grep -rs secret ~/.ssh";
        let finished = fixture.run().args(&options).args(["--", "bash", "-c", script]).finish();
        let lines: Vec<&str> = finished.stdout.lines().collect();
        assert_eq!(lines.first(), Some(&"reached"), "{options:?} {}{}", finished.stdout, finished.stderr);
        assert!(lines.contains(&"work.pub") && !lines.contains(&"work"), "{lines:?}");
        assert!(!finished.stdout.contains("secret"), "{}", finished.stdout);
    }
}

#[test]
fn explain_lists_what_is_left_out() {
    Fixture::on(Engine::Native, |fixture| {
        fixture.write(
            ".ssh/config",
            "Host a\n  HostName a.example\n  IdentityFile ~/.ssh/none\n  IdentitiesOnly yes\n  ControlPath x\nMatch exec \"x\"\n  Port 1\n",
        );
        let text = fixture.command("explain").args(["-v", "--", "true"]).finish().success().to_owned();
        for line in [":3: IdentityFile ~/.ssh/none", ":4: IdentitiesOnly yes", ":5: ControlPath x", ":6: Match exec"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let config = fixture.bash("cat ~/.ssh/config");
        assert_eq!(config.success(), "IgnoreUnknown *\nHost a\nHostName a.example\nHost !*\nPort 1");
        let verbose = fixture.run().args(["-v", "--", "true"]).finish();
        assert!(verbose.stderr.contains("ControlPath x"), "{}", verbose.stderr);
        assert_eq!(fixture.bash("true").stderr, "");
    });
}

#[test]
fn what_is_left_out_is_said_once() {
    Fixture::on_prepared(Engine::Native, Fixture::with_agent, |fixture| {
        let said = |fixture: &Fixture| fixture.run().args(["--", "true"]).finish().stderr;
        // Connections work without these.
        fixture.write(".ssh/config", "Host *\n  ControlMaster auto\n  ControlPath x\n  AddKeysToAgent yes\n");
        assert_eq!(said(fixture), "");
        fixture.write(".ssh/config", "Host a\n  ProxyCommand no-such-program %h\n  IdentityFile ~/.ssh/none\n");
        let line =
            "sandpen: ssh's configuration inside lacks 2 lines: `sandpen explain` lists them, with the reasons\n";
        assert_eq!(fixture.run().args(["-q", "--", "true"]).finish().stderr, "");
        assert_eq!(said(fixture), line);
        assert_eq!(said(fixture), "");
        fixture.write(".ssh/config", "Host a\n  ProxyCommand another-program %h\n");
        assert_eq!(said(fixture), line.replace("2 lines", "1 line"));
        assert_eq!(said(fixture), "");
        let listed = fixture.command("explain").args(["--", "true"]).finish();
        assert!(listed.success().contains("another-program"), "{listed:?}");
        // Without keys nobody uses ssh.
        fixture.write(".ssh/config", "Host a\n  ProxyCommand a-third-program %h\n");
        assert_eq!(fixture.run().args(["--ssh-agent", "off", "--", "true"]).finish().stderr, "");
    });
}

#[test]
fn a_configuration_that_the_guest_can_write_is_not_read() {
    Fixture::on(Engine::Native, |fixture| {
        fixture.write("project/ssh_config", "Host planted\n  IdentityFile ~/private\n");
        fixture.write("private", "secret");
        fixture.write("private.pub", "ssh-ed25519 AAAA planted");
        std::fs::create_dir_all(fixture.home.join(".ssh")).expect("directory");
        fixture.give_to_user(fixture.home.join(".ssh"));
        std::os::unix::fs::symlink("../project/ssh_config", fixture.home.join(".ssh/config")).expect("link");
        let inside = fixture.bash("cat ~/.ssh/config ~/private ~/private.pub 2>&-; true");
        assert_eq!(inside.success(), "");
        let finished = fixture.command("explain").args(["-v", "--", "true"]).finish();
        // Without the line breaks of the table.
        let text = finished.success().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("the guest can write it, so it is not read"), "{text}");
    });
}
