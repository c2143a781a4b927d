//! Tries to read files, write files and connect to sockets.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::Request;
use crate::facts;

/// Returns the first bytes of each file that can be read.
pub fn read(files: &[String]) -> BTreeMap<String, String> {
    let start = |file: &String| {
        let mut start = Vec::new();
        fs::File::open(file).ok()?.take(64).read_to_end(&mut start).ok()?;
        Some((file.clone(), String::from_utf8_lossy(&start).into_owned()))
    };
    files.iter().filter_map(start).collect()
}

/// Writes a file to each directory and returns the directories where that worked.
pub fn plant(request: &Request) -> Vec<String> {
    let plant = |directory: &&String| fs::write(Path::new(directory).join(&request.file_name), &request.token).is_ok();
    request.plant.iter().filter(plant).cloned().collect()
}

/// Returns the sockets that accept a connection.
pub fn connect(sockets: &[String]) -> Vec<String> {
    sockets.iter().filter(|socket| UnixStream::connect(socket).is_ok()).cloned().collect()
}

/// Counts the keys of the agents at these sockets and at SSH_AUTH_SOCK.
pub fn count_agent_keys(sockets: &[String]) -> BTreeMap<String, u32> {
    let named = std::env::var("SSH_AUTH_SOCK").ok().filter(|socket| !socket.is_empty());
    sockets
        .iter()
        .cloned()
        .chain(named)
        .filter_map(|socket| Some((socket.clone(), facts::count_agent_keys(Path::new(&socket)).ok()?)))
        .collect()
}
