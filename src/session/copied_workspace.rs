//! Makes the copy of a workspace before the launch, holds it while the sandbox runs, and keeps it
//! afterwards if anything changed in it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::SessionError;
use crate::error::Result;
use crate::gate::workspace::{copy_files, has_changes, note_bases, scan_bases};
use crate::kept_copy::{CopyHow, CopyStore, FileTime, KeptCopy};
use crate::path::HostPath;
use crate::plan::{EngineKind, Plan};
use crate::process::remove_tree::remove_tree;
use crate::process::{CallResult, Client};
use crate::ui::Ui;
use crate::ui::progress::Progress;

/// How long Podman may take to remove files.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The steps in which a file system's clock is read until it goes on.
const CLOCK_INTERVAL: Duration = Duration::from_millis(1);

/// The copy that a running sandbox changes.
pub struct CopiedWorkspace {
    store: CopyStore,
    copy: KeptCopy,
    is_new: bool,
    /// Whether the guest may have changed anything.
    is_kept: bool,
    /// The client of a rootless engine.
    client: Option<Client>,
    _lock: File,
}

impl CopiedWorkspace {
    /// Makes the copy that the plan names, or takes one that is kept; `None` if the guest changes the
    /// directory itself.
    pub fn begin(plan: &Plan, ui: Ui) -> Result<Option<Self>> {
        let Some(copy) = &plan.workspace.copy else { return Ok(None) };
        let store = CopyStore::beside(&sessions(&plan.session_dir));
        let fail = |source: io::Error| SessionError::Copy { id: copy.id.clone(), source };
        let lock = if plan.workspace.is_new { store.create(&copy.id) } else { store.lock(&copy.id) };
        let lock = lock.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock => SessionError::CopyTaken(copy.id.clone()).into(),
            _ => crate::error::Error::from(fail(source)),
        })?;
        let mut copy = copy.clone();
        copy.engine = plan.engine.kind.name().to_owned();
        copy.command = plan.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut begun = CopiedWorkspace {
            store,
            copy,
            is_new: plan.workspace.is_new,
            is_kept: false,
            client: rootless_client(plan),
            _lock: lock,
        };
        begun.make(ui).map_err(fail)?;
        Ok(Some(begun))
    }

    /// Takes the copy of a sandbox whose launcher was killed, and whose changes are there now.
    pub fn of_killed(store: CopyStore, copy: KeptCopy, lock: File) -> Self {
        CopiedWorkspace { store, copy, is_new: true, is_kept: true, client: None, _lock: lock }
    }

    fn make(&mut self, ui: Ui) -> io::Result<()> {
        if self.is_new {
            for tree in &self.copy.trees {
                private_directory(&tree.place)?;
                match self.copy.how {
                    CopyHow::Overlay => {
                        private_directory(&tree.upper())?;
                        private_directory(&tree.work())?;
                        fs::set_permissions(tree.upper(), fs::metadata(&tree.host)?.permissions())?;
                    }
                    CopyHow::Files => {
                        private_directory(&tree.files())?;
                        let _progress = Progress::start(ui, format!("`{}` to be copied", tree.host.display()));
                        copy_files(&tree.host, &tree.files(), &self.copy.git_dirs)?;
                        fs::set_permissions(tree.files(), fs::metadata(&tree.host)?.permissions())?;
                    }
                }
            }
            self.copy.made = self.time()?;
        } else if self.copy.how == CopyHow::Overlay {
            self.copy.trees.iter().for_each(|tree| renew_work(&tree.work()));
        }
        self.store.write(&self.copy)
    }

    /// Returns the time of the file system, once it is later than that of everything copied so far.
    fn time(&self) -> io::Result<FileTime> {
        let path = self.directory().join("made");
        fs::write(path.as_path(), "")?;
        let first = FileTime::of_change(&fs::metadata(path.as_path())?);
        // An overlay has no files yet.
        if self.copy.how == CopyHow::Files {
            while FileTime::of_change(&fs::metadata(path.as_path())?) <= first {
                std::thread::sleep(CLOCK_INTERVAL);
                fs::write(path.as_path(), "x")?;
            }
        }
        Ok(first)
    }

    pub fn directory(&self) -> HostPath {
        self.store.directory(&self.copy.id)
    }

    /// Keeps the copy from now on: the guest is about to start, and what it writes must not be lost.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    pub fn base_scan(&self) -> BaseScan {
        BaseScan { copy: self.copy.clone(), directory: self.directory(), is_new: self.is_new }
    }

    /// Keeps the copy if anything changed in it, and says how to go on.
    pub fn finish(mut self, ui: Ui) {
        let id = self.copy.id.clone();
        if self.is_new && !has_changes(&self.copy, &self.directory()) {
            self.is_kept = false;
            return;
        }
        if let Err(error) = note_bases(&self.copy, &self.directory()) {
            ui.warn(&format!("what you change before `sandpen apply` cannot be merged: {error}"));
        }
        if self.copy.how == CopyHow::Overlay {
            // On native nothing that the guest wrote needs to be on disk yet. Without it a power failure
            // could lose files, which is no reason to fail.
            self.copy.trees.iter().for_each(|tree| drop(sync(&tree.upper())));
        }
        ui.notice(&format!(
            "the changes wait in the copy `{id}`: `sandpen diff {id}`, `sandpen apply {id}`, `sandpen discard {id}`"
        ));
    }
}

