//! Gives the guest what changed on the host while the sandbox runs: refs, HEAD and the index, as
//! long as the guest did not change them itself. Writes as Git does, with lock files, and only if
//! the guest's value is still the one that was read.

use std::fs;
use std::io;
use std::path::Path;

use super::apply_index;
use super::base::{read_base, write_base};
use super::exchange::{GitDirExchange, WorkingTree, open_private};
use super::host_git::{GitResult, HostGit};
use super::refs::{self, Refs, head_text};
use crate::facts::git::index::{self, MAX_INDEX};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted_dir::UntrustedDir;

pub fn bring_in(exchange: &GitDirExchange, git: &HostGit, guest: &Refs) -> GitResult<()> {
    let private = open_private(&exchange.dir)?;
    let (host, mut base) = (exchange.read_host(git)?, read_base(&exchange.dir.base)?);
    let changed: Vec<String> = names(&host, &base)
        .filter(|name| host.ids.get(*name) != base.ids.get(*name) && guest.ids.get(*name) == base.ids.get(*name))
        .filter(|name| !guest.is_broken(name) && !name.starts_with("refs/sandpen/") && *name != super::exchange::STASH)
        .cloned()
        .collect();
    let mut is_changed = false;
    for name in changed {
        let id = host.ids.get(&name).copied();
        if give_ref(&private, &name, base.ids.get(&name).copied(), id).unwrap_or(false) {
            is_changed = true;
            match id {
                Some(id) => base.ids.insert(name, id),
                None => base.ids.remove(&name),
            };
        }
    }
    if is_changed {
        write_base(&exchange.dir.base, &base)?;
    }
    for tree in &exchange.trees {
        give_head(exchange, git, tree)?;
        // A guest that is writing its index at this moment gets the host's the next time.
        let _ = give_index(exchange, tree);
    }
    Ok(())
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

fn give_head(exchange: &GitDirExchange, git: &HostGit, tree: &WorkingTree) -> GitResult<()> {
    let (private, given) = (tree.open()?, refs::read_head(&UntrustedDir::open(&tree.base)?)?);
    let Some(host) = exchange.host_head(git, tree)? else { return Ok(()) };
    let is_unchanged = || refs::read_head(&private).is_ok_and(|now| now == given);
    if given.as_ref() != Some(&host)
        && is_unchanged()
        && private.replace("HEAD", head_text(&host).as_bytes(), is_unchanged).unwrap_or(false)
    {
        fs::write(tree.base.join("HEAD"), head_text(&host))?;
    }
    Ok(())
}

/// Replaces the guest's index by the host's, if the guest's has no changes that did not come out.
fn give_index(exchange: &GitDirExchange, tree: &WorkingTree) -> io::Result<()> {
    let id_len = if exchange.dir.is_sha256 { 32 } else { 20 };
    let private = tree.open()?;
    let given = fs::read(&tree.given_index).unwrap_or_default();
    let guest = private.read("index", MAX_INDEX)?.unwrap_or_default();
    let Some(host) = UntrustedDir::open(&tree.host)?.read("index", MAX_INDEX)? else { return Ok(()) };
    let parsed = |content: &[u8]| match content {
        [] => Ok(index::Index::default()),
        content => index::parse(content, id_len).map_err(io::Error::other),
    };
    let (now, before) = (parsed(&host)?, parsed(&given)?);
    if host == given || now.is_split || now.is_sparse || apply_index::is_same(&now, &before) {
        return Ok(());
    }
    // `git status` inside writes another index with the same entries.
    if guest != given && !apply_index::is_same(&parsed(&guest)?, &before) {
        return Ok(());
    }
    let is_unchanged = || private.read("index", MAX_INDEX).is_ok_and(|now| now.unwrap_or_default() == guest);
    if private.replace("index", &host, is_unchanged)? {
        apply_index::save_given(tree, &host)?;
    }
    Ok(())
}
