//! Knows how docker's command line spells what sandpen's spells otherwise, so that a user of docker
//! is told the right flag. `-e`, `-p` and `--env-file` mean the same in both.

use std::ffi::OsString;

use super::Cli;
use super::errors::CliError;
use crate::cli::Command;

/// Flags of docker that sandpen does not have.
const FLAGS: &[(&[&str], &str)] = &[
    (&["--volume"], "use `--mount FROM[:TO[:ro|rw]]`: read-only, unless the mode is `rw`"),
    (
        &["-i", "-t", "-it", "-ti", "--interactive", "--tty"],
        "leave it out: the command has a terminal if sandpen has one",
    ),
    (&["--rm"], "leave it out: a sandbox is removed when it ends, unless `--keep` is given"),
    (&["-w", "--workdir"], "leave it out: the command runs in the current directory"),
    (&["-m"], "use `--memory`"),
    (&["-u"], "use `--user host` or `--user image`"),
    (&["--net"], "use `--network`"),
    (&["--pids-limit"], "use `--pids`"),
    (
        &["--add-host", "--cap-add", "--device", "--gpus", "--privileged", "--shm-size"],
        "to pass a flag to the engine: `--engine-flag FLAG`",
    ),
];

/// Returns what to do instead of giving a flag of docker.
pub fn hint(flag: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(names, _)| names.contains(&flag)).map(|(_, hint)| *hint)
}

/// Returns an error if `-v` was given a volume, which then is the command.
pub fn volume(cli: &Cli) -> Option<CliError> {
    let guest: &[OsString] = match &cli.command {
        None => &cli.guest,
        Some(Command::Run(run)) => &run.guest,
        Some(Command::Explain(explain)) => &explain.guest,
        Some(_) => return None,
    };
    let volume = guest.first()?.to_str().filter(|_| cli.options().verbose)?;
    let (from, to) = volume.split_once(':')?;
    let is_volume = from.starts_with(['/', '~', '.']) && to.starts_with('/');
    is_volume.then(|| CliError::Volume { volume: volume.to_owned() })
}
