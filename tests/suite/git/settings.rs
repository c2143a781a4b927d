//! Tests owners, signing, and settings that only work on the host.

use std::fs;

use super::{bash_in, git, repository};
use crate::support::{Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    host_only_settings_do_not_break_commands,
    explain_lists_what_was_done_about_settings,
    openpgp_signing_is_disabled_with_a_warning,
    settings_that_were_asked_for_stay,
);
for_every_engine!(with_empty_agent: ssh_signing_works_through_the_agent);
for_every_container_engine!(a_repository_of_another_owner_is_not_dubious);

/// Git refuses repositories of another owner unless `safe.directory` names them.
fn a_repository_of_another_owner_is_not_dubious(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    // The image's user is another owner; if root runs sandpen, the files get another owner, too.
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished = command.current_dir(&main).args(["--", "git", "log", "--format=%s"]).finish();
    assert_eq!(finished.success(), "first");
    if fixture.uid == 0 {
        for entry in walk(&main) {
            std::os::unix::fs::chown(entry, Some(4321), Some(4321)).expect("chown");
        }
        let refused = bash_in(fixture, &main, &[], "git log --format=%s");
        assert!(refused.stderr.contains("belongs to another user"), "{refused:?}");
        fixture.write(".gitconfig", &format!("[safe]\n\tdirectory = {}\n", main.display()));
        assert_eq!(bash_in(fixture, &main, &[], "git log --format=%s").success(), "first");
    }
    // The exception applies only to this repository.
    let script = "git init --quiet /tmp/other && GIT_TEST_ASSUME_DIFFERENT_OWNER=1 git -C /tmp/other status";
    let finished = bash_in(fixture, &main, &[], script);
    assert!(finished.stderr.contains("dubious ownership"), "{finished:?}");
    let finished = bash_in(fixture, &main, &[], "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 git status --short");
    finished.failure(0);
}

fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![directory.to_owned()];
    for entry in fs::read_dir(directory).expect("directory").flatten() {
        if entry.file_type().expect("type").is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Most of these settings name programs that a sandbox lacks.
const HOST_ONLY: &str = "[user]
    name = N
    email = n@x
[core]
    fsmonitor = /opt/host/watch
    pager = /opt/host/delta
    editor = /opt/host/code --wait
    sshCommand = /opt/host/ssh
[pager]
    log = /opt/host/delta
[interactive]
    diffFilter = /opt/host/delta --color-only
[credential]
    helper = osxkeychain
[credential \"https://example.org\"]
    helper = !/opt/host/gh auth git-credential
[filter \"lfs\"]
    clean = /opt/host/git-lfs clean -- %f
    smudge = /opt/host/git-lfs smudge -- %f
    process = /opt/host/git-lfs filter-process
    required = true
";

fn host_only_settings_do_not_break_commands(fixture: &Fixture) {
    fixture.write(".gitconfig", "");
    let main = repository(fixture, &fixture.project.join("main"));
    fixture.write("project/main/.gitattributes", "*.big filter=lfs\n");
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 1\n", "0".repeat(64));
    fixture.write("project/main/a.big", &pointer);
    git(fixture, &main, &["add", "--all"]).success();
    git(fixture, &main, &["commit", "--quiet", "--message", "big"]).success();
    fixture.write(".gitconfig", HOST_ONLY);
    // A git-lfs of the host, which `native` shows, would download the object.
    let script = "set -e; export GIT_LFS_SKIP_SMUDGE=1; git status --short; git -c core.pager= log -1 --format=%s; rm a.big; git checkout a.big; cat a.big
        git ls-remote ssh://git@127.0.0.1:1/x 2>&1 | grep -c /opt/host || true
        printf 'protocol=https\\nhost=example.org\\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>&1 | grep -cE 'osxkeychain|opt/host' || true
        for key in core.pager pager.log; do sh -c \"echo paged | ($(git config $key))\"; done
        echo x > file; git add file; echo y > file; git add -p < /dev/null > /dev/null; git config core.editor";
    // A changed file is committed as a pointer, with its object where git-lfs looks for it.
    let finished = bash_in(
        fixture,
        &main,
        &[],
        "printf hello > b.big && git add b.big && git show :b.big && rm b.big && git checkout -q b.big && cat b.big",
    );
    let oid = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(
        finished.success(),
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 5\nhello")
    );
    let object = main.join(".git/lfs/objects/2c/f2").join(oid);
    assert_eq!(fs::read_to_string(object).expect("object"), "hello");
    fixture.write(".gitconfig", "");
    git(fixture, &main, &["rm", "--cached", "--force", "--quiet", "b.big"]).success();
    fixture.write(".gitconfig", HOST_ONLY);
    fs::remove_file(main.join("b.big")).expect("remove");
    let finished = bash_in(fixture, &main, &[], script);
    assert_eq!(finished.success(), format!("big\n{pointer}0\n0\npaged\npaged\nvi"), "{}", finished.stderr);
    // A git-lfs of the host installs hooks, which are reported.
    if !(fixture.engine().flag() == "native" && std::path::Path::new("/usr/bin/git-lfs").exists()) {
        assert_eq!(finished.stderr.replace("Updated 1 path from the index\n", ""), "");
    }
}

fn explain_lists_what_was_done_about_settings(fixture: &Fixture) {
    repository(fixture, &fixture.project);
    fixture.write(".gitconfig", HOST_ONLY);
    let report = fixture.explain(&[]);
    let settings = report["git"]["settings"].as_array().expect("settings").clone();
    let names: Vec<&str> = settings.iter().filter_map(|setting| setting["key"].as_str()).collect();
    assert_eq!(
        names,
        [
            "core.editor",
            "core.fsmonitor",
            "core.pager",
            "core.sshcommand",
            "credential.helper",
            "credential.https://example.org.helper",
            "filter.lfs.process",
            "interactive.difffilter",
            "pager.log",
        ]
    );
    for setting in &settings {
        assert!(setting["done"].as_str().is_some_and(|done| !done.is_empty()), "{setting}");
        assert_eq!(setting["file"].as_str(), fixture.home.join(".gitconfig").to_str());
    }
    let text = fixture.sandpen(["explain", "--engine", fixture.engine().flag()]).finish();
    assert!(text.success().contains("core.fsmonitor"), "{}", text.stdout);
}

fn openpgp_signing_is_disabled_with_a_warning(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let signs =
        "[user]\n\tname = N\n\temail = n@x\n\tsigningKey = ABCD\n[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n";
    fixture.write(".gitconfig", signs);
    let finished = bash_in(
        fixture,
        &main,
        &[],
        "git commit --quiet --allow-empty -m inside && git tag -m t v1 && git log -1 --format=%G?",
    );
    assert_eq!(finished.success(), "N");
    assert_eq!(
        finished.stderr.matches("sandpen: warning: commits made inside are not signed").count(),
        1,
        "{}",
        finished.stderr
    );
    let strict = bash_in(fixture, &main, &["--strict"], "true");
    strict.failure(44);
    assert!(strict.stderr.contains("commits made inside would not be signed"), "{}", strict.stderr);
    // Without signing there is no message.
    fixture.write(".gitconfig", "[user]\n\tname = N\n\temail = n@x\n\tsigningKey = ABCD\n");
    assert_eq!(bash_in(fixture, &main, &[], "git commit --quiet --allow-empty -m inside").stderr, "");
}

fn ssh_signing_works_through_the_agent(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let key = fixture.home.join(".ssh/id");
    fixture.write(".ssh/keep", "");
    fixture
        .host_command("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "n@x", "-f"])
        .arg(&key)
        .finish()
        .success();
    fixture.agent().add_key(fixture, &key);
    let public = fs::read_to_string(key.with_extension("pub")).expect("public key");
    fixture.write("signers", &format!("n@x {public}"));
    for named in [key.clone(), key.with_extension("pub")] {
        fixture.write(
            ".gitconfig",
            &format!(
                "[user]\n\tname = N\n\temail = n@x\n\tsigningKey = {}\n[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = /opt/host/op-ssh-sign\n\tallowedSignersFile = ~/signers\n[commit]\n\tgpgSign = true\n",
                named.display()
            ),
        );
        let mut command = fixture.run();
        command.args(["--ssh-agent", "on"]).current_dir(&main);
        let script = "git commit --quiet --allow-empty -m signed && git log -1 --format='%G? %s'; ls ~/.ssh/id";
        let finished = command.args(["--", "bash", "-c", script]).finish();
        assert_eq!(finished.stdout.trim_end(), "G signed", "{}", finished.stderr);
    }
    // Without the agent there is no signature, but a warning.
    let finished = bash_in(
        fixture,
        &main,
        &["--ssh-agent", "off"],
        "git commit --quiet --allow-empty -m unsigned && git log -1 --format='%G? %s'",
    );
    assert_eq!(finished.success(), "N unsigned");
    assert!(finished.stderr.contains("not signed: the SSH agent is not forwarded"), "{}", finished.stderr);
}

fn settings_that_were_asked_for_stay(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let mut command = fixture.run();
    command.current_dir(&main).args(["--env", "GIT_CONFIG_COUNT=1", "--env", "GIT_CONFIG_KEY_0=alias.hello"]);
    command.args([
        "--env",
        "GIT_CONFIG_VALUE_0=!echo asked",
        "--",
        "bash",
        "-c",
        "git hello; git config safe.directory",
    ]);
    assert_eq!(command.finish().success(), format!("asked\n{}", main.display()));
}
