//! Unix sockets whose path is longer than a socket's address allows: they are reached through a
//! descriptor of their directory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The most bytes of a path that every system takes.
const MAX_LENGTH: usize = 100;

/// Listens on a new socket.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    with_short(path, |path| UnixListener::bind(path))
}

/// Connects to a socket.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    with_short(path, |path| UnixStream::connect(path))
}

fn with_short<T>(path: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return call(path) };
    if path.as_os_str().len() <= MAX_LENGTH {
        return call(path);
    }
    let directory = File::open(directory)?;
    call(&PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn paths_of_any_length_work() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let fixed = directory.path().join("x/s").as_os_str().len() - 1;
        // An address has room for 107 bytes.
        for length in [MAX_LENGTH, MAX_LENGTH + 1, 107, 108, 109, 250] {
            let parent = directory.path().join("d".repeat(length - fixed));
            std::fs::create_dir(&parent)?;
            let path = parent.join("s");
            assert_eq!(path.as_os_str().len(), length);
            let _listener = bind(&path)?;
            connect(&path)?;
        }
        Ok(())
    }
}
