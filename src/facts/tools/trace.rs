//! Follows programs below HOME to the files that they need: links, interpreters, installations.
//! Follows nothing that the guest can write, because the guest would choose what is mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{Traced, installation, script};
use crate::facts::files::FileKind;
use crate::facts::program::{SearchPath, is_program};
use crate::path::{HostPath, resolve_dots};

/// Limits of one launch, far above what real directories need.
const MOST_PROGRAMS: usize = 256;
const MOST_MOUNTS: usize = 64;
/// Scripts in one directory on PATH whose interpreter is read.
const MOST_SCRIPTS: usize = 32;
/// Entries of one directory on PATH.
const MOST_ENTRIES: usize = 4096;
/// Links in one path.
const MOST_LINKS: usize = 16;
/// This many installations beside each other are shown by the directory above them.
const MANY_SIBLINGS: usize = 4;

/// What was found so far.
pub struct Trace<'a> {
    home: &'a HostPath,
    path: &'a SearchPath,
    /// Directories that the guest can write.
    writable: &'a [HostPath],
    /// Files and directories to show, as real paths.
    pub shown: BTreeSet<HostPath>,
    /// Links by their path, with their target as written.
    pub links: BTreeMap<HostPath, PathBuf>,
    seen: BTreeSet<HostPath>,
    /// Whether a limit was reached.
    pub is_cut: bool,
}

impl<'a> Trace<'a> {
    pub fn new(home: &'a HostPath, path: &'a SearchPath, writable: &'a [HostPath]) -> Self {
        let (shown, links, seen) = Default::default();
        Trace { home, path, writable, shown, links, seen, is_cut: false }
    }

    /// Adds a directory on PATH and what its programs need.
    pub fn directory(&mut self, entry: &HostPath) {
        let Some(real) = self.real(entry) else { return };
        if is_system(&real) || self.is_written(&real) || !self.seen.insert(real.clone()) {
            return;
        }
        if !real.is_within(self.home) {
            // A profile of Nix is a directory of links into its store.
            if entry.is_within(self.home) && real.as_path().starts_with("/nix/store") {
                self.show(installation::outside_home(&real));
            }
            return;
        }
        let Some(entries) = self.entries(&real) else { return };
        let is_mixed = self.home.is_within(&real)
            || (!installation::is_program_directory(&real)
                && !installation::is_hidden(&real, self.home)
                && entries.iter().any(|(_, kind)| kind.is_dir()));
        if is_mixed {
            // Not a directory of programs, so only its programs are shown.
            let files = entries.iter().filter(|(_, kind)| !kind.is_dir()).map(|(name, _)| real.join(name));
            files.filter(|file| is_program(file.as_path())).for_each(|file| self.program(&file));
            return;
        }
        installation::of_directory(&real, self.home).into_iter().for_each(|path| self.installation(path));
        let (links, files): (Vec<_>, Vec<_>) =
            entries.iter().filter(|(_, kind)| !kind.is_dir()).partition(|(_, kind)| kind.is_symlink());
        for (name, _) in links {
            self.link(&real.join(name));
        }
        if !installation::is_owned(&real, self.home) {
            for (name, _) in files.iter().take(MOST_SCRIPTS) {
                let file = real.join(name);
                if let Some(interpreter) = script::interpreter(&file, self.path) {
                    self.program(&interpreter);
                }
            }
        }
        if entries.iter().any(|(name, _)| name == "rustup") {
            self.show(self.home.join(".rustup"));
        }
        if real.as_path().file_name().is_some_and(|name| name == "shims") {
            self.show(self.home.join(".tool-versions"));
        }
    }

    /// Adds a program, what it links to, its interpreter, and its installation.
    pub fn program(&mut self, program: &HostPath) {
        let Some(program) = self.real(program) else { return };
        if is_system(&program) || self.is_written(&program) || !is_program(program.as_path()) {
            return;
        }
        if !self.seen.insert(program.clone()) {
            return;
        }
        if self.seen.len() > MOST_PROGRAMS {
            self.is_cut = true;
            return;
        }
        let is_shown = self.shown.iter().any(|shown| program.is_within(shown));
        if !is_shown {
            installation::of_program(&program, self.home).into_iter().for_each(|path| self.installation(path));
        }
        if let Some(interpreter) = script::interpreter(&program, self.path) {
            self.program(&interpreter);
        }
    }

    /// Adds the programs that a wrapper script names.
    pub fn wrapper(&mut self, program: &HostPath) {
        let Some(real) = self.real(program) else { return };
        if is_system(&real) || self.is_written(&real) || !is_program(real.as_path()) {
            return;
        }
        script::named_paths(&real, self.home).iter().for_each(|path| self.program(path));
    }

    /// Adds part of an installation. A Python environment also needs the Python that it was made
    /// from.
    fn installation(&mut self, path: HostPath) {
        let base = script::base_python(path.as_path());
        self.show(path);
        if let Some(python) = base {
            self.program(&python);
        }
    }

    /// Adds the data directory of the command, if the command is installed in it.
    pub fn own_data(&mut self, program: &HostPath) {
        let data = self.home.join(".local/share");
        let real = program.as_path().canonicalize().ok().and_then(|real| HostPath::new(real).ok());
        let name = real.as_ref().and_then(|real| real.as_path().strip_prefix(data.as_path()).ok()?.iter().next());
        let is_shown = |path: &HostPath| self.shown.iter().any(|shown| shown.is_within(path));
        let own = name.map(|name| data.join(name)).filter(|own| own.as_path().is_dir() && is_shown(own));
        if let (Some(own), Some(real)) = (own, real)
            && real.as_path().parent().is_some_and(|parent| !parent.ends_with("bin"))
        {
            self.show(own);
        }
    }

