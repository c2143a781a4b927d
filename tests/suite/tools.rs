//! Tests which programs below HOME run inside a native sandbox, and that nothing else of HOME comes
//! along.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{Engine, Fixture, RunToEnd};

macro_rules! natively {
    ($($name:ident),+ $(,)?) => {$(
        #[test]
        fn $name() { Fixture::on(Engine::Native, cases::$name) }
    )+};
}

natively!(
    every_program_of_path_runs_for_everyone_inside,
    path_keeps_its_order,
    credentials_beside_programs_stay_outside,
    a_script_on_path_finds_its_interpreter_below_home,
    a_command_by_its_path_or_through_a_wrapper_runs,
    a_command_that_is_not_inside_is_told_apart,
    a_read_only_mount_of_a_directory_on_path_changes_nothing,
    attack_07_a_writable_directory_on_path_is_suspect,
    an_active_environment_is_used_as_it_is,
    shell_and_editor_survive_if_they_are_inside,
    why_knows_programs,
    programs_cannot_be_changed,
);

/// Runs sandpen with further directories in front of PATH.
fn with_path(fixture: &Fixture, subcommand: &str, entries: &[&str]) -> Command {
    let entries = entries.iter().map(|entry| fixture.home.join(entry).display().to_string());
    let path: Vec<String> = entries.chain(["/usr/bin".into(), "/bin".into()]).collect();
    let mut command = fixture.command(subcommand);
    command.env("PATH", path.join(":"));
    command
}

fn bash(fixture: &Fixture, entries: &[&str], script: &str) -> String {
    with_path(fixture, "run", entries).args(["--", "bash", "-c", script]).finish().success().to_owned()
}

fn link(fixture: &Fixture, to: &str, path: &str) {
    let path = fixture.home.join(path);
    std::fs::create_dir_all(path.parent().expect("parent")).expect("directories");
    symlink(to, &path).expect("link");
    for directory in path.ancestors().skip(1).take_while(|directory| *directory != fixture.home) {
        fixture.give_to_user(directory);
    }
}

mod cases {
    use super::*;

    pub fn every_program_of_path_runs_for_everyone_inside(fixture: &Fixture) {
        fixture.write_script(".cargo/bin/rustup", "#!/bin/sh\ncat ~/.rustup/toolchains/stable/version\n");
        link(fixture, "rustup", ".cargo/bin/cargo");
        fixture.write(".rustup/toolchains/stable/version", "cargo 1.0\n");
        fixture.write_script(".nvm/versions/node/v20/lib/node_modules/tool/cli.js", "#!/usr/bin/env node\n");
        fixture.write_script(".nvm/versions/node/v20/bin/node", "#!/bin/sh\necho node of nvm\n");
        link(fixture, "../lib/node_modules/tool/cli.js", ".nvm/versions/node/v20/bin/tool");
        fixture.write_script(".pyenv/libexec/pyenv", "#!/bin/sh\necho pyenv runs $2\n");
        let shim = format!("#!/bin/sh\nexec {}/.pyenv/libexec/pyenv exec python3\n", fixture.home.display());
        fixture.write_script(".pyenv/shims/python3", &shim);
        let venv = ".local/share/pipx/venvs/pre-commit";
        fixture.write(format!("{venv}/pyvenv.cfg"), "home = /usr/bin\n");
        fixture.write_script(format!("{venv}/bin/pre-commit"), "#!/bin/sh\necho pre-commit 4\n");
        link(fixture, "../share/pipx/venvs/pre-commit/bin/pre-commit", ".local/bin/pre-commit");
        fixture.write_script("bin/mine", "#!/bin/sh\necho mine\n");
        let path = [".cargo/bin", ".nvm/versions/node/v20/bin", ".pyenv/shims", ".local/bin", "bin"];
        let found = bash(fixture, &path, "cargo; tool; python3; pre-commit; mine");
        assert_eq!(found, "cargo 1.0\nnode of nvm\npyenv runs python3\npre-commit 4\nmine");
    }

    pub fn path_keeps_its_order(fixture: &Fixture) {
        for (directory, text) in [(".a/bin", "a"), ("project/bin", "project"), (".b/bin", "b")] {
            fixture.write_script(format!("{directory}/tool"), &format!("#!/bin/sh\necho {text}\n"));
        }
        let inside = bash(fixture, &["project/bin", ".missing/bin", ".a/bin", ".b/bin"], "tool; echo $PATH");
        let home = fixture.home.display();
        assert_eq!(inside, format!("project\n{home}/project/bin:{home}/.a/bin:{home}/.b/bin:/usr/bin:/bin"));
    }

