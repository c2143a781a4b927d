//! Copies a large file for the guest when the guest opens it, or some time after it has started,
//! because few commands need it at once. A process that opens the copy earlier waits: a lease makes it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::Stat;

use super::refs::stat_hash;
use crate::process::lease;

/// Copying less takes as long as starting a thread.
const MIN_SIZE: u64 = 512 << 10;
const PART: usize = 128 << 10;
/// The start of the file is copied last, so that an incomplete copy has zeros there.
const START: u64 = 4096;
/// The kernel ends a lease after 45 seconds, so a guest may have changed the copy if it took longer.
const MAX_TIME: Duration = Duration::from_secs(20);

/// A file that the guest sees with its final size, and can open once its content is complete.
pub struct DelayedCopy {
    /// The source and the copy, until one thread takes them.
    files: Mutex<Option<(File, File)>>,
    size: u64,
    inode: u64,
    progress: Mutex<Progress>,
    ended: Condvar,
    is_cancelled: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nobody else can open the copy.
    Incomplete,
    /// With a value that identifies the state of the complete file.
    Complete(u64),
    /// Without the content, or so late that the guest may have changed it.
    Failed,
}

/// Copies a file, or prepares to do so later if it is large and `may_delay` is set. `to` must not
/// exist.
pub fn copy(from: File, to: &Path, may_delay: bool) -> io::Result<Option<DelayedCopy>> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o644).open(to)?;
    let size = from.metadata()?.len();
    if !may_delay || size < MIN_SIZE || !has_room(&copy, size) || lease::take(&copy).is_err() {
        io::copy(&mut &from, &mut copy)?;
        return Ok(None);
    }
    copy.set_len(size)?;
    let inode = copy.metadata()?.ino();
    Ok(Some(DelayedCopy {
        files: Mutex::new(Some((from, copy))),
        size,
        inode,
        progress: Mutex::new(Progress::Incomplete),
        ended: Condvar::new(),
        is_cancelled: AtomicBool::new(false),
    }))
}

/// Tells whether a file system has room for the file and as much besides, so that a later copy does
/// not fail.
fn has_room(file: &File, size: u64) -> bool {
    rustix::fs::fstatvfs(file).is_ok_and(|free| free.f_bavail.saturating_mul(free.f_frsize) > size.saturating_mul(2))
}

/// Tells whether content is that of a copy that was never completed, because the launcher was killed.
pub fn is_incomplete(content: &[u8], source: &[u8]) -> bool {
    let start = content.get(..4);
    content.len() == source.len() && start == Some(&[0; 4]) && source.get(..4) != start
}

impl DelayedCopy {
    /// Begins to copy, in another thread.
    pub fn begin(self: &Arc<Self>) {
        let copy = Arc::clone(self);
        if std::thread::Builder::new().spawn(move || copy.run()).is_err() {
            self.run();
        }
    }

