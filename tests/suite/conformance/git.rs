//! Git works inside as it does outside: R2, R3.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    r2_1_git_discovery_is_set,
    r3_1_to_r3_3_git_reads_the_hosts_configuration,
    r3_2_the_xdg_configuration_is_there_and_read_only,
    r3_3_the_global_ignore_file_is_there_and_read_only,
    r3_5_the_files_cannot_be_changed,
    r3_6_missing_files_do_not_matter,
    r3_7_git_credentials_stay_outside_unless_asked_for,
    a_commit_in_a_subdirectory_is_the_users,
);
for_native_image!(
    r3_1_to_r3_3_git_reads_the_hosts_configuration,
    r3_5_the_files_cannot_be_changed,
    a_commit_in_a_subdirectory_is_the_users
);
for_every_container_engine!(r3_4_the_files_are_at_both_homes,);

const FILES: [&str; 3] = [".gitconfig", ".config/git/config", ".gitignore_global"];

fn r2_1_git_discovery_is_set(fixture: &Fixture) {
    assert_eq!(fixture.bash("echo $GIT_DISCOVERY_ACROSS_FILESYSTEM").success(), "1");
    // No option can disable it by accident.
    let finished = fixture.run().args(["--env", "GIT_DISCOVERY_ACROSS_FILESYSTEM=0", "--", "printenv"]).finish();
    assert!(finished.success().lines().any(|line| line == "GIT_DISCOVERY_ACROSS_FILESYSTEM=1"), "{}", finished.stdout);
}

fn write_files(fixture: &Fixture) {
    fixture.write(".gitconfig", "[user]\n\tname = R3.1\n[core]\n\texcludesFile = ~/.gitignore_global\n");
    fixture.write(".config/git/config", "[user]\n\temail = r3@example.org\n");
    fixture.write(".gitignore_global", "*.ignored\n");
}

/// Prints the settings that Git reads from the three files.
const WHAT_GIT_SEES: &str = "set -e; git config user.name; git config user.email;
    git init --quiet /tmp/repository; cd /tmp/repository; git check-ignore x.ignored";

fn r3_2_the_xdg_configuration_is_there_and_read_only(fixture: &Fixture) {
    fixture.write(".config/git/config", "[user]\n\tname = From XDG\n");
    let script = "git config user.name; echo x >> ~/.config/git/config && echo written; true";
    assert_eq!(fixture.bash(script).success(), "From XDG");
}

fn r3_3_the_global_ignore_file_is_there_and_read_only(fixture: &Fixture) {
    fixture.write(".gitignore_global", "*.log\n");
    let script = "cat ~/.gitignore_global; echo x >> ~/.gitignore_global && echo written; true";
    assert_eq!(fixture.bash(script).success(), "*.log");
}

fn r3_1_to_r3_3_git_reads_the_hosts_configuration(fixture: &Fixture) {
    write_files(fixture);
    assert_eq!(fixture.bash(WHAT_GIT_SEES).success(), "R3.1\nr3@example.org\nx.ignored");
}

fn r3_4_the_files_are_at_both_homes(fixture: &Fixture) {
    write_files(fixture);
    fixture.write(".ssh/known_hosts", "known\n");
    let script = format!(
        r#"{WHAT_GIT_SEES}
        for home in /home/node {}; do
            for file in {} .ssh/known_hosts; do
                cat "$home/$file" > /dev/null && ! (echo x >> "$home/$file") 2>&- && echo "$file"
            done
        done"#,
        fixture.home.display(),
        FILES.join(" ")
    );
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished = command.args(["--", "bash", "-c", &script]).finish();
    let once = format!("{}\n.ssh/known_hosts", FILES.join("\n"));
    assert_eq!(finished.success(), format!("R3.1\nr3@example.org\nx.ignored\n{once}\n{once}"));
}

