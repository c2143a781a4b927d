//! Serves what pip has cached as a package index on the sandbox's loopback (hidden subcommand
//! `package-index`), for a sandbox without a network: pip asks an index for every name, and has no way
//! to look into its own cache. Runs inside, as the guest: everything that it reads is the guest's.

mod archive;
mod cache;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use cache::CachedFile;

use crate::plan::{CONTROL_DIR, PACKAGE_INDEX_PORT, PackageIndex};

/// What a request may have before its empty line.
const MAX_REQUEST: u64 = 16 << 10;
/// How long a client may take to send its request, and to take each part of the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// An index whose port is bound, and which no process serves yet. Connections wait.
pub struct BoundIndex {
    listener: TcpListener,
    directory: String,
}

impl BoundIndex {
    /// Returns `None` if the port is in use; then pip finds nothing, as without an index.
    pub fn bind(index: &PackageIndex) -> Option<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PACKAGE_INDEX_PORT)).ok()?;
        Some(BoundIndex { listener, directory: index.directory.clone() })
    }

    /// Starts a process that serves it until the sandbox ends. It is another program, because the guest
    /// may trace it, and this process may contain what the guest must not see.
    pub fn serve(self) {
        let mut server = Command::new(Path::new(CONTROL_DIR).join("sandpen"));
        server.arg("package-index").arg(self.directory).env_clear().process_group(0);
        server.stdin(OwnedFd::from(self.listener)).stdout(Stdio::null()).stderr(Stdio::null());
        drop(server.spawn());
    }
}

/// The server's `main`, with the directory of pip's cache as its argument and the listener as stdin.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let [directory] = arguments else { return ExitCode::from(2) };
    let Ok(listener) = rustix::io::dup(rustix::stdio::stdin()).map(TcpListener::from) else {
        return ExitCode::FAILURE;
    };
    let index = Arc::new(Index { directory: directory.into(), files: OnceLock::new() });
    for client in listener.incoming() {
        match client {
            Ok(client) => {
                let index = index.clone();
                let _ = thread::Builder::new().spawn(move || index.answer(&client));
            }
            // No descriptor is left, or the client is gone.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
    ExitCode::SUCCESS
}

struct Index {
    directory: PathBuf,
    /// Looked for at the first request: without a network none is added.
    files: OnceLock<Vec<CachedFile>>,
}

impl Index {
    fn answer(&self, client: &TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let mut lines = BufReader::new(client.take(MAX_REQUEST)).lines();
        let request = lines.next().transpose()?.unwrap_or_default();
        for line in lines {
            if line?.is_empty() {
                break;
            }
        }
        let path = request.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
        let files = self.files.get_or_init(|| cache::find(&self.directory));
        if let Some(project) = path.strip_prefix("/simple/") {
            let project = archive::normalized(project.trim_end_matches('/'));
            let links: String =
                files.iter().filter(|file| file.project == project && file.path.exists()).map(link).collect();
            if !links.is_empty() {
                let page = format!("<!DOCTYPE html>\n<html><body>\n{links}</body></html>\n");
                return send(client, "200 OK", "text/html", page.len() as u64, &mut page.as_bytes());
            }
        }
        let requested = path.strip_prefix("/file/");
        let found = requested.and_then(|path| files.iter().find(|file| path == place(file)));
        if let Some((file, mut content)) = found.and_then(|file| Some((file, open(file).ok()?))) {
            return send(client, "200 OK", "application/octet-stream", file.length, &mut content);
        }
        send(client, "404 Not Found", "text/plain", 0, &mut io::empty())
    }
}

/// The path of a file below `/file/`. It is the same in each sandbox, because pip keeps what it builds
/// from a file under its address.
fn place(file: &CachedFile) -> String {
    format!("{}/{}", file.place, file.name)
}

/// Names have letters, digits and `-_.+!` only, so nothing is escaped.
fn link(file: &CachedFile) -> String {
    format!("<a href=\"/file/{}\">{}</a>\n", place(file), file.name)
}

fn open(file: &CachedFile) -> io::Result<impl Read + use<>> {
    let mut content = File::open(&file.path)?;
    content.seek(SeekFrom::Start(file.offset))?;
    Ok(content.take(file.length))
}

fn send(mut client: &TcpStream, status: &str, kind: &str, length: u64, body: &mut dyn Read) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    client.write_all(head.as_bytes())?;
    io::copy(body, &mut client).map(drop)
}
