//! Carries Git's transport for the remotes of the repository: a guest names a service and the number
//! of a remote, the host's `ssh`, `git` and `curl` do the rest, and pushes are decided by rules.
//! Nothing that a guest sends becomes an argument, a path or the name of a host.

mod advertisement;
mod commands;
mod decision;
mod http;
mod login;
mod ls_refs;
mod pkt_line;
mod process;
mod programs;
mod quarantine;
mod receive_pack;
mod record;
mod relay;
mod report;
mod slots;
mod ssh;
mod transport;
mod upload_pack;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::event_log::{EventLog, Verdict};
use crate::gate::repository::host_git::HostGit;
use crate::host::Host;
use crate::plan::Plan;
use crate::plan::push::SOCKET;
use crate::ui::Ui;
use crate::ui::escape::escape;
pub use advertisement::Advertisement;
pub use commands::CommandList;

use process::HostEnvironment;
use programs::RunningPrograms;
use record::{PushRecord, Recorder};
use transport::Transport;

/// The answer to a request that is served.
const OK: &[u8] = b"ok\n";
const MAX_CONNECTIONS: usize = 32;
/// A push takes memory for the server's refs and the guest's updates, and runs Git on a pack.
const MAX_PUSHES: usize = 4;
const MAX_REQUEST: usize = 64;
/// How long a guest may take for its first line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long connections may take to end with the session.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a connection that could not be accepted.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
const MAX_ERROR: usize = 2 << 10;

/// What a guest may ask of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    UploadPack,
    ReceivePack,
}

impl Service {
    fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "git-upload-pack",
            Service::ReceivePack => "git-receive-pack",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Service::UploadPack, Service::ReceivePack].into_iter().find(|service| service.name() == text)
    }
}

/// A socket for guests that is not served yet. The native engine mounts it before it may start
/// threads.
pub struct PushListener {
    listener: UnixListener,
}

impl PushListener {
    /// Makes the socket in the session's directory; returns `None` if the plan needs none.
    pub fn open(plan: &Plan) -> io::Result<Option<Self>> {
        if !plan.push.is_on() {
            return Ok(None);
        }
        let directory = fs::File::open(plan.session_dir.as_path())?;
        let (listener, path) = bind(&directory, &plan.session_dir)?;
        // The guest may be another user; other users of the host cannot enter the directory.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        Ok(Some(PushListener { listener }))
    }

    /// Serves guests until the gate is dropped.
    pub fn serve(self, host: &Host, plan: &Plan, log: Arc<EventLog>, ui: Ui) -> PushGate {
        let connections = Arc::new(Connections::default());
        let git = HostGit::new(&plan.repository_gate, plan.session_dir.as_path().to_owned());
        let environment = HostEnvironment::new(host, &plan.push.path);
        let programs = RunningPrograms::default();
        if let Some(git) = git {
            let recorder = Recorder::new(log, ui);
            let transport = Transport::new(plan.push.clone(), environment, git, recorder, programs.clone());
            let transport = Arc::new(transport);
            let shared = connections.clone();
            thread::spawn(move || accept(&self.listener, &transport, &shared));
        }
        PushGate { connections, programs }
    }
}

/// Binds the socket by a path that is short enough for a socket's address.
#[cfg(target_os = "linux")]
fn bind(directory: &fs::File, _: &crate::path::HostPath) -> io::Result<(UnixListener, String)> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    Ok((UnixListener::bind(&path)?, path))
}

#[cfg(not(target_os = "linux"))]
fn bind(_: &fs::File, session: &crate::path::HostPath) -> io::Result<(UnixListener, String)> {
    let path = session.join(SOCKET).to_string();
    Ok((UnixListener::bind(&path)?, path))
}

/// Serves guests. Dropping it ends all connections and the programs that they use.
pub struct PushGate {
    connections: Arc<Connections>,
    programs: RunningPrograms,
}

impl Drop for PushGate {
    fn drop(&mut self) {
        self.connections.close();
        self.programs.close();
        self.connections.await_end();
    }
}

#[derive(Default)]
struct Connections {
    open: Mutex<OpenConnections>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    is_closed: bool,
    next: u64,
    streams: BTreeMap<u64, UnixStream>,
}