fn r3_5_the_files_cannot_be_changed(fixture: &Fixture) {
    write_files(fixture);
    let before = FILES.map(|file| fs::read(fixture.home.join(file)).expect("file"));
    let script = format!(
        r#"for file in {}; do
            (echo x >> ~/$file) 2>&- && echo "$file can be appended to"
            rm -f ~/$file 2>&- && echo "$file can be removed"
            mv ~/$file ~/moved 2>&- && echo "$file can be moved"
            (: > ~/replacement && mv -f ~/replacement ~/$file) 2>&- && echo "$file can be replaced"
            chmod 777 ~/$file 2>&- && echo "the mode of $file can be changed"
        done
        git config --global user.name Mallory 2>&- && echo 'git config --global works'
        true"#,
        FILES.join(" ")
    );
    assert_eq!(fixture.bash(&script).success(), "");
    assert_eq!(FILES.map(|file| fs::read(fixture.home.join(file)).expect("file")), before);
}

fn r3_6_missing_files_do_not_matter(fixture: &Fixture) {
    let finished = fixture.bash("git init --quiet . && git status --short && ls -A ~");
    assert_eq!(finished.success(), "project");
    assert_eq!(finished.stderr, "", "a run without problems prints nothing");
    // Any one of the three files works alone.
    fixture.write(".config/git/config", "[user]\n\tname = Only\n");
    assert_eq!(fixture.bash("git config user.name").success(), "Only");
}

fn r3_7_git_credentials_stay_outside_unless_asked_for(fixture: &Fixture) {
    let file = fixture.write(".git-credentials", "https://user:hunter2@example.org\n");
    fixture.write(".gitconfig", "[credential]\n\thelper = store\n");
    let search = "find / -path /proc -prune -o -path /sys -prune -o -name '.git-credentials*' -print; env";
    let finished = fixture.bash(search);
    assert!(
        !finished.success().contains("git-credentials") && !finished.stdout.contains("hunter2"),
        "{}",
        finished.stdout
    );
    for variable in ["SANDBOX_MOUNTS", "LLXPRT_SANDBOX_MOUNTS"] {
        let mut command = fixture.run();
        command.env(variable, &file);
        let finished =
            command.args(["--", "bash", "-c", "cat ~/.git-credentials; (echo x >> ~/.git-credentials) 2>&-"]).finish();
        assert_eq!(
            (finished.code, finished.stdout.as_str()),
            (Some(1), "https://user:hunter2@example.org\n"),
            "{}",
            finished.stderr
        );
    }
}

fn a_commit_in_a_subdirectory_is_the_users(fixture: &Fixture) {
    fixture
        .write(".gitconfig", "[user]\n\tname = The User\n\temail = user@example.org\n[init]\n\tdefaultBranch = main\n");
    let subdirectory = fixture.write("project/sub/directory/file", "one\n").parent().expect("parent").to_owned();
    fixture.write("project/top", "seen\n");
    fixture.host_command("git").args(["init", "--quiet"]).finish().success();
    let script = "set -e; git status --short; git add -A; git commit --quiet -m 'from inside'; cat ../../top; pwd";
    let mut command = fixture.run();
    command.current_dir(&subdirectory);
    let finished = command.args(["--", "bash", "-c", script]).finish();
    // The root of the repository is mounted as well.
    assert_eq!(finished.success(), format!("?? ../\n?? ../../top\nseen\n{}", subdirectory.display()));
    let log = fixture.host_command("git").args(["log", "--format=%an <%ae> %s", "--name-only"]).finish();
    assert_eq!(log.success(), "The User <user@example.org> from inside\n\nsub/directory/file\ntop");
    assert_eq!(fixture.host_command("git").args(["status", "--porcelain"]).finish().success(), "");
    every_file(&fixture.project, &|path| {
        let meta = fs::symlink_metadata(path).expect("metadata");
        assert_eq!((meta.uid(), meta.gid()), (fixture.uid, fixture.gid), "{}", path.display());
    });
}

fn every_file(directory: &Path, check: &dyn Fn(&Path)) {
    for entry in fs::read_dir(directory).expect("directory").flatten() {
        check(&entry.path());
        if entry.file_type().expect("type").is_dir() {
            every_file(&entry.path(), check);
        }
    }
}
