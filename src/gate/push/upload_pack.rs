//! Serves fetches: the whole repository of a remote may be read, so bytes pass as they are.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use super::ssh::Version;
use super::transport::Transport;
use super::{OK, Service, http, relay, ssh};
use crate::plan::push::{HttpRemote, RemoteUrl, SshRemote};
use crate::process::copy_bytes;

pub fn serve(transport: &Transport, number: usize, guest: &mut UnixStream) -> Result<(), String> {
    match &transport.remote(number)?.url {
        RemoteUrl::Ssh(remote) => over_ssh(transport, remote, guest),
        RemoteUrl::Http(remote) => over_http(transport, remote, guest),
    }
}

fn over_ssh(transport: &Transport, remote: &SshRemote, guest: &mut UnixStream) -> Result<(), String> {
    let (process, mut streams) = ssh::start(transport, remote, Service::UploadPack, Version::Two)?;
    let mut first = vec![0; 4096];
    let count = streams.stdout.read(&mut first).unwrap_or(0);
    if count == 0 {
        drop(streams);
        return Err(ended(process.finish().1));
    }
    accept(guest, &first[..count])?;
    relay::relay(guest, streams.stdin, |guest| copy_bytes(&mut streams.stdout, guest));
    Ok(())
}

/// Lets the host's Git speak HTTP. Each request of the protocol's second version stands for itself,
/// so that requests over one connection can become requests over HTTP.
fn over_http(transport: &Transport, remote: &HttpRemote, guest: &mut UnixStream) -> Result<(), String> {
    let (process, mut streams) = http::start_fetch(transport, remote)?;
    let asked = writeln!(streams.stdin, "stateless-connect {}", Service::UploadPack.name());
    let mut answer = [0];
    match asked.and_then(|()| streams.stdout.read_exact(&mut answer)) {
        Ok(()) if answer == *b"\n" => {}
        Ok(()) => return Err("the server does not speak version 2 of Git's protocol".into()),
        Err(_) => {
            drop(streams);
            return Err(ended(process.finish().1));
        }
    }
    accept(guest, b"")?;
    let mut stdout = BufReader::with_capacity(64 << 10, streams.stdout);
    relay::relay(guest, streams.stdin, |guest| relay::copy_without_response_ends(&mut stdout, guest));
    Ok(())
}

/// Tells the guest's helper that the connection is made, and passes on the first bytes.
fn accept(guest: &mut UnixStream, first: &[u8]) -> Result<(), String> {
    let written = guest.write_all(&[OK, first].concat());
    written.map_err(|_| "the guest closed the connection".into())
}

/// Describes a program that ended before it sent anything.
pub fn ended(messages: String) -> String {
    if messages.is_empty() { "the connection to the server was closed".into() } else { messages }
}
