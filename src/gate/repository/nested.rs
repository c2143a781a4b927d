//! Brings out repositories that were made or changed in the working tree: `git clone`, `git init`,
//! a submodule. The guest's Git directory is taken away, and the host's Git makes a new one from
//! verified objects, refs, index and ordinary remotes.
//!
//! All of it is built in the session's directory, and put in its place by a rename that follows no
//! link.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::exchange::{GitDirExchange, Moment, WorkingTree};
use super::host_git::{GitResult, HostGit};
use super::kept;
use super::make::LOOSE;
use super::move_tree::{move_in, move_out, remove};
use super::nested_baseline::{Content, GitDirContent, NestedBaseline, odd_content, search};
use super::report::Report;
use super::search::Found;
use crate::facts::git::syntax;
use crate::plan::RepositoryGate;
use crate::plan::repository::{PrivateGitDir, PrivateRepository};
use crate::process::untrusted;
use crate::process::untrusted_dir::UntrustedDir;

const MAX_CONFIG: u64 = 1 << 20;
const MAX_POINTER: u64 = 8 << 10;
/// The report names at most this many files of a repository.
const MAX_NAMED: usize = 8;

/// The search for repositories after the guest has ended.
pub struct Nested<'a> {
    pub gate: &'a RepositoryGate,
    pub git: &'a HostGit,
    /// A directory of the session.
    pub scratch: &'a Path,
    /// The repositories that were there before.
    pub baseline: &'a NestedBaseline,
    /// The time in seconds at which the launcher was killed, if it was.
    pub killed: Option<i64>,
    pub count: usize,
    /// Working trees whose repository is out.
    pub remade: BTreeSet<PathBuf>,
    /// Working trees that `git worktree add` made inside, with the names of their Git directories.
    pub worktrees: Vec<(PathBuf, usize, String)>,
}

/// A repository of the guest and the place for the host's.
struct Remake<'a> {
    /// The Git directory of the guest, in a directory of the session.
    private: PathBuf,
    work_tree: Option<&'a Path>,
    /// The Git directory on the host.
    git_dir: PathBuf,
}

