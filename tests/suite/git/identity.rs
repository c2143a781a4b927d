//! The identity inside equals the identity outside, through every kind of include; only the user's
//! own files are followed.

use super::{bash_in, git, repository};
use crate::support::{Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    includes_give_the_same_identity,
    files_that_the_users_configuration_names_come_along,
    the_hosts_variables_of_identity_come_along,
    attack_01_the_repositorys_own_configuration_is_not_followed,
    attack_01_an_include_that_never_ends_does_not_hang,
);
for_every_container_engine!(conditions_on_the_home_hold_at_another_home);

fn includes_give_the_same_identity(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("work/main"));
    git(fixture, &main, &["remote", "add", "origin", "git@example.org:a/b.git"]).success();
    let home = fixture.home.display();
    let cases = [
        ("[include]\n\tpath = included\n".to_owned(), "relative"),
        ("[include]\n\tpath = ~/included\n".to_owned(), "home"),
        (format!("[include]\n\tpath = {home}/included\n"), "absolute"),
        ("[includeIf \"gitdir:~/project/work/\"]\n\tpath = included\n".to_owned(), "gitdir"),
        ("[includeIf \"gitdir/i:**/WORK/**\"]\n\tpath = included\n".to_owned(), "gitdir/i"),
        ("[includeIf \"onbranch:main\"]\n\tpath = included\n".to_owned(), "onbranch"),
        ("[includeIf \"hasconfig:remote.*.url:git@example.org:*/**\"]\n\tpath = included\n".to_owned(), "hasconfig"),
        ("[include]\n\tpath = first\n".to_owned(), "nested"),
    ];
    fixture.write("first", "[include]\n\tpath = included\n");
    for (text, kind) in cases {
        fixture.write(".gitconfig", &format!("[user]\n\tname = N\n\temail = wrong@example.org\n{text}"));
        fixture.write("included", &format!("[user]\n\temail = {kind}@example.org\n"));
        let outside = fixture.host_command("git").current_dir(&main).args(["config", "user.email"]).finish();
        assert_eq!(outside.success(), format!("{kind}@example.org"), "Git outside must read the include");
        assert_eq!(bash_in(fixture, &main, &[], "git config user.email").success(), outside.success(), "{kind}");
    }
    // The repository's own setting still wins. One that is made inside stays there.
    git(fixture, &main, &["config", "--local", "user.email", "own@x"]).success();
    let finished =
        bash_in(fixture, &main, &[], "git config user.email; git config user.email new@x; git config user.email");
    assert_eq!(finished.success(), "own@x\nnew@x");
    assert!(finished.stderr.contains("the setting stays inside: `user.email`"), "{}", finished.stderr);
    assert_eq!(git(fixture, &main, &["config", "--local", "user.email"]).success(), "own@x");
}

fn conditions_on_the_home_hold_at_another_home(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("work/main"));
    fixture.write(
        ".gitconfig",
        "[user]\n\temail = wrong@x\n[includeIf \"gitdir:~/project/work/\"]\n\tpath = ~/included\n",
    );
    fixture.write("included", "[user]\n\temail = right@x\n[alias]\n\tq = \"!f() { echo \\\"a\\\\tb\\\"; }; f\"\n");
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished = command.current_dir(&main).args(["--", "bash", "-c", "git config user.email; git q"]).finish();
    assert_eq!(finished.success(), "right@x\na\tb");
}

fn files_that_the_users_configuration_names_come_along(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let elsewhere = fixture.outside("elsewhere");
    let signers = elsewhere.join("signers");
    std::fs::write(&signers, "me@x ssh-ed25519 AAAA\n").expect("write");
    fixture.write(
        ".gitconfig",
        &format!(
            "[core]\n\texcludesFile = ~/.ignored\n\tattributesFile = ~/.attributes\n[commit]\n\ttemplate = ~/.template\n[gpg \"ssh\"]\n\tallowedSignersFile = {}\n",
            signers.display()
        ),
    );
    fixture.write(".ignored", "*.skip\n");
    fixture.write(".attributes", "*.odd text eol=crlf\n");
    fixture.write(".template", "a template\n");
    let script = "git check-ignore x.skip; git check-attr eol x.odd; cat $(git config --path commit.template);
        cat $(git config --path gpg.ssh.allowedSignersFile); echo x >> ~/.ignored && echo written; true";
    let finished = bash_in(fixture, &main, &[], script);
    assert_eq!(finished.success(), "x.skip\nx.odd: eol: crlf\na template\nme@x ssh-ed25519 AAAA");
    // Git reads these paths by default.
    fixture.write(".gitconfig", "");
    fixture.write(".config/git/ignore", "*.xdg\n");
    assert_eq!(bash_in(fixture, &main, &[], "git check-ignore x.xdg").success(), "x.xdg");
}

fn the_hosts_variables_of_identity_come_along(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let own = fixture.write("elsewhere.gitconfig", "[user]\n\tname = Elsewhere\n");
    let mut command = fixture.run();
    command.current_dir(&main).env("GIT_CONFIG_GLOBAL", own).env("GIT_AUTHOR_EMAIL", "author@x");
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "user.email").env("GIT_CONFIG_VALUE_0", "count@x");
    let finished = command
        .args(["--", "bash", "-c", "git config user.name; git config user.email; git var GIT_AUTHOR_IDENT"])
        .finish();
    assert!(finished.success().starts_with("Elsewhere\ncount@x\nElsewhere <author@x>"), "{}", finished.stdout);
}

fn attack_01_the_repositorys_own_configuration_is_not_followed(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let secret = fixture.write("private-thing", "hunter2\n[user]\n\temail = stolen@x\n");
    let path = secret.to_str().expect("text");
    for key in [
        "include.path",
        "includeIf.gitdir:/.path",
        "commit.template",
        "core.excludesFile",
        "core.attributesFile",
        "gpg.ssh.allowedSignersFile",
        "blame.ignoreRevsFile",
    ] {
        git(fixture, &main, &["config", "--local", key, path]).success();
    }
    git(fixture, &main, &["config", "--local", "gpg.format", "ssh"]).success();
    git(fixture, &main, &["config", "--local", "user.signingKey", path]).success();
    let finished = bash_in(fixture, &main, &[], &format!("cat {path} 2>/dev/null; env; true"));
    assert!(!finished.success().contains("hunter2"), "{}", finished.stdout);
    let explained = fixture.sandpen(["explain", "--engine", fixture.engine().flag()]).current_dir(&main).finish();
    let mounts = explained.stdout.split("\nEnvironment").next().expect("files").to_owned();
    assert!(!mounts.contains("private-thing"), "{mounts}");
}

fn attack_01_an_include_that_never_ends_does_not_hang(fixture: &Fixture) {
    let main = repository(fixture, &fixture.project.join("main"));
    let pipe = main.join("pipe");
    fixture.host_command("mkfifo").arg(&pipe).finish().success();
    git(fixture, &main, &["config", "--local", "include.path", pipe.to_str().expect("text")]).success();
    let finished = bash_in(fixture, &main, &[], "echo ran");
    assert_eq!(finished.success(), "ran");
    assert!(finished.stderr.contains("Git did not read its configuration"), "{}", finished.stderr);
}
