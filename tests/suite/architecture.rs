//! Enforces the claims of `src/lib.rs` and the module heads: which module may use which, and which
//! may have effects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules are ordered from the lowest to the highest layer. A module may use only lower
/// layers.
const LAYERS: &[&[&str]] = &[
    &["error", "path", "saved_path", "secret", "vars", "warning"],
    &["host"],
    &["ui", "process"],
    &["config", "event_log", "channel"],
    &["session_id", "cli", "proxy", "kept_copy"],
    &["tls"],
    &["http"],
    &["image"],
    &["facts"],
    &["plan"],
    &["launch"],
    &["native", "link"],
    &["helper", "gate"],
    &["session"],
    &["resolve"],
    &["command"],
    &["sandbox"],
];

/// Code that contains one of these texts has an effect, or reads something that is not an argument.
/// Pure modules contain none of them.
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env::var",
    "std::env::current",
    "UnixStream",
    "SystemTime::now",
    "Instant::now",
    "rustix::",
    "libc::",
    ".canonicalize(",
    ".is_file(",
    ".is_dir(",
    ".exists(",
    "metadata(",
    "/dev/urandom",
];

/// Holds one source file without comments and tests.
struct Source {
    path: String,
    module: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    let sources: Vec<Source> = files.iter().filter_map(|file| read(&root, file)).collect();
    assert!(sources.len() > 150, "only {} files were found", sources.len());
    sources
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a source directory").flatten() {
        match entry.path() {
            path if path.is_dir() => collect(&path, files),
            path => files.push(path),
        }
    }
}

fn read(root: &Path, file: &Path) -> Option<Source> {
    let path = file.strip_prefix(root).expect("below src").to_str().expect("a name").to_owned();
    let is_test = path.ends_with("tests.rs") || path.ends_with("test_repository.rs");
    if !path.ends_with(".rs") || is_test || path == "lib.rs" || path == "main.rs" {
        return None;
    }
    let text = fs::read_to_string(file).expect("source");
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let module = path.split(['/', '.']).next().unwrap_or_default().to_owned();
    Some(Source { path, module, text })
}

/// Returns the top-level modules that a file names after `crate::`.
fn used_modules(source: &Source) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for rest in source.text.split("crate::").skip(1) {
        let names: Vec<&str> = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![rest],
        };
        for name in names {
            let name = name.trim_start();
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            used.insert(name[..end].to_owned());
        }
    }
    used.remove(&source.module);
    used
}

fn layers() -> BTreeMap<&'static str, usize> {
    let numbered = LAYERS.iter().enumerate();
    numbered.flat_map(|(number, modules)| modules.iter().map(move |module| (*module, number))).collect()
}

#[test]
fn every_module_has_a_layer() {
    let layers = layers();
    let modules: BTreeSet<String> = sources().into_iter().map(|source| source.module).collect();
    let known: BTreeSet<String> = layers.keys().map(|module| (*module).to_owned()).collect();
    assert_eq!(modules, known);
}

#[test]
fn modules_use_lower_layers_only() {
    let layers = layers();
    let mut wrong = Vec::new();
    for source in sources() {
        for used in used_modules(&source).iter().filter(|used| layers.contains_key(used.as_str())) {
            if layers[used.as_str()] >= layers[source.module.as_str()] {
                wrong.push(format!("src/{} uses {used}", source.path));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn plan_and_launch_are_pure() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| ["plan", "launch"].contains(&source.module.as_str())) {
        let effects = EFFECTS.iter().filter(|effect| source.text.contains(**effect));
        wrong.extend(effects.map(|effect| format!("src/{} contains `{effect}`", source.path)));
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Only these modules may start programs.
const STARTS_PROGRAMS: &[&str] = &[
    "facts",   // queries git and the engines' clients
    "process", // runs the engines' clients for all other modules
    "session", // starts sandboxes, tunnels and proxies
    "helper",  // starts the command inside
    "gate",    // runs the host's git on what comes out of a sandbox
    "proxy",   // runs the user's own proxy command
    "command", // starts the self-test's probe, which runs inside
    "sandbox", // the library starts the `sandpen` program
];

#[test]
fn only_some_modules_start_programs() {
    let starts = |source: &&Source| source.text.contains("Command::new(") || source.text.contains("fn execve");
    let starting: BTreeSet<String> = sources().iter().filter(starts).map(|source| source.module.clone()).collect();
    let permitted: BTreeSet<String> = STARTS_PROGRAMS.iter().map(|module| (*module).to_owned()).collect();
    let unexpected: Vec<&String> = starting.difference(&permitted).collect();
    assert_eq!(unexpected, Vec::<&String>::new());
}

/// `ui` does not exist inside the sandbox: `helper` and `proxy` report to the launcher on stdout or
/// stderr.
const PRINTS: &[&str] = &["ui", "helper", "proxy"];

#[test]
fn only_ui_prints() {
    let writes = ["io::stdout().lock()", "io::stderr().lock()", "!(io::stdout()", "!(io::stderr()", "println!("];
    let prints = |source: &&Source| writes.iter().any(|write| source.text.contains(write));
    let printing = sources();
    let unexpected: Vec<&str> = printing
        .iter()
        .filter(prints)
        .filter(|source| !PRINTS.contains(&source.module.as_str()))
        .map(|source| source.path.as_str())
        .collect();
    assert_eq!(unexpected, Vec::<&str>::new());
}

#[test]
fn only_host_reads_the_environment() {
    let reads = |source: &&Source| {
        let calls = ["env::var(", "env::var_os(", "env::vars", "env::current_dir(", "env::current_exe("];
        calls.iter().any(|call| source.text.contains(call))
    };
    let reading = sources();
    let unexpected: Vec<&str> = reading
        .iter()
        .filter(reads)
        .filter(|source| source.module != "host" && source.module != "helper" && !source.path.contains("/probe/"))
        .map(|source| source.path.as_str())
        .collect();
    assert_eq!(unexpected, Vec::<&str>::new());
}
