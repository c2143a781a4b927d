//! Tests attempts of a guest to choose what a sandbox mounts, by links and by races: 01, 19, 33.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Engine, Fixture, RunToEnd, SYSTEM_PATH};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_container_engine!(
    attack_33_a_source_that_is_replaced_before_the_mount_is_noticed,
    attack_33_a_source_that_is_replaced_before_the_launch_is_noticed,
);
for_every_engine!(
    attack_19_an_included_link_is_checked_against_the_repository,
    attack_19_a_file_that_a_variable_names_is_not_followed_out,
    attack_01_a_user_configuration_in_the_workspace_chooses_no_mounts,
);
for_native_image!(attack_19_a_file_that_a_variable_names_is_not_followed_out);

/// Stands in for a race: replaces the directory after sandpen has checked it, before the engine does.
fn client_that_replaces(fixture: &Fixture, directory: &str, by: &str) -> String {
    let client = fixture.engine().flag();
    let script = format!(
        "#!/bin/sh\nfor word; do [ \"$word\" = run ] && {{ mv '{directory}' '{directory}.old'; ln -s '{by}' '{directory}'; }}; done\n\
         PATH={SYSTEM_PATH} exec {client} \"$@\"\n"
    );
    let bin = fixture.outside("bin");
    crate::support::install_script(bin.join(client), &script);
    format!("{}:{SYSTEM_PATH}", bin.display())
}

fn attack_33_a_source_that_is_replaced_before_the_mount_is_noticed(fixture: &Fixture) {
    fixture.write("private/key", "secret");
    fixture.write("project/data/file", "data");
    let (data, private) = (fixture.project.join("data"), fixture.home.join("private"));
    let path = client_that_replaces(fixture, &data.display().to_string(), &private.display().to_string());
    let mut command = fixture.run();
    command.env("PATH", path).arg("--mount").arg(format!("{}:/data:rw", data.display()));
    let finished = command.args(["--", "bash", "-c", "cat /data/key; echo planted > /data/new"]).finish();
    let stderr = finished.failure(44);
    assert!(stderr.contains("was replaced on the host while the sandbox started"), "{stderr}");
    assert_eq!(finished.stdout, "", "the command did not start");
    assert!(!private.join("new").exists());
    assert_eq!(fixture.containers(), Vec::<String>::new());
}

/// The path is a link when the launcher looks at it for the last time.
fn attack_33_a_source_that_is_replaced_before_the_launch_is_noticed(fixture: &Fixture) {
    fixture.write("private/key", "secret");
    fixture.write("project/data/file", "data");
    let (data, private) = (fixture.project.join("data"), fixture.home.join("private"));
    // Git is asked after the files were looked at.
    let bin = fixture.outside("bin");
    let script = format!(
        "#!/bin/sh\nmv '{0}' '{0}.old'; ln -s '{1}' '{0}'\nexec /usr/bin/git \"$@\"\n",
        data.display(),
        private.display()
    );
    crate::support::install_script(bin.join("git"), &script);
    fixture.write(".gitconfig", "[include]\n\tpath = other\n");
    let mut command = fixture.run();
    command.env("PATH", format!("{}:{SYSTEM_PATH}", bin.display()));
    command.arg("--mount").arg(format!("{}:/data:rw", data.display()));
    let finished = command.args(["--", "cat", "/data/key"]).finish();
    assert_eq!((finished.code.is_some_and(|code| code != 0), finished.stdout.as_str()), (true, ""));
}

fn attack_19_an_included_link_is_checked_against_the_repository(fixture: &Fixture) {
    fixture.write("private/key", "secret");
    fixture.host_command("git").args(["init", "--quiet"]).finish().success();
    fixture.write("project/app/file", "");
    symlink(fixture.home.join("private"), fixture.project.join("lib")).expect("link");
    // The same place by a link outside of the workspace.
    symlink(&fixture.project, fixture.home.join("way")).expect("link");
    for include in ["../lib", "../../way/lib"] {
        let mut command = fixture.run();
        command.current_dir(fixture.project.join("app")).args(["--include-dir", include, "--", "true"]);
        let finished = command.finish();
        assert!(finished.failure(2).contains("is a link out of the workspace"), "{}", finished.stderr);
    }
    let mut command = fixture.run();
    command.args(["--mount", "../way/lib:/x", "--", "true"]);
    assert!(command.finish().failure(2).contains("is a link out of the workspace"));
}

