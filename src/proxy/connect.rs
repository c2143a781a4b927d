//! Runs `sandpen connect HOST PORT` inside the sandbox, as the ProxyCommand of ssh: asks the proxy
//! for a tunnel and connects it with stdin and stdout.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::thread;

use super::protocol::PROXY_PORT;
use super::request::MAX_HEAD;
use crate::ui::escape::escape;

/// Takes the arguments after `connect`.
pub fn connect(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut next = || arguments.next().and_then(|argument| argument.into_string().ok());
    let (Some(host), Some(port)) = (next(), next()) else { return ExitCode::from(2) };
    match tunnel(&host, &port) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn tunnel(host: &str, port: &str) -> io::Result<()> {
    // ssh passes IPv6 addresses without brackets.
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_ascii_lowercase() };
    let mut proxy = TcpStream::connect(("127.0.0.1", PROXY_PORT))?;
    let _ = proxy.set_nodelay(true);
    proxy.write_all(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").as_bytes())?;
    let head = read_head(&mut proxy)?;
    let status_line = head.lines().next().unwrap_or_default();
    let mut parts = status_line.splitn(3, ' ').skip(1);
    if parts.next() != Some("200") {
        let reason = parts.next().unwrap_or("no answer from the proxy");
        return Err(io::Error::other(escape(reason).into_owned()));
    }
    let mut upstream = proxy.try_clone()?;
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut upstream);
        let _ = upstream.shutdown(Shutdown::Write);
    });
    // Flushed after every read, because ssh waits for single packets.
    let mut stdout = io::stdout().lock();
    let mut buffer = vec![0; 32 * 1024];
    loop {
        match proxy.read(&mut buffer)? {
            0 => return Ok(()),
            length => {
                stdout.write_all(&buffer[..length])?;
                stdout.flush()?;
            }
        }
    }
}

/// Reads byte by byte, because the bytes after the head belong to ssh.
fn read_head(proxy: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD {
        proxy.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
