//! Runs a real ssh-agent as the fixture's user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Fixture, RunToEnd, Running, eventually};

/// The key that the agent holds has this comment.
pub const KEY_COMMENT: &str = "the key of the test";

pub struct Agent {
    pub socket: PathBuf,
    pub process: Running,
    _directory: TempDir,
}

impl Agent {
    /// Starts an agent without keys. Its socket is below /tmp, where ssh-agent itself would put it.
    pub(super) fn start(fixture: &Fixture) -> Self {
        let directory = tempfile::Builder::new().prefix("sandpen-agent-").tempdir_in("/tmp").expect("directory");
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o700)).expect("chmod");
        fixture.give_to_user(directory.path());
        let socket = directory.path().join("agent");
        let process = Running::start(fixture.host_command("ssh-agent").arg("-D").arg("-a").arg(&socket));
        eventually("ssh-agent makes its socket", || socket.exists());
        Agent { socket, process, _directory: directory }
    }

    pub(super) fn add_new_key(&self, fixture: &Fixture) {
        self.add_key(fixture, &fixture.make_key("user-key", KEY_COMMENT));
    }

    pub fn add_key(&self, fixture: &Fixture, key: &Path) {
        fixture.host_command("ssh-add").env("SSH_AUTH_SOCK", &self.socket).arg("-q").arg(key).finish().success();
    }
}

impl Fixture {
    /// Creates a key pair of the user, in a directory that no sandbox mounts.
    pub fn make_key(&self, name: &str, comment: &str) -> PathBuf {
        let key = self.outside("keys").join(name);
        let mut keygen = self.host_command("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f"]).arg(&key).finish().success();
        key
    }
}

pub fn public_key(key: &Path) -> String {
    fs::read_to_string(key.with_extension("pub")).expect("public key").trim().to_owned()
}
