//! The options that are a choice among names.

use clap::ValueEnum;
use schemars::{Schema, json_schema};
use serde::Serialize;

use super::{Value, deserialize_as_value};

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $what:literal, $form:literal { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl Value for $name {
            const NAME: &'static str = $what;
            const FORM: &'static str = $form;

            fn schema() -> Schema {
                let values = <$name as ValueEnum>::value_variants().iter().filter_map(ValueEnum::to_possible_value);
                let choices: Vec<Schema> = values
                    .map(|value| {
                        let about = value.get_help().map(ToString::to_string).unwrap_or_default();
                        json_schema!({ "const": value.get_name(), "description": about })
                    })
                    .collect();
                json_schema!({ "oneOf": choices })
            }

            fn parse(text: &str) -> Result<Self, String> {
                <$name as ValueEnum>::from_str(text, false).map_err(|_| {
                    let variants = <$name as ValueEnum>::value_variants();
                    let names: Vec<String> = variants.iter().map(ToString::to_string).collect();
                    let mut begun = names.iter().filter(|name| name.starts_with(text));
                    // `of` is as near to `on` as to `off`; only one of the two begins with it.
                    let near = match (begun.next(), begun.next()) {
                        (Some(name), None) => Some(name.as_str()),
                        (Some(_), Some(_)) => None,
                        (None, _) => crate::ui::suggest::nearest(text, names.iter().map(String::as_str)),
                    };
                    near.map_or(String::new(), |near| format!("did you mean `{near}`?"))
                })
            }
        }

        deserialize_as_value!($name);

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

choice! {
    /// Which engine is asked for.
    EngineSetting, "an engine", "`auto`, `docker`, `podman`, `sandbox-exec` or `native`" {
        /// Chosen from what is meant and what answers
        Auto,
        /// Docker
        Docker,
        /// Podman, rootful or rootless
        Podman,
        /// macOS Seatbelt
        SandboxExec,
        /// Linux namespaces, nothing installed
        Native,
    }
}
choice! {
    /// The network policy.
    NetworkMode, "a network policy", "`on`, `off` or `proxied`" {
        /// The network is there
        On,
        /// No network at all
        Off,
        /// Only through a filtering proxy
        Proxied,
    }
}
choice! {
    /// Whether the SSH agent is forwarded (R4.4).
    AgentMode, "an agent setting", "`auto`, `on` or `off`" {
        /// Forwarded when SSH_AUTH_SOCK is there
        Auto,
        /// Forwarded
        On,
        /// Out of reach
        Off,
    }
}
choice! {
    /// Who the guest is.
    UserMode, "a user setting", "`auto`, `host` or `image`" {
        /// The host's user on Linux, the image's on macOS
        Auto,
        /// The host's user
        Host,
        /// The image's own user
        Image,
    }
}
choice! {
    /// What the guest sees as the temporary directory.
    TmpMode, "a temp setting", "`private` or `host`" {
        /// A directory of the sandbox's own
        Private,
        /// The host's directory
        Host,
    }
}
choice! {
    /// What is done about code planted in the repository's Git files.
    Guard, "a guard setting", "`review`, `strict` or `off`" {
        /// Hooks are read-only; new settings that run code are set aside at the end
        Review,
        /// All of Git's configuration is read-only
        Strict,
        /// Nothing is done
        Off,
    }
}
