//! Git inside is Git outside, wherever in a repository; and what is planted in a repository does not run on the host.

mod guard;
mod identity;
mod places;
mod plain;
mod settings;

use std::path::{Path, PathBuf};

use crate::support::{Pen, Ran, RunToEnd};

/// The host's Git, as the user, in a directory.
fn git(pen: &Pen, directory: impl AsRef<Path>, arguments: &[&str]) -> Ran {
    let identity = ["-c", "user.name=Host", "-c", "user.email=host@example.org", "-c", "protocol.file.allow=always"];
    pen.host_command("git").arg("-C").arg(directory.as_ref()).args(identity).args(arguments).ran()
}

/// A repository with one commit, owned by the user.
fn repository(pen: &Pen, directory: &Path) -> PathBuf {
    std::fs::create_dir_all(directory).expect("directory");
    std::os::unix::fs::chown(directory, Some(pen.uid), Some(pen.gid)).expect("chown");
    git(pen, directory, &["init", "--quiet", "--initial-branch=main"]).ok();
    git(pen, directory, &["commit", "--quiet", "--allow-empty", "--message", "first"]).ok();
    directory.to_owned()
}

/// The subject of the last commit, seen from the host.
fn last_subject(pen: &Pen, directory: &Path) -> String {
    git(pen, directory, &["log", "-1", "--format=%s"]).ok().to_owned()
}

/// `sandpen run` in a directory of the pen.
fn bash_in(pen: &Pen, directory: &Path, options: &[&str], script: &str) -> Ran {
    pen.run().current_dir(directory).args(options).args(["--", "bash", "-c", script]).ran()
}
