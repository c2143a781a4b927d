//! The echo server of the self-test: it repeats whatever a request has, so that the probe sees whether a
//! value comes back. It is a process of its own, because the launcher has no threads before it forks.

#![allow(clippy::disallowed_methods, reason = "starts this program itself")]

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use rustls::{ServerConfig, StreamOwned};

use super::canary::PREFIX;
use crate::host::Host;
use crate::path::HostPath;
use crate::session_id::random_name;
use crate::tls::{Authority, Roots, accept, server_config};

/// The name of the server, which is always this machine.
pub const HOST: &str = "localhost";
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REQUEST: u64 = 64 * 1024;
/// The server prints this line when a request had the value.
const SEEN: &str = "seen";

/// The running server.
#[derive(Debug)]
pub struct EchoServer {
    pub port: u16,
    process: Child,
    output: BufReader<ChildStdout>,
    /// Has the roots of this machine and the server's authority.
    directory: HostPath,
}

impl EchoServer {
    /// Starts the server, which ends with this process.
    pub fn start(host: &Host, value: &str) -> io::Result<Self> {
        let program = host.executable.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let directory = host.temp_dir().join(format!("{PREFIX}{}-{}", host.process.pid, random_name()));
        DirBuilder::new().mode(0o700).create(directory.as_path())?;
        let mut command = Command::new(program.as_path());
        command.args(["probe", "echo"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut server = EchoServer { port: 0, process, output: BufReader::new(output), directory };
        let input = server.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(input, "{value}")?;
        let mut line = String::new();
        server.output.read_line(&mut line)?;
        server.port = line.trim().parse().map_err(io::Error::other)?;
        let mut roots = Roots::read(&host.env).map_err(io::Error::other)?.pem().to_vec();
        while !line.starts_with("-----END") {
            line.clear();
            if server.output.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            roots.extend_from_slice(line.as_bytes());
        }
        fs::write(server.roots().as_path(), roots)?;
        Ok(server)
    }

    /// Returns the bundle by which the launcher trusts the server.
    pub fn roots(&self) -> HostPath {
        self.directory.join("roots.pem")
    }

    /// Ends the server. Tells whether it received the value.
    pub fn has_seen_value(&mut self) -> bool {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        let _ = self.output.read_to_string(&mut rest);
        rest.lines().any(|line| line == SEEN)
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(self.directory.as_path());
    }
}

/// Runs the server: reads the value, prints its port and its authority, and serves until its input ends.
pub fn serve() -> ExitCode {
    let run = || -> io::Result<()> {
        let mut value = String::new();
        io::stdin().read_line(&mut value)?;
        let value = value.trim().to_owned();
        let authority = Authority::new(&[HOST.to_owned()]).map_err(io::Error::other)?;
        let config = server_config(&authority, HOST).map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut to_parent = io::stdout();
        write!(to_parent, "{}\n{}", listener.local_addr()?.port(), authority.pem())?;
        to_parent.flush()?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut report = || writeln!(to_parent, "{SEEN}").and_then(|()| to_parent.flush());
                let _ = answer(stream, &config, &value, &mut report);
            }
        });
        io::copy(&mut io::stdin(), &mut io::sink()).map(|_| ())
    };
    ExitCode::from(u8::from(run().is_err()))
}

/// Answers one request with all that it has, as servers repeat it: in the status, a header, and a body in
/// small chunks, in capital letters and in Base64. Reports a request that has the value before that.
fn answer(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    value: &str,
    report: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let (socket, connection) = accept(config.clone(), stream, &[], Instant::now() + TIMEOUT)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut tls = BufReader::new(StreamOwned::new(connection, socket).take(MAX_REQUEST));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if tls.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    };
    let mut body = vec![0; header("content-length").parse::<u16>().unwrap_or(0).into()];
    tls.read_exact(&mut body)?;
    if head.contains(value) {
        report()?;
    }
    let credential = header("authorization");
    let request = [head.as_bytes(), &body].concat();
    let text =
        [&request[..], &request.to_ascii_uppercase(), Base64::encode_string(&request).as_bytes(), b"\n"].concat();
    let mut out = tls.into_inner().into_inner();
    write!(out, "HTTP/1.1 200 {credential}\r\nX-Echo: {credential}\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for part in text.chunks(7) {
        write!(out, "{:x}\r\n", part.len())?;
        out.write_all(part)?;
        out.write_all(b"\r\n")?;
        out.flush()?;
    }
    out.write_all(b"0\r\n\r\n")?;
    out.flush()
}
