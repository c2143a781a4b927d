//! Answers the requests of the page: what waits in the copy, and what is to be done with it. It calls what
//! the commands call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value, json};

use super::access::Access;
use super::page::{page, protected};
use super::server::{Reply, RequestHead, Service};
use crate::command::workspace::find::{Found, TreePath};
use crate::command::workspace::{WorkspaceCommandError, apply, diff, discard, json, selection, undo};
use crate::error::{Error, Result};
use crate::gate::workspace::{Content, FileReview, Review, Selected, UndoStore};
use crate::host::Host;
use crate::ui::{Ui, counted};

/// The review of one copy, and the commands on it.
pub struct Api {
    pub host: Host,
    pub found: Found,
    pub paths: Vec<TreePath>,
    pub shows_ignored: bool,
    pub access: Access,
    pub ui: Ui,
    shown: Mutex<Shown>,
    is_over: AtomicBool,
}

/// What the page shows. One request at a time uses it.
#[derive(Default)]
struct Shown {
    /// The page names it, so that nothing is applied that it did not show.
    number: u64,
    review: Option<Review>,
}

/// What the page wants to be taken over.
#[derive(Deserialize)]
struct Wanted {
    review: u64,
    #[serde(default)]
    markers: bool,
    #[serde(default)]
    commits: bool,
    files: Vec<WantedFile>,
}

#[derive(Deserialize)]
struct WantedFile {
    number: usize,
    /// `None` takes everything.
    hunks: Option<Vec<usize>>,
}

impl Api {
    pub fn new(host: Host, found: Found, paths: Vec<TreePath>, shows_ignored: bool, access: Access, ui: Ui) -> Self {
        let (shown, is_over) = (Mutex::default(), AtomicBool::default());
        Api { host, found, paths, shows_ignored, access, ui, shown, is_over }
    }

    fn route(&self, head: &RequestHead, body: &[u8]) -> Result<Value> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match (head.method.as_str(), head.path.as_str()) {
            ("GET", "/review") => {
                self.review(&mut shown, self.shows_ignored || head.query.as_deref() == Some("ignored"))
            }
            ("GET", "/hunks") => hunks(&shown, head.query.as_deref().unwrap_or_default()),
            ("POST", "/apply") => self.apply(&shown, body),
            ("POST", "/undo") => self.undo(),
            ("POST", "/discard") => self.discard(),
            _ => Err(WorkspaceCommandError::NoSuchRequest.into()),
        }
    }

    /// Compares anew and lists the files, without their hunks.
    fn review(&self, shown: &mut Shown, with_ignored: bool) -> Result<Value> {
        let (_, review) = selection::review(&self.found, &self.paths)?;
        let refs = if self.paths.is_empty() { diff::refs(&self.found)? } else { Vec::new() };
        let is_shown = |file: &FileReview| with_ignored || !file.is_ignored || selection::is_named(&self.paths, file);
        let mut list = json::review(&self.found, &review, &refs, is_shown);
        let numbers = (0..review.files.len()).filter(|number| is_shown(&review.files[*number]));
        let entries = list.get_mut("files").and_then(Value::as_array_mut).into_iter().flatten();
        for (number, entry) in numbers.zip(entries) {
            let count = match &review.files[number].content {
                Content::Text(hunks) => hunks.len(),
                _ => 0,
            };
            entry["number"] = number.into();
            entry["hunks"] = count.into();
        }
        shown.number += 1;
        list["review"] = shown.number.into();
        list["can_undo"] = self.undo_store()?.last().is_some().into();
        shown.review = Some(review);
        Ok(list)
    }

    fn undo_store(&self) -> Result<UndoStore> {
        let store = UndoStore::open(&self.host.state_dir(), self.found.copy.root());
        store.map_err(|error| WorkspaceCommandError::Own(error).into())
    }

    fn apply(&self, shown: &Shown, body: &[u8]) -> Result<Value> {
        let stale = || Error::from(WorkspaceCommandError::Stale);
        let wanted: Wanted = serde_json::from_slice(body).map_err(|_| stale())?;
        let review = shown.review.as_ref().filter(|_| shown.number == wanted.review).ok_or_else(stale)?;
        let mut selected = Vec::new();
        for WantedFile { number, hunks } in wanted.files {
            selected.push(Selected { file: review.files.get(number).ok_or_else(stale)?, hunks });
        }
        let applied = apply::take(&self.host, &self.found, &selected, wanted.markers, wanted.commits)?;
        self.ui.notice(&format!("{} applied", counted(applied, "file")));
        Ok(json!({"applied": applied}))
    }

    fn undo(&self) -> Result<Value> {
        let restored = undo::take_back(&self.host, self.found.copy.root())?;
        self.ui.notice(&format!("{} restored", counted(restored, "file")));
        Ok(json!({"restored": restored}))
    }

    fn discard(&self) -> Result<Value> {
        discard::remove(&self.host, &self.found, self.ui)?;
        self.is_over.store(true, Ordering::Relaxed);
        Ok(json!({"discarded": self.found.copy.id}))
    }
}

/// Returns the hunks of one file of a review: `REVIEW-NUMBER`.
fn hunks(shown: &Shown, query: &str) -> Result<Value> {
    let number = query.split_once('-').and_then(|(review, number)| Some((review.parse().ok()?, number.parse().ok()?)));
    let file = number.and_then(|(review, number): (u64, usize)| {
        shown.review.as_ref().filter(|_| shown.number == review)?.files.get(number)
    });
    Ok(json!({"hunks": json::hunks(file.ok_or(WorkspaceCommandError::Stale)?)}))
}

impl Service for Api {
    fn refuse(&self, head: &RequestHead) -> Option<Reply> {
        let refusal = "This address opens the page once. For a new one, run `sandpen diff --web` again.";
        (!self.access.permits(head)).then(|| protected(Reply::text(403, refusal)))
    }

    fn answer(&self, head: &RequestHead, body: &[u8]) -> Reply {
        if head.path == "/" {
            return page(self.access.session_key(), &self.access.next_token());
        }
        let (status, value) = match self.route(head, body) {
            Ok(value) => (200, value),
            Err(error) => (409, json!({"message": error.message(), "causes": error.causes()})),
        };
        protected(Reply {
            content_type: "application/json",
            content: value.to_string().into_bytes(),
            ..Reply::text(status, "")
        })
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
