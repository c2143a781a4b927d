//! Presets: an agent's settings and keys, for that agent only.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{Pen, RunToEnd};
use crate::{for_every_container_engine, for_every_engine};

for_every_engine!(a_preset_brings_settings_and_keys, without_a_preset_there_is_neither, a_command_selects_its_preset,);
for_every_container_engine!(settings_are_at_both_homes,);

const SCRIPT: &str = "echo ${ANTHROPIC_API_KEY-no key} ${OPENAI_API_KEY-no other key}; ls -A ~";

fn a_preset_brings_settings_and_keys(pen: &Pen) {
    let run = |script: &str| {
        let mut command = pen.run();
        command.env("ANTHROPIC_API_KEY", "the key").env("OPENAI_API_KEY", "the other key");
        command.args(["--agent", "claude", "--", "bash", "-c", script]).ran()
    };
    assert_eq!(run(SCRIPT).ok(), "the key no other key\n.claude\nproject", "made when it is missing");
    let made = fs::metadata(pen.home.join(".claude")).expect("made on the host, so that a login is not lost");
    assert_eq!((made.uid(), made.gid()), (pen.uid, pen.gid));
    pen.write(".claude.json", "{}");
    run("set -e; echo login > ~/.claude/login; cat ~/.claude.json").ok();
    assert_eq!(fs::read_to_string(pen.home.join(".claude/login")).expect("kept"), "login\n");
}

fn without_a_preset_there_is_neither(pen: &Pen) {
    pen.write(".claude/credentials", "secret");
    for arguments in [&[][..], &["--agent", "none"]] {
        let mut command = pen.run();
        command.env("ANTHROPIC_API_KEY", "the key").args(arguments);
        assert_eq!(command.args(["--", "bash", "-c", SCRIPT]).ran().ok(), "no key no other key\nproject");
    }
}

fn a_command_selects_its_preset(pen: &Pen) {
    // The image lacks the command, which is as good: the settings directory was made for it.
    let ran = pen.run().args(["--", "claude"]).ran();
    assert_eq!(ran.code, Some(127), "{}", ran.stderr);
    assert!(pen.home.join(".claude").is_dir());
}

fn settings_are_at_both_homes(pen: &Pen) {
    pen.write(".config/llxprt-code/settings.json", "of the host");
    let script = format!(
        "cat ~/.config/llxprt-code/settings.json {}/.config/llxprt-code/settings.json; echo $HOME",
        pen.home.display()
    );
    let mut command = pen.sandpen();
    command.args(["run", "--engine", pen.engine.flag(), "--image", "localhost/sandpen-node", "--user", "image"]);
    let ran = command.args(["--agent", "llxprt", "--", "bash", "-c", &script]).ran();
    assert_eq!(ran.ok(), "of the hostof the host/home/node");
}
