//! The identity inside is the identity outside, through every kind of include; only the user's own files are followed.

use super::{bash_in, git, repository};
use crate::support::{Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    includes_give_the_same_identity,
    files_that_the_users_configuration_names_come_along,
    the_hosts_variables_of_identity_come_along,
    attack_01_the_repositorys_own_configuration_is_not_followed,
    attack_01_an_include_that_never_ends_does_not_hang,
);
for_every_container_engine!(conditions_on_the_home_hold_at_another_home);

fn includes_give_the_same_identity(pen: &Pen) {
    let main = repository(pen, &pen.project.join("work/main"));
    git(pen, &main, &["remote", "add", "origin", "git@example.org:a/b.git"]).ok();
    let home = pen.home.display();
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
    pen.write("first", "[include]\n\tpath = included\n");
    for (text, kind) in cases {
        pen.write(".gitconfig", &format!("[user]\n\tname = N\n\temail = wrong@example.org\n{text}"));
        pen.write("included", &format!("[user]\n\temail = {kind}@example.org\n"));
        let outside = pen.host_command("git").current_dir(&main).args(["config", "user.email"]).ran();
        assert_eq!(outside.ok(), format!("{kind}@example.org"), "the case itself");
        assert_eq!(bash_in(pen, &main, &[], "git config user.email").ok(), outside.ok(), "{kind}");
    }
    // The repository's own setting still wins, and can be made inside.
    assert_eq!(bash_in(pen, &main, &[], "git config user.email own@x; git config user.email").ok(), "own@x");
    assert_eq!(git(pen, &main, &["config", "--local", "user.email"]).ok(), "own@x");
}

fn conditions_on_the_home_hold_at_another_home(pen: &Pen) {
    let main = repository(pen, &pen.project.join("work/main"));
    pen.write(".gitconfig", "[user]\n\temail = wrong@x\n[includeIf \"gitdir:~/project/work/\"]\n\tpath = ~/included\n");
    pen.write("included", "[user]\n\temail = right@x\n[alias]\n\tq = \"!f() { echo \\\"a\\\\tb\\\"; }; f\"\n");
    let mut command = pen.sandpen();
    command.args(["run", "--engine", pen.engine.flag(), "--image", "localhost/sandpen-node", "--user", "image"]);
    let ran = command.current_dir(&main).args(["--", "bash", "-c", "git config user.email; git q"]).ran();
    assert_eq!(ran.ok(), "right@x\na\tb");
}

fn files_that_the_users_configuration_names_come_along(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let elsewhere = pen.outside("elsewhere");
    let signers = elsewhere.join("signers");
    std::fs::write(&signers, "me@x ssh-ed25519 AAAA\n").expect("write");
    pen.write(
        ".gitconfig",
        &format!(
            "[core]\n\texcludesFile = ~/.ignored\n\tattributesFile = ~/.attributes\n[commit]\n\ttemplate = ~/.template\n[gpg \"ssh\"]\n\tallowedSignersFile = {}\n",
            signers.display()
        ),
    );
    pen.write(".ignored", "*.skip\n");
    pen.write(".attributes", "*.odd text eol=crlf\n");
    pen.write(".template", "a template\n");
    let script = "git check-ignore x.skip; git check-attr eol x.odd; cat $(git config --path commit.template);
        cat $(git config --path gpg.ssh.allowedSignersFile); echo x >> ~/.ignored && echo written; true";
    let ran = bash_in(pen, &main, &[], script);
    assert_eq!(ran.ok(), "x.skip\nx.odd: eol: crlf\na template\nme@x ssh-ed25519 AAAA");
    // Git's own places, without any setting.
    pen.write(".gitconfig", "");
    pen.write(".config/git/ignore", "*.xdg\n");
    assert_eq!(bash_in(pen, &main, &[], "git check-ignore x.xdg").ok(), "x.xdg");
}

fn the_hosts_variables_of_identity_come_along(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let own = pen.write("elsewhere.gitconfig", "[user]\n\tname = Elsewhere\n");
    let mut command = pen.run();
    command.current_dir(&main).env("GIT_CONFIG_GLOBAL", own).env("GIT_AUTHOR_EMAIL", "author@x");
    command.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "user.email").env("GIT_CONFIG_VALUE_0", "count@x");
    // A value that could be a token is nobody's business.
    let ran = command
        .args(["--", "bash", "-c", "git config user.name; git config user.email; git var GIT_AUTHOR_IDENT"])
        .ran();
    assert!(ran.ok().starts_with("Elsewhere\ncount@x\nElsewhere <author@x>"), "{}", ran.stdout);
}

fn attack_01_the_repositorys_own_configuration_is_not_followed(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let secret = pen.write("private-thing", "hunter2\n[user]\n\temail = stolen@x\n");
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
        git(pen, &main, &["config", "--local", key, path]).ok();
    }
    git(pen, &main, &["config", "--local", "gpg.format", "ssh"]).ok();
    git(pen, &main, &["config", "--local", "user.signingKey", path]).ok();
    let ran = bash_in(pen, &main, &[], &format!("cat {path} 2>/dev/null; env; true"));
    assert!(!ran.ok().contains("hunter2"), "{}", ran.stdout);
    let explained = pen.sandpen().current_dir(&main).args(["explain", "--engine", pen.engine.flag()]).ran();
    let mounts = explained.stdout.split("\nEnvironment").next().expect("files").to_owned();
    assert!(!mounts.contains("private-thing"), "{mounts}");
}

fn attack_01_an_include_that_never_ends_does_not_hang(pen: &Pen) {
    let main = repository(pen, &pen.project.join("main"));
    let pipe = main.join("pipe");
    pen.host_command("mkfifo").arg(&pipe).ran().ok();
    git(pen, &main, &["config", "--local", "include.path", pipe.to_str().expect("text")]).ok();
    let ran = bash_in(pen, &main, &[], "echo ran");
    assert_eq!(ran.ok(), "ran");
    assert!(ran.stderr.contains("Git did not read its configuration"), "{}", ran.stderr);
}
