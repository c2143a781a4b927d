//! The first process of the keeper's container: takes the files, passes frames between the launcher
//! and the guest, ends the guest when the launcher is lost, and keeps the work for some time.

use std::ffi::OsString;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::changes::Changes;
use super::held_socket;
use super::receive::Receiver;
use crate::link::{LinkFrame, LinkReader, LinkWriter, PING_INTERVAL, SILENCE_LIMIT, VERSION};
use crate::plan::kubernetes::{GUEST_SOCKET, LINK_SOCKET};
use crate::process::signals::GRACE_PERIOD;

/// How long the work is kept for a launcher that comes back.
const LINGER: Duration = Duration::from_secs(3600);
/// How long the guest's container may take to start after the keeper's.
const GUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// The two ends that frames are passed between.
#[derive(Default)]
struct Ends {
    guest: Option<LinkWriter>,
    /// Whether the guest was there and has gone.
    is_guest_lost: bool,
    launcher: Option<LinkWriter>,
}

#[derive(Default)]
pub(super) struct Shared {
    ends: Mutex<Ends>,
    changed: Condvar,
    changes: Changes,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attach(&self, launcher: LinkWriter) {
        self.lock().launcher = Some(launcher);
    }

    pub(super) fn detach(&self) {
        self.lock().launcher = None;
    }

    /// Handles a frame that is not for the guest.
    pub(super) fn handle(
        self: &Arc<Self>,
        frame: LinkFrame,
        receiver: &mut Receiver,
        launcher: &LinkWriter,
    ) -> io::Result<()> {
        match frame {
            LinkFrame::Watch(json) => self.changes.watch(serde_json::from_str(&json)?),
            LinkFrame::Collect => {
                let (shared, launcher) = (self.clone(), launcher.clone());
                // It may take long, and the guest's input is not to wait for it.
                thread::spawn(move || shared.changes.send(&launcher));
            }
            LinkFrame::Received => self.changes.received(),
            frame => {
                let Some(mut answer) = receiver.handle(frame) else { return Ok(()) };
                if answer == LinkFrame::Received
                    && let Err(error) = self.changes.begin()
                {
                    answer = LinkFrame::Failed(format!("the files cannot be listed: {error}"));
                }
                launcher.send(&answer)?;
            }
        }
        Ok(())
    }

    /// Waits until the guest's container has started.
    fn guest(&self) -> Option<LinkWriter> {
        let waiting = |ends: &mut Ends| ends.guest.is_none() && !ends.is_guest_lost;
        let waited = self.changed.wait_timeout_while(self.lock(), GUEST_TIMEOUT, waiting);
        waited.unwrap_or_else(PoisonError::into_inner).0.guest.clone()
    }

    fn to_launcher(&self, frame: &LinkFrame) {
        let launcher = self.lock().launcher.clone();
        if let Some(launcher) = launcher {
            // A launcher that is gone shows where it is read from.
            let _ = launcher.send(frame);
        }
    }
}

/// Runs the keeper. The arguments name the sockets that the guest's container mounts.
pub fn run(held: &[OsString]) -> io::Result<()> {
    held.iter().filter_map(|name| name.to_str()).try_for_each(held_socket::hold)?;
    let guests = UnixListener::bind(GUEST_SOCKET)?;
    let links = UnixListener::bind(LINK_SOCKET)?;
    let shared = Arc::new(Shared::default());
    let for_guest = shared.clone();
    thread::spawn(move || serve_guest(&guests, &for_guest));
    let mut receiver = Receiver::default();
    serve_launchers(&links, &shared, &mut receiver)
}

/// Serves one launcher after the other, until none has come for some time.
pub(super) fn serve_launchers(links: &UnixListener, shared: &Arc<Shared>, receiver: &mut Receiver) -> io::Result<()> {
    while let Some(link) = accept_within(links, LINGER)? {
        let _ = serve_launcher(link, shared, receiver);
        shared.detach();
        end_guest(shared);
    }
    Ok(())
}

/// Waits for a launcher; `None` if none came.
fn accept_within(links: &UnixListener, timeout: Duration) -> io::Result<Option<UnixStream>> {
    let limit = Instant::now() + timeout;
    loop {
        let left = Timespec::try_from(limit.saturating_duration_since(Instant::now())).ok();
        match poll(&mut [PollFd::new(links, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(Some(links.accept()?.0)),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Passes the guest's frames on. Only the first process of the guest's container is accepted, which
/// connects before it starts the command: nothing that the command starts can pretend to be it.
fn serve_guest(guests: &UnixListener, shared: &Shared) {
    let Ok((guest, _)) = guests.accept() else { return };
    let _ = std::fs::remove_file(Path::new(GUEST_SOCKET));
    pass_frames_of(guest, shared);
}

/// Passes the frames of a guest on until it ends.
pub(super) fn pass_frames_of(guest: UnixStream, shared: &Shared) {
    let Ok(to_guest) = guest.try_clone() else { return };
    shared.lock().guest = Some(LinkWriter::new(to_guest));
    shared.changed.notify_all();
    let mut reader = LinkReader::new(guest);
    while let Ok(Some(frame)) = reader.next() {
        if let LinkFrame::Output { .. } | LinkFrame::Credit { .. } | LinkFrame::Status(_) = frame {
            shared.to_launcher(&frame);
        }
    }
    {
        let mut ends = shared.lock();
        (ends.guest, ends.is_guest_lost) = (None, true);
    }
    shared.changed.notify_all();
    shared.to_launcher(&LinkFrame::GuestLost);
}

/// Serves a launcher until it ends, or has said nothing for too long.
fn serve_launcher(link: UnixStream, shared: &Arc<Shared>, receiver: &mut Receiver) -> io::Result<()> {
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    // A launcher that reads nothing must not hold up the guest's end for ever.
    link.set_write_timeout(Some(SILENCE_LIMIT))?;
    let launcher = LinkWriter::new(link.try_clone()?);
    launcher.send(&LinkFrame::Ready { version: VERSION })?;
    shared.lock().launcher = Some(launcher.clone());
    let pings = launcher.clone();
    thread::spawn(move || {
        while pings.send(&LinkFrame::Ping).is_ok() {
            thread::sleep(PING_INTERVAL);
        }
    });
    let mut reader = LinkReader::new(link);
    while let Some(frame) = reader.next()? {
        if frame.is_for_guest() {
            match shared.guest() {
                Some(guest) => drop(guest.send(&frame)),
                None if shared.lock().is_guest_lost => launcher.send(&LinkFrame::GuestLost)?,
                None => launcher.send(&LinkFrame::Failed("the guest's container does not start".into()))?,
            }
            continue;
        }
        shared.handle(frame, receiver, &launcher)?;
    }
    Ok(())
}

/// Ends the guest as a terminal that hangs up does, and kills it if it does not end by that.
pub(super) fn end_guest(shared: &Shared) {
    let guest = shared.lock().guest.clone();
    let Some(guest) = guest else { return };
    let _ = guest.send(&LinkFrame::Signal(libc::SIGTERM));
    let there = |ends: &mut Ends| ends.guest.is_some();
    let waited = shared.changed.wait_timeout_while(shared.lock(), GRACE_PERIOD, there);
    let is_there = waited.unwrap_or_else(PoisonError::into_inner).0.guest.is_some();
    if is_there {
        let _ = guest.send(&LinkFrame::Signal(libc::SIGKILL));
    }
}
