//! Hands over a listening socket, so that a guest without a network reaches the proxy: its first
//! process binds the proxy's port on the guest's loopback and sends the socket out. The process
//! that receives it accepts the guest's connections without being in its network namespace, and no
//! relay copies the bytes a second time.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketType,
};

/// The name of the Unix socket in its directory.
const SOCKET: &str = "socket";
/// How many connections of the guest may wait to be accepted.
const BACKLOG: i32 = 4096;
/// How long either side may take to send its byte.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Binds the proxy's port on the loopback interface of the current network namespace.
pub fn bind(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Binds the port in the guest and sends the listening socket through the Unix socket in
/// `directory`. The returned connection must stay open: its end tells the other side that the guest
/// has exited.
pub fn offer(directory: &Path, port: u16) -> io::Result<UnixStream> {
    let listener = bind(port)?;
    let mut stream = UnixStream::connect(directory.join(SOCKET))?;
    stream.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    rustix::net::sendmsg(&stream, &[IoSlice::new(b"!")], &mut control, SendFlags::empty())?;
    // The command must not start before its connections are accepted.
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// A Unix socket that receives the guest's listening socket. Dropping it removes the Unix socket.
#[derive(Debug)]
pub struct ListenerInbox {
    listener: UnixListener,
    directory: OwnedFd,
}

impl ListenerInbox {
    /// Creates the Unix socket in a directory.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let directory: OwnedFd = fs::File::open(directory)?.into();
        // The path of the directory may be longer than a socket address allows.
        let path = Self::path(&directory);
        let listener = UnixListener::bind(&path)?;
        // The guest may be another user; no other process can reach the directory.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        Ok(ListenerInbox { listener, directory })
    }

    fn path(directory: &OwnedFd) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd())
    }

    /// Waits for the guest's listening socket. Any other descriptor is ignored.
    pub fn take(self) -> io::Result<(TcpListener, UnixStream)> {
        loop {
            let (mut stream, _) = self.listener.accept()?;
            stream.set_read_timeout(Some(HANDOVER_TIMEOUT))?;
            if let Some(listener) = receive(&stream) {
                stream.write_all(b"!")?;
                return Ok((listener, stream));
            }
        }
    }
}

impl Drop for ListenerInbox {
    fn drop(&mut self) {
        let _ = fs::remove_file(Self::path(&self.directory));
    }
}

fn receive(stream: &UnixStream) -> Option<TcpListener> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    let received = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut received) => received.next(),
        _ => None,
    });
    let socket = received.last()?;
    let is_listener = sockopt::socket_domain(&socket).ok()? == AddressFamily::INET
        && sockopt::socket_type(&socket).ok()? == SocketType::STREAM
        && sockopt::socket_acceptconn(&socket).ok()?;
    is_listener.then(|| TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::thread;

    #[test]
    fn a_listening_socket_is_handed_over() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let inbox = ListenerInbox::open(directory.path())?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let path = directory.path().to_owned();
        let guest = thread::spawn(move || offer(&path, port));
        let (listener, _stream) = inbox.take()?;
        let _kept = guest.join().map_err(|_| io::ErrorKind::Other)??;
        assert_eq!(listener.local_addr()?.port(), port);
        let mut client = TcpStream::connect(("127.0.0.1", port))?;
        client.write_all(b"x")?;
        let mut byte = [0];
        listener.accept()?.0.read_exact(&mut byte)?;
        assert_eq!(&byte, b"x");
        assert!(!directory.path().join(SOCKET).exists(), "the Unix socket is removed");
        Ok(())
    }

    #[test]
    fn only_a_listening_socket_is_accepted() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let inbox = ListenerInbox::open(directory.path())?;
        let path = directory.path().join(SOCKET);
        let file = fs::File::open("/dev/null")?;
        let connected = UnixStream::pair()?.0;
        for descriptor in [file.as_fd(), connected.as_fd()] {
            let stream = UnixStream::connect(&path)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let descriptors = [descriptor];
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            rustix::net::sendmsg(&stream, &[IoSlice::new(b"!")], &mut control, SendFlags::empty())?;
        }
        drop(UnixStream::connect(&path)?);
        let path = directory.path().to_owned();
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let guest = thread::spawn(move || offer(&path, port).map(|_| ()));
        assert_eq!(inbox.take()?.0.local_addr()?.port(), port);
        assert!(matches!(guest.join(), Ok(Ok(()))));
        Ok(())
    }
}
