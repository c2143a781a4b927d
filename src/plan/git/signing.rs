//! Decides whether commits can be signed inside: with an SSH key through the forwarded agent.
//! Otherwise signing is disabled with a warning, because the key stays on the host.

use super::GitOverrides;
use crate::error::{Diagnostic, Kind};
use crate::facts::git::is_public_key;
use crate::plan::Draft;
use crate::warning::{Warning, WarningTopic};

/// Settings that make Git sign by default.
const SIGNS: &[&str] = &["commit.gpgsign", "tag.gpgsign", "tag.forcesignannotated", "push.gpgsign"];

#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    #[error("commits made inside would not be signed")]
    Strict { obstacle: &'static str },
}

impl Diagnostic for SigningError {
    fn kind(&self) -> Kind {
        Kind::Launch
    }

    fn causes(&self) -> Vec<String> {
        let Self::Strict { obstacle } = self;
        vec![(*obstacle).to_owned()]
    }

    fn hints(&self) -> Vec<String> {
        vec!["sign with SSH and forward the agent (git config gpg.format ssh), or drop --strict".into()]
    }
}

impl Draft<'_> {
    /// Configures signing, or disables it.
    pub(super) fn signing(
        &mut self,
        agent_is_forwarded: bool,
        overrides: &mut GitOverrides,
    ) -> Result<(), SigningError> {
        let git = &self.facts.git;
        let is_ssh = git.get("gpg.format").is_some_and(|format| format.value == "ssh");
        let obstacle = if is_ssh {
            self.ssh_signing(agent_is_forwarded, overrides)
        } else {
            Some("an OpenPGP or X.509 key cannot be used inside: its agent and its keyring stay on the host")
        };
        let Some(obstacle) = obstacle else { return Ok(()) };
        let mut signs = SIGNS.iter().filter(|key| git.is_on(key)).peekable();
        if signs.peek().is_none() {
            return Ok(());
        }
        if self.config.strict.value {
            return Err(SigningError::Strict { obstacle });
        }
        for key in signs {
            overrides.set(key, "false", "signing does not work inside");
            if let Some(setting) = git.get(key) {
                overrides.replaced(setting, "off");
            }
        }
        self.warnings.push(Warning::new(WarningTopic::Git, format!("commits made inside are not signed: {obstacle}")));
        Ok(())
    }

    /// Configures signing through the agent, or returns the reason for which it cannot work.
    fn ssh_signing(&self, agent_is_forwarded: bool, overrides: &mut GitOverrides) -> Option<&'static str> {
        let git = &self.facts.git;
        // A program of the host, for example 1Password's, does not exist inside; the agent has the
        // key.
        if let Some(program) = git.get("gpg.ssh.program").filter(|program| program.value != "ssh-keygen") {
            overrides.set("gpg.ssh.program", "ssh-keygen", "signs through the agent");
            overrides.replaced(program, "ssh-keygen, which asks the agent");
        }
        if !agent_is_forwarded {
            return Some("the SSH agent is not forwarded");
        }
        let key = git.get("user.signingkey")?;
        if is_public_key(&key.value) {
            return None;
        }
        match (&git.signing_key, key.scope.is_users()) {
            (Some(public), _) => {
                overrides.set(
                    "user.signingkey",
                    format!("key::{public}"),
                    "the key's file stays outside; the agent signs",
                );
                overrides.replaced(key, "the public key itself; the agent signs");
                None
            }
            (None, true) => Some("there is no public key beside the file that user.signingkey names"),
            (None, false) => Some("the repository's own user.signingkey names a file, which is not followed"),
        }
    }
}
