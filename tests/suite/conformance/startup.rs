//! Parts of the project affect the guest: its Python environment, its parts of PATH, its
//! sandbox.bashrc.

use std::fs;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(
    a_python_environment_is_replaced_by_one_that_stays,
    an_environment_elsewhere_is_left_alone,
    parts_of_path_below_the_project_are_kept,
    sandbox_bashrc_prepares_the_command,
    orphans_are_reaped,
);
for_native_image!(parts_of_path_below_the_project_are_kept, sandbox_bashrc_prepares_the_command, orphans_are_reaped);

fn a_python_environment_is_replaced_by_one_that_stays(fixture: &Fixture) {
    let hosts = fixture.write("project/.venv/bin/python", "of the host");
    let venv = fixture.project.join(".venv");
    if !fixture.engine().is_container() {
        // The interpreter of the host's environment is the same inside.
        let mut command = fixture.run();
        command.env("VIRTUAL_ENV", &venv).args(["--", "bash", "-c", "cat $VIRTUAL_ENV/bin/python"]);
        assert_eq!(command.finish().success(), "of the host");
        return;
    }
    let script =
        "echo $VIRTUAL_ENV; ls -A $VIRTUAL_ENV; mkdir -p $VIRTUAL_ENV/bin && echo inside >> $VIRTUAL_ENV/bin/python";
    let run = || fixture.run().env("VIRTUAL_ENV", &venv).args(["--", "bash", "-c", script]).finish();
    assert_eq!(run().success(), venv.display().to_string(), "the environment is empty at first");
    assert_eq!(run().success(), format!("{}\nbin", venv.display()), "the environment is kept for the next run");
    assert_eq!(fs::read_to_string(&hosts).expect("file"), "of the host");
    // Without the variable the host's own environment is visible.
    assert_eq!(fixture.bash("cat .venv/bin/python").success(), "of the host");
    // Each environment of the host has its own replacement.
    fixture.write("project/sub/.venv/bin/python", "of the host");
    let finished =
        fixture.run().env("VIRTUAL_ENV", fixture.project.join("sub/.venv")).args(["--", "bash", "-c", script]).finish();
    assert_eq!(finished.success(), fixture.project.join("sub/.venv").display().to_string());
}

fn an_environment_elsewhere_is_left_alone(fixture: &Fixture) {
    let elsewhere = fixture.outside("venv");
    let finished =
        fixture.run().env("VIRTUAL_ENV", &elsewhere).args(["--", "bash", "-c", "echo ${VIRTUAL_ENV-unset}"]).finish();
    assert_eq!(finished.success(), "unset");
}

fn parts_of_path_below_the_project_are_kept(fixture: &Fixture) {
    fixture.write_script("project/tools dir/tool", "#!/bin/sh\necho tool\n");
    fixture.write_script("project/tools dir/ls", "#!/bin/sh\necho planted\n");
    let tools = fixture.project.join("tools dir");
    let project = fixture.project.display();
    let mut command = fixture.run();
    command.env(
        "PATH",
        format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{}",
            tools.display(),
            fixture.home.join("bin").display()
        ),
    );
    command.env("PYTHONPATH", format!("/usr/lib/python:{project}/lib"));
    let finished = command.args(["--", "bash", "-c", "tool; ls -d /; echo $PATH; echo $PYTHONPATH"]).finish();
    let image = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let tools = tools.display();
    let expected = if fixture.engine().has_image() {
        // The project's directories follow the image's, so that no file of the project replaces a
        // program of the image.
        format!("tool\n/\n{image}:{tools}\n{project}/lib")
    } else {
        // PATH keeps the host's order.
        format!("tool\nplanted\n{tools}:{image}\n{project}/lib")
    };
    assert_eq!(finished.success(), expected);
}

fn sandbox_bashrc_prepares_the_command(fixture: &Fixture) {
    let text = "export FROM_BASHRC='a b'\nexport WHERE=$SANDBOX\ntouch ran-$SANDBOX \"$HOME/ran-in-home\"\n";
    fixture.write("project/.sandpen/sandbox.bashrc", text);
    let finished = fixture.run().args(["--", "printenv", "FROM_BASHRC", "WHERE", "SANDBOX"]).finish();
    let lines: Vec<&str> = finished.success().lines().collect();
    assert_eq!((lines[0], lines[1]), ("a b", lines[2]), "sandbox.bashrc runs in the sandbox");
    assert!(fixture.project.join(format!("ran-{}", lines[2])).exists());
    assert!(!fixture.home.join("ran-in-home").exists(), "sandbox.bashrc ran on the host");
    // The shell does not expand the arguments again; the exit code is that of the command.
    let finished =
        fixture.run().args(["--", "bash", "-c", "printf '<%s>' \"$@\"; exit 9", "bash", "a  b", "$HOME", "'"]).finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(9), "<a  b><$HOME><'>"));
    let finished = fixture.run().args(["--", "no-such-command"]).finish();
    finished.failure(127);

    // The older name is used if the first does not exist.
    fs::remove_dir_all(fixture.project.join(".sandpen")).expect("remove");
    fixture.write("project/.llxprt/sandbox.bashrc", "export FROM_BASHRC=llxprt\n");
    assert_eq!(fixture.run().args(["--", "printenv", "FROM_BASHRC"]).finish().success(), "llxprt");
}

/// The first process inside must reap orphans, as init does.
fn orphans_are_reaped(fixture: &Fixture) {
    let script = r#"
        (sleep 0.1 & sleep 0.1 &)
        for i in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.2
            states=$(ps -eo stat=,comm= | grep sleep | grep -v "^S")
            [ -z "$states" ] && ! ps -eo stat= | grep -q Z && { echo reaped; exit; }
        done
        ps -ef"#;
    assert_eq!(fixture.bash(script).success(), "reaped");
}
