//! Looks at the files in which agents keep their logins. Keeps no token; `gate::login` reads them again.

mod document;

use std::collections::BTreeMap;
use std::io::ErrorKind;

pub use document::{LoginDocument, mark};

use crate::config::login::LoginForm;
use crate::path::HostPath;
use crate::process::untrusted;

/// The size limit of a login file, in bytes.
pub const MAX_LOGIN: u64 = 1 << 20;

/// A login to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginQuestion {
    pub file: HostPath,
    pub encrypted: Vec<HostPath>,
    pub form: LoginForm,
}

/// What was found for each file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginFacts(BTreeMap<HostPath, LoginFact>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFact {
    /// Nobody is logged in.
    Absent,
    /// The keys of tokens for unknown hosts, which are left out inside.
    Present { left_out: Vec<String> },
    /// Another file has it, encrypted.
    Encrypted,
    /// The file is not what the preset expects, for this reason.
    Problem(String),
}

impl LoginFacts {
    pub fn look(questions: Vec<LoginQuestion>) -> Self {
        let looked = questions.into_iter().map(|LoginQuestion { file, encrypted, form }| {
            let fact = match untrusted::read_linked(file.as_path(), MAX_LOGIN) {
                _ if encrypted.iter().any(|path| path.as_path().exists()) => LoginFact::Encrypted,
                Ok(text) => examine(text.as_bytes(), &form),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    LoginFact::Absent
                }
                Err(error) => LoginFact::Problem(format!("cannot be read: {error}")),
            };
            (file, fact)
        });
        LoginFacts(looked.collect())
    }

    pub fn get(&self, file: &HostPath) -> &LoginFact {
        self.0.get(file).unwrap_or(&LoginFact::Absent)
    }
}

fn examine(content: &[u8], form: &LoginForm) -> LoginFact {
    if content.trim_ascii().is_empty() {
        return LoginFact::Absent;
    }
    let document = match LoginDocument::parse(content, form) {
        Ok(document) => document,
        Err(problem) => return LoginFact::Problem(problem),
    };
    let left_out = document.left_out(form);
    match (document.has_token(form), left_out.is_empty()) {
        (false, true) => LoginFact::Absent,
        (false, false) => LoginFact::Problem(format!("has none of the keys {}", document::keys(form))),
        (true, _) => LoginFact::Present { left_out },
    }
}
