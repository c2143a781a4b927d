//! Names the state that a command without a preset left in its private home directory, which is
//! removed with the session.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::process::untrusted_dir::UntrustedDir;

/// At most this many entries are looked at.
const MAX_ENTRIES: usize = 500;
/// The line names at most this many paths.
const MAX_NAMED: usize = 4;
/// Directories below HOME whose entries are each a program's.
const COLLECTIONS: &[&str] = &[".config", ".local/share", ".local/state"];
/// What nobody misses: caches, and files that shells, pagers and editors write unasked.
const REPLACEABLE: &[&str] = &[
    ".ash_history",
    ".bash_history",
    ".bun",
    ".bundle",
    ".cache",
    ".cargo",
    ".config/configstore",
    ".config/go",
    ".deno",
    ".dotnet",
    ".gradle",
    ".ivy2",
    ".java",
    ".lesshst",
    ".local",
    ".local/share/man",
    ".local/share/pnpm",
    ".local/share/uv",
    ".local/share/virtualenv",
    ".local/state/pnpm",
    ".m2",
    ".node-gyp",
    ".node_repl_history",
    ".npm",
    ".nuget",
    ".pnpm-store",
    ".python_history",
    ".rustup",
    ".sbt",
    ".sqlite_history",
    ".ssh",
    ".terminfo",
    ".viminfo",
    ".wget-hsts",
    ".yarn",
    ".yarnrc",
    ".zcompdump",
    ".zsh_history",
];

/// Returns the closing line; `None` if nothing was left that the user would miss.
pub fn line(home: &Path) -> Option<String> {
    let home = UntrustedDir::open(home).ok()?;
    let left = left(&home);
    // A directory keeps what replaces files in it, too.
    let is_file = |path: &Path| matches!(home.file(path), Ok(Some(_)));
    let first = left.iter().find(|path| !is_file(path)).or(left.first())?;
    let make = if is_file(first) { "touch" } else { "mkdir -p" };
    let named: Vec<String> = left.iter().take(MAX_NAMED).map(|path| format!("~/{}", path.display())).collect();
    let more = match left.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "left in the sandbox's own home, and gone: {}{more}; to keep it: `{make} ~/{first} && sandpen run --mount ~/{first}:rw …`, or a preset (`sandpen presets`)",
        named.join(", "),
        first = first.display()
    ))
}

fn left(home: &UntrustedDir) -> Vec<PathBuf> {
    let mut budget = MAX_ENTRIES;
    let mut left = Vec::new();
    for collection in ["", ".config", ".local/share", ".local/state"] {
        let directory = if collection.is_empty() { None } else { home.directory(Path::new(collection)).ok() };
        let directory = match (&directory, collection) {
            (Some(directory), _) => directory,
            (None, "") => home,
            (None, _) => continue,
        };
        for (name, _) in directory.entries(MAX_ENTRIES).unwrap_or_default() {
            let path = Path::new(collection).join(&name);
            let is_state = name.as_encoded_bytes().starts_with(b".") || !collection.is_empty();
            let is_known = |known: &&str| path == Path::new(known);
            if is_state
                && !REPLACEABLE.iter().chain(COLLECTIONS).any(is_known)
                && has_content(directory, Path::new(&name), &mut budget)
            {
                left.push(path);
            }
        }
    }
    left.sort();
    left
}

/// Tells whether an entry is a file with content, or a directory with one. Mount points are empty.
fn has_content(directory: &UntrustedDir, name: &Path, budget: &mut usize) -> bool {
    let mut open = vec![name.to_owned()];
    while let Some(path) = open.pop() {
        if let Ok(Some(file)) = directory.file(&path) {
            if file.metadata().is_ok_and(|meta| meta.size() > 0) {
                return true;
            }
            continue;
        }
        let Ok(below) = directory.directory(&path) else { continue };
        for (name, _) in below.entries(MAX_ENTRIES).unwrap_or_default() {
            *budget = budget.saturating_sub(1);
            if *budget == 0 {
                return false;
            }
            open.push(path.join(name));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn state_is_named_and_caches_and_mount_points_are_not() -> std::io::Result<()> {
        let home = tempfile::tempdir()?;
        let write = |path: &str, content: &str| -> std::io::Result<()> {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(path, content)
        };
        write(".cache/x/y", "cached")?;
        write(".npm/z", "cached")?;
        write(".gitconfig", "")?;
        write("project/file", "no state")?;
        write(".empty/below/file", "")?;
        assert_eq!(line(home.path()), None);
        write(".a-file", "1")?;
        let only_file = line(home.path()).unwrap_or_default();
        assert!(only_file.contains("`touch ~/.a-file && sandpen run --mount ~/.a-file:rw …`"), "{only_file}");
        write(".config/tool/auth.json", "{}")?;
        write(".local/share/tool/data/log", "1")?;
        write(".tool", "1")?;
        let line = line(home.path()).unwrap_or_default();
        assert!(line.contains("gone: ~/.a-file, ~/.config/tool, ~/.local/share/tool"), "{line}");
        assert!(line.contains("`mkdir -p ~/.config/tool && sandpen run"), "{line}");
        Ok(())
    }
}
