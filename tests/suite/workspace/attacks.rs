//! Attacks through a copy: what the guest leaves in it must not write, run or read anything outside.

use std::fs;
use std::os::unix::fs::symlink;

use super::{git, in_copy, prepare, sandpen, snapshot};
use crate::for_docker_and_native;
use crate::support::Fixture;

for_docker_and_native!(
    attack_31_nothing_is_written_through_a_link,
    attack_31_nothing_comes_into_a_git_directory,
    attack_31_no_program_of_the_guest_runs,
    attack_31_a_file_does_not_reach_the_terminal,
);

fn attack_31_nothing_is_written_through_a_link(fixture: &Fixture) {
    prepare(fixture);
    let outside = fixture.outside("outside");
    fs::write(outside.join("inner"), "secret\n").expect("file");
    let script = format!(
        "set -e; mkdir way; echo planted > way/planted; echo changed > dir/inner; rm file; ln -s {}/inner file; rm gone",
        outside.display()
    );
    in_copy(fixture, "links", &script);
    // Now links lead out where the copy has directories.
    fs::remove_dir_all(fixture.project.join("dir")).expect("remove");
    symlink(&outside, fixture.project.join("dir")).expect("link");
    symlink(&outside, fixture.project.join("way")).expect("link");
    let before = (snapshot(&outside), snapshot(&fixture.project));
    for arguments in
        [&["apply"][..], &["apply", "--markers"], &["apply", "links", "way"], &["apply", "links", "dir/inner"]]
    {
        let refused = sandpen(fixture, arguments);
        assert_ne!(refused.code, Some(0), "{arguments:?}: {}", refused.stderr);
        assert_eq!((snapshot(&outside), snapshot(&fixture.project)), before, "{arguments:?}");
    }
    // A link of the guest's is taken as a link, and never followed.
    sandpen(fixture, &["apply", "links", "file", "gone"]).success();
    assert_eq!(fs::read_link(fixture.project.join("file")).expect("link"), outside.join("inner"));
    sandpen(fixture, &["undo"]).success();
    assert_eq!(snapshot(&outside), before.0);
}

fn attack_31_nothing_comes_into_a_git_directory(fixture: &Fixture) {
    prepare(fixture);
    let before = snapshot(&fixture.project.join(".git"));
    let script = "set -e; git init --quiet sub; echo 'touch /tmp/ran' > sub/.git/hooks/post-checkout; echo s > sub/s; \
                  mkdir .GIT; echo x > .GIT/config; mkdir 'dir/.git '; echo x > 'dir/.git /config'; \
                  echo x > .git/hooks/pre-commit; git config core.fsmonitor /bin/false; echo ok > ok";
    in_copy(fixture, "gits", script);
    let diff = sandpen(fixture, &["diff", "--name-only", "--ignored"]);
    assert_eq!(diff.success(), "ok\nsub/s");
    assert!(diff.stderr.contains(".GIT") && diff.stderr.contains("sub/.git"), "{}", diff.stderr);
    sandpen(fixture, &["apply"]).success();
    assert!(!fixture.project.join("sub/.git").exists() && !fixture.project.join(".GIT").exists());
    assert!(fixture.project.join("sub/s").exists() && !fixture.project.join("dir/.git ").exists());
    assert_eq!(snapshot(&fixture.project.join(".git")), before);
    assert_eq!(git(fixture, &["config", "--get", "--default", "none", "core.fsmonitor"]), "none");
}

/// Filters, text conversions, hooks and the file system monitor are the ways in which Git runs programs.
fn attack_31_no_program_of_the_guest_runs(fixture: &Fixture) {
    prepare(fixture);
    let ran = fixture.outside("ran");
    let program = format!("touch {}/it", ran.display());
    let script = format!(
        "set -e; printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes; \
         for key in filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.textconv diff.evil.command \
            merge.evil.driver core.fsmonitor core.pager core.sshCommand diff.external pager.diff interactive.diffFilter; do \
            git config $key '{program}'; done; \
         for hook in post-checkout post-commit pre-commit post-index-change post-merge; do \
            printf '#!/bin/sh\\n{program}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; done; \
         echo changed > file; git -c core.fsmonitor= -c core.hooksPath=/dev/null -c filter.evil.clean= -c filter.evil.process= \
            commit --quiet --all --message evil || true"
    );
    in_copy(fixture, "evil", &script);
    let _ = fs::remove_file(ran.join("it"));
    for arguments in [
        &["diff"][..],
        &["diff", "--stat"],
        &["apply"],
        &["diff"],
        &["undo"],
        &["apply", "--markers"],
        &["discard", "evil"],
    ] {
        sandpen(fixture, arguments);
        assert!(!ran.join("it").exists(), "{arguments:?}");
    }
}

fn attack_31_a_file_does_not_reach_the_terminal(fixture: &Fixture) {
    prepare(fixture);
    in_copy(fixture, "escape", "printf 'a\\033]0;title\\007b\\n' > file; printf x > \"$(printf 'n\\033[2Jm')\"");
    let mut command = fixture.sandpen(["diff"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1").env("PAGER", "cat");
    let mut terminal = crate::support::pty::Pty::start(&command);
    terminal.expect("a^[]0;title^Gb");
    let said = terminal.said();
    assert!(!said.contains("\x1b]0;") && !said.contains("\x1b[2J"), "{said:?}");
    let plain = sandpen(fixture, &["diff", "--name-only"]);
    assert_eq!(plain.success(), "file\n\"n\\033[2Jm\"");
}
