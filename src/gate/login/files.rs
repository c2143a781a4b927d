//! The files of a login: the host's, which only refreshed tokens change, and the copy with placeholders
//! that was given to sandboxes. Holds the locks of both.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::super::agent_state::write;
use crate::facts::{LoginDocument, MAX_LOGIN, placeholder};
use crate::path::HostPath;
use crate::plan::LoginPlan;
use crate::process::{lock, untrusted};

/// The age from which agents take a lock directory of another process for abandoned.
const STALE_AGENT_LOCK: Duration = Duration::from_secs(10);
/// How long to wait for an agent on the host that refreshes its tokens itself.
const AGENT_LOCK_TIMEOUT: Duration = Duration::from_secs(15);
const AGENT_LOCK_INTERVAL: Duration = Duration::from_millis(100);

/// Identifies a state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(u64, i64, i64, u64);

impl Stamp {
    pub fn of(path: &HostPath) -> Option<Self> {
        let meta = fs::metadata(path.as_path()).ok()?;
        Some(Stamp(meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size()))
    }
}

/// Reads the host's file. The error says what is wrong, and repeats nothing of the content.
pub fn read_host(plan: &LoginPlan) -> Result<LoginDocument, String> {
    let text = untrusted::read_linked(plan.file.as_path(), MAX_LOGIN);
    let text = text.map_err(|error| format!("`{}` cannot be read: {error}", plan.file))?;
    LoginDocument::parse(text.as_bytes(), &plan.form).map_err(|problem| format!("`{}` {problem}", plan.file))
}

/// Replaces the host's file by renaming.
pub fn write_host(plan: &LoginPlan, document: &LoginDocument) -> io::Result<()> {
    write(plan.file.as_path(), &document.content())
}

/// Returns the copy for guests, and records it, so that all sandboxes of the agent give the same
/// placeholders.
pub fn give(plan: &LoginPlan, document: &LoginDocument) -> io::Result<LoginDocument> {
    let directory = plan.given.as_path().parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let _lock = locked(&plan.given.as_path().with_extension("lock"))?;
    let earlier = fs::read(plan.given.as_path()).ok();
    let earlier = earlier.and_then(|content| LoginDocument::parse(&content, &plan.form).ok());
    let given = document.with_placeholders(&plan.form, earlier.as_ref(), placeholder);
    if earlier.as_ref() != Some(&given) {
        write(plan.given.as_path(), &given.content())?;
    }
    Ok(given)
}

/// Whether a sandbox of the agent has placeholders.
pub fn is_given(plan: &LoginPlan) -> bool {
    plan.given.as_path().exists()
}

/// Forgets the placeholders of a login that the host no longer has.
pub fn forget(plan: &LoginPlan) {
    let _ = fs::remove_file(plan.given.as_path());
}

fn locked(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    lock::wait(&file)?;
    Ok(file)
}

/// Keeps other sandboxes, and the agent on the host, from refreshing tokens at the same time.
pub struct RefreshLock {
    _file: File,
    agent: Option<HostPath>,
}

impl RefreshLock {
    pub fn take(plan: &LoginPlan) -> io::Result<Self> {
        let file = locked(plan.lock.as_path())?;
        let agent = plan.agent_lock.clone().filter(take_agent_lock);
        Ok(RefreshLock { _file: file, agent })
    }
}

impl Drop for RefreshLock {
    fn drop(&mut self) {
        if let Some(path) = &self.agent {
            let _ = fs::remove_dir(path.as_path());
        }
    }
}

/// Makes the directory that the agent makes. Gives up after a while: a refresh without this lock is
/// better than none.
fn take_agent_lock(path: &HostPath) -> bool {
    let limit = Instant::now() + AGENT_LOCK_TIMEOUT;
    loop {
        match fs::create_dir(path.as_path()) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && Instant::now() < limit => {
                let modified = fs::metadata(path.as_path()).and_then(|meta| meta.modified());
                let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
                if age.is_some_and(|age| age > STALE_AGENT_LOCK) {
                    let _ = fs::remove_dir(path.as_path());
                }
                thread::sleep(AGENT_LOCK_INTERVAL);
            }
            Err(_) => return false,
        }
    }
}
