//! A login file as JSON: where its tokens are, the copy with placeholders, and the file with new
//! tokens. Pure.

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Map, Value as Json};

use super::super::secrets::MIN_VALUE;
use crate::config::login::{LoginForm, LoginToken};

/// A text of this length or more, without blanks, may be a token.
const MIN_SUSPECT: usize = 20;
/// Words in the names of keys that hold tokens.
const TOKEN_WORDS: &[&str] = &["token", "secret", "password", "passwd", "credential", "apikey", "api_key", "assertion"];

/// A login file that has the form that its preset expects.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginDocument(Json);

impl LoginDocument {
    /// Parses a file. The error says what is wrong, and never repeats its content.
    pub fn parse(content: &[u8], form: &LoginForm) -> Result<Self, String> {
        let value: Json = serde_json::from_slice(content)
            .map_err(|error| format!("is not JSON: line {}, column {}", error.line(), error.column()))?;
        if !value.is_object() {
            return Err("is not a JSON object".to_owned());
        }
        for LoginToken { key, .. } in &form.tokens {
            let is_token = |text: &str| text.len() >= MIN_VALUE && text.bytes().all(|byte| byte.is_ascii_graphic());
            match at(&value, key) {
                None | Some(Json::Null) => {}
                Some(Json::String(text)) if text.is_empty() || is_token(text) => {}
                Some(_) => {
                    return Err(format!("has a `{key}` that is not a token: at least {MIN_VALUE} characters of ASCII"));
                }
            }
        }
        Ok(LoginDocument(value))
    }

    /// Returns a token; `None` if it is missing or empty.
    pub fn token(&self, token: &LoginToken) -> Option<&str> {
        at(&self.0, &token.key)?.as_str().filter(|text| !text.is_empty())
    }

    pub fn has_token(&self, form: &LoginForm) -> bool {
        form.tokens.iter().any(|token| self.token(token).is_some())
    }

    /// Returns a number, such as the time of expiry.
    pub fn number(&self, key: &str) -> Option<f64> {
        at(&self.0, key)?.as_f64()
    }

    /// Returns a text, or the words of a list.
    pub fn words(&self, key: &str) -> Option<String> {
        match at(&self.0, key)? {
            Json::String(text) => Some(text.clone()),
            Json::Array(words) => Some(words.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" ")),
            _ => None,
        }
    }

    /// Lists the keys that are not brought in: those that the form names, and those that look like
    /// tokens that it does not know.
    pub fn left_out(&self, form: &LoginForm) -> Vec<String> {
        let mut found = Vec::new();
        strip(&mut self.0.clone(), form, &mut Vec::new(), &mut found);
        found
    }

    /// Returns the copy for the guest. `make` makes a placeholder of an opaque value; those of an
    /// earlier copy are kept, because several sandboxes share the file.
    pub fn with_placeholders(&self, form: &LoginForm, earlier: Option<&Self>, make: impl Fn(&str) -> String) -> Self {
        let mut copy = self.0.clone();
        strip(&mut copy, form, &mut Vec::new(), &mut Vec::new());
        for token in &form.tokens {
            if let Some(value) = self.token(token) {
                let known = earlier.and_then(|earlier| earlier.token(token));
                set(&mut copy, &token.key, Json::String(placeholder(value, known, &make)));
            }
        }
        LoginDocument(copy)
    }

    /// Replaces tokens by those of an answer, and the times of expiry and refresh.
    pub fn update(&mut self, form: &LoginForm, answer: &Json, now_ms: u64, now_text: &str) {
        for token in &form.tokens {
            if let Some(new) = token.answer.as_ref().and_then(|key| answer.get(key)).and_then(Json::as_str) {
                set(&mut self.0, &token.key, Json::String(new.to_owned()));
            }
        }
        let expires_in = answer.get("expires_in").and_then(Json::as_f64);
        if let (Some(key), Some(seconds)) = (&form.expires, expires_in.filter(|seconds| (0.0..1e10).contains(seconds)))
        {
            let at = now_ms + (seconds * 1000.0) as u64;
            set(&mut self.0, key, at.into());
        }
        if let Some(key) = &form.refreshed {
            set(&mut self.0, key, now_text.into());
        }
    }

    /// Returns the content of the file.
    pub fn content(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(&self.0).unwrap_or_default()
    }
}

