//! Tells which directories belong to an installed program, by where it is installed and by what lies
//! beside it. Directories that may hold settings or logins are not among them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use crate::path::HostPath;

/// Names of directories that contain programs of an installation one level above.
const PROGRAM_DIRECTORIES: &[&str] = &["bin", "sbin", "shims", "condabin"];

/// Names beside `bin` that programs load code and data from. `etc` is not one: npm keeps tokens in
/// it.
const PARTS: &[&str] = &[
    "bin",
    "boot",
    "build_info",
    "completions",
    "conda-meta",
    "condabin",
    "conf",
    "doc",
    "docs",
    "envs",
    "extensions",
    "gems",
    "include",
    "installs",
    "jmods",
    "legal",
    "lib",
    "lib32",
    "lib64",
    "libexec",
    "man",
    "misc",
    "pkg",
    "pkgs",
    "platform",
    "plugins",
    "sbin",
    "share",
    "shims",
    "specifications",
    "src",
    "toolchains",
    "tools",
    "versions",
];

/// Files beside `bin` by which programs know their own installation or version.
const MARKERS: &[&str] = &["VERSION", "global", "go.env", "pyvenv.cfg", "release", "version"];

/// Entries of a directory that show, in a visible directory of HOME, that a runtime is installed
/// there.
const RUNTIMES: &[&str] =
    &["conda-meta", "go.env", "jmods", "lib/node_modules", "lib/rustlib", "lib/ruby", "pyvenv.cfg", "release"];

/// Directories below HOME that many programs share. What one program owns is deeper.
const SHARED: &[&str] = &[".local", ".config", ".cache"];

/// Returns what belongs to the programs in a directory, which is part of it.
pub fn of_directory(directory: &HostPath, home: &HostPath) -> Vec<HostPath> {
    let alone = || vec![directory.clone()];
    let Some((above, name)) = parent_and_name(directory) else { return alone() };
    let above_name = above.as_path().file_name().unwrap_or_default();
    // Packages load each other from such a directory.
    if (name == ".bin" && above_name == "node_modules") || (name == "bin" && above_name == "vendor") {
        return vec![above];
    }
    if !PROGRAM_DIRECTORIES.iter().any(|known| name == *known) || home.is_within(&above) {
        return alone();
    }
    if above == home.join(".local") {
        // `share` holds the data of all programs, `lib` only packages of pip and npm.
        return [directory.clone(), above.join("lib")].into_iter().filter(|path| path.as_path().is_dir()).collect();
    }
    if above.as_path().join("pyvenv.cfg").is_file() {
        return vec![above];
    }
    if !is_hidden(&above, home) && !RUNTIMES.iter().any(|entry| above.as_path().join(entry).exists()) {
        return alone();
    }
    if is_hidden(&above, home) && (name == "shims" || above.as_path().join("shims").is_dir()) {
        // The root of a version manager, which its shims call.
        return vec![above];
    }
    parts(&above, home).unwrap_or_else(alone)
}

/// Returns the root of an installation if it holds nothing else, otherwise its parts. Of a directory
/// in HOME itself only parts are shown: a tool may write its login there while the sandbox runs.
fn parts(root: &HostPath, home: &HostPath) -> Option<Vec<HostPath>> {
    let names: Vec<_> = fs::read_dir(root.as_path()).ok()?.flatten().map(|entry| entry.file_name()).collect();
    let is_part = |name: &OsStr| PARTS.iter().chain(MARKERS).any(|known| name == *known);
    // README, LICENSE, CHANGELOG.md and the like.
    let is_document = |name: &OsStr| name.as_encoded_bytes().first().is_some_and(u8::is_ascii_uppercase);
    let is_deep = below(root, home).len() > 1;
    if is_deep && names.iter().all(|name| is_part(name) || is_document(name)) {
        return Some(vec![root.clone()]);
    }
    Some(names.iter().filter(|name| is_part(name)).map(|name| root.join(name)).collect())
}

/// Returns what belongs to a program that no directory on PATH contains, for example the target of
/// a link.
pub fn of_program(program: &HostPath, home: &HostPath) -> Vec<HostPath> {
    let Some((directory, _)) = parent_and_name(program) else { return vec![program.clone()] };
    // Packages load each other from the outermost directory of this name.
    let outermost = program.as_path().ancestors().filter(|path| path.ends_with("node_modules")).last();
    if let Some(packages) = outermost.and_then(|path| HostPath::new(path).ok()) {
        return vec![packages];
    }
    if !program.is_within(home) {
        return vec![outside_home(program)];
    }
    if is_program_directory(&directory) {
        let found = of_directory(&directory, home);
        // A directory that collects programs of many installations is on PATH, or is not needed.
        let is_collection = found.contains(&directory) && !is_owned(&directory, home);
        return if is_collection { vec![program.clone()] } else { found };
    }
    if is_owned(&directory, home) { vec![directory] } else { vec![program.clone()] }
}

pub fn is_program_directory(directory: &HostPath) -> bool {
    directory.as_path().file_name().is_some_and(|name| PROGRAM_DIRECTORIES.iter().any(|known| name == *known))
}

/// Returns `/opt/NAME` or `/nix/store`; elsewhere only the path itself.
pub fn outside_home(path: &HostPath) -> HostPath {
    let parts: Vec<_> = path.as_path().iter().take(3).collect();
    match parts.as_slice() {
        [_, first, _] if *first == "opt" || *first == "nix" => {
            HostPath::new(parts.iter().collect::<std::path::PathBuf>()).unwrap_or_else(|_| path.clone())
        }
        _ => path.clone(),
    }
}

/// Tells whether a path is below a hidden directory of HOME, where programs and not people create
/// directories.
pub fn is_hidden(path: &HostPath, home: &HostPath) -> bool {
    below(path, home).first().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Tells whether a directory belongs to one program, so that it can be shown whole: deep enough
/// below a hidden directory that no settings of other programs lie in it.
pub fn is_owned(directory: &HostPath, home: &HostPath) -> bool {
    let names = below(directory, home);
    let depth = if names.first().is_some_and(|first| SHARED.iter().any(|shared| first == shared)) { 4 } else { 2 };
    is_hidden(directory, home) && names.len() >= depth
}

fn below<'a>(path: &'a HostPath, home: &HostPath) -> Vec<&'a OsStr> {
    path.as_path().strip_prefix(home.as_path()).map(|below| below.iter().collect()).unwrap_or_default()
}

fn parent_and_name(path: &HostPath) -> Option<(HostPath, &OsStr)> {
    let parent = path.as_path().parent().filter(|parent| *parent != Path::new("/"))?;
    Some((HostPath::new(parent).ok()?, path.as_path().file_name()?))
}
