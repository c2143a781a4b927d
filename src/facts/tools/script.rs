//! Reads which other programs a script needs: its interpreter, and the programs that a wrapper
//! starts. Executes nothing.

use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::facts::program::SearchPath;
use crate::path::HostPath;
use crate::process::untrusted;

/// The bytes of a wrapper that are read. A longer script is a program of its own.
const LONGEST_WRAPPER: u64 = 16 * 1024;

/// Reads the interpreter of a script from `#!/path` or `#!/usr/bin/env name`.
pub fn interpreter(program: &HostPath, path: &SearchPath) -> Option<HostPath> {
    let start = read(program, 256)?;
    let line = start.strip_prefix(b"#!")?;
    let line = String::from_utf8_lossy(line.split(|byte| *byte == b'\n').next()?).into_owned();
    let mut words = line.split_whitespace();
    let interpreter = words.next()?;
    if interpreter.ends_with("/env") {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return path.find(name);
    }
    HostPath::new(interpreter).ok()
}

/// Lists the paths below HOME in the text of a script: a wrapper names the program that it starts.
pub fn named_paths(program: &HostPath, home: &HostPath) -> Vec<HostPath> {
    let Some(text) = read(program, LONGEST_WRAPPER).filter(|text| text.starts_with(b"#!")) else { return Vec::new() };
    let text = String::from_utf8_lossy(&text);
    let is_border = |c: char| c.is_whitespace() || "\"'`;|&()=".contains(c);
    let below = |word: &str| {
        let below = ["~/", "$HOME/", "${HOME}/"].iter().find_map(|start| word.strip_prefix(start));
        below.map(|below| home.as_path().join(below)).or_else(|| Some(PathBuf::from(word)))
    };
    let paths = text.lines().skip(1).flat_map(|line| line.split(is_border)).filter(|word| word.contains('/'));
    paths.filter_map(below).filter_map(|path| HostPath::new(path).ok()).filter(|path| path.is_within(home)).collect()
}

/// Returns the Python that a virtual environment was made from.
pub fn base_python(environment: &Path) -> Option<HostPath> {
    let config = untrusted::read(&environment.join("pyvenv.cfg"), LONGEST_WRAPPER).ok()?;
    let home = config.lines().find_map(|line| line.strip_prefix("home = "))?;
    HostPath::new(Path::new(home.trim()).join("python3")).ok()
}

/// Reads the start of a program. The open does not wait for the other end of a pipe.
fn read(program: &HostPath, limit: u64) -> Option<Vec<u8>> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(program.as_path()).ok()?;
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).ok()?;
    Some(text)
}