    pub fn credentials_beside_programs_stay_outside(fixture: &Fixture) {
        let secrets = [
            ".cargo/credentials.toml",
            ".npm-global/etc/npmrc",
            ".npmrc",
            ".pypirc",
            ".config/gcloud/credentials.db",
            ".config/composer/auth.json",
            ".gem/credentials",
            ".local/share/keyrings/login",
            "work/private/key",
            "work/lib/key",
        ];
        secrets.iter().for_each(|file| drop(fixture.write(file, "secret")));
        let programs =
            [".cargo/bin", ".npm-global/bin", ".config/composer/vendor/bin", ".gem/ruby/3.1.0/bin", "work/bin"];
        for (number, directory) in programs.iter().chain(&[".local/bin"]).enumerate() {
            fixture.write_script(format!("{directory}/tool{number}"), "#!/bin/sh\necho runs\n");
        }
        let path: Vec<&str> = programs.iter().copied().chain([".local/bin"]).collect();
        let found = bash(fixture, &path, "for n in 0 1 2 3 4 5; do tool$n; done; grep -rls secret ~ | sort; true");
        assert_eq!(found, ["runs"; 6].join("\n"));
    }

    pub fn a_script_on_path_finds_its_interpreter_below_home(fixture: &Fixture) {
        let home = fixture.home.display();
        fixture.write_script(".runtime/3.1/bin/interpreter", "#!/bin/sh\necho interpreted; shift; exit 0\n");
        fixture.write_script("bin/script", &format!("#!{home}/.runtime/3.1/bin/interpreter\n"));
        fixture.write(".runtime/login", "secret");
        assert_eq!(bash(fixture, &["bin"], "script; ls ~/.runtime"), "interpreted\n3.1");
    }

    pub fn a_command_by_its_path_or_through_a_wrapper_runs(fixture: &Fixture) {
        let program = fixture.write_script(".agent/local/agent", "#!/bin/sh\necho agent\n");
        fixture.write("secret", "secret");
        let finished = fixture.run().arg("--").arg(&program).finish();
        assert_eq!(finished.success(), "agent");
        fixture.write_script("bin/agent", &format!("#!/bin/sh\nexec {} \"$@\"\n", program.display()));
        let finished = with_path(fixture, "run", &["bin"]).args(["--", "agent"]).finish();
        assert_eq!(finished.success(), "agent");
    }

    pub fn a_command_that_is_not_inside_is_told_apart(fixture: &Fixture) {
        let outside = fixture.outside("elsewhere").join("no-interpreter");
        crate::support::install_script(&outside, &format!("#!{}/nothing\n", fixture.home.display()));
        let stderr = fixture.run().arg("--").arg(&outside).finish().failure(127).to_owned();
        assert!(stderr.contains("exists on the host, but it or its interpreter is not visible inside"), "{stderr}");
        let stderr = fixture.run().args(["--", "/no/such/program"]).finish().failure(127).to_owned();
        assert!(stderr.contains("`/no/such/program` was not found"), "{stderr}");
    }

    pub fn a_read_only_mount_of_a_directory_on_path_changes_nothing(fixture: &Fixture) {
        fixture.write_script(".local/bin/aider", "#!/bin/sh\necho aider runs\n");
        let mount = fixture.home.join(".local/bin");
        for options in [vec![], vec!["--mount".into(), mount.display().to_string()]] {
            let mut command = with_path(fixture, "run", &[".local/bin"]);
            let finished = command.args(&options).args(["--", "aider"]).finish();
            assert_eq!((finished.success(), finished.stderr.as_str()), ("aider runs", ""), "{options:?}");
        }
    }

