//! The login of an agent: its tokens, in the launcher's memory, and the placeholders that the guest has.
//! Refreshes tokens when the agent inside asks its vendor to, once for all sandboxes and the host.

pub mod files;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};

use crate::event_log::timestamp;
use crate::facts::{LoginDocument, mark};
use crate::plan::LoginPlan;
use crate::secret::Secret;
use files::{RefreshLock, Stamp, give, read_host, write_host};

/// How many tokens, the earlier ones included, are searched for in answers.
const MAX_SEEN: usize = 24;
/// How many placeholders are known, the earlier ones included.
const MAX_MARKS: usize = 24;
/// A token that is valid for longer is not refreshed, unless a host has refused it.
const SOON_MS: f64 = 15.0 * 60.0 * 1000.0;
/// The key of the answer with the token that requests carry.
const ACCESS: &str = "access_token";
/// The key of the request, and of the answer, with the token that gets new ones.
pub const REFRESH: &str = "refresh_token";

/// A login whose tokens are outside.
#[derive(Debug)]
pub struct Login {
    plan: LoginPlan,
    state: Mutex<LoginState>,
}

#[derive(Debug, Default)]
struct LoginState {
    /// The state of the host's file that was read last.
    stamp: Option<Stamp>,
    document: Option<LoginDocument>,
    given: Option<LoginDocument>,
    /// Parts of placeholders by which a request is known, each with the token's index.
    marks: Vec<(usize, String)>,
    /// Tokens, each with its placeholder, of which none may come back.
    seen: Vec<(Secret, Secret)>,
    /// The access token that was sent last, or that there was at the launch.
    sent: Option<String>,
    /// The access token that a host did not accept.
    refused: Option<String>,
    /// Counts the changes of `seen`.
    generation: u64,
}

/// What a vendor answers.
#[derive(Debug, Clone)]
pub struct VendorAnswer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// The outcome of a refresh.
#[derive(Debug)]
pub enum Refreshed {
    /// New tokens. The text says what went wrong when they were kept.
    New(Json, Option<String>),
    /// The host or another sandbox has refreshed them before.
    Known(Json),
    /// The vendor refused.
    Refused(VendorAnswer),
}

impl Login {
    /// Reads the login. A file that has become unreadable since the plan was made is an error.
    pub fn open(plan: &LoginPlan) -> Result<Self, String> {
        let login = Login { plan: plan.clone(), state: Mutex::default() };
        // `--keys outside` with nobody logged in: there is nothing to set.
        if plan.file.as_path().exists() {
            let mut state = login.lock();
            login.load(&mut state)?;
            state.sent = login.access(&state).map(str::to_owned);
            drop(state);
        }
        Ok(login)
    }

    pub fn plan(&self) -> &LoginPlan {
        &self.plan
    }

    /// Whether a credential is the placeholder of a token.
    pub fn is_placeholder(&self, index: usize, credential: &str) -> bool {
        self.lock().marks.iter().any(|(known, mark)| *known == index && credential.contains(mark.as_str()))
    }

    /// Whether a text is the placeholder with which new tokens are asked for.
    pub fn is_refresh_placeholder(&self, text: &str) -> bool {
        let tokens = self.plan.form.tokens.iter().enumerate();
        let mut refresh = tokens.filter(|(_, token)| token.answer.as_deref() == Some(REFRESH));
        refresh.any(|(index, _)| self.is_placeholder(index, text))
    }

    /// Returns the present value of a token, which a request will carry. The host may have refreshed it.
    pub fn use_token(&self, index: usize) -> Option<Secret> {
        let mut state = self.lock();
        // A file that is just being written has the tokens of a moment ago.
        let _ = self.load(&mut state);
        let token = self.plan.form.tokens.get(index)?;
        let value = state.document.as_ref()?.token(token)?.to_owned();
        if token.answer.as_deref() == Some(ACCESS) {
            state.sent = Some(value.clone());
        }
        Some(Secret::new(value))
    }

    /// Notes that a host did not accept the token that was sent.
    pub fn refuse(&self, index: usize) {
        let mut state = self.lock();
        if self.plan.form.tokens.get(index).is_some_and(|token| token.answer.as_deref() == Some(ACCESS)) {
            state.refused = state.sent.clone();
        }
    }

    /// Returns the tokens that must not come back, with their placeholders, and the number of changes.
    pub fn seen(&self) -> (u64, Vec<(Secret, Secret)>) {
        let state = self.lock();
        (state.generation, state.seen.clone())
    }

