//! Tells which files of a copy Git would ignore, by the `.gitignore` files as the guest left them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::config::value::{HideGlob, Value};
use crate::process::untrusted_dir::UntrustedDir;

const FILE: &str = ".gitignore";
const MAX_FILE: u64 = 1 << 20;
/// A file with more patterns is a mistake or an attack.
const MAX_RULES: usize = 4096;

struct Rule {
    glob: HideGlob,
    is_negated: bool,
}

/// The rules of one directory tree.
pub struct IgnoreRules<'a> {
    /// The guest's versions first, then the user's.
    trees: Vec<&'a UntrustedDir>,
    /// The rules of the repository and of the user, which come last.
    general: Vec<Rule>,
    by_directory: HashMap<PathBuf, Vec<Rule>>,
    known: HashMap<PathBuf, bool>,
}

impl<'a> IgnoreRules<'a> {
    pub fn new(trees: Vec<&'a UntrustedDir>, general: &[Vec<u8>]) -> Self {
        let general = general.iter().flat_map(|text| parse(text)).collect();
        IgnoreRules { trees, general, by_directory: HashMap::new(), known: HashMap::new() }
    }

    /// Tells whether a path, or a directory above it, is ignored.
    pub fn is_ignored(&mut self, path: &Path, is_directory: bool) -> bool {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above {
            let is_ignored = match self.known.get(above) {
                Some(known) => *known,
                None => {
                    let is_ignored = self.is_ignored(above, true);
                    self.known.insert(above.to_owned(), is_ignored);
                    is_ignored
                }
            };
            if is_ignored {
                return true;
            }
        }
        let names: Vec<&[u8]> = path.iter().map(OsStr::as_bytes).collect();
        for directory in path.ancestors().skip(1) {
            let depth = directory.iter().count();
            let rules = self.rules(directory);
            if let Some(rule) = rules.iter().rev().find(|rule| rule.glob.matches(&names[depth..], is_directory)) {
                return !rule.is_negated;
            }
        }
        let general = self.general.iter().rev().find(|rule| rule.glob.matches(&names, is_directory));
        general.is_some_and(|rule| !rule.is_negated)
    }

    fn rules(&mut self, directory: &Path) -> &[Rule] {
        let trees = &self.trees;
        self.by_directory.entry(directory.to_owned()).or_insert_with(|| {
            let path = directory.join(FILE);
            let text = trees.iter().find_map(|tree| tree.read(&path, MAX_FILE).ok().flatten());
            text.map(|text| parse(&text)).unwrap_or_default()
        })
    }
}

fn parse(text: &[u8]) -> Vec<Rule> {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rules = lines.filter_map(|line| {
        let (is_negated, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (true, pattern),
            None => (false, line.strip_prefix("\\#").map_or(line, |_| &line[1..])),
        };
        // `HideGlob` refuses a pattern of stars alone.
        let is_all = pattern.bytes().all(|byte| byte == b'*');
        Some(Rule { glob: HideGlob::parse(if is_all { "?*" } else { pattern }).ok()?, is_negated })
    });
    rules.take(MAX_RULES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn patterns_of_directories_above_and_negations_apply() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        fs::create_dir_all(directory.path().join("a/b"))?;
        fs::write(directory.path().join(".gitignore"), "*.o\n/target/\nnode_modules\n!keep.o\n# no\n")?;
        fs::write(directory.path().join("a/.gitignore"), "!x.o\n*.log\n")?;
        fs::create_dir(directory.path().join("cache"))?;
        fs::write(directory.path().join("cache/.gitignore"), "*\n")?;
        let tree = UntrustedDir::open(directory.path())?;
        let mut rules = IgnoreRules::new(vec![&tree], &[b"*.tmp\n".to_vec()]);
        for (path, is_ignored) in [
            ("m.o", true),
            ("keep.o", false),
            ("a/x.o", false),
            ("a/y.o", true),
            ("a/b/z.log", true),
            ("z.log", false),
            ("target/debug/x", true),
            ("a/target/x", false),
            ("a/node_modules/p/index.js", true),
            ("a/t.tmp", true),
            ("no", false),
            ("cache/a/b", true),
        ] {
            assert_eq!(rules.is_ignored(Path::new(path), false), is_ignored, "{path}");
        }
        Ok(())
    }
}
