//! Lets the host's Git make a repository with the content of one that the guest made, and puts it
//! in the place of the guest's.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::Nested;
use super::complete::is_complete;
use super::pointer::relative;
use crate::facts::git::object_id::ObjectId;
use crate::facts::git::syntax;
use crate::gate::repository::exchange::{GitDirExchange, Moment};
use crate::gate::repository::host_git::{GitError, GitResult};
use crate::gate::repository::kept;
use crate::gate::repository::move_tree::move_in;
use crate::gate::repository::report::Report;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted_dir::UntrustedDir;

const MAX_CONFIG: u64 = 1 << 20;
const MAX_SHALLOW: u64 = 4 << 20;

/// A repository of the guest and the place for the host's.
pub struct Remake<'a> {
    /// A directory of the session, in which the new repository is made.
    pub place: PathBuf,
    pub work_tree: Option<&'a Path>,
    /// The Git directory on the host.
    pub git_dir: PathBuf,
}

impl Remake<'_> {
    /// Returns the place of the guest's Git directory, to which it must be moved before.
    pub fn private(&self) -> PathBuf {
        self.place.join("guest")
    }
}

impl Nested<'_> {
    /// Lets the host's Git make a repository with the content of the guest's. Returns its Git
    /// directory, and whether everything came out.
    pub(super) fn remake(&self, remake: &Remake, report: &mut Report) -> GitResult<(PathBuf, bool)> {
        let (place, private) = (&remake.place, remake.private());
        let guest = UntrustedDir::open(&private)?;
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
            private_root: private.clone(),
            private_objects: private.join("objects"),
            private,
            given_index: base.join("index"),
            base,
            import: place.join("import"),
            work_tree: remake.work_tree.map(Path::to_owned),
            is_sha256,
            is_reftable: false,
            alternates: Vec::new(),
            objects: std::iter::once(fresh.join("objects")).chain(self.shared_objects(&guest)).collect(),
        };
        write_shallow(&guest, &fresh, is_sha256)?;
        let problems = report.problems.len();
        let mut exchange = GitDirExchange::new(&dir, &[], &self.gate.id);
        exchange.shown = remake.work_tree.unwrap_or(&remake.git_dir).to_owned();
        exchange.exchange(self.git, Moment::Ended, report)?;
        set_work_tree(&fresh)?;
        kept::report_hooks(&dir, &remake.git_dir, &self.gate.aside.join(&self.gate.id), report);
        let is_complete =
            report.problems.len() == problems && is_complete(&guest, &fresh, exchange.id_len()).unwrap_or(false);
        Ok((fresh, is_complete))
    }

    /// Puts the new Git directory in its place, and removes or keeps the guest's.
    pub(super) fn install(
        &mut self,
        made: GitResult<(PathBuf, bool)>,
        remake: &Remake,
        parent: &UntrustedDir,
        name: &Path,
        report: &mut Report,
    ) {
        let shown = remake.git_dir.display();
        match made.map(|(fresh, is_complete)| (move_in(&fresh, parent, name), is_complete)) {
            Ok((Ok(()), is_complete)) => {
                self.remade.extend(remake.work_tree.map(Path::to_owned));
                self.installed.insert(remake.git_dir.clone());
                if is_complete {
                    let _ = fs::remove_dir_all(&remake.place);
                    return;
                }
            }
            Ok((Err(error), _)) if is_temporary(&error) => {
                self.has_failed = true;
                report.problems.push(format!(
                    "the repository `{shown}`, made inside, is in `{}` until it can be written: {error}",
                    remake.private().display()
                ));
                return;
            }
            Ok((Err(error), _)) => {
                report.problems.push(format!("the repository `{shown}`, made inside, cannot be written: {error}"));
            }
            Err(error @ GitError::Stopped { .. }) => {
                self.has_failed = true;
                report.problems.push(format!("the repository `{shown}`, made inside, is not complete: {error}"));
                return;
            }
            Err(error) => {
                report.problems.push(format!("the repository `{shown}`, made inside, cannot be taken over: {error}"));
            }
        }
        self.keep_guest(remake, report);
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
}

/// Tells whether a file may be written later.
fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
    )
}

/// Copies the list of commits whose parents the guest's repository lacks, as after
/// `git clone --depth`.
fn write_shallow(guest: &UntrustedDir, fresh: &Path, is_sha256: bool) -> io::Result<()> {
    let Ok(Some(list)) = guest.read("shallow", MAX_SHALLOW) else { return Ok(()) };
    let digits = if is_sha256 { 64 } else { 40 };
    let text = String::from_utf8_lossy(&list);
    let ids: Option<Vec<ObjectId>> =
        text.lines().map(|line| ObjectId::parse(line).filter(|_| line.len() == digits)).collect();
    match ids {
        Some(ids) if !ids.is_empty() => {
            fs::write(fresh.join("shallow"), ids.iter().map(|id| format!("{id}\n")).collect::<String>())
        }
        _ => Ok(()),
    }
}