/// Describes the keys of a login's tokens.
pub fn keys(form: &LoginForm) -> String {
    form.tokens.iter().map(|token| format!("`{}`", token.key)).collect::<Vec<_>>().join(", ")
}

/// Returns the part of a placeholder by which a request is known: programs read the claims of a JSON
/// Web Token, so only its signature is replaced.
pub fn mark(token: &str) -> &str {
    if is_web_token(token) { token.rsplit('.').next().unwrap_or(token) } else { token }
}

/// Makes the placeholder of a token. The shape of an earlier one must be the same.
fn placeholder(value: &str, earlier: Option<&str>, make: &impl Fn(&str) -> String) -> String {
    let earlier = earlier.map(mark).filter(|earlier| earlier.len() == mark(value).len() && *earlier != mark(value));
    let signed = value.len() - mark(value).len();
    let random = || if is_web_token(value) { make_signature(mark(value), make) } else { make(value) };
    format!("{}{}", &value[..signed], earlier.map_or_else(random, str::to_owned))
}

/// Replaces all of a signature: it has no prefix that programs look at.
fn make_signature(signature: &str, make: &impl Fn(&str) -> String) -> String {
    let shape: String = signature.chars().map(|c| if c == '-' || c == '_' { 'a' } else { c }).collect();
    // A leading separator stops `make` from keeping four letters.
    make(&format!(".{shape}"))[1..].to_owned()
}

fn is_web_token(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    let header = parts.first().and_then(|part| Base64UrlUnpadded::decode_vec(part).ok());
    let is_json = header.is_some_and(|header| serde_json::from_slice::<Map<String, Json>>(&header).is_ok());
    parts.len() == 3 && is_json && parts[2].len() >= MIN_SUSPECT
}

/// Removes what is not brought in, and adds its keys to `found`.
fn strip(value: &mut Json, form: &LoginForm, path: &mut Vec<String>, found: &mut Vec<String>) {
    match value {
        Json::Object(members) => members.retain(|key, value| {
            path.push(key.clone());
            let is_kept = is_kept(value, form, path, found);
            path.pop();
            is_kept
        }),
        Json::Array(values) => values.retain_mut(|value| is_kept(value, form, path, found)),
        _ => {}
    }
}

fn is_kept(value: &mut Json, form: &LoginForm, path: &mut Vec<String>, found: &mut Vec<String>) -> bool {
    let key = path.join(".");
    let is_named = form.left_out.contains(&key);
    let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
    let is_known = form.tokens.iter().any(|token| token.key == key);
    if (is_named && !is_empty) || (!is_known && is_suspect(value, path.last().map_or("", String::as_str))) {
        found.push(key);
        return false;
    }
    strip(value, form, path, found);
    !is_named
}

/// Tells whether a text looks like a token.
fn is_suspect(value: &Json, name: &str) -> bool {
    let Json::String(text) = value else { return false };
    let name = name.to_ascii_lowercase();
    let is_long = text.len() >= MIN_SUSPECT && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_long && (is_web_token(text) || TOKEN_WORDS.iter().any(|word| name.contains(word)))
}

fn at<'a>(value: &'a Json, key: &str) -> Option<&'a Json> {
    key.split('.').try_fold(value, |value, part| value.get(part))
}

fn set(value: &mut Json, key: &str, new: Json) {
    let mut place = value;
    for part in key.split('.') {
        if !place.is_object() {
            *place = Json::Object(Map::new());
        }
        let Json::Object(members) = place else { return };
        place = members.entry(part.to_owned()).or_insert(Json::Null);
    }
    *place = new;
}

