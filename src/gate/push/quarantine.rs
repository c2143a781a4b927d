//! A repository of the session that receives the pack of a push, so that the host's Git finds out
//! where the pack ends and whether an update is a fast-forward.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::commands::RefUpdate;
use super::process::GroupLeader;
use super::programs::RunningPrograms;
use crate::gate::repository::host_git::{GitError, GitResult, HostGit};
use crate::plan::PushPlan;
use crate::process::untrusted;
use crate::session_id::random_name;

/// The last bytes of what was read are not sent before the pack is known to be complete. Git reads
/// ahead by 4 KiB and a pipe holds 64 KiB, so the end of a pack is always among them, even if the
/// guest sends more than a pack.
const HELD_BACK: usize = 1 << 20;
const CHUNK: usize = 64 << 10;
const MAX_SHALLOW: u64 = 16 << 20;
/// The part of Git's messages that is kept.
const MAX_MESSAGE: u64 = 4096;
/// What Git may take to read a pack: a guest can make one that is small and unpacks to gigabytes.
const MAX_MEMORY: u64 = 2 << 30;
const MAX_CPU_SECONDS: u64 = 600;
/// Large files are hashed without being held in memory, and little of the host's packs is mapped.
/// A list of parents that Git made earlier is not read.
const SETTINGS: &str = "[core]\n\tcommitGraph = false\n\tbigFileThreshold = 16m\n\tdeltaBaseCacheLimit = 32m\n\tpackedGitWindowSize = 32m\n\
                      \tpackedGitLimit = 256m\n[pack]\n\tthreads = 2\n";
/// Commits that the guest fetched come out of its repository about once a second.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(200);

/// Dropping it removes the repository.
pub struct Quarantine<'a> {
    git: &'a HostGit,
    directory: PathBuf,
}

/// Where the pack of a guest went.
pub enum Received {
    /// It is complete. The server lacks these bytes.
    Complete(Held),
    /// The server did not take all of it; its answer says why.
    ServerClosed,
}

/// The end of a pack.
#[derive(Default)]
pub struct Held {
    chunks: VecDeque<Vec<u8>>,
    size: usize,
}

impl<'a> Quarantine<'a> {
    pub fn create(git: &'a HostGit, plan: &PushPlan, id_len: usize, shallow: &[String]) -> GitResult<Self> {
        let directory = git.scratch().join(format!("push-{}", random_name()));
        let quarantine = Quarantine { git, directory };
        let format = if id_len == 64 { "--object-format=sha256" } else { "--object-format=sha1" };
        git.call(&quarantine.directory, &["init", "--quiet", "--bare", "--template=", format]).run()?;
        OpenOptions::new().append(true).open(quarantine.directory.join("config"))?.write_all(SETTINGS.as_bytes())?;
        let mut alternates = Vec::new();
        for objects in &plan.objects {
            let path = objects.as_os_str().as_bytes();
            // Git would read another path.
            if path.contains(&b'\n') || path.starts_with(b"\"") || path.starts_with(b"#") {
                return Err(io::Error::other("the path of the repository has an unusual character").into());
            }
            alternates.extend_from_slice(path);
            alternates.push(b'\n');
        }
        let info = quarantine.directory.join("objects/info");
        fs::create_dir_all(&info)?;
        fs::write(info.join("alternates"), alternates)?;
        // Both lists only take parents away, so that they cannot make an ancestor of a commit.
        let known = plan.shallow.as_ref().map(|file| untrusted::read(file.as_path(), MAX_SHALLOW));
        let mut list = known.and_then(Result::ok).unwrap_or_default();
        list.extend(shallow.iter().map(|id| format!("{id}\n")));
        if !list.is_empty() {
            fs::write(quarantine.directory.join("shallow"), list)?;
        }
        Ok(quarantine)
    }

    /// Waits until the host has a commit that the guest may have fetched a moment ago.
    pub fn knows(&self, id: &str) -> bool {
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        let object = format!("{id}^{{commit}}");
        loop {
            if self.git.call(&self.directory, &["cat-file", "-e", &object]).run().is_ok() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(EXCHANGE_INTERVAL);
        }
    }

