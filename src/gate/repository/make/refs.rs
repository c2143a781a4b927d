//! Gives the guest the host's refs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{MAX_DEPTH, directories, write};
use crate::facts::git::object_id::ObjectId;
use crate::process::untrusted;

pub const PACKED_REFS: &str = "packed-refs";
/// The first line of `packed-refs` without the commits of annotated tags. Git, libgit2, JGit and gitoxide
/// ignore the unknown word `unpeeled`; GitPython rejects a file whose first line does not contain
/// `peeled`.
pub const HEADER: &[u8] = b"# pack-refs with: unpeeled sorted \n";
/// The same limit as for the refs that come out.
const MAX_PACKED_REFS: u64 = 64 << 20;
/// Each working tree has its own refs of these names, which Git never packs.
const OWN_REFS: &[&str] = &["refs/bisect/", "refs/rewritten/", "refs/worktree/"];
const MAX_LOOSE_REF: u64 = 4 << 10;

/// Gives the guest all refs in one `packed-refs`, which is faster than a file for each.
pub fn give(host: &Path, private: &Path, base: &Path) -> io::Result<()> {
    let mut loose = BTreeMap::new();
    loose_refs(&host.join("refs"), &private.join("refs"), "refs", MAX_DEPTH, &mut loose)?;
    let packed = match untrusted::read_bytes(&host.join(PACKED_REFS), MAX_PACKED_REFS) {
        Ok(packed) => packed,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let is_own = |name: &str| OWN_REFS.iter().any(|prefix| name.starts_with(prefix));
    let (own, loose): (BTreeMap<_, _>, BTreeMap<_, _>) = loose.into_iter().partition(|(name, _)| is_own(name));
    for (name, id) in &own {
        let path = private.join(name);
        directories(path.parent().unwrap_or(private), &[""])?;
        write(&path, format!("{id}\n").as_bytes(), 0o644)?;
    }
    let given = merge_packed(&packed, &loose);
    write(&private.join(PACKED_REFS), &given, 0o644)?;
    let given = if own.is_empty() { given } else { merge_packed(&given, &own) };
    write(&base.join(PACKED_REFS), &given, 0o644)
}

/// Adds loose refs to the content of `packed-refs`.
fn merge_packed(packed: &[u8], loose: &BTreeMap<String, ObjectId>) -> Vec<u8> {
    if loose.is_empty() {
        return packed.to_vec();
    }
    // Annotated tags among the loose refs have no line with their commit, so Git must not expect it.
    let mut merged = HEADER.to_vec();
    let mut left = loose.iter().peekable();
    let mut is_replaced = false;
    for line in packed.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")) {
        if line.starts_with(b"^") {
            if !is_replaced {
                merged.extend_from_slice(line);
            }
            continue;
        }
        let name = line.iter().position(|byte| *byte == b' ').and_then(|space| line.get(space + 1..));
        let name = name.unwrap_or_default().trim_ascii_end();
        while let Some((before, id)) = left.next_if(|(before, _)| before.as_bytes() < name) {
            merged.extend_from_slice(format!("{id} {before}\n").as_bytes());
        }
        let loose = left.next_if(|(same, _)| same.as_bytes() == name);
        is_replaced = loose.is_some();
        match loose {
            Some((name, id)) => merged.extend_from_slice(format!("{id} {name}\n").as_bytes()),
            None => merged.extend_from_slice(line),
        }
    }
    for (name, id) in left {
        merged.extend_from_slice(format!("{id} {name}\n").as_bytes());
    }
    merged
}

/// Lists the refs that have a file each. Those that name no object, such as symbolic ones, are
/// copied.
fn loose_refs(
    from: &Path,
    to: &Path,
    name: &str,
    depth: usize,
    list: &mut BTreeMap<String, ObjectId>,
) -> io::Result<()> {
    let entries = match fs::read_dir(from) {
        Ok(entries) => entries,
        Err(_) => return Ok(()),
    };
    for entry in entries.flatten() {
        let (file, kind) = (entry.file_name(), entry.file_type()?);
        let Some(text) = file.to_str().filter(|text| !text.ends_with(".lock")) else { continue };
        let (name, target) = (format!("{name}/{text}"), to.join(text));
        if kind.is_dir() && depth > 0 {
            loose_refs(&entry.path(), &target, &name, depth - 1, list)?;
        } else if kind.is_file()
            && let Ok(content) = untrusted::read_bytes(&entry.path(), MAX_LOOSE_REF)
        {
            let id = str::from_utf8(&content).ok().and_then(|text| ObjectId::parse(text.trim_ascii_end()));
            match id {
                Some(id) => drop(list.insert(name, id)),
                None => {
                    directories(to, &[""])?;
                    write(&target, &content, 0o644)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_refs_replace_packed_ones_and_keep_the_order() {
        let id = |digit: char| std::iter::repeat_n(digit, 40).collect::<String>();
        let packed = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{0} refs/heads/b\n{0} refs/tags/moved\n^{1}\n{0} refs/tags/old\n^{1}\n",
            id('1'),
            id('2')
        );
        let loose = ["refs/heads/a", "refs/heads/b", "refs/tags/moved", "refs/tags/z"];
        let loose = loose.map(|name| (name.to_owned(), ObjectId::parse(&id('3')).expect("an id")));
        let merged = merge_packed(packed.as_bytes(), &BTreeMap::from(loose));
        let expected = format!(
            "# pack-refs with: unpeeled sorted \n{0} refs/heads/a\n{0} refs/heads/b\n{0} refs/tags/moved\n{1} refs/tags/old\n^{2}\n{0} refs/tags/z\n",
            id('3'),
            id('1'),
            id('2')
        );
        assert_eq!(String::from_utf8(merged).expect("text"), expected);
        assert_eq!(merge_packed(packed.as_bytes(), &BTreeMap::new()), packed.as_bytes());
    }
}
