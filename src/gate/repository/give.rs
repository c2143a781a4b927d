//! Gives the guest what changed on the host while the sandbox runs: refs, HEAD and the index, as
//! long as the guest did not change them itself. Writes as Git does, with lock files, and only if
//! the guest's value is still the one that was read.

use std::fs;
use std::io;
use std::path::Path;

use super::apply_index;
use super::base::{read_base, read_user_refs, write_base, write_user_refs};
use super::exchange::{GitDirExchange, WorkingTree, open_private};
use super::host_git::{GitResult, HostGit};
use super::refs::{self, Refs, head_text};
use crate::facts::git::index::{self, MAX_INDEX};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

/// Returns `false` if the guest was writing something at this moment, so that another exchange must
/// give it.
pub fn bring_in(exchange: &GitDirExchange, git: &HostGit, guest: &Refs) -> GitResult<bool> {
    let private = open_private(&exchange.dir)?;
    let (host, mut base) = (exchange.read_host(git)?, read_base(&exchange.dir.base)?);
    let changed: Vec<String> = names(&host, &base)
        .filter(|name| host.ids.get(*name) != base.ids.get(*name) && guest.ids.get(*name) == base.ids.get(*name))
        .filter(|name| !guest.is_broken(name) && !name.starts_with("refs/sandpen/") && *name != super::exchange::STASH)
        .cloned()
        .collect();
    let mut is_complete = true;
    if !changed.is_empty() {
        let mut user = read_user_refs(&exchange.dir.base)?;
        for name in changed {
            let id = host.ids.get(&name).copied();
            if give_ref(&private, &name, base.ids.get(&name).copied(), id).unwrap_or(false) {
                for refs in [&mut base.ids, &mut user] {
                    match id {
                        Some(id) => refs.insert(name.clone(), id),
                        None => refs.remove(&name),
                    };
                }
            } else {
                is_complete = false;
            }
        }
        write_user_refs(&exchange.dir.base, &user)?;
        write_base(&exchange.dir.base, &base)?;
    }
    for tree in &exchange.trees {
        is_complete &= give_head(exchange, git, tree)?;
        is_complete &= give_index(exchange, tree).unwrap_or(false);
    }
    Ok(is_complete)
}

fn names<'a>(one: &'a Refs, other: &'a Refs) -> impl Iterator<Item = &'a String> {
    one.ids.keys().chain(other.ids.keys().filter(|name| !one.ids.contains_key(*name)))
}

/// Writes a ref, or removes it. Returns `false` if the guest changed it meanwhile.
fn give_ref(private: &UntrustedDir, name: &str, before: Option<ObjectId>, id: Option<ObjectId>) -> io::Result<bool> {
    let is_unchanged = || refs::read_refs(private).is_ok_and(|now| now.ids.get(name).copied() == before);
    let path = Path::new(name);
    match id {
        Some(id) => {
            private.create_directory(path.parent().unwrap_or(Path::new("")))?;
            private.replace(path, format!("{id}\n").as_bytes(), is_unchanged)
        }
        None => {
            let packed = private.read("packed-refs", 64 << 20)?.unwrap_or_default();
            let text = String::from_utf8_lossy(&packed);
            let end = format!(" {name}");
            let mut kept = String::new();
            let mut is_below_removed = false;
            for line in text.split_inclusive('\n') {
                let is_removed =
                    line.trim_end_matches('\n').ends_with(&end) || line.starts_with('^') && is_below_removed;
                is_below_removed = is_removed;
                if !is_removed {
                    kept.push_str(line);
                }
            }
            if kept.len() != text.len() && !private.replace("packed-refs", kept.as_bytes(), is_unchanged)? {
                return Ok(false);
            }
            private.remove_file(path)?;
            Ok(true)
        }
    }
}

/// Gives the host's HEAD. Returns `false` if the guest was writing it.
fn give_head(exchange: &GitDirExchange, git: &HostGit, tree: &WorkingTree) -> GitResult<bool> {
    let (private, given) = (tree.open()?, refs::read_head(&UntrustedDir::open(&tree.base)?)?);
    let Some(host) = exchange.host_head(git, tree)? else { return Ok(true) };
    let is_unchanged = || refs::read_head(&private).is_ok_and(|now| now == given);
    if given.as_ref() == Some(&host) || !is_unchanged() {
        return Ok(true);
    }
    let is_given = private.replace("HEAD", head_text(&host).as_bytes(), is_unchanged).unwrap_or(false);
    if is_given {
        fs::write(tree.base.join("HEAD"), head_text(&host))?;
    }
    Ok(is_given)
}

/// Replaces the guest's index by the host's, if the guest's has no changes that did not come out.
/// Returns `false` if the guest was writing it.
fn give_index(exchange: &GitDirExchange, tree: &WorkingTree) -> io::Result<bool> {
    let id_len = if exchange.dir.is_sha256 { 32 } else { 20 };
    let private = tree.open()?;
    let given = fs::read(&tree.given_index).unwrap_or_default();
    let guest = private.read("index", MAX_INDEX)?.unwrap_or_default();
    let Some(host) = UntrustedDir::open(&tree.host)?.read("index", MAX_INDEX)? else { return Ok(true) };
    if apply_index::has_held(tree) {
        return Ok(true);
    }
    let parsed = |content: &[u8]| match content {
        [] => Ok(index::Index::default()),
        content => index::parse(content, id_len).map_err(io::Error::other),
    };
    let (now, before) = (parsed(&host)?, parsed(&given)?);
    if host == given || now.is_split || now.is_sparse || apply_index::is_same(&now, &before) {
        return Ok(true);
    }
    // `git status` inside writes another index with the same entries.
    if guest != given && !apply_index::is_same(&parsed(&guest)?, &before) {
        return Ok(true);
    }
    let is_unchanged = || private.read("index", MAX_INDEX).is_ok_and(|now| now.unwrap_or_default() == guest);
    let is_given = private.replace("index", &host, is_unchanged)?;
    if is_given {
        apply_index::save_given(tree, &host)?;
    }
    Ok(is_given)
}
