//! A mount as the user writes it: `FROM[:TO[:ro|rw]]`.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::{Value, deserialize_as_value};

/// Whether the guest may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read-only.
    #[default]
    Ro,
    /// Read and write.
    Rw,
}

impl Access {
    /// `ro` or `rw`.
    pub fn as_str(self) -> &'static str {
        match self {
            Access::Ro => "ro",
            Access::Rw => "rw",
        }
    }
}

impl Value for Access {
    const NAME: &'static str = "a mode";
    const FORM: &'static str = "`ro` or `rw`";

    fn schema() -> Schema {
        json_schema!({ "enum": [Access::Ro.as_str(), Access::Rw.as_str()] })
    }

    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "ro" => Ok(Access::Ro),
            "rw" => Ok(Access::Rw),
            _ => Err(String::new()),
        }
    }
}

deserialize_as_value!(Access);

/// What is asked for: `to` defaults to `from`, the mode to read-only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
#[serde(deny_unknown_fields, expecting = "a mount such as { from = \"…\", to = \"…\", mode = \"ro\" }")]
pub struct MountRequest {
    /// On the host; may be relative or start with `~`.
    pub from: PathBuf,
    /// Inside; absolute.
    pub to: Option<PathBuf>,
    /// Read-only unless asked for.
    #[serde(default)]
    pub mode: Access,
}

impl Value for MountRequest {
    const NAME: &'static str = "a mount";
    const FORM: &'static str = "`FROM[:TO[:ro|rw]]`";

    fn parse(text: &str) -> Result<Self, String> {
        let mut parts: Vec<&str> = text.split(':').collect();
        let mode = parts.last().filter(|_| parts.len() > 1).and_then(|mode| Access::parse(mode).ok());
        if mode.is_some() {
            parts.pop();
        }
        let (from, to) = match parts.as_slice() {
            [from] => (*from, None),
            [from, to] => (*from, Some(*to)),
            [_, _, mode] => return Err(format!("`{mode}` is neither `ro` nor `rw`")),
            _ => {
                return Err(
                    "a path with a colon can be mounted from a config file only: mounts = [{ from = …, to = … }]"
                        .into(),
                );
            }
        };
        if from.is_empty() {
            return Err("nothing is named before the colon".into());
        }
        if to.is_some_and(|to| !to.starts_with('/')) {
            return Err(format!("`{}` is not an absolute path", to.unwrap_or_default()));
        }
        Ok(MountRequest { from: from.into(), to: to.map(PathBuf::from), mode: mode.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<(String, Option<String>, &'static str)> {
        let mount = MountRequest::parse(text).ok()?;
        let show = |path: PathBuf| path.display().to_string();
        Some((show(mount.from), mount.to.map(show), mount.mode.as_str()))
    }

    #[test]
    fn the_target_defaults_to_the_source_and_the_mode_to_ro() {
        assert_eq!(parsed("/a"), Some(("/a".into(), None, "ro")));
        assert_eq!(parsed("/a:rw"), Some(("/a".into(), None, "rw")));
        assert_eq!(parsed("/a:/b"), Some(("/a".into(), Some("/b".into()), "ro")));
        assert_eq!(parsed("~/a:/b:rw"), Some(("~/a".into(), Some("/b".into()), "rw")));
    }

    #[test]
    fn refuses_what_is_not_a_mount() {
        for text in ["", ":/b", "/a:b", "/a:/b:x", "/a:/b:/c:ro", "/a::rw"] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = MountRequest::parse(&text);
        }
    }
}