fn attack_19_a_file_that_a_variable_names_is_not_followed_out(fixture: &Fixture) {
    let key = fixture.write(".ssh/id_ed25519", "secret key");
    fixture.write("project/certs/real.pem", "certificate");
    symlink(&key, fixture.project.join("certs/ca.pem")).expect("link");
    symlink(fixture.project.join("certs/ca.pem"), fixture.home.join("ca.pem")).expect("link");
    for name in ["project/certs/ca.pem", "ca.pem"] {
        let path = fixture.home.join(name);
        let mut command = fixture.run();
        command.env("NODE_EXTRA_CA_CERTS", &path).env("GOOGLE_APPLICATION_CREDENTIALS", &path);
        command.args(["--agent", "gemini", "--network", "on", "--", "cat"]).arg(&path);
        let finished = command.finish();
        assert!(!finished.stdout.contains("secret"), "{name}: {}", finished.stdout);
        assert!(finished.stderr.contains("leads out of the workspace by a link in it"), "{}", finished.stderr);
    }
    // One that stays in the workspace works.
    let path = fixture.project.join("certs/real.pem");
    let mut command = fixture.run();
    command.env("NODE_EXTRA_CA_CERTS", &path).args(["--network", "on", "--", "bash", "-c", "cat $NODE_EXTRA_CA_CERTS"]);
    assert_eq!(command.finish().success(), "certificate");
}

/// The user keeps `~/.gitconfig` in a repository, in which sandpen runs.
fn attack_01_a_user_configuration_in_the_workspace_chooses_no_mounts(fixture: &Fixture) {
    let key = fixture.write("private/id", "secret key");
    let setting = format!("[commit]\n\ttemplate = {}\n[user]\n\tname = Me\n", key.display());
    let kept = fixture.write("project/gitconfig", &setting);
    symlink(&kept, fixture.home.join(".gitconfig")).expect("link");
    fixture.write("project/bashrc", "# mine\n");
    symlink(fixture.project.join("bashrc"), fixture.home.join(".bashrc")).expect("link");
    let script = format!(
        "cat {}; git config user.name; echo '[core] fsmonitor = x' >> gitconfig; echo evil >> bashrc; rm -f bashrc; true",
        key.display()
    );
    let finished = fixture.bash(&script);
    assert_eq!(finished.success(), "Me");
    assert_eq!(fs::read_to_string(&kept).expect("gitconfig"), setting);
    assert_eq!(fs::read_to_string(fixture.home.join(".bashrc")).expect("bashrc"), "# mine\n");
    for name in [".gitconfig", ".bashrc"] {
        let warning = format!("`{}` is in the workspace", fixture.home.join(name).display());
        assert!(finished.stderr.contains(&warning), "{warning}: {}", finished.stderr);
    }
    // A link that the guest makes of it leads nowhere.
    fs::remove_file(&kept).expect("remove");
    symlink(&key, &kept).expect("link");
    let finished = fixture.bash("cat ~/.gitconfig");
    assert!(!finished.stdout.contains("secret"), "{}", finished.stdout);
}

/// The engine may be on another machine, where the host's paths do not exist.
#[test]
fn a_launch_leaves_the_owners_file_readable() {
    Fixture::on(Engine::Docker, |fixture| {
        let finished = fixture.bash("head -c 9 /.sandpen/owner; echo x 2>&- > /.sandpen/owner || echo ' read-only'");
        assert_eq!(finished.success(), "{\"boot\":\" read-only");
    });
}