impl Connections {
    /// Registers a connection; returns `None` if there are too many or the session has ended.
    fn add(&self, stream: &UnixStream) -> Option<u64> {
        let mut open = self.open.lock().ok()?;
        if open.is_closed || open.streams.len() >= MAX_CONNECTIONS {
            return None;
        }
        open.next += 1;
        let number = open.next;
        open.streams.insert(number, stream.try_clone().ok()?);
        Some(number)
    }

    fn remove(&self, number: u64) {
        if let Ok(mut open) = self.open.lock() {
            open.streams.remove(&number);
            self.ended.notify_all();
        }
    }

    /// Closes every connection.
    fn close(&self) {
        let Ok(mut open) = self.open.lock() else { return };
        open.is_closed = true;
        for stream in open.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until the threads of all connections have noticed it.
    fn await_end(&self) {
        let Ok(open) = self.open.lock() else { return };
        let _ = self.ended.wait_timeout_while(open, END_TIMEOUT, |open| !open.streams.is_empty());
    }
}

fn accept(listener: &UnixListener, transport: &Arc<Transport>, connections: &Arc<Connections>) {
    loop {
        let Ok((mut stream, _)) = listener.accept() else {
            // Too many open files, for example. The next connection may work.
            thread::sleep(RETRY_INTERVAL);
            continue;
        };
        let Some(number) = connections.add(&stream) else {
            refuse(&mut stream, "there are too many connections");
            continue;
        };
        let (transport, shared) = (transport.clone(), connections.clone());
        let served = thread::Builder::new().spawn(move || {
            let _ = handle(&transport, stream);
            shared.remove(number);
        });
        if served.is_err() {
            connections.remove(number);
        }
    }
}

/// Serves one connection.
fn handle(transport: &Transport, mut stream: UnixStream) -> io::Result<()> {
    let request = read_request(&mut stream)?;
    let parsed = request.split_once(' ').and_then(|(service, number)| Some((Service::parse(service)?, index(number)?)));
    let parsed = parsed.filter(|(_, number)| transport.remote(*number).is_ok());
    let Some((service, number)) = parsed else {
        let (what, reason) = (request, "no such service or remote".to_owned());
        transport.recorder.record(&PushRecord { verdict: Verdict::Refused, what, reason: reason.clone() });
        refuse(&mut stream, &reason);
        return Ok(());
    };
    let served = match service {
        Service::UploadPack => upload_pack::serve(transport, number, &mut stream),
        Service::ReceivePack => match transport.pushes.take() {
            Some(_slot) => receive_pack::serve(transport, number, &mut stream),
            None => Err(format!("more than {MAX_PUSHES} pushes at a time")),
        },
    };
    let name = transport.remote(number).map_or_else(|_| String::new(), |remote| remote.name.clone());
    let what = format!("{} of {name}", service.name());
    match served {
        Ok(()) if service == Service::UploadPack => {
            let reason = "a remote of this repository".to_owned();
            transport.recorder.record(&PushRecord { verdict: Verdict::Allowed, what, reason });
        }
        Ok(()) => {}
        Err(reason) => {
            transport.recorder.record(&PushRecord { verdict: Verdict::Failed, what, reason: reason.clone() });
            refuse(&mut stream, &reason);
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
    Ok(())
}

/// Reads the first line within limits of time and length.
fn read_request(stream: &mut UnixStream) -> io::Result<String> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let mut line = Vec::new();
    loop {
        let left = deadline.checked_duration_since(Instant::now()).ok_or(io::ErrorKind::TimedOut)?;
        let left = Timespec::try_from(left).map_err(|_| io::ErrorKind::TimedOut)?;
        if poll(&mut [PollFd::new(&*stream, PollFlags::IN)], Some(&left))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => return String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData.into()),
            _ if line.len() == MAX_REQUEST => return Err(io::ErrorKind::InvalidData.into()),
            [byte] => line.push(byte),
        }
    }
}

/// Reads the number of a remote as sandpen writes it.
fn index(text: &str) -> Option<usize> {
    text.parse::<usize>().ok().filter(|number| number.to_string() == text)
}

/// Tells the guest why there is no connection. It has no effect once there is one.
fn refuse(stream: &mut UnixStream, reason: &str) {
    let reason: String = escape(reason).chars().take(MAX_ERROR).collect();
    let _ = writeln!(stream, "error {reason}");
}
