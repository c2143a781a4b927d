//! Git works inside a sandbox as it does outside, and the host runs no code that was planted in a
//! repository.

mod exchange;
mod identity;
mod kept;
mod kept_nested;
mod places;
mod plain;
mod private;
mod protection;
mod refused;
mod settings;

use std::path::{Path, PathBuf};

use crate::support::{Finished, Fixture, RunToEnd};

/// Settings by which a guest could make Git on the host run code, or use another repository or
/// server.
const DANGEROUS_SETTINGS: &[&str] = &[
    "core.fsmonitor",
    "core.hooksPath",
    "core.sshCommand",
    "core.pager",
    "core.editor",
    "core.gitProxy",
    "core.alternateRefsCommand",
    "sequence.editor",
    "alias.st",
    "filter.x.clean",
    "diff.x.command",
    "diff.external",
    "merge.x.driver",
    "credential.helper",
    "credential.https://x.helper",
    "include.path",
    "includeIf.gitdir:/.path",
    "url.https://evil/.insteadOf",
    "gpg.program",
    "gpg.ssh.program",
    "remote.origin.uploadpack",
    "remote.--upload-pack=evil.url",
    "remote.evil.vcs",
    "remote.pushDefault",
    "protocol.ext.allow",
    "rebase.instructionFormat",
    "format.outputDirectory",
    "fetch.bundleURI",
    "extensions.partialClone",
    // This key comes last: with it, Git no longer finds a repository here.
    "core.worktree",
];

/// Runs the host's Git as the user in a directory.
fn git(fixture: &Fixture, directory: impl AsRef<Path>, arguments: &[&str]) -> Finished {
    let identity = ["-c", "user.name=Host", "-c", "user.email=host@example.org", "-c", "protocol.file.allow=always"];
    fixture.host_command("git").arg("-C").arg(directory.as_ref()).args(identity).args(arguments).finish()
}

/// Creates a repository with one commit, owned by the user.
fn repository(fixture: &Fixture, directory: &Path) -> PathBuf {
    std::fs::create_dir_all(directory).expect("directory");
    std::os::unix::fs::chown(directory, Some(fixture.uid), Some(fixture.gid)).expect("chown");
    git(fixture, directory, &["init", "--quiet", "--initial-branch=main"]).success();
    git(fixture, directory, &["commit", "--quiet", "--allow-empty", "--message", "first"]).success();
    directory.to_owned()
}

/// Returns the subject of the last commit, read on the host.
fn last_subject(fixture: &Fixture, directory: &Path) -> String {
    git(fixture, directory, &["log", "-1", "--format=%s"]).success().to_owned()
}

/// Runs a bash script in a sandbox whose working directory is `directory`.
fn bash_in(fixture: &Fixture, directory: &Path, options: &[&str], script: &str) -> Finished {
    fixture.run().current_dir(directory).args(options).args(["--", "bash", "-c", script]).finish()
}
