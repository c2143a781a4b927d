//! Signed commits: through the forwarded agent where SSH signs; turned off, aloud, where the key can only stay on the host.

use super::GitOverrides;
use crate::error::{Error, Result};
use crate::facts::git::is_public_key;
use crate::plan::Draft;
use crate::warning::{Warning, WarningTopic};

/// Settings that make Git sign unasked.
const SIGNS: &[&str] = &["commit.gpgsign", "tag.gpgsign", "tag.forcesignannotated", "push.gpgsign"];

impl Draft<'_> {
    /// Arranges for signing, or turns it off.
    pub(super) fn signing(&mut self, agent_is_there: bool, told: &mut GitOverrides) -> Result<()> {
        let git = &self.facts.git;
        let is_ssh = git.get("gpg.format").is_some_and(|format| format.value == "ssh");
        let obstacle = match is_ssh {
            true => self.ssh_signing(agent_is_there, told),
            false => Some("an OpenPGP or X.509 key cannot be used inside: its agent and its keyring stay on the host"),
        };
        let Some(obstacle) = obstacle else { return Ok(()) };
        let mut signs = SIGNS.iter().filter(|key| git.is_on(key)).peekable();
        if signs.peek().is_none() {
            return Ok(());
        }
        if self.config.strict.value {
            return Err(Error::launch("commits would not be signed inside as they are outside")
                .cause(obstacle)
                .hint("sign with SSH and forward the agent (git config gpg.format ssh), or drop --strict"));
        }
        for key in signs {
            told.set(key, "false", "signing cannot work inside");
            if let Some(setting) = git.get(key) {
                told.replaced(setting, "turned off");
            }
        }
        self.warnings.push(Warning::new(WarningTopic::Git, format!("commits made inside are not signed: {obstacle}")));
        Ok(())
    }

    /// Makes SSH signing work, or tells why it cannot.
    fn ssh_signing(&self, agent_is_there: bool, told: &mut GitOverrides) -> Option<&'static str> {
        let git = &self.facts.git;
        // A program of the host's (1Password's, say) is not inside, and not needed: the agent has the key.
        if let Some(program) = git.get("gpg.ssh.program").filter(|program| program.value != "ssh-keygen") {
            told.set("gpg.ssh.program", "ssh-keygen", "signs through the agent");
            told.replaced(program, "ssh-keygen, which asks the agent");
        }
        if !agent_is_there {
            return Some("the SSH agent is not forwarded");
        }
        let key = git.get("user.signingkey")?;
        if is_public_key(&key.value) {
            return None;
        }
        match (&git.signing_key, key.scope.is_users()) {
            (Some(public), _) => {
                told.set("user.signingkey", format!("key::{public}"), "the key's file stays outside; the agent signs");
                told.replaced(key, "the public key itself; the agent signs");
                None
            }
            (None, true) => Some("there is no public key beside the file that user.signingkey names"),
            (None, false) => Some("the repository's own user.signingkey names a file, which is not followed"),
        }
    }
}
