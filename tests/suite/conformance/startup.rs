//! What the project brings along: its Python environment, its parts of PATH, its sandbox.bashrc.

use std::fs;

use crate::for_every_engine;
use crate::support::{Pen, RunToEnd};

for_every_engine!(
    a_python_environment_is_replaced_by_one_that_stays,
    an_environment_elsewhere_is_left_alone,
    parts_of_path_below_the_project_are_appended,
    sandbox_bashrc_prepares_the_command,
    orphans_are_reaped,
);

fn a_python_environment_is_replaced_by_one_that_stays(pen: &Pen) {
    let hosts = pen.write("project/.venv/bin/python", "of the host");
    let venv = pen.project.join(".venv");
    let script =
        "echo $VIRTUAL_ENV; ls -A $VIRTUAL_ENV; mkdir -p $VIRTUAL_ENV/bin && echo inside >> $VIRTUAL_ENV/bin/python";
    let run = || pen.run().env("VIRTUAL_ENV", &venv).args(["--", "bash", "-c", script]).ran();
    assert_eq!(run().ok(), venv.display().to_string(), "empty at first");
    assert_eq!(run().ok(), format!("{}\nbin", venv.display()), "kept for next time");
    assert_eq!(fs::read_to_string(&hosts).expect("file"), "of the host");
    // Without the variable the host's own is there.
    assert_eq!(pen.bash("cat .venv/bin/python").ok(), "of the host");
    // Another project's environment is another one.
    pen.write("project/sub/.venv/bin/python", "of the host");
    let ran = pen.run().env("VIRTUAL_ENV", pen.project.join("sub/.venv")).args(["--", "bash", "-c", script]).ran();
    assert_eq!(ran.ok(), pen.project.join("sub/.venv").display().to_string());
}

fn an_environment_elsewhere_is_left_alone(pen: &Pen) {
    let elsewhere = pen.outside("venv");
    let ran = pen.run().env("VIRTUAL_ENV", &elsewhere).args(["--", "bash", "-c", "echo ${VIRTUAL_ENV-unset}"]).ran();
    assert_eq!(ran.ok(), "unset");
}

fn parts_of_path_below_the_project_are_appended(pen: &Pen) {
    pen.write("project/tools dir/tool", "#!/bin/sh\necho tool\n");
    pen.write("project/tools dir/ls", "#!/bin/sh\necho planted\n");
    for name in ["tool", "ls"] {
        let file = pen.project.join("tools dir").join(name);
        fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let tools = pen.project.join("tools dir");
    let project = pen.project.display();
    let mut command = pen.run();
    command.env(
        "PATH",
        format!(
            "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{}",
            tools.display(),
            pen.home.join("bin").display()
        ),
    );
    command.env("PYTHONPATH", format!("/usr/lib/python:{project}/lib"));
    let ran = command.args(["--", "bash", "-c", "tool; ls -d /; echo $PATH; echo $PYTHONPATH"]).ran();
    let image = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    // Behind the image's own, so that nothing of the project stands in for a system program.
    assert_eq!(ran.ok(), format!("tool\n/\n{image}:{}\n{project}/lib", tools.display()));
}

fn sandbox_bashrc_prepares_the_command(pen: &Pen) {
    let text = "export FROM_BASHRC='a b'\nexport WHERE=$SANDBOX\ntouch ran-$(hostname) \"$HOME/ran-in-home\"\n";
    pen.write("project/.sandpen/sandbox.bashrc", text);
    let ran = pen.run().args(["--", "printenv", "FROM_BASHRC", "WHERE", "SANDBOX"]).ran();
    let lines: Vec<&str> = ran.ok().lines().collect();
    assert_eq!((lines[0], lines[1]), ("a b", lines[2]), "it runs in the sandbox");
    assert!(pen.project.join(format!("ran-{}", lines[2])).exists());
    assert!(!pen.home.join("ran-in-home").exists(), "and not outside");
    // Arguments with blanks and quotes are not read again by the shell; the exit code is the command's.
    let ran = pen.run().args(["--", "bash", "-c", "printf '<%s>' \"$@\"; exit 9", "bash", "a  b", "$HOME", "'"]).ran();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(9), "<a  b><$HOME><'>"));
    let ran = pen.run().args(["--", "no-such-command"]).ran();
    assert_eq!(ran.code, Some(127), "{}", ran.stderr);

    // The older name, where the first does not exist.
    fs::remove_dir_all(pen.project.join(".sandpen")).expect("remove");
    pen.write("project/.llxprt/sandbox.bashrc", "export FROM_BASHRC=llxprt\n");
    assert_eq!(pen.run().args(["--", "printenv", "FROM_BASHRC"]).ran().ok(), "llxprt");
}

/// The first process inside has an init's duties.
fn orphans_are_reaped(pen: &Pen) {
    let script = r#"
        (sleep 0.1 & sleep 0.1 &)
        for i in 1 2 3 4 5 6 7 8 9 10; do
            sleep 0.2
            states=$(ps -eo stat=,comm= | grep sleep | grep -v "^S")
            [ -z "$states" ] && ! ps -eo stat= | grep -q Z && { echo reaped; exit; }
        done
        ps -ef"#;
    assert_eq!(pen.bash(script).ok(), "reaped");
}
