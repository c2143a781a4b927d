//! The first process of a container on another machine: takes the files from the launcher on stdin, starts
//! the process that runs the command, and passes frames between the two. It is root, and the only one.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::keeper::{Shared, end_guest, pass_frames_of, serve_launchers};
use super::receive::{Owner, Receiver};
use crate::link::{LinkFrame, LinkReader, LinkWriter, PING_INTERVAL, SILENCE_LIMIT, VERSION};
use crate::plan::KeeperConfig;
use crate::plan::kubernetes::{KEEPER_DIR, LINK_SOCKET};
use crate::process::KILLED;

/// How many frames may wait to be handled.
const QUEUE: usize = 16;

enum Event {
    Frame(LinkFrame),
    /// The launcher has gone, or what it sends is no frame.
    LinkLost,
}

pub fn run(config: KeeperConfig) -> io::Result<u8> {
    // Without a handler the kernel keeps signals from the first process of a container.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            std::process::exit(KILLED.exit_code().into());
        }
    });
    // What this process starts can never regain them.
    crate::native::drop_bounding_set()?;
    // Only root may enter it: no process of the command can pretend to be a launcher.
    DirBuilder::new().mode(0o700).create(KEEPER_DIR)?;
    let links = UnixListener::bind(LINK_SOCKET)?;
    let (sender, events) = mpsc::sync_channel(QUEUE);
    let launcher = LinkWriter::new(std::fs::File::from(rustix::stdio::stdout().as_fd().try_clone_to_owned()?));
    launcher.send(&LinkFrame::Ready { version: VERSION })?;
    let pings = launcher.clone();
    thread::spawn(move || {
        while pings.send(&LinkFrame::Ping).is_ok() {
            thread::sleep(PING_INTERVAL);
        }
    });
    let input = std::fs::File::from(rustix::stdio::stdin().as_fd().try_clone_to_owned()?);
    thread::spawn(move || {
        let mut reader = LinkReader::new(input);
        while let Ok(Some(frame)) = reader.next() {
            if sender.send(Event::Frame(frame)).is_err() {
                return;
            }
        }
        let _ = sender.send(Event::LinkLost);
    });
    let shared = Arc::new(Shared::default());
    shared.attach(launcher.clone());
    let (user, group) = config.user;
    let mut receiver = Receiver::for_owner(Owner(config));
    let mut guest = None::<LinkWriter>;
    loop {
        let frame = match events.recv_timeout(SILENCE_LIMIT) {
            Ok(Event::Frame(LinkFrame::Leave)) => return Ok(0),
            Ok(Event::Frame(frame)) => frame,
            Ok(Event::LinkLost) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                shared.detach();
                end_guest(&shared);
                // The work waits for a launcher that comes back.
                serve_launchers(&links, &shared, &mut receiver)?;
                return Ok(KILLED.exit_code());
            }
        };
        if !frame.is_for_guest() {
            shared.handle(frame, &mut receiver, &launcher)?;
            continue;
        }
        if guest.is_none() {
            let (stream, others) = UnixStream::pair()?;
            let shared = shared.clone();
            let mut process = guest_process(others.into(), user, group)?.spawn()?;
            guest = Some(LinkWriter::new(stream.try_clone()?));
            thread::spawn(move || {
                pass_frames_of(stream, &shared);
                let _: io::Result<ExitStatus> = process.wait();
            });
        }
        if let Some(guest) = &guest {
            // A guest that has gone shows where it is read from.
            let _ = guest.send(&frame);
        }
    }
}

/// The process that runs the command is this program, as the command's user.
fn guest_process(stream: OwnedFd, user: u32, group: u32) -> io::Result<Command> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["pod", "command"]).stdin(stream).stdout(Stdio::null()).uid(user).gid(group);
    Ok(command)
}
