//! Copies packs, and remembers which ones were copied or refused.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::{Budget, ObjectCopy, copy, is_sparse, stat_of_kind, unless_guest_failure};
use crate::gate::repository::refs::stat_hash;
use crate::process::untrusted_dir::UntrustedDir;

/// Git keeps at most some thousand packs, with up to five files for each.
const MOST_PACK_FILES: usize = 100_000;
const INCOMING_PACK: &str = "incoming.pack";
pub const SEEN_PACKS: &str = "seen-packs";

impl ObjectCopy {
    /// Copies the packs that were not copied before. Returns `false` if one vanished meanwhile, so
    /// that there may be a new one with the same objects.
    pub fn copy_packs(
        &mut self,
        objects: &UntrustedDir,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<bool> {
        if stat_of_kind(objects, "pack", FileType::Directory)?.is_none() {
            return Ok(true);
        }
        let Some(directory) = unless_guest_failure(objects.directory(Path::new("pack")))? else { return Ok(true) };
        let mut is_complete = true;
        for (name, kind) in directory.entries(MOST_PACK_FILES)? {
            let Some(name) = pack_name(&name).filter(|_| kind == FileType::RegularFile) else { continue };
            if self.seen_packs()?.contains(name) {
                continue;
            }
            let Some(source) = unless_guest_failure(directory.file(Path::new(name)))? else { continue };
            let Some(source) = source else {
                is_complete = false;
                continue;
            };
            let stat = rustix::fs::fstat(&source)?;
            let hash = stat_hash(&stat);
            if self.refused_packs.get(name) == Some(&hash) {
                continue;
            }
            if is_sparse(&stat) || stat.st_size.unsigned_abs() > budget.bytes {
                self.refused_packs.insert(name.to_owned(), hash);
                continue;
            }
            if self.copy_pack(&source, budget, index_pack)? {
                self.remember_pack(name)?;
            } else {
                self.refused_packs.insert(name.to_owned(), hash);
            }
        }
        Ok(is_complete)
    }

    /// Copies a pack and lets Git index it. A pack that Git refused, perhaps because it was not
    /// complete, is deleted and does not count.
    fn copy_pack(
        &self,
        source: &File,
        budget: &mut Budget,
        index_pack: &mut dyn FnMut(&Path) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let incoming = self.beside(INCOMING_PACK);
        let before = budget.bytes;
        let indexed = copy(source, &incoming, budget).and_then(|()| index_pack(&incoming));
        if !matches!(indexed, Ok(true)) {
            budget.bytes = before;
        }
        match fs::remove_file(&incoming) {
            Err(error) if error.kind() != ErrorKind::NotFound => indexed.and(Err(error)),
            _ => indexed,
        }
    }

    pub fn seen_packs(&mut self) -> io::Result<&mut HashSet<String>> {
        if self.seen_packs.is_none() {
            let text = match fs::read_to_string(self.beside(SEEN_PACKS)) {
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                text => text?,
            };
            self.seen_packs = Some(text.lines().map(str::to_owned).collect());
        }
        Ok(self.seen_packs.get_or_insert_default())
    }

    pub fn remember_pack(&mut self, name: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(self.beside(SEEN_PACKS))?;
        // A kill may have cut the last line; the empty line between them has no meaning.
        file.write_all(format!("\n{name}\n").as_bytes())?;
        self.seen_packs()?.insert(name.to_owned());
        Ok(())
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.import_objects.parent().unwrap_or(&self.import_objects).join(name)
    }
}

/// Returns the name if it is that of a pack, without characters that have a meaning in a list of
/// lines.
fn pack_name(name: &OsStr) -> Option<&str> {
    let name = name.to_str()?;
    let middle = name.strip_prefix("pack-")?.strip_suffix(".pack")?;
    middle.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)).then_some(name)
}