/// Looks, soon after the start, which tracked files are in no object of the host's repository.
pub struct BaseScan {
    copy: KeptCopy,
    directory: HostPath,
    is_new: bool,
}

impl BaseScan {
    pub fn run(&self) {
        if self.is_new {
            // Without it, fewer files can be merged.
            let _ = scan_bases(&self.copy, &self.directory);
        }
    }
}

impl Drop for CopiedWorkspace {
    fn drop(&mut self) {
        if self.is_new && !self.is_kept {
            let _ = remove_copy(&self.store, &self.copy.id, self.client.as_ref());
        }
    }
}

/// Returns the client that removes files of Podman's user namespace.
fn rootless_client(plan: &Plan) -> Option<Client> {
    let program = plan.engine.program.clone().filter(|_| plan.engine.kind == EngineKind::Podman)?;
    let path = PathBuf::from("/usr/bin:/bin");
    Some(Client { program: Some(program), path, machine: None, endpoint: Vec::new() })
}

/// Removes a copy, whose lock the caller holds. What belongs to other users is removed in the user
/// namespace of rootless Podman, which made it.
pub fn remove_copy(store: &CopyStore, id: &str, podman: Option<&Client>) -> io::Result<()> {
    let Some(left) = store.remove(id)? else { return Ok(()) };
    let removed = podman.map(|client| {
        let arguments = ["unshare".as_ref(), "rm".as_ref(), "-rf".as_ref(), "--".as_ref(), left.as_os_str()];
        client.run_quietly(arguments, REMOVE_TIMEOUT)
    });
    match removed {
        Some(CallResult::Succeeded) => Ok(()),
        _ => Err(io::Error::other(format!("`{}` has files of other users; remove it as root", left.display()))),
    }
}

/// Makes the directory that the kernel works in anew. It contains a note of the last sandbox that nothing
/// was written to disk, with which the kernel refuses to mount it again. What an engine's root made
/// cannot be removed, but has no such note.
fn renew_work(work: &Path) {
    let _ = remove_tree(work);
    let _ = private_directory(work);
}

/// Writes everything of a file system to disk.
#[cfg(target_os = "linux")]
fn sync(directory: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(directory)?)?)
}

#[cfg(not(target_os = "linux"))]
fn sync(_: &Path) -> io::Result<()> {
    Ok(())
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns the directory of all sessions.
fn sessions(session: &HostPath) -> HostPath {
    let above = session.as_path().parent().and_then(|above| HostPath::new(above).ok());
    above.unwrap_or_else(|| session.clone())
}
