//! Defines warnings, which tell the user about a problem that does not stop the sandbox. Prints
//! nothing.

use std::fmt;

/// Groups warnings, so that a page that already reports on a topic can skip them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarningTopic {
    /// A configuration file that has no effect.
    ConfigFile,
    /// An option that has no effect here.
    Options,
    /// The preset of an agent.
    Preset,
    /// The workspace and mounts.
    Files,
    /// Variables of the guest.
    Environment,
    /// The network and its proxy.
    Network,
    /// The SSH agent.
    SshAgent,
    /// Git's configuration.
    Git,
    /// The image whose programs run inside.
    Image,
    /// The guest's user.
    User,
    /// The program that runs inside as the first process.
    Helper,
}

/// One warning of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Selects the part of a report that the warning belongs to.
    pub topic: WarningTopic,
    /// Says in one sentence what does not work inside, and how to fix or silence it.
    pub text: String,
}

impl Warning {
    /// Makes a warning.
    pub fn new(topic: WarningTopic, text: impl Into<String>) -> Self {
        Warning { topic, text: text.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
