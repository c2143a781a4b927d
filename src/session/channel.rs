//! Keeps a channel to a process in a container, for sockets that cannot be mounted: starts the process
//! through the engine's `exec`, and connects its streams to the sockets of the session's gates.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::channel::{Channel, ChannelError, CloseReason, Endpoint, Side, StreamKind};
use crate::launch::CONTAINER_ID;
use crate::path::HostPath;
use crate::plan::Plan;
use crate::plan::channel::ChannelSocket;
use crate::process::ready::CompanionProcess;
use crate::process::{Client, socket_path};
use crate::proxy::Proxy;
use crate::ui::Ui;

/// How often the launcher looks whether there is a container.
const CREATION_INTERVAL: Duration = Duration::from_millis(20);
/// The pause before the process is started again: the container may not run yet.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// A container that exists but takes no process for so long is reported.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// How long the engine's client may take to exit after the channel was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The stderr of the engine's client, in the session's directory.
const STDERR: &str = "channel-stderr";

/// A thread that keeps the channel until it is dropped.
pub struct ChannelThread {
    /// Closing it asks the thread to end.
    stop: Option<UnixStream>,
    stopped: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ChannelThread {
    /// Starts the thread if the plan has sockets that cannot be mounted. `argv` starts the process inside;
    /// called when the engine's client, or the sandbox, has been started.
    pub fn start(
        plan: &Plan,
        client: &Client,
        argv: &[OsString],
        exists: Existence,
        proxy: Option<Arc<Proxy>>,
        ui: Ui,
    ) -> Option<Self> {
        if argv.is_empty() {
            return None;
        }
        let (stop, watched) = UnixStream::pair().ok()?;
        let (stopped, is_stopped) = mpsc::channel();
        let keeper = Keeper {
            client: client.clone(),
            argv: argv.to_vec(),
            sockets: plan.channel.clone(),
            proxy,
            container: match exists {
                Existence::Now => None,
                Existence::WithIdFile => Some(plan.session_dir.join(CONTAINER_ID)),
            },
            stderr: plan.session_dir.join(STDERR),
            watched,
            is_stopped,
            ui,
        };
        let thread = thread::Builder::new().name("channel".into()).spawn(move || keeper.run()).ok()?;
        Some(ChannelThread { stop: Some(stop), stopped: Some(stopped), thread: Some(thread) })
    }
}

impl Drop for ChannelThread {
    fn drop(&mut self) {
        drop((self.stop.take(), self.stopped.take()));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// When the sandbox exists.
pub enum Existence {
    Now,
    /// When the engine's client has written the container's id.
    WithIdFile,
}

struct Keeper {
    client: Client,
    argv: Vec<OsString>,
    sockets: Vec<ChannelSocket>,
    /// Serves streams to the proxy.
    proxy: Option<Arc<Proxy>>,
    /// The engine's client writes it when there is a container; `None` if there is one.
    container: Option<HostPath>,
    stderr: HostPath,
    /// Readable when the session has ended.
    watched: UnixStream,
    is_stopped: mpsc::Receiver<()>,
    ui: Ui,
}

/// How one process inside has ended.
enum Served {
    /// The session has ended.
    Stopped,
    /// It never answered, with the reason.
    NotConnected(String),
    /// The channel was there and broke, with the reason.
    Lost(String),
}

impl Keeper {
    fn run(&self) {
        while self.container.as_ref().is_some_and(|id| !id.as_path().exists()) {
            if self.waits(CREATION_INTERVAL) {
                return;
            }
        }
        let mut since = Instant::now();
        let mut is_reported = false;
        loop {
            match self.serve() {
                Served::Stopped => return,
                Served::NotConnected(reason) if since.elapsed() >= REPORT_AFTER && !is_reported => {
                    is_reported = true;
                    self.ui.warn(&format!("the sockets of sandpen do not work in the sandbox: {reason}"));
                }
                Served::NotConnected(_) => {}
                Served::Lost(reason) => {
                    self.ui.verbose(&format!("the channel into the sandbox has ended ({reason}) and is opened again"));
                    (since, is_reported) = (Instant::now(), false);
                }
            }
            if self.waits(RETRY_DELAY) {
                return;
            }
        }
    }

    /// Waits, and returns whether the session has ended.
    fn waits(&self, time: Duration) -> bool {
        self.is_stopped.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    /// Starts the process inside, and relays streams until it ends.
    fn serve(&self) -> Served {
        let stderr = self.stderr.as_path().to_owned();
        let command = self.client.command(self.argv.iter().skip(1));
        let started = command.map_err(|error| error.to_string()).and_then(|mut command| {
            command.stdin(Stdio::piped());
            CompanionProcess::start(command, stderr, EXIT_TIMEOUT).map_err(|error| error.to_string())
        });
        let mut process = match started {
            Ok(process) => process,
            Err(reason) => return Served::NotConnected(reason),
        };
        let channel =
            process.take_streams().and_then(|(stdout, stdin)| Channel::new(Side::Launcher, stdout, stdin).ok());
        let Some(mut channel) = channel else { return Served::NotConnected("it has no streams".into()) };
        let watched: [BorrowedFd<'_>; 1] = [self.watched.as_fd()];
        let ended: Result<(), ChannelError> = loop {
            match channel.step(&watched, &mut |kind, _| self.connect(kind)) {
                Ok(step) if !step.ready.is_empty() => return Served::Stopped,
                Ok(step) if step.is_over => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        let is_greeted = channel.is_greeted();
        drop(channel);
        process.request_exit();
        let said = process.stderr().map(|stderr| stderr.to_string());
        let reason = match ended {
            Ok(()) => said.unwrap_or_else(|| "the process inside has ended".into()),
            Err(error) => said.unwrap_or_else(|| error.to_string()),
        };
        if is_greeted { Served::Lost(reason) } else { Served::NotConnected(reason) }
    }

    /// Connects a stream from inside to the socket of its gate.
    fn connect(&self, kind: StreamKind) -> Result<Endpoint, CloseReason> {
        if let (StreamKind::Proxy, Some(proxy)) = (kind, &self.proxy) {
            return proxy.connect().and_then(Endpoint::tcp).map_err(|_| CloseReason::NotConnected);
        }
        let socket = self.sockets.iter().find(|socket| socket.kind == kind).ok_or(CloseReason::Refused)?;
        let connected = socket_path::connect(socket.gate.as_path()).and_then(Endpoint::socket);
        connected.map_err(|_| CloseReason::NotConnected)
    }
}
