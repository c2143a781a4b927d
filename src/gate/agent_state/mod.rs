//! Copies an agent's files between the host and the sandbox: before the launch, every second, and
//! at the end. `plan::agent_state` decides which, and in which direction.
//!
//! The guest's copies are untrusted: they are read without following links and up to a limit, and
//! replaced by renaming. The files of several sandboxes are merged one after the other, under a
//! lock.

mod left;
mod merge;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::login::files::{forget, give, is_given};
use super::repository::watched::Stamps;
use crate::facts::LoginDocument;
use crate::plan::{AgentState, KeptFile, LoginPlan, Sharing};
use crate::process::untrusted_dir::UntrustedDir;
use crate::process::{RepeatedWork, lock};
use crate::ui::Ui;
use merge::Merged;

/// The interval at which changes are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// A larger file is not copied.
const MAX_SIZE: u64 = 16 << 20;
/// How many changes the closing line names.
const MAX_NAMED: usize = 8;

/// The files of one sandbox's agent.
#[derive(Debug)]
pub struct StateExchange {
    state: AgentState,
    /// The state of what the agent obeys, before the launch; `None` in the first session, in which
    /// the agent creates its files.
    stamps: Option<Stamps>,
    /// The guest's copies with reported keys, before the launch.
    before: Vec<Option<Json>>,
    conflicts: Vec<String>,
}

impl StateExchange {
    /// Gives the guest its copies.
    pub fn start(state: &AgentState) -> io::Result<Self> {
        let mut exchange =
            StateExchange { state: state.clone(), stamps: None, before: Vec::new(), conflicts: Vec::new() };
        let Some(own) = &state.own else { return Ok(exchange) };
        let is_first = fs::create_dir(own.join("base").as_path()).is_ok();
        let _lock = exchange.lock()?;
        for file in &state.files {
            discard_other_login(file)?;
            if let Some((copy, base)) = &file.earlier {
                for (from, to) in
                    [(copy.as_path(), file.directory.join(&file.name)), (base.as_path(), file.base.clone())]
                {
                    if let Ok(content) = fs::read(from) {
                        write(to.as_path(), &content)?;
                    }
                }
            }
        }
        exchange.copy_all();
        exchange.before = state.files.iter().map(guest_json).collect();
        if !is_first {
            exchange.stamps = Some(Stamps::of(&exchange.obeyed()));
        }
        Ok(exchange)
    }

    /// Copies what has changed, at the end of the sandbox, and reports it.
    pub fn finish(&mut self, ui: Ui) {
        if self.state.own.is_some() {
            let lock = self.lock();
            self.copy_all();
            for (copy, base, file) in self
                .state
                .files
                .iter()
                .filter_map(|file| Some((&file.earlier.as_ref()?.0, &file.earlier.as_ref()?.1, file)))
            {
                if let Ok(Some(content)) = guest_content(file) {
                    let _ = write(copy.as_path(), &content);
                }
                if let Ok(content) = fs::read(file.base.as_path()) {
                    let _ = write(base.as_path(), &content);
                }
            }
            drop(lock);
            self.report(ui);
        }
        if let Some(home) = &self.state.reported_home
            && let Some(line) = left::line(home.as_path())
        {
            ui.notice(&line);
        }
    }