impl fmt::Debug for LoginDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LoginDocument(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_login;

    const FORM: &str = r#"
        file = "~/.mine/auth.json"
        tokens = [
            { key = "login.access", answer = "access_token", hosts = ["api.mine.example"] },
            { key = "login.refresh", answer = "refresh_token" },
            { key = "id", answer = "id_token" },
        ]
        refresh_at = ["auth.mine.example/token"]
        expires = "login.until"
        left_out = ["others"]
    "#;
    const FILE: &str = r#"{
        "login": { "access": "at-Real0123456789abcdef", "refresh": "rt-Real0123456789abcdef", "until": 1, "plan": "pro" },
        "id": "eyJhbGciOiJub25lIn0.eyJlbWFpbCI6Im1lIn0.c2lnbmF0dXJlLW9mLXRoZS1pZA",
        "others": { "a.server": { "access_token": "other-Real0123456789abcdef" } },
        "list": [{ "clientSecret": "list-Real0123456789abcdef" }, "kept"],
        "a.dotted_token": "dotted-Real0123456789abcdef"
    }"#;

    fn form() -> LoginForm {
        parse_login(FORM).expect("a form")
    }

    fn parsed(text: &str) -> LoginDocument {
        LoginDocument::parse(text.as_bytes(), &form()).expect("a login")
    }

    fn made(value: &str) -> String {
        crate::facts::placeholder(value)
    }

    #[test]
    fn a_copy_has_placeholders_of_the_same_shape_and_nothing_else_that_is_secret() {
        let login = parsed(FILE);
        let mut left_out = login.left_out(&form());
        left_out.sort();
        assert_eq!(left_out, ["a.dotted_token", "list.clientSecret", "others"]);
        let copy = login.with_placeholders(&form(), None, made);
        let text = String::from_utf8(copy.content()).expect("text");
        assert!(!text.contains("Real0123456789") && !text.contains("c2lnbmF0dXJl"), "{text}");
        assert!(text.contains("\"plan\": \"pro\"") && text.contains("\"kept\""), "{text}");
        for token in &form().tokens {
            let (real, other) = (login.token(token).expect("a token"), copy.token(token).expect("a token"));
            assert_eq!(real.len(), other.len());
            assert_ne!(mark(real), mark(other));
        }
        let id = copy.token(&form().tokens[2]).expect("a token").to_owned();
        assert!(id.starts_with("eyJhbGciOiJub25lIn0.eyJlbWFpbCI6Im1lIn0."), "the claims stay: {id}");
        // A second sandbox gives the same placeholders, also after the tokens were refreshed.
        assert_eq!(login.with_placeholders(&form(), Some(&copy), made), copy);
        let mut renewed = login.clone();
        let answer = serde_json::json!({ "access_token": "at-Next0123456789abcdef", "expires_in": 3600 });
        renewed.update(&form(), &answer, 1000, "now");
        assert_eq!(renewed.number("login.until"), Some(3_601_000.0));
        assert_eq!(renewed.token(&form().tokens[0]), Some("at-Next0123456789abcdef"));
        assert_eq!(renewed.token(&form().tokens[1]), Some("rt-Real0123456789abcdef"));
        let again = renewed.with_placeholders(&form(), Some(&copy), made);
        assert_eq!(again.token(&form().tokens[0]), copy.token(&form().tokens[0]));
        // The file of the host keeps what is left out inside.
        assert!(String::from_utf8_lossy(&renewed.content()).contains("other-Real0123456789"));
    }

    #[test]
    fn a_placeholder_is_never_the_token_itself() {
        let login = parsed(FILE);
        let copy = login.with_placeholders(&form(), Some(&login), made);
        assert!(form().tokens.iter().all(|token| copy.token(token).map(mark) != login.token(token).map(mark)));
    }

    #[test]
    fn what_is_not_a_login_is_refused() {
        for (text, problem) in [
            ("login", "is not JSON: line 1, column 1"),
            ("[]", "is not a JSON object"),
            (r#"{"id": 7}"#, "has a `id` that is not a token"),
            (r#"{"id": "short"}"#, "has a `id` that is not a token"),
            (r#"{"login": {"access": "two words of text"}}"#, "has a `login.access` that is not a token"),
        ] {
            let error = LoginDocument::parse(text.as_bytes(), &form()).expect_err(text);
            assert!(error.starts_with(problem), "{error}");
        }
        assert!(!parsed("{}").has_token(&form()));
        assert!(!parsed(r#"{"id": null}"#).has_token(&form()));
    }
}
