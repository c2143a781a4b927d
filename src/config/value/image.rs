//! An image reference: `name`, `registry:5000/name:tag`, `name@sha256:…`.

use std::fmt;

use serde::{Serialize, Serializer};
use toml::Value as Toml;

use super::{Reason, Value};
use crate::config::layer::OptionValue;
use crate::config::node::read_as_text;

/// A well-formed image reference. An engine cannot take it for a flag, and it has no blanks or
/// control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef(String);

/// Development images of the agents' repositories. They are not published, so a pull could only
/// fetch a stranger's image.
const NEVER_PUBLISHED: &[&str] = &["llxprt-code-sandbox", "gemini-cli-sandbox"];

impl ImageRef {
    /// Returns the reference as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the image exists on this machine only, so that the engine must not pull it.
    pub fn is_local(&self) -> bool {
        let name = self.0.split([':', '@']).next().unwrap_or(&self.0);
        self.0.starts_with("localhost/") || NEVER_PUBLISHED.contains(&name)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for ImageRef {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

read_as_text!(ImageRef: { "type": "string" });

impl OptionValue for ImageRef {
    fn to_toml(&self) -> Toml {
        Toml::String(self.0.clone())
    }
}

impl Value for ImageRef {
    const NAME: &'static str = "an image reference";
    const FORM: &'static str = "`name`, `name:tag`, `registry:5000/name` or `name@sha256:…`, in lower case";

    fn parse(text: &str) -> Result<Self, Reason> {
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err("the digest is not `sha256:` and 64 hexadecimal digits".into());
        }
        let last_slash = name.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match name[last_slash..].rfind(':') {
            Some(at) => (&name[..last_slash + at], Some(&name[last_slash + at + 1..])),
            None => (name, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err("the tag may contain letters, digits, `_`, `.` and `-` only".into());
        }
        let mut parts = name.split('/');
        let first = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let first_is_registry = !rest.is_empty() && (first.contains(['.', ':']) || first == "localhost");
        let first_is_good = if first_is_registry { is_registry(first) } else { is_component(first) };
        if !first_is_good || !rest.iter().all(|part| is_component(part)) {
            return Err(Reason::Form);
        }
        Ok(ImageRef(text.to_owned()))
    }
}

fn is_component(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-'))
}

fn is_registry(part: &str) -> bool {
    let (host, port) = part.rsplit_once(':').unwrap_or((part, "0"));
    host.starts_with(|c: char| c.is_ascii_alphanumeric())
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        && port.parse::<u16>().is_ok()
}

fn is_tag(tag: &str) -> bool {
    tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.len() <= 128
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn is_digest(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_the_forms_engines_know() {
        let digest = format!("name@sha256:{}", "a".repeat(64));
        for text in [
            "debian",
            "debian:12",
            "host:5000/name",
            "localhost/a/b:c",
            "ghcr.io/vybestack/llxprt-code/sandbox:0.11.0",
            &digest,
        ] {
            assert!(ImageRef::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn refuses_what_an_engine_would_misread() {
        for text in [
            "",
            "-v",
            "--privileged",
            "a b",
            "Debian",
            "name:",
            "name:a b",
            "a//b",
            "name@sha256:12",
            "http://x/y",
            "a\nb",
            "host:99999/x",
        ] {
            assert!(ImageRef::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn local_images_are_never_pulled() {
        for (text, local) in
            [("llxprt-code-sandbox", true), ("localhost/x", true), ("llxprt-code-sandbox:dev", true), ("debian", false)]
        {
            assert_eq!(ImageRef::parse(text).map(|image| image.is_local()), Ok(local), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            if let Ok(image) = ImageRef::parse(&text) {
                prop_assert!(!image.as_str().starts_with('-'));
                prop_assert!(image.as_str().chars().all(|c| c.is_ascii_graphic()));
            }
        }
    }
}