    fn report(&self, ui: Ui) {
        for path in self.conflicts.iter().take(MAX_NAMED) {
            ui.notice(&format!("`{path}` was changed inside and outside: the change from outside is kept"));
        }
        let mut changed: Vec<String> = Vec::new();
        if let Some(stamps) = &self.stamps {
            for (own, host) in &self.state.obeyed {
                if !stamps.changed(&[own.as_path().to_owned()]).is_empty() {
                    changed.push(format!("{host} (inside: {own})"));
                }
            }
            for (file, before) in self.state.files.iter().zip(&self.before) {
                changed.extend(changed_keys(file, before.as_ref()));
            }
        }
        if !changed.is_empty() {
            let more = changed.len().saturating_sub(MAX_NAMED);
            changed.truncate(MAX_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            ui.notice(&format!(
                "changed inside, for sandboxes only, because the agent obeys it on the host: {}{more}",
                changed.join(", ")
            ));
        }
    }

    fn obeyed(&self) -> Vec<std::path::PathBuf> {
        self.state.obeyed.iter().map(|(own, _)| own.as_path().to_owned()).collect()
    }

    /// Waits until no other sandbox copies files of this agent.
    fn lock(&self) -> io::Result<Option<File>> {
        let Some(own) = &self.state.own else { return Ok(None) };
        let path = own.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(path.as_path())?;
        lock::wait(&file)?;
        Ok(Some(file))
    }

    fn copy_all(&mut self) {
        for file in &self.state.files {
            // A file that cannot be copied stays as it is on both sides.
            if copy(file).unwrap_or(false) {
                let path = file.host.to_string();
                if !self.conflicts.contains(&path) {
                    self.conflicts.push(path);
                }
            }
        }
    }

    /// Copies in another thread while the sandbox runs.
    pub fn repeat(self) -> RepeatedWork<Self> {
        RepeatedWork::start(INTERVAL, self, Self::copy_while_running)
    }

    fn copy_while_running(&mut self) {
        if let Ok(_lock) = self.lock() {
            self.copy_all();
        }
    }
}

/// Merges both copies of a file; returns whether a change of the guest was dropped.
fn copy(file: &KeptFile) -> io::Result<bool> {
    let host = host_content(file.host.as_path())?;
    let base = optional(fs::read(file.base.as_path()))?;
    let guest = guest_content(file)?;
    let contents = (base.as_deref(), host.as_deref(), guest.as_deref());
    let (b, h, g) = contents;
    let merged = match &file.sharing {
        Sharing::Login(login) => return give_login(file, login, b, h).map(|()| false),
        Sharing::FirstLogin(login) if is_given(login) => return Ok(false),
        Sharing::Whole | Sharing::FirstLogin(_) => merge::whole(b, h, g),
        Sharing::HostOnly => merge::host_only(b, h, g),
        Sharing::Keys { shared, .. } => {
            let is_shared = |path: &[&str]| shared.iter().any(|pattern| merge::is_below(pattern, path));
            // A file that is not valid is being written, or broken: it goes nowhere.
            match merge::keys(b, h, g, is_shared) {
                Some(merged) => merged,
                None => return Ok(false),
            }
        }
    };
    let Merged { host: new_host, guest: new_guest, is_conflict } = merged;
    if new_guest != guest {
        let directory = UntrustedDir::open(file.directory.as_path())?;
        match &new_guest {
            Some(content) => {
                directory.replace(&file.name, content, || true)?;
                directory.set_mode(&file.name, 0o600)?;
            }
            None => directory.remove_file(&file.name)?,
        }
    }
    if new_host != host {
        match &new_host {
            Some(content) => write(file.host.as_path(), content)?,
            None => fs::remove_file(file.host.as_path())?,
        }
    }
    if new_host != base {
        match &new_host {
            Some(content) => write(file.base.as_path(), content)?,
            None => fs::remove_file(file.base.as_path())?,
        }
    }
    Ok(is_conflict)
}

fn optional<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn host_content(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match optional(fs::metadata(path))? {
        None => Ok(None),
        Some(meta) if meta.is_file() && meta.len() <= MAX_SIZE => optional(fs::read(path)),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn guest_content(file: &KeptFile) -> io::Result<Option<Vec<u8>>> {
    UntrustedDir::open(file.directory.as_path())?.read(&file.name, MAX_SIZE)
}

fn guest_json(file: &KeptFile) -> Option<Json> {
    match file.sharing {
        Sharing::Keys { .. } => serde_json::from_slice(&guest_content(file).ok()??).ok(),
        _ => None,
    }
}

/// Removes what sandboxes had of a login in another way: its tokens if it is outside now, and
/// placeholders if nobody is logged in any more.
fn discard_other_login(file: &KeptFile) -> io::Result<()> {
    match &file.sharing {
        Sharing::Login(login) => {
            optional(fs::remove_file(file.base.as_path()))?;
            // Replaced and not removed: the agent of another sandbox may read it.
            let host = host_content(file.host.as_path())?;
            give_login(file, login, None, host.as_deref())?;
            if file.base.as_path().exists() {
                return Ok(());
            }
        }
        Sharing::FirstLogin(login) if is_given(login) => {
            forget(login);
            optional(fs::remove_file(file.base.as_path()))?;
        }
        _ => return Ok(()),
    }
    UntrustedDir::open(file.directory.as_path())?.remove_file(&file.name)
}

/// Gives the guest a copy of a login with placeholders, if the host's has changed. The base is a digest.
fn give_login(file: &KeptFile, login: &LoginPlan, base: Option<&[u8]>, host: Option<&[u8]>) -> io::Result<()> {
    let digest = Sha256::digest(host.unwrap_or_default());
    if base == Some(digest.as_slice()) {
        return Ok(());
    }
    let directory = UntrustedDir::open(file.directory.as_path())?;
    match host.filter(|content| !content.trim_ascii().is_empty()) {
        None => directory.remove_file(&file.name)?,
        Some(content) => {
            // A file that is not valid is being written, or broken: the guest keeps what it has.
            let Ok(document) = LoginDocument::parse(content, &login.form) else { return Ok(()) };
            directory.replace(&file.name, &give(login, &document)?.content(), || true)?;
            directory.set_mode(&file.name, 0o600)?;
        }
    }
    write(file.base.as_path(), &digest)
}

/// Lists the reported keys that the guest changed.
fn changed_keys(file: &KeptFile, before: Option<&Json>) -> Vec<String> {
    let Sharing::Keys { obeyed, .. } = &file.sharing else { return Vec::new() };
    let (Some(before), Some(now)) = (before, guest_json(file)) else { return Vec::new() };
    let is_reported = |path: &Vec<String>| {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        obeyed.iter().any(|pattern| merge::is_below(pattern, &path))
    };
    let changed = merge::differences(before, &now, 1000);
    changed
        .iter()
        .filter(|path| is_reported(path))
        .map(|path| format!("`{}` in {}", path.join("."), file.host))
        .collect()
}

/// Replaces a file of the host by renaming, with the permissions that it had. A link is followed.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(parent)?;
    let mode = fs::metadata(&path).map_or(0o600, |meta| meta.permissions().mode() & 0o777);
    let new = parent.join(format!(".sandpen-{}", crate::session_id::random_name()));
    let written = || -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&new)?;
        file.write_all(content)?;
        fs::rename(&new, &path)
    }();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}