    /// Adds the Python that the active environment was made from. The guest may have written the
    /// environment, so only a directory that is a Python installation counts.
    pub fn base_of(&mut self, environment: &Path) {
        let python = script::base_python(environment).and_then(|python| python.as_path().canonicalize().ok());
        let root = python.as_deref().and_then(Path::parent).filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
        let (Some(root), Some(name)) = (root, python.as_deref().and_then(Path::file_name)) else { return };
        let (Ok(bin), true) = (HostPath::new(root.join("bin")), root.join("lib").join(name).join("os.py").is_file())
        else {
            return;
        };
        if bin.is_within(self.home) {
            installation::of_directory(&bin, self.home).into_iter().for_each(|path| self.show(path));
        }
    }

    /// Follows a link in a directory that is shown, if it leads out of what is shown.
    fn link(&mut self, link: &HostPath) {
        let Some(target) = fs::read_link(link.as_path()).ok().and_then(|to| step(link, &to)) else { return };
        if !is_system(&target) && !self.shown.iter().any(|shown| target.is_within(shown)) {
            self.program(&target);
        }
    }

    fn show(&mut self, path: HostPath) {
        if self.is_written(&path) || self.home.is_within(&path) {
            return;
        }
        if self.shown.len() >= MOST_MOUNTS {
            self.is_cut = true;
        } else if !self.shown.iter().any(|shown| path.is_within(shown)) {
            self.shown.insert(path);
        }
    }

    /// Resolves all links in a path and keeps those that must exist inside; `None` if the guest
    /// could have created one of them.
    fn real(&mut self, path: &HostPath) -> Option<HostPath> {
        let real = HostPath::new(path.as_path().canonicalize().ok()?).ok()?;
        if real == *path || is_system(path) {
            return Some(real);
        }
        let mut path = path.clone();
        let mut links = Vec::new();
        for _ in 0..MOST_LINKS {
            let Some((link, to)) = first_link(&path) else { break };
            if self.is_written(&link) {
                return None;
            }
            let below = path.as_path().strip_prefix(link.as_path()).map(Path::to_owned).unwrap_or_default();
            path = step(&link, &to)?.join(below);
            if !is_system(&link) {
                links.push((link, to));
            }
        }
        self.links.extend(links);
        Some(real)
    }

    fn entries(&mut self, directory: &HostPath) -> Option<Vec<(std::ffi::OsString, fs::FileType)>> {
        let read = fs::read_dir(directory.as_path()).ok()?.flatten().take(MOST_ENTRIES + 1);
        let entries: Vec<_> = read.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?))).collect();
        self.is_cut |= entries.len() > MOST_ENTRIES;
        Some(entries)
    }

    fn is_written(&self, path: &HostPath) -> bool {
        self.writable.iter().any(|root| path.is_within(root))
    }

    /// Returns the paths to show and the links to create, without those that others contain.
    pub fn finish(mut self) -> Traced {
        self.join_siblings();
        let all = self.shown;
        let is_covered = |path: &HostPath| all.iter().any(|other| path != other && path.is_within(other));
        let kind = |path: &HostPath| {
            let meta = fs::metadata(path.as_path()).ok()?;
            Some(if meta.is_dir() { FileKind::Directory } else { FileKind::File })
        };
        let shown = all.iter().filter(|path| !is_covered(path));
        let shown = shown.filter_map(|path| Some((path.clone(), kind(path)?))).collect();
        let is_shown = |link: &HostPath| all.iter().any(|shown| link.is_within(shown));
        Traced { shown, links: self.links.into_iter().filter(|(link, _)| !is_shown(link)).collect() }
    }

    /// Shows the directory above many installations of one kind, for example pipx's environments,
    /// because each mount takes time.
    fn join_siblings(&mut self) {
        let mut siblings: BTreeMap<HostPath, Vec<HostPath>> = BTreeMap::new();
        for path in &self.shown {
            if let Some(above) = path.as_path().parent().and_then(|above| HostPath::new(above).ok()) {
                siblings.entry(above).or_default().push(path.clone());
            }
        }
        for (above, paths) in siblings {
            if paths.len() >= MANY_SIBLINGS && installation::is_owned(&above, self.home) {
                self.shown.retain(|path| !paths.contains(path));
                self.shown.insert(above);
            }
        }
    }
}

pub fn is_system(path: &HostPath) -> bool {
    ["/usr", "/bin", "/sbin", "/lib"].iter().any(|root| path.as_path().starts_with(root))
}

/// Finds the first component of a path that is a link.
fn first_link(path: &HostPath) -> Option<(HostPath, PathBuf)> {
    let mut ancestors: Vec<&Path> = path.as_path().ancestors().collect();
    ancestors.reverse();
    ancestors.into_iter().find_map(|part| Some((HostPath::new(part).ok()?, fs::read_link(part).ok()?)))
}

/// Follows a link by one step.
fn step(link: &HostPath, to: &Path) -> Option<HostPath> {
    let parent = link.as_path().parent()?.canonicalize().ok()?;
    HostPath::new(resolve_dots(&parent.join(to))).ok()
}
