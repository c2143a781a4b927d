//! `git-remote-sandpen`, which Git inside starts for the remotes of the repository: it connects to
//! the launcher's socket, names a service and a remote, and passes bytes on.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use crate::plan::CONTROL_DIR;
use crate::plan::push::{LFS_ARGUMENT, SOCKET};
use crate::process::copy_bytes;

const MAX_LINE: usize = 4096;
/// Git's exit code for fatal errors.
const FATAL: u8 = 128;

/// The helper's `main`, with the arguments that Git gives: the name of a remote and its URL. Git LFS gives
/// another one.
pub fn main(arguments: &[OsString]) -> ExitCode {
    if let [argument] = arguments
        && argument == LFS_ARGUMENT
    {
        return refuse_lfs();
    }
    let number = arguments.get(1).and_then(|number| number.to_str()).unwrap_or_default();
    match serve(number) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "fatal: sandpen: {reason}");
            ExitCode::from(FATAL)
        }
    }
}

/// Answers as a transfer agent of Git LFS that cannot start, so that LFS shows the reason.
fn refuse_lfs() -> ExitCode {
    let message = "sandpen: --push does not carry files of Git LFS: fetch and push them outside";
    let error = serde_json::json!({"error": {"code": FATAL, "message": message}});
    match writeln!(io::stdout(), "{error}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(FATAL),
    }
}

fn serve(number: &str) -> Result<(), String> {
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(
            "only the exact URL of a remote of this repository is reached with --push, not one that begins like it"
                .into(),
        );
    }
    let failed = |error: io::Error| format!("Git's transport: {error}");
    let mut stdin = open(rustix::stdio::stdin()).map_err(failed)?;
    let mut stdout = open(rustix::stdio::stdout()).map_err(failed)?;
    while let Some(line) = read_line(&mut stdin).map_err(failed)? {
        match line.split_once(' ') {
            None if line == "capabilities" => stdout.write_all(b"connect\n\n").map_err(failed)?,
            None if line.is_empty() => return Ok(()),
            Some(("connect", service)) => return connect(service, number, stdin, stdout),
            _ => return Err(format!("`{line}` is not possible with --push")),
        }
    }
    Ok(())
}

fn connect(service: &str, number: &str, mut stdin: File, mut stdout: File) -> Result<(), String> {
    if !["git-upload-pack", "git-receive-pack"].contains(&service) {
        return Err(format!("`{service}` is not possible with --push"));
    }
    let failed = |error: io::Error| format!("the launcher does not answer: {error}");
    let mut stream = UnixStream::connect(Path::new(CONTROL_DIR).join(SOCKET)).map_err(failed)?;
    writeln!(stream, "{service} {number}").map_err(failed)?;
    let answer = read_line(&mut stream).map_err(failed)?.unwrap_or_default();
    if answer != "ok" {
        return Err(answer.strip_prefix("error ").unwrap_or("the launcher closed the connection").to_owned());
    }
    // An empty line tells Git that it speaks to the server from now on.
    stdout.write_all(b"\n").map_err(failed)?;
    let mut to_server = stream.try_clone().map_err(failed)?;
    thread::spawn(move || {
        let _ = copy_bytes(&mut stdin, &mut to_server);
        let _ = to_server.shutdown(Shutdown::Write);
    });
    // Git may close its side before the server does.
    let _ = copy_bytes(&mut stream, &mut stdout);
    Ok(())
}

/// Opens a standard stream without a buffer.
fn open(stream: BorrowedFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// Reads a line byte by byte, because what follows it belongs to the other side.
fn read_line(reader: &mut impl Read) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while reader.read(&mut byte)? == 1 {
        match byte {
            [b'\n'] => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            _ if line.len() == MAX_LINE => return Err(io::ErrorKind::InvalidData.into()),
            [byte] => line.push(byte),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_they_end() {
        let mut reader = &b"connect a\n0014"[..];
        assert_eq!(read_line(&mut reader).expect("memory"), Some("connect a".into()));
        assert_eq!(reader, b"0014");
        assert_eq!(read_line(&mut &b""[..]).expect("memory"), None);
        assert!(read_line(&mut vec![b'a'; 5000].as_slice()).is_err());
    }

    #[test]
    fn only_a_number_is_a_remote() {
        for text in ["", "0-secret", "0/../1", "-1", "0.git", " 0"] {
            assert!(serve(text).is_err(), "{text}");
        }
    }
}
