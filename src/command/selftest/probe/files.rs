//! Tries files and sockets.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::command::selftest::probe::Order;
use crate::facts::count_agent_keys;

/// What can be read of each file, a little of it.
pub fn read(files: &[String]) -> BTreeMap<String, String> {
    let start = |file: &String| {
        let mut start = Vec::new();
        fs::File::open(file).ok()?.take(64).read_to_end(&mut start).ok()?;
        Some((file.clone(), String::from_utf8_lossy(&start).into_owned()))
    };
    files.iter().filter_map(start).collect()
}

/// Plants a file in each directory; the ones where it worked.
pub fn plant(order: &Order) -> Vec<String> {
    let plant = |directory: &&String| fs::write(Path::new(directory).join(&order.name), &order.word).is_ok();
    order.plant.iter().filter(plant).cloned().collect()
}

/// Connects to each socket; the ones that accept.
pub fn connect(sockets: &[String]) -> Vec<String> {
    sockets.iter().filter(|socket| UnixStream::connect(socket).is_ok()).cloned().collect()
}

/// Asks each for its keys, and the one that the environment names.
pub fn ask_agents(sockets: &[String]) -> BTreeMap<String, u32> {
    let named = std::env::var("SSH_AUTH_SOCK").ok().filter(|socket| !socket.is_empty());
    sockets
        .iter()
        .cloned()
        .chain(named)
        .filter_map(|socket| Some((socket.clone(), count_agent_keys(Path::new(&socket)).ok()?)))
        .collect()
}
