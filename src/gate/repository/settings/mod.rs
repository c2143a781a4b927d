//! Decides which changes of the guest's Git configuration come out: settings of tracked branches
//! and new remotes with an ordinary URL. Reads no files and runs no programs.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::config::value::is_ref_path;
use crate::facts::git::syntax;

const MAX_SIZE: usize = 1 << 20;
/// Stands for the whole file in the list of what is kept inside.
const WHOLE_FILE: &str = "config";
const SCHEMES: &[&str] = &["https://", "http://", "ssh://", "git://"];

/// The changes of the guest's configuration against what it was given.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SettingChanges {
    /// New remotes come before the settings that may name them.
    pub accepted: Vec<SettingChange>,
    pub kept_inside: Vec<KeptSetting>,
}

/// A change that may be made with `git config` on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingChange {
    /// Adds a remote that the guest was not given.
    AddRemote { name: String, url: String, fetch: String },
    /// Sets a key, if the host's value is still `given`.
    Set { key: String, given: Option<String>, value: String },
    /// Removes a key, if the host's value is still `given`.
    Unset { key: String, given: String },
}

/// A change that does not come out. Both texts are the guest's and may contain any character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSetting {
    /// `config` if the file as a whole is not used.
    pub key: String,
    /// The last value; `None` if the guest removed the setting.
    pub value: Option<String>,
}

/// All values of each key, in their order.
type Settings = BTreeMap<String, Vec<String>>;

/// Compares the guest's configuration with what it was given.
pub fn changes(given: &[u8], now: &[u8]) -> SettingChanges {
    if given == now {
        return SettingChanges::default();
    }
    let (Some(given), Some(now)) = (parse(given), parse(now)) else {
        let kept = KeptSetting { key: WHOLE_FILE.to_owned(), value: None };
        return SettingChanges { accepted: Vec::new(), kept_inside: vec![kept] };
    };
    let (mut accepted, mut handled) = new_remotes(&given, &now);
    let mut remotes: BTreeSet<&str> = given.keys().filter_map(|key| remote_of(key)).collect();
    let new: Vec<String> = accepted.iter().filter_map(added_remote).collect();
    remotes.extend(new.iter().map(String::as_str));
    let mut kept_inside = Vec::new();
    let keys: BTreeSet<&String> = given.keys().chain(now.keys()).collect();
    for key in keys {
        if given.get(key) == now.get(key) || handled.remove(key) {
            continue;
        }
        match branch_change(key, given.get(key), now.get(key), &remotes) {
            Some(change) => accepted.push(change),
            None => {
                let value = now.get(key).and_then(|values| values.last()).cloned();
                kept_inside.push(KeptSetting { key: key.clone(), value });
            }
        }
    }
    SettingChanges { accepted, kept_inside }
}

fn parse(bytes: &[u8]) -> Option<Settings> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_SIZE)?;
    let mut settings = Settings::new();
    for (key, value) in syntax::settings(text)? {
        settings.entry(key).or_default().push(value);
    }
    Some(settings)
}

/// Returns the new remotes that are acceptable, and the keys that they consist of.
fn new_remotes(given: &Settings, now: &Settings) -> (Vec<SettingChange>, BTreeSet<String>) {
    let known: BTreeSet<&str> = given.keys().filter_map(|key| remote_of(key)).collect();
    let names: BTreeSet<&str> = now.keys().filter_map(|key| remote_of(key)).collect();
    let mut accepted = Vec::new();
    let mut handled = BTreeSet::new();
    for name in names.difference(&known).filter(|name| is_remote_name(name)) {
        let keys = [format!("remote.{name}.url"), format!("remote.{name}.fetch")];
        let [url, fetch] = keys.each_ref().map(|key| now.get(key).map(Vec::as_slice));
        let (Some([url]), Some([fetch])) = (url, fetch) else { continue };
        if is_ordinary_url(url) && *fetch == format!("+refs/heads/*:refs/remotes/{name}/*") {
            let name = (*name).to_owned();
            accepted.push(SettingChange::AddRemote { name, url: url.clone(), fetch: fetch.clone() });
            handled.extend(keys);
        }
    }
    (accepted, handled)
}

fn added_remote(change: &SettingChange) -> Option<String> {
    match change {
        SettingChange::AddRemote { name, .. } => Some(name.clone()),
        _ => None,
    }
}

fn remote_of(key: &str) -> Option<&str> {
    key.strip_prefix("remote.")?.rsplit_once('.').map(|(name, _)| name)
}

/// Returns the change of a branch's setting if it is acceptable. Git takes a `remote` that is not
/// configured for a path or a URL, so only a known one comes out.
fn branch_change(
    key: &str,
    given: Option<&Vec<String>>,
    now: Option<&Vec<String>>,
    remotes: &BTreeSet<&str>,
) -> Option<SettingChange> {
    let (branch, variable) = key.strip_prefix("branch.")?.rsplit_once('.')?;
    if branch.starts_with('-') || !is_ref_path(branch) || !matches!(variable, "remote" | "merge" | "rebase") {
        return None;
    }
    let given = match given.map(Vec::as_slice) {
        None => None,
        Some([value]) => Some(value.clone()),
        Some(_) => return None,
    };
    let key = key.to_owned();
    let value = match now.map(Vec::as_slice) {
        None => return Some(SettingChange::Unset { key, given: given? }),
        Some([value]) => value.clone(),
        Some(_) => return None,
    };
    let is_accepted = match variable {
        "remote" => value == "." || (is_remote_name(&value) && remotes.contains(value.as_str())),
        "merge" => value.strip_prefix("refs/heads/").is_some_and(|name| !name.starts_with('-') && is_ref_path(name)),
        _ => matches!(value.as_str(), "true" | "false" | "merges"),
    };
    is_accepted.then_some(SettingChange::Set { key, given, value })
}

fn is_remote_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'/' | b'-');
    !name.starts_with('-') && name.bytes().all(is_allowed) && is_ref_path(name)
}

/// Tells whether a URL names another host through a protocol that runs no program of the URL's
/// choice. Paths are not ordinary: the guest may have made a repository there.
fn is_ordinary_url(url: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/@%+,=[]".contains(&byte);
    if !url.bytes().all(is_allowed) || url.contains("::") {
        return false;
    }
    if let Some(rest) = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme)) {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        return is_authority(authority) && has_plain_escapes(path);
    }
    // The form of scp: `user@host:path`.
    let Some((server, path)) = url.split_once(':') else { return false };
    is_server(server) && !path.is_empty() && !path.starts_with(['-', ':']) && !path.starts_with("//")
}

/// Checks `user:password@host:port`, where all but the host is optional.
fn is_authority(text: &str) -> bool {
    let (server, port) = match text.rsplit_once(':') {
        Some((server, port)) if !port.contains('@') => (server, port),
        _ => (text, "0"),
    };
    port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()) && is_server(server)
}

fn is_server(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let (user, host) = text.rsplit_once('@').unwrap_or(("user", text));
    !host.is_empty()
        && !host.starts_with('-')
        && host.bytes().all(is_allowed)
        && !user.is_empty()
        && !user.starts_with('-')
        && !user.contains(['/', '@', '%', '[', ']'])
}

/// Git decodes escapes before it uses a path; one of a control character is not ordinary.
fn has_plain_escapes(path: &str) -> bool {
    path.split('%').skip(1).all(|rest| {
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte >= b' ' && byte != 0x7f)
    })
}
