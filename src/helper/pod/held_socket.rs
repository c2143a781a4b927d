//! A socket that the guest's container mounts: the keeper makes it before that container starts, and passes each
//! connection to the process of the channel. That process may be started again, the mounted socket not.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::connect;
use crate::helper::channel::listen;
use crate::plan::kubernetes::{KEEPER_DIR, channel_socket};
use crate::process::copy_bytes;

/// More connections at a time are closed. The channel has a limit of its own.
const MAX_CONNECTIONS: usize = 128;
/// How long a connection waits for the channel, which starts with the command, or again after a failure.
const CHANNEL_TIMEOUT: Duration = Duration::from_secs(20);

/// Makes a socket in the keeper's directory, and serves it in a thread.
pub fn hold(name: &str) -> io::Result<()> {
    let directory = Path::new(KEEPER_DIR);
    let socket = listen(&directory.join(name))?;
    socket.set_nonblocking(false)?;
    let channel = directory.join(channel_socket(name));
    thread::spawn(move || serve(&socket, &channel));
    Ok(())
}

fn serve(socket: &UnixListener, channel: &Path) {
    let channel: Arc<PathBuf> = Arc::new(channel.to_owned());
    for guest in socket.incoming().flatten() {
        // Each thread has a reference.
        if Arc::strong_count(&channel) <= MAX_CONNECTIONS {
            let channel = channel.clone();
            thread::spawn(move || relay(&guest, &channel));
        }
    }
}

/// Passes bytes until both sides have closed.
fn relay(guest: &UnixStream, channel: &Path) {
    let Ok(server) = connect(channel, CHANNEL_TIMEOUT) else { return };
    thread::scope(|scope| {
        scope.spawn(|| one_way(guest, &server));
        one_way(&server, guest);
    });
}

fn one_way(mut from: &UnixStream, mut to: &UnixStream) {
    let _ = copy_bytes(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    // If the other side is gone, nothing more is read.
    let _ = from.shutdown(Shutdown::Read);
}
