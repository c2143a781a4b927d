//! Waits until a signal can be sent to an engine's client. Sends none.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::path::HostPath;

/// The time after the command's start within which a client begins to forward signals.
const CLIENT_SETTLE_TIME: Duration = Duration::from_millis(400);
/// The time after which a signal is sent even though the command has not started.
const CLIENT_READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Waits until an engine's client forwards signals.
///
/// A client that is signalled too early loses the signal. Before the container runs, Docker's and
/// Podman's clients have no process to send it to, or drop the error of sending it; Docker's also
/// registers its handlers only after the engine has reported the start. No client tells when it is
/// ready. What can be observed is the helper inside, which writes the status file when it has
/// started the command. The engine's report to the client is on its way at that moment, so the
/// signal is sent when the last write to the file is [`CLIENT_SETTLE_TIME`] old. The age is used,
/// rather than a pause after the first sight of the file, so that a signal in the middle of a run
/// is not delayed. Without a status (an image that cannot run the helper, a long pull) the signal
/// is sent after [`CLIENT_READY_TIMEOUT`] all the same.
pub fn wait_for_client(status_file: &HostPath, is_over: impl Fn() -> bool) {
    let limit = Instant::now() + CLIENT_READY_TIMEOUT;
    while Instant::now() < limit && !is_over() {
        let written = fs::metadata(status_file.as_path()).ok().filter(|meta| meta.len() > 0);
        // A time in the future means that the clock was set back; the file is taken for old.
        let age = written
            .and_then(|meta| meta.modified().ok())
            .map(|modified| modified.elapsed().unwrap_or(CLIENT_SETTLE_TIME));
        if age.is_some_and(|age| age >= CLIENT_SETTLE_TIME) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}