    pub fn attack_07_a_writable_directory_on_path_is_suspect(fixture: &Fixture) {
        fixture.write_script(".local/bin/aider", "#!/bin/sh\necho aider runs\n");
        let mount = format!("{}:{0}:rw", fixture.home.join(".local/bin").display());
        let mut command = with_path(fixture, "run", &[".local/bin"]);
        let finished = command.args(["--mount", &mount, "--", "aider"]).finish();
        assert_eq!(finished.success(), "aider runs");
        assert!(finished.stderr.contains("the preset `aider` does not apply"), "{}", finished.stderr);
        // A link that the guest leaves there is not followed at the next launch.
        fixture.write_script(".secret/deep/program", "#!/bin/sh\necho secret\n");
        let script = format!("ln -s {}/.secret/deep/program ~/.local/bin/planted", fixture.home.display());
        let mut command = with_path(fixture, "run", &[".local/bin"]);
        command.args(["--mount", &mount, "--", "sh", "-c", &script]).finish().success();
        let mut command = with_path(fixture, "run", &[".local/bin"]);
        command.args(["--mount", &mount, "--", "planted"]).finish().failure(127);
    }

    pub fn an_active_environment_is_used_as_it_is(fixture: &Fixture) {
        let environment = fixture.home.join("project/.venv");
        fixture.write("project/.venv/pyvenv.cfg", "home = /usr/bin\n");
        fixture.write_script("project/.venv/bin/pytest", "#!/bin/sh\necho pytest of $VIRTUAL_ENV\n");
        fixture.write_script("project/.venv/bin/ls", "#!/bin/sh\necho ls of the environment\n");
        let run = |command: &str| {
            let mut run = with_path(fixture, "run", &["project/.venv/bin"]);
            let finished = run.env("VIRTUAL_ENV", &environment).args(["--", "sh", "-c", command]).finish();
            assert_eq!(finished.stderr, "");
            finished.success().to_owned()
        };
        assert_eq!(run("pytest; ls"), format!("pytest of {}\nls of the environment", environment.display()));
    }

    pub fn shell_and_editor_survive_if_they_are_inside(fixture: &Fixture) {
        fixture.write_script("bin/edit", "#!/bin/sh\n");
        let variables =
            [("SHELL", "/bin/bash"), ("EDITOR", "edit --wait"), ("VISUAL", "missing"), ("PAGER", "less -R")];
        let mut run = with_path(fixture, "run", &["bin"]);
        let script =
            "echo $SHELL; getent passwd $(id -u) | cut -d: -f7; echo $EDITOR; echo ${VISUAL-none}; echo $PAGER";
        let finished = run.envs(variables).args(["--", "sh", "-c", script]).finish();
        let pager = if std::path::Path::new("/usr/bin/less").exists() { "less -R" } else { "" };
        assert_eq!(finished.success(), format!("/bin/bash\n/bin/bash\nedit --wait\nnone\n{pager}").trim_end());
        let mut run = with_path(fixture, "run", &[]);
        let shell = fixture.outside("elsewhere").join("shell").display().to_string();
        let finished = run.env("SHELL", shell).args(["--", "sh", "-c", "echo ${SHELL-none}"]).finish();
        assert_eq!(finished.success(), "none");
    }

    pub fn why_knows_programs(fixture: &Fixture) {
        fixture.write_script(".cargo/bin/cargo-nothing", "#!/bin/sh\n");
        let elsewhere = fixture.outside("elsewhere");
        crate::support::install_script(elsewhere.join("tool-elsewhere"), "#!/bin/sh\n");
        let why = |name: &str| {
            let mut explain = with_path(fixture, "explain", &[".cargo/bin", "../elsewhere"]);
            explain
                .env("PATH", format!("{}:{}:/usr/bin", fixture.home.join(".cargo/bin").display(), elsewhere.display()));
            fixture.normalize(explain.args(["--why", name]).finish().success())
        };
        let inside = why("cargo-nothing");
        assert!(inside.contains("inside at [ROOT]/home/.cargo/bin/cargo-nothing"), "{inside}");
        assert!(inside.contains("programs of your PATH"), "{inside}");
        let outside = why("tool-elsewhere");
        assert!(outside.contains("on the host at [ROOT]/elsewhere/tool-elsewhere, not inside"), "{outside}");
    }

    pub fn programs_cannot_be_changed(fixture: &Fixture) {
        let tool = fixture.write_script(".local/bin/tool", "#!/bin/sh\necho tool\n");
        bash(
            fixture,
            &[".local/bin"],
            "echo x >> ~/.local/bin/tool; rm -f ~/.local/bin/tool; touch ~/.local/bin/new; true",
        );
        assert_eq!(std::fs::read_to_string(tool).expect("tool"), "#!/bin/sh\necho tool\n");
        assert!(!fixture.home.join(".local/bin/new").exists());
    }
}
