//! Lets the host's Git make a repository with the content of one that the guest made, and puts it
//! in the place of the guest's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Nested;
use super::pointer::relative;
use crate::facts::git::syntax;
use crate::gate::repository::exchange::{GitDirExchange, Moment};
use crate::gate::repository::host_git::GitResult;
use crate::gate::repository::kept;
use crate::gate::repository::move_tree::{move_in, move_out, remove};
use crate::gate::repository::report::Report;
use crate::plan::repository::PrivateGitDir;
use crate::process::untrusted_dir::UntrustedDir;

const MAX_CONFIG: u64 = 1 << 20;

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
        let problems = report.problems.len();
        let mut exchange = GitDirExchange::new(&dir, &[], &self.gate.id);
        exchange.shown = remake.work_tree.unwrap_or(&remake.git_dir).to_owned();
        exchange.exchange(self.git, Moment::Ended, report)?;
        set_work_tree(&fresh)?;
        kept::report_hooks(&dir, &remake.git_dir, &self.gate.aside.join(&self.gate.id), report);
        Ok((fresh, report.problems.len() == problems))
    }

    /// Puts the new Git directory in its place, and removes or keeps the guest's.
    pub(super) fn install(
        &mut self,
        made: GitResult<(PathBuf, bool)>,
        remake: &Remake,
        parent: &UntrustedDir,
        name: &Path,
        report: &mut Report,
    ) -> io::Result<()> {
        let is_complete = match made {
            Ok((fresh, is_complete)) => {
                move_in(&fresh, parent, name)?;
                self.remade.extend(remake.work_tree.map(Path::to_owned));
                is_complete
            }
            Err(error) => {
                report.problems.push(format!(
                    "the repository `{}`, made inside, cannot be taken over: {error}",
                    remake.git_dir.display()
                ));
                false
            }
        };
        if is_complete {
            let scratch = UntrustedDir::open(&remake.place)?;
            let _ = remove(&scratch, Path::new("guest"));
            return Ok(());
        }
        let kept = self.gate.aside.join(&self.gate.id).join(format!("repository-{}", self.count));
        move_out(&UntrustedDir::open(&remake.place)?, Path::new("guest"), &kept)?;
        let what = format!(
            "what did not come out of the repository `{}` is kept in `{}`",
            remake.git_dir.display(),
            kept.display()
        );
        report.keep(what);
        Ok(())
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
