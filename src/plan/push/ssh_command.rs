//! Decides which command replaces `ssh`: the user's `GIT_SSH_COMMAND` or `core.sshCommand`, split
//! into words, because no shell reads what a guest can influence.

use std::path::Path;

use crate::path::HostPath;
use crate::plan::{Draft, questions};

const VARIABLE: &str = "GIT_SSH_COMMAND";
/// Characters by which a shell does more than split a text into words.
const SHELL: &[char] = &['$', '`', ';', '|', '&', '<', '>', '(', ')', '*', '?', '\n'];

/// The command that replaces `ssh`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SshCommand {
    /// The first word is the path of a program.
    Words(Vec<String>),
    /// Says why there is none.
    Missing(String),
}

impl Default for SshCommand {
    fn default() -> Self {
        SshCommand::Missing(String::new())
    }
}

impl From<Result<Vec<String>, String>> for SshCommand {
    fn from(found: Result<Vec<String>, String>) -> Self {
        found.map_or_else(SshCommand::Missing, SshCommand::Words)
    }
}

/// Returns the program of a command.
pub fn program(command: &str) -> Option<String> {
    shlex::split(command)?.into_iter().next()
}

/// Tells whether a text contains the path of a directory, or one below it.
pub fn names_path_below(text: &str, directory: &HostPath) -> bool {
    let Some(path) = directory.to_str() else { return false };
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
    text.match_indices(path).any(|(at, _)| is_end(&text[at + path.len()..]))
}

impl Draft<'_> {
    /// Returns the words of the command, whose first is the path of a program outside of mounted
    /// directories.
    pub(super) fn ssh_words(&self) -> Result<Vec<String>, String> {
        let setting = self.facts.git.settings.iter().rev();
        let setting =
            setting.filter(|setting| setting.scope.is_users()).find(|setting| setting.key == "core.sshcommand");
        let (name, command) = match (self.host.env.text(VARIABLE), setting) {
            (Some(command), _) if !command.is_empty() => (VARIABLE, command),
            (_, Some(setting)) => ("core.sshCommand", setting.value.as_str()),
            _ => ("ssh", "ssh"),
        };
        if command.contains(SHELL) {
            return Err(format!("{name} on the host needs a shell, which --push does not use"));
        }
        let mut words = shlex::split(command).unwrap_or_default();
        for word in &mut words {
            if word.starts_with("~/") {
                *word = self.host.expand(Path::new(word.as_str())).to_string_lossy().into_owned();
            }
        }
        // A key or a configuration that the guest can write would be its own; ssh's can run programs.
        let roots: Vec<HostPath> = questions::writable(self.host, self.config, self.workspace).collect();
        if words.iter().skip(1).any(|word| roots.iter().any(|root| names_path_below(word, root))) {
            return Err(format!("{name} on the host names a file that the sandbox can write"));
        }
        if let Some(file) = &self.facts.ssh_config.refused_configuration {
            return Err(format!("ssh on the host reads `{file}`, which the sandbox can write"));
        }
        let Some(first) = words.first_mut() else { return Err(format!("{name} on the host is empty")) };
        let found = match first.as_str() {
            "ssh" => self.facts.ssh.clone(),
            _ => self.facts.programs.get(&program(command).unwrap_or_default()).map(|found| found.real.clone()),
        };
        let is_mounted = |path: &HostPath| {
            questions::mounted(self.host, self.config, self.workspace).any(|root| path.is_within(&root))
        };
        let found = found.filter(|path| !is_mounted(path)).and_then(|path| path.to_str().map(str::to_owned));
        *first =
            found.ok_or_else(|| format!("there is no `{first}` on the host's PATH outside of mounted directories"))?;
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_words_options_and_commands() {
        let project = HostPath::new("/home/me/project").expect("a path");
        for text in [
            "/home/me/project/helper",
            "-F/home/me/project/c",
            "IdentityFile=/home/me/project",
            "!/home/me/project/x --get",
        ] {
            assert!(names_path_below(text, &project), "{text}");
        }
        for text in ["/home/me/project2/helper", "/home/me/project.old", "store", "/home/me"] {
            assert!(!names_path_below(text, &project), "{text}");
        }
    }
}
