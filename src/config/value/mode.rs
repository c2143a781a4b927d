//! The options that are a choice among names.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;
use serde_json::{Value as Json, json};
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::{FromNode, Node, Problem};
use crate::ui::suggest::nearest;

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $what:literal, $form:literal { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl Value for $name {
            const NAME: &'static str = $what;
            const FORM: &'static str = $form;
            const CHOICES: Option<fn() -> Vec<PossibleValue>> = Some(choices::<$name>);

            fn parse(text: &str) -> Result<Self, Reason> {
                <$name as ValueEnum>::from_str(text, false).map_err(|_| near_choice::<$name>(text))
            }
        }

        impl FromNode for $name {
            fn from_node(node: &Node<'_>) -> Result<Self, Problem> {
                node.parse()
            }

            fn schema() -> Json {
                choice_schema::<$name>()
            }
        }

        impl OptionValue for $name {
            fn to_toml(&self) -> Toml {
                Toml::String(self.to_string())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.to_possible_value() {
                    Some(value) => f.write_str(value.get_name()),
                    None => Ok(()),
                }
            }
        }
    };
}

fn choices<T: ValueEnum>() -> Vec<PossibleValue> {
    T::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect()
}

/// `of` is as near to `on` as to `off`, but only `off` starts with it.
fn near_choice<T: ValueEnum>(text: &str) -> Reason {
    let choices = choices::<T>();
    let names: Vec<&str> = choices.iter().map(PossibleValue::get_name).collect();
    let mut longer = names.iter().filter(|name| name.starts_with(text));
    let near = match (longer.next(), longer.next()) {
        (Some(name), None) => Some(*name),
        (Some(_), Some(_)) => None,
        (None, _) => nearest(text, names.iter().copied()),
    };
    near.map_or(Reason::Form, |near| Reason::DidYouMean(near.to_owned()))
}

fn choice_schema<T: ValueEnum>() -> Json {
    let choice = |value: PossibleValue| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        json!({ "description": help, "const": value.get_name() })
    };
    json!({ "oneOf": choices::<T>().into_iter().map(choice).collect::<Vec<_>>() })
}

choice! {
    /// The engine that is asked for.
    EngineSetting, "an engine", "`auto`, `docker`, `podman`, `sandbox-exec`, `native` or `kubernetes`" {
        /// Chosen from the options and the engines that work
        Auto,
        /// Docker
        Docker,
        /// Podman, rootful or rootless
        Podman,
        /// macOS Seatbelt
        SandboxExec,
        /// Linux namespaces, nothing to install
        Native,
        /// A pod in a Kubernetes cluster, with copies of your files
        Kubernetes,
    }
}
choice! {
    /// Where the values of keys and logins are.
    KeysMode, "a place for keys", "`auto`, `outside` or `inside`" {
        /// Outside where that is known to work
        Auto,
        /// Outside; what cannot be outside is an error
        Outside,
        /// Inside, as the variables and files that they are
        Inside,
    }
}
choice! {
    /// The network policy.
    NetworkMode, "a network policy", "`on`, `off` or `proxied`" {
        /// The host's network
        On,
        /// No network
        Off,
        /// Only the allowed hosts, through a filtering proxy
        Proxied,
    }
}
choice! {
    /// Whether the SSH agent is forwarded (R4.4).
    AgentMode, "an agent setting", "`auto`, `on`, `off` or `raw`" {
        /// Forwarded if SSH_AUTH_SOCK is set and the agent answers; lists and signs only
        Auto,
        /// Forwarded; lists and signs only
        On,
        /// Not forwarded
        Off,
        /// Forwarded without a limit: the agent's own socket
        Raw,
    }
}
choice! {
    /// Whether package caches are visible inside.
    CacheMode, "a cache setting", "`on` or `off`" {
        /// The host's, with a layer of the project's own
        On,
        /// None
        Off,
    }
}
choice! {
    /// Whether programs inside may make sandboxes of their own.
    NestedMode, "a nested setting", "`auto`, `on` or `off`" {
        /// Allowed for agents and browsers that are known to need it
        Auto,
        /// Allowed
        On,
        /// Not allowed
        Off,
    }
}
choice! {
    /// The user inside.
    UserMode, "a user setting", "`auto`, `host` or `image`" {
        /// The host's user on Linux, the image's on macOS
        Auto,
        /// The host's user
        Host,
        /// The image's user
        Image,
    }
}
choice! {
    /// The temporary directory inside.
    TmpMode, "a temp setting", "`private` or `host`" {
        /// A private directory
        Private,
        /// The host's directory
        Host,
    }
}
choice! {
    /// The Git directory that the sandbox works with.
    GitMode, "a Git setting", "`private` or `shared`" {
        /// A private Git directory; commits, refs and the index come out verified
        Private,
        /// The host's Git directory, with read-only hooks and configuration: no protection
        Shared,
    }
}