    /// Waits for the complete content, and copies it if nothing else does.
    pub fn complete(&self) {
        self.run();
        let mut progress = self.progress();
        while *progress == Progress::Incomplete {
            progress = self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Does not copy the rest, because nobody will read it.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Tells whether a file that was examined is the copy, and was not written by anybody else.
    pub fn is_unchanged(&self, stat: &Stat) -> bool {
        #[allow(clippy::unnecessary_cast, reason = "the type differs between platforms")]
        let is_same = stat.st_ino as u64 == self.inode;
        is_same
            && match *self.progress() {
                // Nor was it open to anybody when it was examined.
                Progress::Incomplete => true,
                Progress::Complete(state) => stat_hash(stat) == state,
                Progress::Failed => false,
            }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the content, unless another thread does.
    fn run(&self) {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((source, copy)) = files else { return };
        let begun = Instant::now();
        let state = self.copy_parts(&source, &copy).and_then(|()| Ok(stat_hash(&rustix::fs::fstat(&copy)?)));
        let state = state.ok().filter(|_| begun.elapsed() < MAX_TIME);
        // From the release on the guest can change the file, and other threads of this process can open
        // it, so none may see one without the other.
        let mut progress = self.progress();
        *progress = state.map_or(Progress::Failed, Progress::Complete);
        let _ = lease::release(&copy);
        drop(progress);
        self.ended.notify_all();
    }

    fn copy_parts(&self, source: &File, copy: &File) -> io::Result<()> {
        copy_parts(source, copy, self.size, || self.is_cancelled.load(Ordering::Relaxed))
    }
}

fn copy_parts(source: &File, copy: &File, size: u64, is_cancelled: impl Fn() -> bool) -> io::Result<()> {
    let mut buffer = vec![0; PART];
    let mut offset = START;
    while offset < size {
        if is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = source.read_at(&mut buffer, offset)?;
        let part = buffer.get(..count).filter(|part| !part.is_empty()).ok_or(io::ErrorKind::UnexpectedEof)?;
        copy.write_all_at(part, offset)?;
        offset += count as u64;
    }
    let start = buffer.get_mut(..START as usize).ok_or(io::ErrorKind::InvalidInput)?;
    source.read_exact_at(start, 0)?;
    copy.write_all_at(start, 0)
}

/// Removes the content of a large copy that is the same as its source, or that was never completed, so
/// that it takes no space. What is left is an incomplete copy.
pub fn empty_if_same(source: &File, copy: &File) -> io::Result<()> {
    let size = source.metadata()?.len();
    if size < MIN_SIZE || copy.metadata()?.len() != size {
        return Ok(());
    }
    if has_start(copy)? {
        let (mut buffer, mut other) = (vec![0; PART], vec![0; PART]);
        let mut offset = 0;
        while offset < size {
            let part = usize::try_from(size - offset).map_or(PART, |rest| rest.min(PART));
            let (buffer, other) = (&mut buffer[..part], &mut other[..part]);
            source.read_exact_at(buffer, offset)?;
            copy.read_exact_at(other, offset)?;
            if buffer != other {
                return Ok(());
            }
            offset += part as u64;
        }
    }
    copy.set_len(0)?;
    copy.set_len(size)
}

/// Completes a copy that is incomplete.
pub fn complete(source: &File, copy: &File) -> io::Result<()> {
    let size = source.metadata()?.len();
    if size < MIN_SIZE || copy.metadata()?.len() != size || has_start(copy)? || !has_start(source)? {
        return Ok(());
    }
    copy_parts(source, copy, size, || false)
}

fn has_start(file: &File) -> io::Result<bool> {
    let mut start = [0; 4];
    file.read_exact_at(&mut start, 0)?;
    Ok(start != [0; 4])
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::process::untrusted_dir::UntrustedDir;
    use std::fs;
    use std::os::unix::fs::FileExt;

    const SIZE: usize = 3 << 20;

    /// Makes a file, and prepares a copy of it.
    fn prepare(directory: &Path) -> io::Result<(Vec<u8>, Arc<DelayedCopy>)> {
        let content: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8 + 1).collect();
        fs::write(directory.join("source"), &content)?;
        let copy = copy(File::open(directory.join("source"))?, &directory.join("copy"), true)?;
        Ok((content, Arc::new(copy.ok_or(io::ErrorKind::Unsupported)?)))
    }

    fn open_at_once(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
    }

    #[test]
    fn whoever_opens_the_copy_gets_the_whole_content() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (content, delayed) = prepare(directory.path())?;
        let path = directory.path().join("copy");
        let stat = || UntrustedDir::open(directory.path())?.stat("copy");
        assert_eq!(fs::metadata(&path)?.len(), SIZE as u64);
        assert!(delayed.is_unchanged(&stat()?));
        assert_eq!(open_at_once(&path).map_err(|error| error.kind()).err(), Some(io::ErrorKind::WouldBlock));
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path)
        });
        delayed.begin();
        assert!(reader.join().expect("no panic")? == content);
        delayed.complete();
        assert!(delayed.is_unchanged(&stat()?));
        // The clock of the file system must advance for the change to have another time.
        while delayed.is_unchanged(&stat()?) {
            OpenOptions::new().write(true).open(&path)?.write_all_at(b"x", 5000)?;
        }
        Ok(())
    }

    #[test]
    fn another_file_in_its_place_is_a_change() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (content, delayed) = prepare(directory.path())?;
        fs::write(directory.path().join("other"), content)?;
        fs::rename(directory.path().join("other"), directory.path().join("copy"))?;
        assert!(!delayed.is_unchanged(&UntrustedDir::open(directory.path())?.stat("copy")?));
        Ok(())
    }

    #[test]
    fn a_cancelled_copy_is_recognised() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (content, delayed) = prepare(directory.path())?;
        delayed.cancel();
        delayed.complete();
        let path = directory.path().join("copy");
        assert!(is_incomplete(&fs::read(&path)?, &content));
        assert!(!delayed.is_unchanged(&UntrustedDir::open(directory.path())?.stat("copy")?));
        assert!(!is_incomplete(&content, &content));
        Ok(())
    }

    #[test]
    fn a_copy_without_changes_is_emptied_and_completed_again() -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir()?;
        let (content, delayed) = prepare(directory.path())?;
        delayed.complete();
        let path = directory.path().join("copy");
        let source = File::open(directory.path().join("source"))?;
        let copy = OpenOptions::new().read(true).write(true).open(&path)?;
        empty_if_same(&source, &copy)?;
        let meta = fs::metadata(&path)?;
        assert_eq!((meta.len(), meta.blocks()), (SIZE as u64, 0));
        assert!(is_incomplete(&fs::read(&path)?, &content));
        super::complete(&source, &copy)?;
        assert!(fs::read(&path)? == content);
        copy.write_all_at(b"x", SIZE as u64 - 1)?;
        empty_if_same(&source, &copy)?;
        super::complete(&source, &copy)?;
        let changed = fs::read(&path)?;
        assert!(changed[..SIZE - 1] == content[..SIZE - 1] && changed.last() == Some(&b'x'));
        Ok(())
    }

    #[test]
    fn a_small_file_is_copied_at_once() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("source"), "text")?;
        for (to, may_delay) in [("one", true), ("other", false)] {
            let from = File::open(directory.path().join("source"))?;
            assert!(copy(from, &directory.path().join(to), may_delay)?.is_none());
            assert_eq!(fs::read(directory.path().join(to))?, b"text");
        }
        Ok(())
    }
}
