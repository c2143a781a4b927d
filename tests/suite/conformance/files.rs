//! Tests which files the guest sees: the working directory, requested mounts, and no other file of
//! the host.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(
    the_working_directory_is_its_real_path,
    include_dirs_are_writable,
    relative_paths_are_taken_from_the_current_directory,
    mounts_are_read_only_unless_asked_for,
    mounts_come_from_variables_and_files_too,
    the_rest_of_home_is_not_there,
    the_hosts_temp_directory_is_there_only_when_asked_for,
    known_hosts_are_at_both_places_and_read_only,
);
for_native_image!(
    the_working_directory_is_its_real_path,
    include_dirs_are_writable,
    mounts_are_read_only_unless_asked_for,
    the_rest_of_home_is_not_there,
    the_hosts_temp_directory_is_there_only_when_asked_for,
    known_hosts_are_at_both_places_and_read_only
);

fn the_working_directory_is_its_real_path(fixture: &Fixture) {
    let link = fixture.root.join("link");
    symlink(&fixture.project, &link).expect("link");
    fixture.write("project/file", "content");
    let mut command = fixture.run();
    command.current_dir(&link).env("PWD", &link);
    let finished = command.args(["--", "bash", "-c", "pwd -P; cat file; ls -d /proc/self/cwd/"]).finish();
    assert_eq!(finished.success(), format!("{}\ncontent/proc/self/cwd/", fixture.project.display()));
}

fn include_dirs_are_writable(fixture: &Fixture) {
    let (one, two) = (fixture.outside("one"), fixture.outside("two"));
    let script = format!("set -e; echo 1 > {}/file; echo 2 > {}/file; pwd", one.display(), two.display());
    let mut command = fixture.run();
    command.arg("--include-dir").arg(&one).arg("--include-dir").arg(&two);
    let finished = command.args(["--", "bash", "-c", &script]).finish();
    assert_eq!(finished.success(), fixture.project.display().to_string(), "the working directory stays the same");
    for (directory, content) in [(one, "1\n"), (two, "2\n")] {
        assert_eq!(fs::read_to_string(directory.join("file")).expect("file"), content);
    }
}

fn relative_paths_are_taken_from_the_current_directory(fixture: &Fixture) {
    fixture.write("library/file", "included\n");
    fixture.write("data/file", "mounted\n");
    let mut command = fixture.run();
    command.args(["--include-dir", "../library", "--mount", "../data:/data"]);
    assert_eq!(command.args(["--", "cat", "../library/file", "/data/file"]).finish().success(), "included\nmounted");
}

fn mounts_are_read_only_unless_asked_for(fixture: &Fixture) {
    let from = fixture.outside("from");
    fs::write(from.join("file"), "content").expect("file");
    std::os::unix::fs::chown(from.join("file"), Some(fixture.uid), Some(fixture.gid)).expect("chown");
    let from = from.display();
    let script = format!(
        r#"
        for place in {from} /as-ro /as-default; do
            cat $place/file; echo
            echo x 2>&- > $place/new && echo "$place is writable"
            echo x 2>&- > $place/file && echo "$place/file is writable"
        done
        cat /one-file; echo
        echo x 2>&- > /one-file && echo "/one-file is writable"
        echo changed > /as-rw/file && cat /as-rw/file"#
    );
    let mut command = fixture.run();
    command.args(["--mount", &from.to_string(), "--mount", &format!("{from}:/as-ro:ro")]);
    command.args(["--mount", &format!("{from}:/as-default"), "--mount", &format!("{from}:/as-rw:rw")]);
    let finished = command.args(["--mount", &format!("{from}/file:/one-file"), "--", "bash", "-c", &script]).finish();
    assert_eq!(finished.success(), "content\ncontent\ncontent\ncontent\nchanged");
    assert_eq!(fs::read_to_string(fixture.root.join("from/file")).expect("file"), "changed\n");
}

fn mounts_come_from_variables_and_files_too(fixture: &Fixture) {
    for name in ["variable", "other", "profile", "config"] {
        fs::write(fixture.outside(name).join("file"), name).expect("file");
    }
    let root = &fixture.root;
    let root = root.display();
    fixture
        .write(".config/sandpen/config.toml", &format!("mounts = [{{ from = \"{root}/config\", to = \"/config\" }}]"));
    let profile = format!(r#"{{"mounts": [{{"from": "{root}/profile", "to": "/profile", "mode": "rw"}}]}}"#);
    fixture.write(".config/sandpen/profiles/mine.json", &profile);
    let mut command = fixture.run();
    command.env("SANDBOX_MOUNTS", format!("{root}/variable:/variable, {root}/other:/other:rw"));
    let script = "cat /{variable,other,profile,config}/file; for d in /{variable,other,profile,config}; do
        echo x 2>&- > $d/new && echo \" $d\"; done; true";
    let finished = command.args(["--profile", "mine", "--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), "variableotherprofileconfig /other\n /profile");
}

fn the_rest_of_home_is_not_there(fixture: &Fixture) {
    let marker = "sandpen-secret-marker";
    for place in [".aws", ".ssh", ".config/gh", ".local/state/sandpen", "other-project", "."] {
        fixture.write(format!("{place}/{marker}"), "secret");
    }
    fs::write(fixture.outside("beside").join(marker), "secret").expect("file");
    fixture.write(".config/sandpen/config.toml", "");
    let script = format!(
        "find / -path /proc -prune -o -path /sys -prune -o -name {marker} -print;
        find ~ -mindepth 1 -maxdepth 1; ls -A ~/..; test -e ~/.config/sandpen && echo 'the configuration is there'; true"
    );
    let finished = fixture.bash(&script);
    assert_eq!(finished.success(), format!("{}\nhome", fixture.project.display()));
}

fn the_hosts_temp_directory_is_there_only_when_asked_for(fixture: &Fixture) {
    let file = tempfile::Builder::new().prefix("sandpen-marker-").tempfile_in("/tmp").expect("temporary file");
    std::os::unix::fs::chown(file.path(), Some(fixture.uid), Some(fixture.gid)).expect("chown");
    let name = file.path().display();
    let script = format!("echo private > /tmp/mine; ls -A /tmp; echo written 2>&- > {name}; true");
    assert_eq!(fixture.bash(&script).success(), "mine");
    assert_eq!(fs::read_to_string(file.path()).expect("file"), "", "the guest changed the host's file");
    let finished =
        fixture.run().args(["--tmp", "host", "--", "bash", "-c", &format!("echo written > {name}")]).finish();
    finished.success();
    assert_eq!(fs::read_to_string(file.path()).expect("file"), "written\n");
    assert!(!std::path::Path::new("/tmp/mine").exists());
}

fn known_hosts_are_at_both_places_and_read_only(fixture: &Fixture) {
    let host = "example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPuHqGOHPlHDHGOnJGLnVHZLUvGgHFhNQ8gXxTrgiCu";
    fixture.write(".ssh/known_hosts", &format!("{host}\n"));
    let script = r#"
        cat ~/.ssh/known_hosts /etc/ssh/ssh_known_hosts
        echo x 2>&- >> ~/.ssh/known_hosts && echo writable
        echo x 2>&- >> /etc/ssh/ssh_known_hosts && echo writable
        ssh-keygen -F example.org > /dev/null && echo known
        ls -A ~/.ssh"#;
    assert_eq!(fixture.bash(script).success(), format!("{host}\n{host}\nknown\nknown_hosts"));
    assert_eq!(fs::read_to_string(fixture.home.join(".ssh/known_hosts")).expect("file"), format!("{host}\n"));
}
