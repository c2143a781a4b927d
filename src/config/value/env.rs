//! A variable for the guest as the user writes it: `NAME=VALUE`, or `NAME` to take the host's.

use super::Value;

/// A variable that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvRequest {
    /// Its name.
    pub name: String,
    /// Its value; `None` takes the host's.
    pub value: Option<String>,
}

impl EnvRequest {
    /// Whether `name` can be a variable's name in every engine's syntax.
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.starts_with('-') && name.chars().all(|c| c.is_ascii_graphic() && c != '=')
    }
}

impl Value for EnvRequest {
    const NAME: &'static str = "a variable";
    const FORM: &'static str = "`NAME=VALUE`, or `NAME` to pass the host's value";

    fn shown(text: &str) -> String {
        // The value may be a secret.
        text.split_once('=').map_or(text.to_owned(), |(name, _)| format!("{name}=…"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if !Self::is_name(name) {
            return Err(if name.is_empty() {
                "there is no name before the `=`".into()
            } else {
                format!("`{name}` is not a variable's name")
            });
        }
        if value.is_some_and(|value| value.contains('\0')) {
            return Err("the value contains a NUL byte".into());
        }
        Ok(EnvRequest { name: name.to_owned(), value: value.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_value_is_everything_after_the_first_equals_sign() {
        let parsed = EnvRequest::parse("A=b=c, d");
        assert_eq!(parsed, Ok(EnvRequest { name: "A".into(), value: Some("b=c, d".into()) }));
        assert_eq!(EnvRequest::parse("A"), Ok(EnvRequest { name: "A".into(), value: None }));
        assert!(EnvRequest::parse("=x").is_err());
        assert!(EnvRequest::parse("--privileged").is_err());
        assert!(EnvRequest::parse("A B=c").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>()) {
            let _ = EnvRequest::parse(&text);
        }
    }
}