    /// Tells whether an update only adds commits.
    pub fn is_fast_forward(&self, update: &RefUpdate) -> GitResult<bool> {
        let deadline = Instant::now() + EXCHANGE_TIMEOUT;
        loop {
            let arguments = ["merge-base", "--is-ancestor", &update.old, &update.new];
            match self.git.call(&self.directory, &arguments).run() {
                Ok(_) => return Ok(true),
                Err(GitError::Failed { code: Some(1), .. }) => return Ok(false),
                // A commit between the two may still be on its way out.
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(EXCHANGE_INTERVAL),
            }
        }
    }

    /// Passes a pack from the guest to the server, all but its end, while Git reads it too.
    pub fn receive(
        &self,
        guest: &mut UnixStream,
        server: &mut impl Write,
        programs: &RunningPrograms,
    ) -> io::Result<Received> {
        let arguments = ["index-pack", "--stdin", "--fix-thin"];
        let child =
            self.git.call(&self.directory, &arguments).start(MAX_MEMORY, MAX_CPU_SECONDS).map_err(io::Error::other)?;
        let mut index = IndexPack(GroupLeader::new(child, programs));
        let mut held = Held::default();
        let mut is_server_open = true;
        loop {
            let stdout = index.0.child.stdout.as_ref().ok_or(ErrorKind::BrokenPipe)?;
            let mut descriptors = [PollFd::new(&*guest, PollFlags::IN), PollFd::new(stdout, PollFlags::IN)];
            poll(&mut descriptors, None)?;
            let [is_guest, is_index] = [0, 1].map(|index| !descriptors[index].revents().is_empty());
            if is_index && index.has_ended()? {
                break;
            }
            if !is_guest {
                continue;
            }
            let mut chunk = vec![0; CHUNK];
            let count = guest.read(&mut chunk)?;
            if count == 0 {
                // Git closes its side after the pack.
                break;
            }
            chunk.truncate(count);
            let stdin = index.0.child.stdin.as_mut().ok_or(ErrorKind::BrokenPipe)?;
            match stdin.write_all(&chunk) {
                Ok(()) => {}
                // It ended; what it did not read is no part of the pack.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                Err(error) => return Err(error),
            }
            if is_server_open && held.push(chunk, server).is_err() {
                is_server_open = false;
            }
        }
        index.finish()?;
        Ok(if is_server_open { Received::Complete(held) } else { Received::ServerClosed })
    }
}

impl Drop for Quarantine<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Held {
    /// Adds bytes and sends those that need not be held back any longer.
    fn push(&mut self, chunk: Vec<u8>, server: &mut impl Write) -> io::Result<()> {
        self.size += chunk.len();
        self.chunks.push_back(chunk);
        while let Some(first) = self.chunks.front()
            && self.size - first.len() >= HELD_BACK
        {
            server.write_all(first)?;
            self.size -= first.len();
            self.chunks.pop_front();
        }
        Ok(())
    }

    /// Sends the rest.
    pub fn send(self, server: &mut impl Write) -> io::Result<()> {
        self.chunks.iter().try_for_each(|chunk| server.write_all(chunk))?;
        server.flush()
    }
}

/// Git that reads a pack.
struct IndexPack(GroupLeader);

impl IndexPack {
    /// Reads the name of the pack, and notices the end.
    fn has_ended(&mut self) -> io::Result<bool> {
        let stdout = self.0.child.stdout.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        Ok(stdout.read(&mut [0; 256])? == 0)
    }

    fn finish(mut self) -> io::Result<()> {
        drop(self.0.child.stdin.take());
        let mut text = String::new();
        if let Some(stderr) = self.0.child.stderr.take() {
            let mut start = stderr.take(MAX_MESSAGE);
            start.read_to_string(&mut text)?;
            // A full pipe would hold Git up.
            io::copy(&mut start.into_inner(), &mut io::sink())?;
        }
        if self.0.wait()?.success() {
            return Ok(());
        }
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("index-pack failed");
        Err(io::Error::other(line.trim_start_matches("fatal: ").to_owned()))
    }
}
