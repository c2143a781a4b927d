//! Looks for the value of a key that is outside: in variables, files, and the memory of processes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The limits of one file, of all files, and of the memory of all processes, in bytes.
const MAX_FILE: u64 = 1 << 20;
const MAX_FILES: u64 = 24 << 20;
const MAX_MEMORY: u64 = 48 << 20;
const MAX_DEPTH: usize = 12;

/// Lists the places where the value is. It is given backwards, so that this process does not have it
/// either.
pub fn places(backwards: &str) -> Vec<String> {
    let backwards = backwards.as_bytes();
    let mut found = Vec::new();
    if std::env::vars_os().any(|(_, value)| contains(value.as_encoded_bytes(), backwards)) {
        found.push("the environment".to_owned());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let mut left = MAX_FILES;
    for root in [Some("/.sandpen".into()), Some("/etc".into()), Some("/tmp".into()), Some("/run".into()), home]
        .into_iter()
        .flatten()
    {
        search(&root, backwards, MAX_DEPTH, &mut left, &mut found);
    }
    let mut memory = MAX_MEMORY;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let is_process =
            process.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        if is_process {
            search_process(&process.path(), backwards, &mut memory, &mut found);
        }
    }
    found
}

/// Whether a text contains a value that is given backwards.
fn contains(text: &[u8], backwards: &[u8]) -> bool {
    let Some(first) = backwards.last() else { return false };
    let mut rest = text;
    // Most bytes do not begin a value, and a search in a debug build must not take a minute.
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        let window = &rest[at..];
        if window.len() >= backwards.len() && window.iter().zip(backwards.iter().rev()).all(|(a, b)| a == b) {
            return true;
        }
        rest = &window[1..];
    }
    false
}

fn search(directory: &Path, backwards: &[u8], depth: usize, left: &mut u64, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let (Ok(kind), path) = (entry.file_type(), entry.path()) else { continue };
        if kind.is_dir() && depth > 0 {
            search(&path, backwards, depth - 1, left, found);
        } else if kind.is_file() && *left > 0 {
            let mut content = Vec::new();
            let read = File::open(&path).and_then(|file| file.take(MAX_FILE.min(*left)).read_to_end(&mut content));
            *left -= read.unwrap_or(0) as u64;
            if contains(&content, backwards) {
                found.push(path.display().to_string());
            }
        }
    }
}

fn search_process(process: &Path, backwards: &[u8], left: &mut u64, found: &mut Vec<String>) {
    for name in ["environ", "cmdline"] {
        if fs::read(process.join(name)).is_ok_and(|content| contains(&content, backwards)) {
            found.push(process.join(name).display().to_string());
        }
    }
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    let Ok(mut memory) = File::open(process.join("mem")) else { return };
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let Some((Ok(from), Ok(to))) =
            range.map(|(from, to)| (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16)))
        else {
            continue;
        };
        let size = to.saturating_sub(from).min(*left);
        let mut content = Vec::new();
        if memory.seek(SeekFrom::Start(from)).is_ok() {
            // Pages that cannot be read end the range.
            let _ = (&mut memory).take(size).read_to_end(&mut content);
        }
        *left -= content.len() as u64;
        if contains(&content, backwards) {
            found.push(process.join("mem").display().to_string());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_wherever_it_is() {
        let value = format!("needle-{}", std::process::id());
        let backwards: String = value.chars().rev().collect();
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("below")).expect("a directory");
        let file = directory.path().join("below/file");
        fs::write(&file, format!("x{value}x")).expect("written");
        let (mut found, mut left) = (Vec::new(), MAX_FILES);
        search(directory.path(), backwards.as_bytes(), 3, &mut left, &mut found);
        assert_eq!(found, [file.display().to_string()]);
        let mut found = Vec::new();
        search_process(Path::new("/proc/self"), backwards.as_bytes(), &mut left, &mut found);
        assert_eq!(found, ["/proc/self/mem"], "this process has the value in its memory");
        assert!(!contains(value.as_bytes(), b"other") && contains(value.as_bytes(), backwards.as_bytes()));
    }
}
