//! Defines the users that tests run sandpen as.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// The path is absolute, because `Command` would look up a bare name in the PATH that a test sets.
const SETPRIV: &str = "/usr/bin/setpriv";

#[derive(Debug, Clone)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
    /// Holds the arguments of `setpriv`, or `None` for the user that runs the tests.
    switch: Option<Vec<String>>,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl User {
    /// Returns the user that runs the tests.
    pub fn current() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let name = passwd_field(2, &uid.to_string(), 0).unwrap_or_else(|| uid.to_string());
        User { uid, gid, name, switch: None }
    }

    /// Returns the user that runs the tests if that is an ordinary one; else the one that
    /// `scripts/engines` created.
    pub fn ordinary() -> Self {
        if !is_root() {
            return Self::current();
        }
        let name = rig_variable("SANDPEN_TEST_USER");
        let id = |column| passwd_field(0, &name, column).and_then(|id| id.parse().ok()).expect("the test user exists");
        let switch = ["--reuid", &name, "--regid", &name, "--init-groups", "--"].map(str::to_owned).into();
        User { uid: id(2), gid: id(3), switch: Some(switch), name }
    }

    /// Returns the ordinary user with one supplementary group. Without root, the groups stay as
    /// they are.
    pub fn ordinary_in_group(group: u32) -> Self {
        let user = Self::ordinary();
        let [uid, gid, group] = [user.uid, user.gid, group].map(|id| id.to_string());
        let switch = ["--reuid", &uid, "--regid", &gid, "--groups", &group, "--"].map(str::to_owned).into();
        User { switch: user.switch.is_some().then_some(switch), ..user }
    }

    /// Returns a command that runs a program as this user; the caller sets environment and
    /// directory.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(switch) = &self.switch else { return Command::new(program) };
        let mut command = Command::new(SETPRIV);
        command.args(switch).arg(program);
        command
    }
}

/// Returns a field of the line in `/etc/passwd` whose field `key` is `value`.
fn passwd_field(key: usize, value: &str, wanted: usize) -> Option<String> {
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(key) == Some(value))?;
    line.split(':').nth(wanted).map(str::to_owned)
}

/// Returns a variable that `scripts/engines env` sets.
pub fn rig_variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with scripts/test"))
}
