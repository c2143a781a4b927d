//! The types of option values. Each is parsed once, and holds only what is valid.

mod engine;
mod env;
mod hide_glob;
mod host_name;
mod host_rule;
mod image;
mod kubernetes;
mod limit;
mod mode;
mod mount;
mod name;
mod plain;
mod port;
mod preset;
mod push_rule;
mod seatbelt_profile;
mod secret;
mod ssh_host;

use clap::builder::PossibleValue;

pub use engine::EngineKind;
pub use env::EnvRequest;
pub use hide_glob::{HideGlob, matches_name};
pub use host_name::HostName;
pub use host_rule::HostRule;
pub use image::ImageRef;
pub use kubernetes::{NodeSelector, ObjectName, Toleration};
pub use limit::{Cpus, Memory, Pids};
pub use mode::{AgentMode, CacheMode, EngineSetting, GitMode, KeysMode, NestedMode, NetworkMode, TmpMode, UserMode};
pub use mount::{Access, MountRequest};
pub use name::Name;
pub use port::Port;
pub use preset::{HomePath, PartName, RestartCode, VariableName};
pub use push_rule::{PushRule, PushVerdict, RefChange, is_ref_name, is_ref_path, short_name};
pub use seatbelt_profile::{BuiltIn, Stance};
pub use secret::{SecretHeader, SecretHost, SecretRequest, SecretSource};
pub use ssh_host::{SshDestination, SshHost};

use crate::error::{Diagnostic, Kind};

/// A type that flags, variables and files write as text.
pub trait Value: Sized {
    /// The name of the type in a message, with its article.
    const NAME: &'static str;
    /// The expected form, with an example; empty if any text is valid.
    const FORM: &'static str;
    /// Lists the names to choose from, where only some texts are valid.
    const CHOICES: Option<fn() -> Vec<PossibleValue>> = None;

    /// Parses a text.
    fn parse(text: &str) -> Result<Self, Reason>;

    /// Parses a text; the error describes the text and the expected form.
    fn from_text(text: &str) -> Result<Self, InvalidValue> {
        Self::parse(text).map_err(|reason| InvalidValue::new::<Self>(text, reason))
    }

    /// Returns the text as a message may show it.
    fn redacted(text: &str) -> String {
        text.to_owned()
    }
}

/// Tells why a text is not a value of some type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The expected form explains it.
    Form,
    /// A sentence that the expected form does not make superfluous.
    Because(String),
    /// The text is close to this valid one.
    DidYouMean(String),
}

impl From<&str> for Reason {
    fn from(sentence: &str) -> Self {
        Reason::Because(sentence.to_owned())
    }
}

impl From<String> for Reason {
    fn from(sentence: String) -> Self {
        Reason::Because(sentence)
    }
}

/// A text that is not a value of the type that was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {name}")]
pub struct InvalidValue {
    /// The text, redacted where it may hold a secret.
    pub text: String,
    /// The name of the expected type.
    pub name: &'static str,
    /// The expected form.
    pub form: &'static str,
    /// Why it was refused.
    pub reason: Reason,
}

impl InvalidValue {
    /// Describes a `text` that `T` refused.
    pub fn new<T: Value>(text: &str, reason: Reason) -> Self {
        InvalidValue { text: T::redacted(text), name: T::NAME, form: T::FORM, reason }
    }
}

impl Diagnostic for InvalidValue {
    fn kind(&self) -> Kind {
        Kind::Usage
    }

    fn causes(&self) -> Vec<String> {
        match &self.reason {
            Reason::Because(sentence) => vec![sentence.clone()],
            Reason::Form | Reason::DidYouMean(_) => Vec::new(),
        }
    }

    fn hints(&self) -> Vec<String> {
        let near = match &self.reason {
            Reason::DidYouMean(near) => Some(format!("did you mean `{near}`?")),
            Reason::Form | Reason::Because(_) => None,
        };
        let form = (!self.form.is_empty()).then(|| format!("expected {}", self.form));
        near.into_iter().chain(form).collect()
    }
}
