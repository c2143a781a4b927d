//! Reaches a repository with the host's `ssh`.

use std::process::Command;

use super::Service;
use super::process::{Streams, TransportProcess};
use super::transport::Transport;
use crate::plan::push::{SshCommand, SshRemote};

/// Selects the version of Git's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// The version in which a server begins with the list of refs.
    Zero,
    Two,
}

/// Starts the service on the server.
pub fn start(
    transport: &Transport,
    remote: &SshRemote,
    service: Service,
    version: Version,
) -> Result<(TransportProcess, Streams), String> {
    let words = match &transport.plan.ssh {
        SshCommand::Words(words) => words,
        SshCommand::Missing(reason) => return Err(reason.clone()),
    };
    let program = words.first().ok_or("there is no ssh")?;
    let mut command = transport.environment.command(program);
    command.args(&words[1..]);
    add_arguments(&mut command, remote, service, version);
    transport.start(command, "ssh")
}

fn add_arguments(command: &mut Command, remote: &SshRemote, service: Service, version: Version) {
    command.args(["-o", "BatchMode=yes", "-x"]);
    if version == Version::Two {
        command.args(["-o", "SendEnv=GIT_PROTOCOL"]).env("GIT_PROTOCOL", "version=2");
    }
    if let Some(port) = remote.port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg(remote.destination()).arg(format!("{} {}", service.name(), quoted(&remote.path)));
}

/// Quotes a path for the server's shell, as Git does.
fn quoted(path: &str) -> String {
    let mut text = String::from("'");
    for c in path.chars() {
        match c {
            '\'' | '!' => {
                text.push_str("'\\");
                text.push(c);
                text.push('\'');
            }
            c => text.push(c),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "starts nothing")]
    fn the_arguments_are_those_of_git() {
        let remote =
            SshRemote { user: Some("git".into()), host: "host".into(), port: Some(22), path: "/a b/it's!".into() };
        let mut command = Command::new("ssh");
        add_arguments(&mut command, &remote, Service::UploadPack, Version::Two);
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(
            arguments,
            [
                "-o",
                "BatchMode=yes",
                "-x",
                "-o",
                "SendEnv=GIT_PROTOCOL",
                "-p",
                "22",
                "git@host",
                "git-upload-pack '/a b/it'\\''s'\\!''",
            ]
        );
    }

    proptest! {
        #[test]
        fn a_shell_reads_the_path_as_one_word(path in any::<String>()) {
            prop_assert_eq!(shlex::split(&quoted(&path)), Some(vec![path]));
        }
    }
}