    /// Refreshes the tokens for the guest, whose request `ask` sends with the value that it is given.
    /// If the file has tokens that the guest could not know of, they are the answer.
    pub fn refresh(&self, ask: impl FnOnce(&Secret) -> Result<VendorAnswer, String>) -> Result<Refreshed, String> {
        let _lock = RefreshLock::take(&self.plan).map_err(|error| format!("`{}`: {error}", self.plan.lock))?;
        let mut state = self.lock();
        self.load(&mut state)?;
        if !self.is_due(&state) {
            return Ok(Refreshed::Known(self.known_answer(&state)));
        }
        let document = state.document.as_ref();
        let token = self.plan.form.tokens.iter().find(|token| token.answer.as_deref() == Some(REFRESH));
        let token = token.and_then(|token| document?.token(token)).map(Secret::new);
        let token = token.ok_or_else(|| format!("`{}` has no token to refresh", self.plan.file))?;
        let before = self.access(&state).map(str::to_owned);
        // Other requests must not wait for the vendor.
        drop(state);
        let answer = ask(&token)?;
        if !(200..300).contains(&answer.status) {
            // An agent on the host that takes no lock may have been faster.
            let mut state = self.lock();
            let is_newer = self.load(&mut state).is_ok() && self.access(&state) != before.as_deref();
            return Ok(if is_newer { Refreshed::Known(self.known_answer(&state)) } else { Refreshed::Refused(answer) });
        }
        let new: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
        if !new.get(ACCESS).is_some_and(Json::is_string) {
            return Err("the answer to the refresh has no `access_token`".to_owned());
        }
        let mut state = self.lock();
        let now = SystemTime::now();
        let now_ms = now.duration_since(UNIX_EPOCH).map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        // The agent on the host may have changed other keys.
        let latest = read_host(&self.plan).ok().or(state.document.take());
        let mut document = latest.ok_or_else(|| format!("`{}` is gone", self.plan.file))?;
        document.update(&self.plan.form, &new, now_ms, &timestamp(now));
        let problem = write_host(&self.plan, &document).err().map(|error| {
            let path = &self.plan.file;
            format!(
                "the refreshed tokens of {} could not be written to `{path}`: {error}; log in anew",
                self.plan.name()
            )
        });
        state.stamp = Stamp::of(&self.plan.file);
        self.take(&mut state, document)?;
        state.sent = self.access(&state).map(str::to_owned);
        Ok(Refreshed::New(self.replaced_answer(&state, new), problem))
    }

    fn lock(&self) -> MutexGuard<'_, LoginState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the host's file if it has changed.
    fn load(&self, state: &mut LoginState) -> Result<(), String> {
        let stamp = Stamp::of(&self.plan.file);
        if stamp.is_some() && stamp == state.stamp {
            return Ok(());
        }
        let document = read_host(&self.plan)?;
        self.take(state, document)?;
        state.stamp = stamp;
        Ok(())
    }

    /// Makes a document the present one, and records its placeholders.
    fn take(&self, state: &mut LoginState, document: LoginDocument) -> Result<(), String> {
        let given = give(&self.plan, &document).map_err(|error| format!("`{}`: {error}", self.plan.given))?;
        for (index, token) in self.plan.form.tokens.iter().enumerate() {
            let (Some(value), Some(other)) = (document.token(token), given.token(token)) else { continue };
            let known = (index, mark(other).to_owned());
            if !state.marks.contains(&known) {
                state.marks.push(known);
            }
            // The signature alone makes the claims of a token valid.
            for pair in [(value, other), (mark(value), mark(other))] {
                let pair = (Secret::new(pair.0), Secret::new(pair.1));
                if !state.seen.contains(&pair) {
                    state.seen.push(pair);
                    state.generation += 1;
                }
            }
        }
        state.marks.drain(..state.marks.len().saturating_sub(MAX_MARKS));
        state.seen.drain(..state.seen.len().saturating_sub(MAX_SEEN));
        (state.document, state.given) = (Some(document), Some(given));
        Ok(())
    }

    fn access<'s>(&self, state: &'s LoginState) -> Option<&'s str> {
        let token = self.plan.form.tokens.iter().find(|token| token.answer.as_deref() == Some(ACCESS))?;
        state.document.as_ref()?.token(token)
    }

    /// Whether the present tokens are those that the guest wants to replace.
    fn is_due(&self, state: &LoginState) -> bool {
        let access = self.access(state);
        if access.is_none() || access == state.refused.as_deref() {
            return true;
        }
        match self.left_ms(state) {
            Some(left) => left < SOON_MS,
            None => access == state.sent.as_deref(),
        }
    }

    /// Returns for how long the access token is valid.
    fn left_ms(&self, state: &LoginState) -> Option<f64> {
        let expires = state.document.as_ref()?.number(self.plan.form.expires.as_ref()?)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(expires - now.as_secs_f64() * 1000.0)
    }

    /// Makes the answer of a vendor from what the file has.
    fn known_answer(&self, state: &LoginState) -> Json {
        let mut answer = Map::new();
        answer.insert("token_type".to_owned(), json!("Bearer"));
        if let Some(scope) = self.plan.form.scopes.as_ref().and_then(|key| state.document.as_ref()?.words(key)) {
            answer.insert("scope".to_owned(), Json::String(scope));
        }
        if let Some(left) = self.left_ms(state) {
            answer.insert("expires_in".to_owned(), json!((left / 1000.0) as i64));
        }
        self.add_placeholders(state, &mut answer, |_| true);
        Json::Object(answer)
    }

    /// Replaces the tokens in the answer of a vendor. What looks like another one is left out.
    fn replaced_answer(&self, state: &LoginState, answer: Json) -> Json {
        let Json::Object(members) = answer else { return Json::Null };
        let names: Vec<String> = members.keys().cloned().collect();
        let kept = members.into_iter().filter(|(name, value)| {
            let is_plain = value.is_number() || value.is_boolean() || value.is_object();
            is_plain || name == "token_type" || name == "scope" || !name.contains("token")
        });
        let mut kept: Map<String, Json> = kept.collect();
        self.add_placeholders(state, &mut kept, |name| names.iter().any(|known| known == name));
        Json::Object(kept)
    }

    fn add_placeholders(&self, state: &LoginState, answer: &mut Map<String, Json>, is_wanted: impl Fn(&str) -> bool) {
        for token in &self.plan.form.tokens {
            let given = state.given.as_ref().and_then(|given| given.token(token));
            if let (Some(name), Some(given)) = (token.answer.as_ref().filter(|name| is_wanted(name)), given) {
                answer.insert(name.clone(), json!(given));
            }
        }
    }
}
