//! Who the guest is: the owner of its files, its home, its entry in passwd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Engine, Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(
    files_belong_to_the_host_user,
    home_is_writable_in_all_its_parts,
    executables_run_in_home_and_in_temp,
    the_user_has_a_passwd_entry_and_ssh_works,
);
for_every_container_engine!(the_images_own_user_has_its_own_home, set_uid_gid_chooses_between_the_two,);

#[track_caller]
fn assert_owner(pen: &Pen, path: &Path) {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!((meta.uid(), meta.gid()), (pen.uid, pen.gid), "the owner of {}", path.display());
}

fn files_belong_to_the_host_user(pen: &Pen) {
    pen.bash("set -e; echo text > file; mkdir -p a/b; echo text > a/b/c; ln -s file link").ok();
    for name in ["file", "a", "a/b", "a/b/c", "link"] {
        assert_owner(pen, &pen.project.join(name));
    }
    assert_eq!(fs::read_to_string(pen.project.join("a/b/c")).expect("file"), "text\n");
    // And the other way round: what the host wrote can be changed and removed inside.
    pen.write("project/of-the-host", "old");
    pen.bash("set -e; echo new > of-the-host; rm file").ok();
    assert_eq!(fs::read_to_string(pen.project.join("of-the-host")).expect("file"), "new\n");
    assert!(!pen.project.join("file").exists());
}

/// Engines make the parents of mount points as root; every one of them must be the guest's.
fn home_is_writable_in_all_its_parts(pen: &Pen) {
    pen.write(".gitconfig", "");
    pen.write(".config/git/config", "");
    pen.write(".ssh/known_hosts", "");
    pen.write(".claude.json", "{}");
    pen.write("work/deep/project/file", "");
    let extra = pen.write("elsewhere/mounted/file", "");
    let script = r#"
        for part in . .config .config/git .ssh .cache .local/share work work/deep elsewhere elsewhere/mounted; do
            mkdir -p ~/$part/new && echo x > ~/$part/new/file && rm -r ~/$part/new || echo "not writable: $part"
        done
        [ "$(stat -c %u ~)" = "$(id -u)" ] || echo "not the owner of HOME"
        echo "$HOME""#;
    let mut command = pen.run();
    command.current_dir(pen.home.join("work/deep/project")).arg("--mount").arg(&extra);
    let ran = command.args(["--agent", "claude", "--", "bash", "-c", script]).ran();
    assert_eq!(ran.ok(), pen.home.display().to_string());
    // Nothing of it reached the real home.
    assert!(!pen.home.join(".cache").exists());
}

fn executables_run_in_home_and_in_temp(pen: &Pen) {
    let script = r#"
        for place in "$HOME" /tmp "$PWD" "${TMPDIR:-/tmp}"; do
            printf '#!/bin/sh\necho ran\n' > "$place/program" && chmod +x "$place/program" && "$place/program"
        done"#;
    assert_eq!(pen.bash(script).ok(), "ran\nran\nran\nran");
    let temp = pen.outside("temp");
    let ran = pen.run().env("TMPDIR", &temp).args(["--", "bash", "-c", script]).ran();
    assert_eq!(ran.ok(), "ran\nran\nran\nran", "with TMPDIR={}", temp.display());
    assert!(!temp.join("program").exists(), "the host's temp directory is not the guest's");
}

fn the_user_has_a_passwd_entry_and_ssh_works(pen: &Pen) {
    let script = r#"
        set -e
        perl -e '@u = getpwuid($<); @g = getgrgid((split / /, $()[0]); print "$u[0]\n$u[7]\n$g[0]\n"'
        id -un; echo "$USER"; echo "$LOGNAME"
        ssh -G example.org | grep '^user '
        : > /dev/null; ssh -V 2>&1 | cut -c1-7"#;
    let name = match pen.engine {
        Engine::PodmanRootless | Engine::Native => std::env::var("SANDPEN_TEST_USER").expect("the rig's user"),
        _ => "root".into(),
    };
    let home = pen.home.display();
    let expected = format!("{name}\n{home}\n{name}\n{name}\n{name}\n{name}\nuser {name}\nOpenSSH");
    assert_eq!(pen.bash(script).ok(), expected);
}

fn the_images_own_user_has_its_own_home(pen: &Pen) {
    let mut command = pen.sandpen();
    command.args(["run", "--engine", pen.engine.flag(), "--image", "localhost/sandpen-node", "--user", "image"]);
    let ran = command.args(["--", "bash", "-c", "id -u; id -un; echo $HOME; echo x > ~/file && cat ~/file"]).ran();
    assert_eq!(ran.ok(), "1000\nnode\n/home/node\nx");
}

fn set_uid_gid_chooses_between_the_two(pen: &Pen) {
    for (value, home) in [("0", "/home/node".to_owned()), ("true", pen.home.display().to_string())] {
        let mut command = pen.sandpen();
        command.args(["run", "--engine", pen.engine.flag(), "--image", "localhost/sandpen-node"]);
        let ran = command.env("SANDBOX_SET_UID_GID", value).args(["--", "bash", "-c", "echo $HOME"]).ran();
        assert_eq!(ran.ok(), home, "SANDBOX_SET_UID_GID={value}");
    }
}

/// On rootful Docker the tests above run as root; this is the usual case, a member of the group `docker`.
#[test]
fn an_ordinary_user_of_rootful_docker_keeps_its_files() {
    Pen::on_docker_as_ordinary_user(|pen| {
        pen.write(".gitconfig", "[user]\n\tname = Me\n");
        let script = "set -e; echo x > file; mkdir d; id -u; id -un; git config user.name; ssh -G h | grep ^user\\ ;
            echo x > ~/.config-file; mkdir -p ~/.config/x ~/.ssh/x; setuid-id -u";
        let ran = pen.bash(script);
        let user = std::env::var("SANDPEN_TEST_USER").expect("the rig's user");
        assert_eq!(ran.ok(), format!("{0}\n{user}\nMe\nuser {user}\n{0}", pen.uid));
        for name in ["file", "d"] {
            assert_owner(pen, &pen.project.join(name));
        }
        assert_eq!(pen.sessions(), Vec::<std::path::PathBuf>::new());
    });
}

/// A mount point inside the project is made on the host: if it stays, it must not be root's.
#[test]
fn mount_points_in_the_project_belong_to_an_ordinary_user_of_rootful_docker() {
    Pen::on_docker_as_ordinary_user(|pen| {
        let (from, target) = (pen.outside("from"), pen.project.join("made/for/a/mount"));
        fs::write(from.join("file"), "seen").expect("file");
        let mount = format!("{}:{}", from.display(), target.display());
        assert_eq!(pen.run().args(["--mount", &mount, "--", "cat", "made/for/a/mount/file"]).ran().ok(), "seen");
        for path in target.ancestors().take_while(|path| *path != pen.project).filter(|path| path.exists()) {
            assert_owner(pen, path);
        }
    });
}
