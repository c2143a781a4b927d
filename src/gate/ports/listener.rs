//! Finds the TCP sockets on which processes listen, in `/proc`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// More than a sandbox has, and few enough to print.
const MAX_LISTENERS: usize = 1024;
/// The kernel's names have at most 15 bytes.
const MAX_NAME_LENGTH: usize = 64;

/// A socket on which a process listens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listener {
    pub port: u16,
    pub address: IpAddr,
    /// The name of the process, which it can choose.
    pub program: String,
}

/// Parses a list that a process inside has made.
pub fn parse_list(json: &[u8]) -> Option<Vec<Listener>> {
    let mut listeners: Vec<Listener> = serde_json::from_slice(json).ok()?;
    listeners.truncate(MAX_LISTENERS);
    for listener in &mut listeners {
        listener.program = listener.program.chars().take(MAX_NAME_LENGTH).collect();
    }
    listeners.sort();
    listeners.dedup();
    Some(listeners)
}

#[cfg(target_os = "linux")]
pub use linux::{of_all_processes, of_processes};

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::path::Path;

    use super::{IpAddr, Listener, MAX_LISTENERS};

    /// The state of a listening socket in the kernel's tables.
    const LISTENING: &str = "0A";

    /// Lists the listening sockets of these processes, which are in one network.
    pub fn of_processes(processes: &[u32]) -> Vec<Listener> {
        let Some(first) = processes.first() else { return Vec::new() };
        find(&Path::new("/proc").join(first.to_string()).join("net"), processes)
    }

    /// Lists the listening sockets of all processes that are visible.
    pub fn of_all_processes() -> Vec<Listener> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        find(Path::new("/proc/self/net"), &processes)
    }

    fn find(tables: &Path, processes: &[u32]) -> Vec<Listener> {
        let mut sockets = BTreeMap::new();
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(tables.join(table)).unwrap_or_default();
            sockets.extend(text.lines().filter_map(parse_line));
        }
        // Only sockets that one of the processes holds: the network may be shared with others.
        let mut listeners: Vec<Listener> = Vec::new();
        for process in processes {
            let directory = Path::new("/proc").join(process.to_string());
            let files = fs::read_dir(directory.join("fd")).into_iter().flatten().flatten();
            let held = files.filter_map(|file| inode(fs::read_link(file.path()).ok()?.to_str()?));
            let found: Vec<(IpAddr, u16)> = held.filter_map(|inode| sockets.get(&inode).copied()).collect();
            if !found.is_empty() {
                let name = fs::read(directory.join("comm")).unwrap_or_default();
                let program = String::from_utf8_lossy(name.trim_ascii_end()).into_owned();
                listeners.extend(found.iter().map(|(address, port)| Listener {
                    port: *port,
                    address: *address,
                    program: program.clone(),
                }));
            }
        }
        listeners.sort();
        listeners.dedup();
        listeners.truncate(MAX_LISTENERS);
        listeners
    }

    /// Parses the target of a descriptor's link, as in `socket:[4711]`.
    fn inode(link: &str) -> Option<u64> {
        link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }

    /// Parses a line of `/proc/net/tcp` or `tcp6`; `None` if its socket does not listen.
    fn parse_line(line: &str) -> Option<(u64, (IpAddr, u16))> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let (address, port) = local.split_once(':').filter(|_| *state == LISTENING)?;
        Some((inode.parse().ok()?, (parse_address(address)?, u16::from_str_radix(port, 16).ok()?)))
    }

    /// Parses an address, which the kernel prints as numbers of 32 bits in the machine's byte order.
    fn parse_address(text: &str) -> Option<IpAddr> {
        let words = text.as_bytes().chunks(8).map(|word| {
            let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
            Some(word.to_ne_bytes())
        });
        let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
        match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(bytes) => Some(Ipv4Addr::from(bytes).into()),
            Err(_) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).into()),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernels_tables_are_parsed() {
            let lines =
                "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0
   1: 0100007F:0BB9 0100007F:1234 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0 0 10 0
   2: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4713 1 0
   3: nonsense";
            let found: Vec<_> = lines.lines().filter_map(parse_line).collect();
            if cfg!(target_endian = "little") {
                let expected: [(u64, (IpAddr, u16)); 2] =
                    [(4711, (Ipv4Addr::LOCALHOST.into(), 3000)), (4713, (Ipv6Addr::LOCALHOST.into(), 22))];
                assert_eq!(found, expected);
            }
        }

        #[test]
        fn own_listeners_are_found() -> std::io::Result<()> {
            let sockets = [std::net::TcpListener::bind("127.0.0.1:0")?, std::net::TcpListener::bind("0.0.0.0:0")?];
            let found = of_processes(&[std::process::id()]);
            for socket in &sockets {
                let address = socket.local_addr()?;
                let is_it = |found: &Listener| (found.address, found.port) == (address.ip(), address.port());
                assert!(found.iter().any(is_it), "{address} in {found:?}");
            }
            // Another process holds none of them.
            let ports = sockets.map(|socket| socket.local_addr().map(|address| address.port()));
            let others = of_processes(&[1]);
            assert!(!others.iter().any(|other| ports.iter().flatten().any(|port| other.port == *port)));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_from_inside_are_limited() {
        let entry = format!(r#"{{"port":1,"address":"::1","program":"{}"}}"#, "x".repeat(10_000));
        let list = parse_list(format!("[{entry}]").as_bytes()).unwrap_or_default();
        assert_eq!(list.iter().map(|listener| listener.program.len()).collect::<Vec<_>>(), [MAX_NAME_LENGTH]);
        assert_eq!(parse_list(b"[{\"port\":1,\"address\":\"example.org\",\"program\":\"x\"}]"), None);
        assert_eq!(parse_list(b"nonsense"), None);
    }
}