impl Nested<'_> {
    pub fn bring_out(&mut self, report: &mut Report) {
        self.fill_submodules(report);
        for root in &self.gate.roots {
            for found in search(self.gate, root, &self.known()) {
                let result = match &found {
                    Found::GitDir(path) => self.repository(root, path, false, report),
                    Found::Bare(path) => self.repository(root, path, true, report),
                    Found::Pointer(path) => self.pointer(root, path, report),
                    Found::Odd(path) => self.set_aside(root, path, "is neither a file nor a directory", report),
                    Found::Unreadable(path) => {
                        report.problems.push(format!("`{}` cannot be searched for repositories", path.display()));
                        Ok(())
                    }
                };
                if let Err(error) = result {
                    report.problems.push(format!("`{}` cannot be brought out: {error}", path(&found).display()));
                }
            }
        }
    }

    fn known(&self) -> Vec<PathBuf> {
        known(self.gate)
    }

    fn next_place(&mut self) -> PathBuf {
        self.count += 1;
        self.scratch.join(format!("nested-{}", self.count))
    }

    /// Restores a repository of the user, or makes one of the guest anew.
    fn repository(&mut self, root: &Path, path: &Path, is_bare: bool, report: &mut Report) -> io::Result<()> {
        let (parent, name) = parent_of(root, path)?;
        let git_dir = if path == root { UntrustedDir::open(root)? } else { open_granted(&parent, &name)? };
        if let Some(before) = self.baseline.git_dir(path) {
            return match self.restore(&git_dir, path, before, report) {
                Ok(true) => Ok(()),
                _ => self.disable(&git_dir, path, report),
            };
        }
        if self.is_later(&git_dir) {
            return Ok(());
        }
        if is_bare {
            let is_harmless = GitDirContent::of(&git_dir).is_ok_and(|content| content.is_harmless());
            return if is_harmless { Ok(()) } else { self.disable(&git_dir, path, report) };
        }
        let place = self.next_place();
        let remake = Remake { work_tree: path.parent(), git_dir: path.to_owned(), private: place.join("guest") };
        // Renaming a directory needs the permission to write it and the one above it.
        let _ = parent.grant_own_access();
        let _ = git_dir.grant_own_access();
        if let Err(error) = move_out(&parent, &name, &remake.private) {
            self.disable(&git_dir, path, report)?;
            return Err(error);
        }
        let made = self.remake(&remake, &place, report);
        self.install(made, &remake, &place, &parent, &name, path, report)
    }

    /// Takes HEAD away, without which Git does not use a directory.
    fn disable(&mut self, git_dir: &UntrustedDir, path: &Path, report: &mut Report) -> io::Result<()> {
        self.count += 1;
        let kept = self.gate.aside.join(&self.gate.id).join(format!("HEAD-{}", self.count));
        let _ = git_dir.grant_own_access();
        move_out(git_dir, Path::new("HEAD"), &kept)?;
        let head = path.join("HEAD");
        report.keep_with(
            format!(
                "`{}` is a Git directory with settings or hooks of the sandbox, so its HEAD is set aside",
                path.display()
            ),
            &["mv", &kept.to_string_lossy(), &head.to_string_lossy()],
        );
        Ok(())
    }

    /// Tells whether something was made after the launcher was killed, and so by the user.
    fn is_later(&self, entry: &UntrustedDir) -> bool {
        let Some(killed) = self.killed else { return false };
        rustix::fs::fstat(entry).is_ok_and(|stat| stat.st_ctime > killed)
    }

    /// Undoes what the guest did in a repository of the user, apart from ordinary work: files that it
    /// made are set aside, others are as they were. What the user changed after a kill stays. Returns
    /// `false` if that is not possible.
    fn restore(
        &mut self,
        git_dir: &UntrustedDir,
        path: &Path,
        before: &GitDirContent,
        report: &mut Report,
    ) -> io::Result<bool> {
        let now = GitDirContent::of(git_dir)?;
        if now == *before {
            return Ok(true);
        }
        self.count += 1;
        let kept = self.gate.aside.join(&self.gate.id).join(format!("files-{}", self.count));
        let is_later =
            |file: &Path| self.killed.is_some_and(|killed| git_dir.stat(file).is_ok_and(|stat| stat.st_ctime > killed));
        let (mut changed, mut later) = (Vec::new(), Vec::new());
        for (file, content) in now.0.iter().filter(|entry| !before.0.contains(entry)) {
            if is_later(file) {
                later.push(file);
                continue;
            }
            let parent = git_dir.directory(file.parent().unwrap_or(Path::new("")))?;
            let name = Path::new(file.file_name().unwrap_or_default());
            match content {
                Content::File { .. } => move_out(&parent, name, &kept.join(file))?,
                Content::Link(_) | Content::Odd(_) => remove(&parent, name)?,
            }
            changed.push(format!("`{}`", file.display()));
        }
        for (file, content) in before.0.iter().filter(|entry| !now.0.contains(entry) && !later.contains(&&entry.0)) {
            let parent = git_dir.create_directory(file.parent().unwrap_or(Path::new("")))?;
            let name = Path::new(file.file_name().unwrap_or_default());
            if parent.stat(name).is_ok() {
                self.count += 1;
                move_out(&parent, name, &kept.with_extension(self.count.to_string()))?;
            }
            match content {
                Content::File { bytes, mode } => {
                    parent.replace(name, bytes, || true)?;
                    parent.set_mode(name, *mode)?;
                }
                Content::Link(to) => rustix::fs::symlinkat(to, &parent, name)?,
                Content::Odd(_) => return Ok(false),
            }
        }
        if !later.is_empty() {
            let names: Vec<String> = later.iter().take(MAX_NAMED).map(|file| format!("`{}`", file.display())).collect();
            report.keep(format!(
                "changed in `{}` after the sandbox was killed, so the sandbox's changes stay as well: {}",
                path.display(),
                names.join(", ")
            ));
        }
        let earlier = |content: &GitDirContent| -> Vec<(PathBuf, Content)> {
            content.0.iter().filter(|(file, _)| !later.contains(&file)).cloned().collect()
        };
        let is_restored = earlier(&GitDirContent::of(git_dir)?) == earlier(before);
        if is_restored && !changed.is_empty() {
            let more = changed.len().saturating_sub(MAX_NAMED);
            changed.truncate(MAX_NAMED);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            report.keep(format!(
                "changed in `{}` and kept in `{}`: {}{more}",
                path.display(),
                kept.display(),
                changed.join(", ")
            ));
        }
        Ok(is_restored)
    }

    /// Puts the new Git directory in its place, and removes or keeps the guest's.
    #[allow(clippy::too_many_arguments, reason = "each is a part of one repository")]
    fn install(
        &mut self,
        made: GitResult<(PathBuf, bool)>,
        remake: &Remake,
        place: &Path,
        parent: &UntrustedDir,
        name: &Path,
        path: &Path,
        report: &mut Report,
    ) -> io::Result<()> {
        let is_complete = match made {
            Ok((fresh, is_complete)) => {
                move_in(&fresh, parent, name)?;
                self.remade.extend(remake.work_tree.map(Path::to_owned));
                is_complete
            }
            Err(error) => {
                report
                    .problems
                    .push(format!("the repository `{}`, made inside, cannot be taken over: {error}", path.display()));
                false
            }
        };
        if is_complete {
            let scratch = UntrustedDir::open(place)?;
            let _ = remove(&scratch, Path::new("guest"));
            return Ok(());
        }
        let kept = self.gate.aside.join(&self.gate.id).join(format!("repository-{}", self.count));
        move_out(&UntrustedDir::open(place)?, Path::new("guest"), &kept)?;
        let what =
            format!("what did not come out of the repository `{}` is kept in `{}`", path.display(), kept.display());
        report.keep(what);
        Ok(())
    }

    /// Lets the host's Git make a repository with the content of the guest's. Returns its Git
    /// directory, and whether everything came out.
    fn remake(&self, remake: &Remake, place: &Path, report: &mut Report) -> GitResult<(PathBuf, bool)> {
        let guest = UntrustedDir::open(&remake.private)?;
        let config = guest.read("config", MAX_CONFIG)?.unwrap_or_default();
        let settings = syntax::settings(&String::from_utf8_lossy(&config)).unwrap_or_default();
        let is_sha256 = settings.iter().any(|(key, value)| key == "extensions.objectformat" && value == "sha256");
        let format = if is_sha256 { "--object-format=sha256" } else { "--object-format=sha1" };
        let fresh = place.join("tree/.git");
        fs::create_dir_all(place.join("tree"))?;
        let init = ["init", "--quiet", "--template=", format];
        self.git.call(&fresh, &init).work_tree(&place.join("tree")).run()?;
        let base = place.join("base");
        fs::create_dir_all(base.join("refs"))?;
        fs::write(base.join(LOOSE), "")?;
        fs::copy(fresh.join("HEAD"), base.join("HEAD"))?;
        fs::copy(fresh.join("config"), base.join("config"))?;
        // A Git directory that is not in its working tree names it.
        let work_tree = remake.work_tree.filter(|tree| remake.git_dir != tree.join(".git"));
        let work_tree = work_tree.map(|tree| relative(&remake.git_dir, tree).to_string_lossy().into_owned());
        let set_work_tree = |git_dir: &Path| -> GitResult<()> {
            let Some(work_tree) = &work_tree else { return Ok(()) };
            let file = git_dir.join("config").to_string_lossy().into_owned();
            self.git.call(&fresh, &["config", "--file", &file, "core.worktree", work_tree]).run().map(|_| ())
        };
        set_work_tree(&base)?;
        let dir = PrivateGitDir {
            host: fresh.clone(),
            private: remake.private.clone(),
            private_root: remake.private.clone(),
            private_objects: remake.private.join("objects"),
            given_index: base.join("index"),
            base,
            import: place.join("import"),
            work_tree: remake.work_tree.map(Path::to_owned),
            is_sha256,
            is_reftable: false,
            alternates: Vec::new(),
            objects: std::iter::once(fresh.join("objects")).chain(self.shared_objects(&guest)).collect(),
        };
        let problems = report.problems.len();
        let mut exchange = GitDirExchange::new(&dir, &[], &self.gate.id);
        exchange.shown = remake.work_tree.unwrap_or(&remake.git_dir).to_owned();
        exchange.exchange(self.git, Moment::Ended, report)?;
        set_work_tree(&fresh)?;
        kept::report_hooks(&dir, &remake.git_dir, &self.gate.aside.join(&self.gate.id), report);
        Ok((fresh, report.problems.len() == problems))
    }

    /// Lists the host's objects that a repository of the guest uses: a clone of a private repository
    /// inside has the same alternates. Other alternates are not followed.
    fn shared_objects(&self, guest: &UntrustedDir) -> Vec<PathBuf> {
        let list = guest.read("objects/info/alternates", MAX_CONFIG).ok().flatten().unwrap_or_default();
        let list = String::from_utf8_lossy(&list).into_owned();
        let full = || self.gate.repositories.iter().flat_map(|repository| &repository.full);
        let given = || full().flat_map(|dir| dir.alternates.iter().zip(&dir.objects));
        list.lines()
            .filter_map(|line| given().find(|(inside, _)| inside.as_os_str() == line))
            .map(|(_, host)| host.clone())
            .collect()
    }

    /// Moves the files of submodules that were covered out, and makes their repositories.
    fn fill_submodules(&mut self, report: &mut Report) {
        for submodule in &self.gate.empty_submodules {
            if let Err(error) = self.fill_submodule(&submodule.private, &submodule.directory, report) {
                report
                    .problems
                    .push(format!("the submodule `{}` cannot be brought out: {error}", submodule.directory.display()));
            }
        }
    }

    fn fill_submodule(&mut self, private: &Path, directory: &Path, report: &mut Report) -> io::Result<()> {
        let from = UntrustedDir::open(private)?;
        let entries = from.entries(usize::MAX)?;
        if entries.is_empty() {
            return Ok(());
        }
        fs::create_dir_all(directory)?;
        let target = UntrustedDir::open(directory)?;
        if !target.entries(usize::MAX)?.is_empty() {
            let kept = self.gate.aside.join(&self.gate.id).join(directory.file_name().unwrap_or_default());
            let (parent, name) = parent_of(private.parent().unwrap_or(private), private)?;
            move_out(&parent, &name, &kept)?;
            report.keep(format!(
                "`{}` is no longer empty, so what was made inside is kept in `{}`",
                directory.display(),
                kept.display()
            ));
            return Ok(());
        }
        for (name, _) in entries.iter().filter(|(name, _)| name != ".git") {
            let name = Path::new(name);
            let between = self.next_place();
            move_out(&from, name, &between)?;
            move_in(&between, &target, name)?;
        }
        match entries.iter().find(|(name, _)| name == ".git").map(|(_, kind)| *kind) {
            Some(FileType::Directory) => {
                let place = self.next_place();
                let remake = Remake {
                    private: place.join("guest"),
                    work_tree: Some(directory),
                    git_dir: directory.join(".git"),
                };
                move_out(&from, Path::new(".git"), &remake.private)?;
                let made = self.remake(&remake, &place, report);
                self.install(made, &remake, &place, &target, Path::new(".git"), &directory.join(".git"), report)
            }
            Some(FileType::RegularFile) => {
                let text = from.read(".git", MAX_POINTER)?.unwrap_or_default();
                let git_dir = pointed(directory, &text);
                match git_dir.and_then(|git_dir| self.module(&git_dir)) {
                    Some(module) => self.submodule(module, directory, &target, report),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Returns the host's path of a new submodule's Git directory, the private directory that contains
    /// the guest's, and its name there.
    fn module(&self, git_dir: &Path) -> Option<(PathBuf, UntrustedDir, PathBuf)> {
        self.gate.repositories.iter().find_map(|repository| {
            let below =
                git_dir.strip_prefix(&repository.common_dir).ok().filter(|below| below.starts_with("modules"))?;
            let is_name = |part: &std::ffi::OsStr| part.to_str().is_some_and(is_plain_name);
            // A submodule in the Git directory of another one would change that.
            let mut above = git_dir.ancestors().skip(1).take_while(|above| *above != repository.common_dir);
            if !below.iter().all(is_name) || above.any(|above| above.join("HEAD").symlink_metadata().is_ok()) {
                return None;
            }
            let inside = &repository.full.first()?.private;
            let parent = UntrustedDir::open_below(inside, inside.join(below).parent()?).ok()?;
            let name = PathBuf::from(below.file_name()?);
            let is_there = parent.directory(&name).is_ok_and(|dir| dir.stat("HEAD").is_ok());
            (git_dir.symlink_metadata().is_err() && is_there).then(|| (git_dir.to_owned(), parent, name))
        })
    }

    /// Makes the Git directory of a new submodule, and the `.git` file that names it.
    fn submodule(
        &mut self,
        module: (PathBuf, UntrustedDir, PathBuf),
        directory: &Path,
        target: &UntrustedDir,
        report: &mut Report,
    ) -> io::Result<()> {
        let (host, from, name) = module;
        let place = self.next_place();
        let remake = Remake { private: place.join("guest"), work_tree: Some(directory), git_dir: host.clone() };
        move_out(&from, &name, &remake.private)?;
        let made = self.remake(&remake, &place, report);
        let above = host.parent().unwrap_or(&host).to_owned();
        fs::create_dir_all(&above)?;
        let (parent, name) = parent_of(&above, &host)?;
        self.install(made, &remake, &place, &parent, &name, &host, report)?;
        let pointer = format!("gitdir: {}\n", relative(directory, &host).display());
        let _ = target.remove_file(".git");
        target.replace(".git", pointer.as_bytes(), || true)?;
        Ok(())
    }

    /// Judges a `.git` file: it may name a worktree or a submodule that was made inside.
    fn pointer(&mut self, root: &Path, path: &Path, report: &mut Report) -> io::Result<()> {
        let (parent, name) = parent_of(root, path)?;
        let text = parent.read(&name, MAX_POINTER)?.unwrap_or_default();
        let is_remade = path.parent().is_some_and(|directory| self.remade.contains(directory));
        if is_remade || self.baseline.has_pointer(path, &text) {
            return Ok(());
        }
        let directory = path.parent().unwrap_or(root);
        let named = pointed(directory, &text);
        if let Some(git_dir) = &named {
            for (number, repository) in self.gate.repositories.iter().enumerate() {
                if let Some(name) = new_worktree(repository, git_dir, path)
                    && !self.worktrees.iter().any(|(_, known, taken)| *known == number && *taken == name)
                {
                    self.worktrees.push((directory.to_owned(), number, name));
                    return Ok(());
                }
            }
            // The guest cannot write the host's Git directories, so what is there is the user's.
            let is_hosts = |repository: &PrivateRepository| git_dir.starts_with(&repository.common_dir);
            if git_dir.symlink_metadata().is_ok() && self.gate.repositories.iter().any(is_hosts) {
                return Ok(());
            }
            if let Some(module) = self.module(git_dir) {
                return self.submodule(module, directory, &parent, report);
            }
        }
        self.set_aside(root, path, "names a Git directory that cannot come out", report)
    }

    fn set_aside(&mut self, root: &Path, path: &Path, reason: &str, report: &mut Report) -> io::Result<()> {
        if self.baseline.odd.iter().any(|(known, before)| known == path && odd_content(path).as_ref() == Some(before)) {
            return Ok(());
        }
        let (parent, name) = parent_of(root, path)?;
        self.count += 1;
        let kept = self.gate.aside.join(&self.gate.id).join(format!("git-{}", self.count));
        move_out(&parent, &name, &kept)?;
        report.keep_with(
            format!("`{}`, made inside, {reason}, so it is set aside", path.display()),
            &["mv", &kept.to_string_lossy(), &path.to_string_lossy()],
        );
        Ok(())
    }
}

/// Lists the Git directories that the guest could not write, and their `.git` files.
pub fn known(gate: &RepositoryGate) -> Vec<PathBuf> {
    let full = gate.repositories.iter().flat_map(|repository| &repository.full);
    let full = full.flat_map(|dir| [Some(dir.host.clone()), dir.work_tree.as_ref().map(|tree| tree.join(".git"))]);
    let linked = gate.repositories.iter().flat_map(|repository| &repository.worktrees);
    let linked = linked.map(|dir| dir.work_tree.as_ref().map(|tree| tree.join(".git")));
    full.chain(linked).flatten().chain(gate.fixed.iter().cloned()).collect()
}

/// Brings out a worktree that was made inside: the host's Git registers it, and its HEAD and index
/// come out as those of other worktrees.
pub fn add_worktree(
    git: &HostGit,
    roots: &[PathBuf],
    repository: &PrivateRepository,
    directory: &Path,
    name: &str,
    place: &Path,
) -> GitResult<WorkingTree> {
    let common = &repository.common_dir;
    let private_root = repository.full.first().map(|dir| dir.private.clone()).unwrap_or_default();
    let private = private_root.join("worktrees").join(name);
    let root = roots
        .iter()
        .find(|root| directory.starts_with(root))
        .ok_or(io::ErrorKind::NotFound)
        .map_err(io::Error::from)?;
    let tree = UntrustedDir::open_below(root, directory)?;
    let temporary = place.join(name);
    fs::create_dir_all(place)?;
    let path = temporary.to_string_lossy().into_owned();
    git.call(common, &["worktree", "add", "--quiet", "--no-checkout", "--force", "--detach", &path]).run()?;
    // Git chooses another name if the user has a worktree with this one.
    let host = pointed(&temporary, &fs::read(temporary.join(".git"))?).ok_or(io::ErrorKind::InvalidData);
    let host = host.map_err(io::Error::from)?;
    fs::write(host.join("gitdir"), format!("{}\n", directory.join(".git").display()))?;
    tree.remove_file(".git")?;
    tree.replace(".git", format!("gitdir: {}\n", host.display()).as_bytes(), || true)?;
    fs::remove_dir_all(&temporary)?;
    let base = place.join("base");
    fs::create_dir_all(base.join("refs"))?;
    fs::copy(host.join("HEAD"), base.join("HEAD"))?;
    Ok(WorkingTree {
        host,
        private,
        private_root,
        given_index: base.join("index"),
        base,
        directory: Some(directory.to_owned()),
    })
}

/// Returns the name of a worktree that was made inside, with this `.git` file.
fn new_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> Option<String> {
    let name = git_dir.strip_prefix(repository.common_dir.join("worktrees")).ok()?.to_str()?;
    let inside = &repository.full.first()?.private;
    let is_there = UntrustedDir::open_below(inside, &inside.join("worktrees").join(name)).is_ok();
    let is_new = git_dir.symlink_metadata().is_err() || is_other_worktree(repository, git_dir, pointer);
    (is_plain_name(name) && is_new && is_there).then(|| name.to_owned())
}

/// Tells whether the Git directory on the host belongs to a worktree that the user added elsewhere
/// while the guest made one with the same name.
fn is_other_worktree(repository: &PrivateRepository, git_dir: &Path, pointer: &Path) -> bool {
    let is_new = repository.worktrees.iter().all(|known| known.host != git_dir);
    let named = untrusted::read(&git_dir.join("gitdir"), MAX_POINTER).ok();
    let named = named.and_then(|text| pointed(git_dir, format!("gitdir: {text}").as_bytes()));
    is_new && named.is_some_and(|named| named != pointer)
}

/// Tells whether a name has no special meaning to Git or to a file system.
fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.chars().all(is_plain) && !name.starts_with(['-', '.']) && !name.ends_with(".lock")
}

/// Opens a directory, and grants its owner access first if necessary.
fn open_granted(parent: &UntrustedDir, name: &Path) -> io::Result<UntrustedDir> {
    parent.directory(name).or_else(|_| {
        parent.grant_access(name)?;
        parent.directory(name)
    })
}

fn path(found: &Found) -> &Path {
    match found {
        Found::GitDir(path) | Found::Bare(path) | Found::Pointer(path) | Found::Odd(path) | Found::Unreadable(path) => {
            path
        }
    }
}

/// Opens the directory that contains a path, without following a link below `root`.
fn parent_of(root: &Path, path: &Path) -> io::Result<(UntrustedDir, PathBuf)> {
    let below = path.strip_prefix(root).map_err(|_| io::ErrorKind::InvalidInput)?;
    match below.file_name() {
        Some(name) => {
            let parent = UntrustedDir::open(root)?.directory(below.parent().unwrap_or(Path::new("")))?;
            Ok((parent, name.into()))
        }
        // The root itself.
        None => {
            let (parent, name) = (path.parent().unwrap_or(path), path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
            Ok((UntrustedDir::open(parent)?, name.into()))
        }
    }
}

/// Returns the directory that a `.git` file names, in the form that Git writes.
fn pointed(directory: &Path, text: &[u8]) -> Option<PathBuf> {
    let named = std::str::from_utf8(text).ok()?.strip_prefix("gitdir: ")?.strip_suffix('\n')?;
    let mut path = PathBuf::new();
    for component in directory.join(named).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    Some(path)
}

/// Returns the path from a directory to another one.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let common = from.components().zip(to.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(common).map(|_| Component::ParentDir);
    up.chain(to.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_git_file_is_read_only_in_the_form_that_git_writes() {
        let at = |text: &str| pointed(Path::new("/w/sub"), text.as_bytes());
        assert_eq!(at("gitdir: ../.git/modules/sub\n"), Some("/w/.git/modules/sub".into()));
        assert_eq!(at("gitdir: /x/y\n"), Some("/x/y".into()));
        for text in ["gitdir:../x\n", "gitdir: x", "x\n", ""] {
            assert_eq!(at(text), None, "{text}");
        }
        assert_eq!(relative(Path::new("/w/.git/modules/a/b"), Path::new("/w/a/b")), Path::new("../../../../a/b"));
    }
}
