//! The values of a preset's keys: paths below the home, names of variables, the home of an image's
//! user.

use std::path::{Component, Path};

use super::{EnvRequest, Reason, Value};
use crate::config::node::read_as_text;
use crate::path::GuestPath;

/// Directories that hold the user's credentials or sandpen's own files, which no preset may mount.
const FORBIDDEN: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".git-credentials",
    ".config/git/credentials",
    ".netrc",
    ".docker",
    ".config/sandpen",
    ".local/state/sandpen",
];

/// A directory or file below the home, written as `~/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomePath(String);

impl HomePath {
    /// Returns the path below the home.
    pub fn below(&self) -> &str {
        &self.0
    }
}

impl Value for HomePath {
    const NAME: &'static str = "a directory of an agent";
    const FORM: &'static str = "a directory or file below your home, such as `~/.mine`";

    fn parse(text: &str) -> Result<Self, Reason> {
        let below = text.strip_prefix("~/").ok_or("it does not start with `~/`")?;
        let is_plain = |part: Component| matches!(part, Component::Normal(_));
        if below.contains('\0') || !Path::new(below).components().all(is_plain) {
            return Err("it must not contain `..`".into());
        }
        let path: std::path::PathBuf = Path::new(below).components().collect();
        if path.as_os_str().is_empty() {
            return Err("it is your whole home".into());
        }
        let meets = |other: &&&str| path.starts_with(other) || Path::new(other).starts_with(&path);
        match FORBIDDEN.iter().find(meets) {
            Some(found) => {
                Err(format!("a preset cannot mount `~/{found}`; use `--mount` to mount it for one run").into())
            }
            None => Ok(HomePath(path.to_string_lossy().into_owned())),
        }
    }
}

/// The name of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableName(String);

impl VariableName {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for VariableName {
    const NAME: &'static str = "a variable's name";
    const FORM: &'static str = "a name such as `MINE_API_KEY`; its value is the host's";

    fn redacted(text: &str) -> String {
        // A value that was written here by mistake is a secret.
        EnvRequest::redacted(text)
    }

    fn parse(text: &str) -> Result<Self, Reason> {
        if EnvRequest::is_name(text) { Ok(VariableName(text.to_owned())) } else { Err(Reason::Form) }
    }
}

/// The name of an entry of an agent's directory, with a slash at its end if it is a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartName(String);

impl PartName {
    /// Returns the name without the slash.
    pub fn name(&self) -> &str {
        self.0.trim_end_matches('/')
    }

    /// Whether the entry is a directory.
    pub fn is_directory(&self) -> bool {
        self.0.ends_with('/')
    }
}

impl Value for PartName {
    const NAME: &'static str = "a part of a directory";
    const FORM: &'static str = "the name of a file, or of a directory with a slash at its end";

    fn parse(text: &str) -> Result<Self, Reason> {
        let name = text.strip_suffix('/').unwrap_or(text);
        let is_name = !name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '\0']);
        if is_name { Ok(PartName(text.to_owned())) } else { Err(Reason::Form) }
    }
}

/// An exit code with which a command asks to be started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartCode(pub u8);

impl Value for RestartCode {
    const NAME: &'static str = "an exit code";
    const FORM: &'static str = "a number from 1 to 255";

    fn parse(text: &str) -> Result<Self, Reason> {
        text.parse().ok().filter(|code| *code > 0).map(RestartCode).ok_or(Reason::Form)
    }
}

impl Value for GuestPath {
    const NAME: &'static str = "a path inside";
    const FORM: &'static str = "an absolute path, such as `/home/node`";

    fn parse(text: &str) -> Result<Self, Reason> {
        GuestPath::new(text).map_err(|_| Reason::Form)
    }
}

read_as_text!(
    HomePath: { "type": "string" },
    VariableName: { "type": "string" },
    GuestPath: { "type": "string" },
    PartName: { "type": "string" },
    RestartCode: { "type": "integer", "minimum": 1, "maximum": 255 },
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_and_sandpens_own_files_are_no_agents() {
        for path in
            ["~/.ssh", "~/.ssh/config", "~/.config", "~/.local", "~/.gnupg/x", "~/", "~/.", "~//.ssh/", "~/./.ssh"]
        {
            assert!(HomePath::parse(path).is_err(), "{path}");
        }
        for path in ["/etc", "mine", "~", "~mine/x", "~/a/../.ssh", "~/a\0b", ""] {
            assert!(HomePath::parse(path).is_err(), "{path}");
        }
        for (path, below) in [("~/.mine", ".mine"), ("~/.config/mine/", ".config/mine"), ("~/.sshx", ".sshx")] {
            assert_eq!(HomePath::parse(path).map(|path| path.0), Ok(below.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_below_the_home(text in "~/([.a-z/]|\\.\\.){0,12}") {
            if let Ok(path) = HomePath::parse(&text) {
                prop_assert!(Path::new(path.below()).components().all(|part| matches!(part, Component::Normal(_))));
                prop_assert!(!path.below().is_empty() && !path.below().starts_with(".ssh/") && path.below() != ".ssh");
            }
        }
    }
}
