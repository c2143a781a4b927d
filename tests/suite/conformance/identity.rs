//! Tests the guest's user: the owner of its files, its home, its entry in passwd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Engine, Fixture, RunToEnd};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    files_belong_to_the_host_user,
    home_is_writable_in_all_its_parts,
    executables_run_in_home_and_in_temp,
    the_user_has_a_passwd_entry_and_ssh_works,
);
for_native_image!(
    files_belong_to_the_host_user,
    home_is_writable_in_all_its_parts,
    executables_run_in_home_and_in_temp,
    the_user_has_a_passwd_entry_and_ssh_works
);
for_every_container_engine!(the_images_own_user_has_its_own_home, set_uid_gid_chooses_between_the_two,);

#[track_caller]
fn assert_owner(fixture: &Fixture, path: &Path) {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!((meta.uid(), meta.gid()), (fixture.uid, fixture.gid), "the owner of {}", path.display());
}

fn files_belong_to_the_host_user(fixture: &Fixture) {
    fixture.bash("set -e; echo text > file; mkdir -p a/b; echo text > a/b/c; ln -s file link").success();
    for name in ["file", "a", "a/b", "a/b/c", "link"] {
        assert_owner(fixture, &fixture.project.join(name));
    }
    assert_eq!(fs::read_to_string(fixture.project.join("a/b/c")).expect("file"), "text\n");
    // The guest can also change and remove the files of the host.
    fixture.write("project/of-the-host", "old");
    fixture.bash("set -e; echo new > of-the-host; rm file").success();
    assert_eq!(fs::read_to_string(fixture.project.join("of-the-host")).expect("file"), "new\n");
    assert!(!fixture.project.join("file").exists());
}

/// Engines create the parents of mount points as root; each of them must belong to the guest.
fn home_is_writable_in_all_its_parts(fixture: &Fixture) {
    fixture.write(".gitconfig", "");
    fixture.write(".config/git/config", "");
    fixture.write(".ssh/known_hosts", "");
    fixture.write(".claude.json", "{}");
    fixture.write("work/deep/project/file", "");
    let extra = fixture.write("elsewhere/mounted/file", "");
    let script = r#"
        for part in . .config .config/git .ssh .cache .local/share work work/deep elsewhere elsewhere/mounted; do
            mkdir -p ~/$part/new && echo x > ~/$part/new/file && rm -r ~/$part/new || echo "not writable: $part"
        done
        [ "$(stat -c %u ~)" = "$(id -u)" ] || echo "not the owner of HOME"
        echo "$HOME""#;
    let mut command = fixture.run();
    command.current_dir(fixture.home.join("work/deep/project")).arg("--mount").arg(&extra);
    let finished = command.args(["--agent", "claude", "--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), fixture.home.display().to_string());
    // The real home is unchanged.
    assert!(!fixture.home.join(".cache").exists());
}

fn executables_run_in_home_and_in_temp(fixture: &Fixture) {
    let script = r#"
        for place in "$HOME" /tmp "$PWD" "${TMPDIR:-/tmp}"; do
            printf '#!/bin/sh\necho ran\n' > "$place/program" && chmod +x "$place/program" && "$place/program"
        done"#;
    assert_eq!(fixture.bash(script).success(), "ran\nran\nran\nran");
    let temp = fixture.outside("temp");
    let finished = fixture.run().env("TMPDIR", &temp).args(["--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), "ran\nran\nran\nran", "with TMPDIR={}", temp.display());
    assert!(!temp.join("program").exists(), "the guest wrote to the host's temp directory");
}

fn the_user_has_a_passwd_entry_and_ssh_works(fixture: &Fixture) {
    let script = r#"
        set -e
        perl -e '@u = getpwuid($<); @g = getgrgid((split / /, $()[0]); print "$u[0]\n$u[7]\n$g[0]\n"'
        id -un; echo "$USER"; echo "$LOGNAME"
        ssh -G example.org | grep '^user '
        : > /dev/null; ssh -V 2>&1 | cut -c1-7"#;
    // Rootless Docker maps the user to root.
    let name = if fixture.engine() == Engine::DockerRootless { "root" } else { fixture.user_name() };
    let home = fixture.home.display();
    let expected = format!("{name}\n{home}\n{name}\n{name}\n{name}\n{name}\nuser {name}\nOpenSSH");
    assert_eq!(fixture.bash(script).success(), expected);
}

fn the_images_own_user_has_its_own_home(fixture: &Fixture) {
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished =
        command.args(["--", "bash", "-c", "id -u; id -un; echo $HOME; echo x > ~/file && cat ~/file"]).finish();
    assert_eq!(finished.success(), "1000\nnode\n/home/node\nx");
    // There the user of the host can be mapped to the image's.
    if fixture.engine() == Engine::PodmanRootless {
        let mut command = fixture.run_image("localhost/sandpen-node");
        command.args(["--user", "image", "--", "touch", "by-the-images-user"]).finish().success();
        assert_owner(fixture, &fixture.project.join("by-the-images-user"));
    }
}

fn set_uid_gid_chooses_between_the_two(fixture: &Fixture) {
    for (value, home) in [("0", "/home/node".to_owned()), ("true", fixture.home.display().to_string())] {
        let mut command = fixture.run_image("localhost/sandpen-node");
        let finished = command.env("SANDBOX_SET_UID_GID", value).args(["--", "bash", "-c", "echo $HOME"]).finish();
        assert_eq!(finished.success(), home, "SANDBOX_SET_UID_GID={value}");
    }
}

/// On rootful Docker the tests above run as root. This test covers the usual case, a member of the
/// group `docker`.
#[test]
fn an_ordinary_user_of_rootful_docker_keeps_its_files() {
    Fixture::on_docker_as_ordinary_user(std::convert::identity, |fixture| {
        fixture.write(".gitconfig", "[user]\n\tname = Me\n");
        let script = "set -e; echo x > file; mkdir d; id -u; id -un; git config user.name; ssh -G h | grep ^user\\ ;
            echo x > ~/.config-file; mkdir -p ~/.config/x ~/.ssh/x; setuid-id -u";
        let finished = fixture.bash(script);
        let user = fixture.user_name().to_owned();
        assert_eq!(finished.success(), format!("{0}\n{user}\nMe\nuser {user}\n{0}", fixture.uid));
        for name in ["file", "d"] {
            assert_owner(fixture, &fixture.project.join(name));
        }
        assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
    });
}

/// The engine creates a mount point inside the project on the host; if it remains, it must not
/// belong to root.
#[test]
fn mount_points_in_the_project_belong_to_an_ordinary_user_of_rootful_docker() {
    Fixture::on_docker_as_ordinary_user(std::convert::identity, |fixture| {
        let (from, target) = (fixture.outside("from"), fixture.project.join("made/for/a/mount"));
        fs::write(from.join("file"), "seen").expect("file");
        let mount = format!("{}:{}", from.display(), target.display());
        assert_eq!(
            fixture.run().args(["--mount", &mount, "--", "cat", "made/for/a/mount/file"]).finish().success(),
            "seen"
        );
        for path in target.ancestors().take_while(|path| *path != fixture.project).filter(|path| path.exists()) {
            assert_owner(fixture, path);
        }
    });
}
