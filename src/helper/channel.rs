//! The end of the channel inside a container (hidden subcommand `channel`): makes sockets, and relays
//! each connection to the launcher over stdin and stdout. Other users inside can neither trace it nor,
//! if it is root, remove its sockets.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::stdio::{stdin, stdout};

use crate::channel::{Channel, ChannelError, CloseReason, Endpoint, Side, StreamKind};

/// A socket, and the kind of stream that each of its connections becomes.
struct Listener {
    kind: StreamKind,
    socket: Socket,
}

enum Socket {
    Local(UnixListener),
    Port(TcpListener),
}

/// Where a socket is made.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Path(PathBuf),
    /// A port of the loopback.
    Port(u16),
}

impl Socket {
    fn listen(place: &Place) -> io::Result<Self> {
        match place {
            Place::Path(path) => listen(path).map(Socket::Local),
            Place::Port(port) => {
                let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, *port))?;
                socket.set_nonblocking(true)?;
                Ok(Socket::Port(socket))
            }
        }
    }

    fn accept(&self) -> io::Result<Endpoint> {
        match self {
            Socket::Local(socket) => socket.accept().and_then(|(stream, _)| Endpoint::socket(stream)),
            Socket::Port(socket) => socket.accept().and_then(|(stream, _)| Endpoint::tcp(stream)),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Local(socket) => socket.as_fd(),
            Socket::Port(socket) => socket.as_fd(),
        }
    }
}

/// Serves the sockets that the arguments name as KIND=PATH or KIND=PORT, until the launcher closes the channel.
pub fn main(arguments: &[OsString]) -> ExitCode {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    let Some(sockets) = arguments.iter().map(parse).collect::<Option<Vec<_>>>() else { return ExitCode::from(2) };
    let mut listeners = Vec::new();
    for (kind, place) in sockets {
        match Socket::listen(&place) {
            Ok(socket) => listeners.push(Listener { kind, socket }),
            Err(error) => return fail(&format!("cannot listen on {place}: {error}")),
        }
    }
    match serve(&listeners) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn parse(argument: &OsString) -> Option<(StreamKind, Place)> {
    let (kind, place) = argument.to_str()?.split_once('=')?;
    let place = match place.parse() {
        Ok(port) => Place::Port(port),
        Err(_) => Place::Path(Path::new(place).is_absolute().then(|| place.into())?),
    };
    Some((StreamKind::from_name(kind)?, place))
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Path(path) => path.display().fmt(out),
            Place::Port(port) => write!(out, "port {port}"),
        }
    }
}

fn fail(reason: &str) -> ExitCode {
    let _ = io::Write::write_all(&mut io::stderr(), format!("sandpen: {reason}\n").as_bytes());
    ExitCode::FAILURE
}

/// Makes a socket for all users inside. It appears at its path when it listens, in place of one that an
/// earlier process left there.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    if path.symlink_metadata().is_ok_and(|meta| !meta.file_type().is_socket()) {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let mut name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    let socket = bind(&unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o666))?;
    rename(&unfinished, path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Makes a change in a directory of root that root itself may not write to without capabilities. Podman's
/// `/` is one.
fn with_writable<T>(path: &Path, change: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match change() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        changed => return changed,
    }
    let directory = path.parent().ok_or(ErrorKind::InvalidInput)?;
    let mode = fs::metadata(directory)?.permissions().mode();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o200))?;
    let changed = change();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode))?;
    changed
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    with_writable(path, || UnixListener::bind(path))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    with_writable(from, || fs::rename(from, to))
}

fn serve(listeners: &[Listener]) -> Result<(), ChannelError> {
    let mut channel = Channel::new(Side::Sandbox, stdin().try_clone_to_owned()?, stdout().try_clone_to_owned()?)?;
    loop {
        // Further connections wait until there is room.
        let with_room: Vec<&Listener> = listeners.iter().filter(|listener| channel.has_room(listener.kind)).collect();
        let watched: Vec<BorrowedFd<'_>> = with_room.iter().map(|listener| listener.socket.as_fd()).collect();
        let step = channel.step(&watched, &mut |_, _| Err(CloseReason::Refused))?;
        if step.is_over {
            return Ok(());
        }
        for listener in step.ready.iter().filter_map(|number| with_room.get(*number)) {
            match listener.socket.accept() {
                // A connection for which there is no room is closed.
                Ok(endpoint) => drop(channel.open(listener.kind, &[], endpoint)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_kinds_and_absolute_paths_or_ports() {
        let parsed = |text: &str| parse(&text.into());
        assert_eq!(parsed("agent=/ssh-agent"), Some((StreamKind::Agent, Place::Path("/ssh-agent".into()))));
        assert_eq!(parsed("proxy=8877"), Some((StreamKind::Proxy, Place::Port(8877))));
        for wrong in ["agent", "agent=", "agent=ssh-agent", "proxy=88770", "root=/x", "=/x"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_socket_replaces_a_socket_and_no_other_file() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("s");
        drop(listen(&path)?);
        let _listener = listen(&path)?;
        std::os::unix::net::UnixStream::connect(&path)?;
        assert_eq!(fs::read_dir(directory.path())?.count(), 1);
        let file = directory.path().join("file");
        fs::write(&file, "content")?;
        assert!(listen(&file).is_err());
        Ok(())
    }
}
