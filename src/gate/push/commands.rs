//! Reads the list of ref updates that a guest sends before its pack, strictly: whatever is not known
//! ends the connection.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

use super::advertisement::{Advertisement, object_id};
use super::pkt_line::{Packet, malformed};
use crate::config::value::{RefChange, is_ref_name};

const MAX_UPDATES: usize = 4096;
const MAX_SHALLOW: usize = 100_000;
const MAX_NAME: usize = 4096;
/// The list has at most this size: it is kept in memory.
const MAX_SIZE: usize = 4 << 20;

/// An update of a ref that a guest asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    pub old: String,
    pub new: String,
    pub name: String,
}

impl RefUpdate {
    pub fn change(&self) -> RefChange {
        match (is_zero(&self.old), is_zero(&self.new)) {
            (true, _) => RefChange::Create,
            (false, true) => RefChange::Delete,
            (false, false) => RefChange::Update,
        }
    }
}

/// What a guest sends before its pack.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandList {
    /// Commits whose parents the guest's repository lacks.
    pub shallow: Vec<String>,
    pub updates: Vec<RefUpdate>,
    capabilities: Vec<String>,
}

impl CommandList {
    /// Reads the list. It is empty if the guest has nothing to push.
    pub fn read(guest: &mut impl Read, offered: &Advertisement) -> io::Result<Self> {
        let mut list = CommandList::default();
        let (mut names, mut size) = (BTreeSet::new(), 0);
        loop {
            let content = match Packet::read(guest)? {
                Packet::Data(content) => content,
                Packet::Flush => return Ok(list),
                Packet::Delimiter | Packet::ResponseEnd => return Err(malformed()),
            };
            size += content.len();
            if size > MAX_SIZE {
                return Err(io::Error::other("the list of updates is too long"));
            }
            let line = content.strip_suffix(b"\n").unwrap_or(&content);
            if let Some(id) = line.strip_prefix(b"shallow ") {
                let id = object_id(id, offered.id_len).ok_or_else(malformed)?;
                list.shallow.push(id);
                if !list.updates.is_empty() || list.shallow.len() > MAX_SHALLOW {
                    return Err(malformed());
                }
                continue;
            }
            let line = if list.updates.is_empty() { list.first(line, offered)? } else { line };
            let update = update(line, offered.id_len).ok_or_else(malformed)?;
            if !names.insert(update.name.clone()) || list.updates.len() == MAX_UPDATES {
                return Err(malformed());
            }
            list.updates.push(update);
        }
    }

    /// Reads the capabilities of the first update; returns the rest of the line.
    fn first<'a>(&mut self, line: &'a [u8], offered: &Advertisement) -> io::Result<&'a [u8]> {
        let Some(end) = line.iter().position(|byte| *byte == 0) else { return Ok(line) };
        let text = std::str::from_utf8(&line[end + 1..]).map_err(|_| malformed())?;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            if !offered.offers(word) || word.chars().any(char::is_control) {
                return Err(io::Error::other("the guest uses what it was not offered"));
            }
            self.capabilities.push(word.to_owned());
        }
        Ok(&line[..end])
    }

    pub fn uses(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|used| used == capability)
    }

    pub fn wants_report(&self) -> bool {
        self.uses("report-status") || self.uses("report-status-v2")
    }

    /// Tells whether a pack follows.
    pub fn has_pack(&self) -> bool {
        self.updates.iter().any(|update| update.change() != RefChange::Delete)
    }

    /// Writes the list for the server. Nothing is passed on that was not understood.
    pub fn write(&self, server: &mut impl Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        for id in &self.shallow {
            Packet::line(&format!("shallow {id}")).write(&mut bytes)?;
        }
        for (number, RefUpdate { old, new, name }) in self.updates.iter().enumerate() {
            let capabilities = match number {
                0 => format!("\0 {}", self.capabilities.join(" ")),
                _ => String::new(),
            };
            Packet::Data(format!("{old} {new} {name}{capabilities}").into_bytes()).write(&mut bytes)?;
        }
        Packet::Flush.write(&mut bytes)?;
        server.write_all(&bytes)
    }
}

/// Parses `OLD NEW REF`.
fn update(line: &[u8], id_len: usize) -> Option<RefUpdate> {
    let (old, rest) = line.split_at_checked(id_len)?;
    let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(id_len)?;
    let (old, new) = (object_id(old, id_len)?, object_id(new, id_len)?);
    let name = std::str::from_utf8(rest.strip_prefix(b" ")?).ok()?;
    let is_valid = name.len() <= MAX_NAME && is_ref_name(name) && !(is_zero(&old) && is_zero(&new));
    is_valid.then(|| RefUpdate { old, new, name: name.to_owned() })
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

#[cfg(test)]
mod tests {
    use super::super::advertisement::tests::{OLD, advertised};
    use super::*;
    use proptest::prelude::*;

    const NEW: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn offered() -> Advertisement {
        let bytes = advertised(&[&format!("{OLD} refs/heads/main\0report-status atomic agent=git/2")]);
        Advertisement::read(&mut bytes.as_slice()).expect("a list")
    }

    fn read(lines: &[String]) -> io::Result<CommandList> {
        let mut bytes = Vec::new();
        for line in lines {
            Packet::Data(line.clone().into_bytes()).write(&mut bytes).expect("memory");
        }
        bytes.extend_from_slice(b"0000");
        CommandList::read(&mut bytes.as_slice(), &offered())
    }

    #[test]
    fn what_git_sends_is_read_and_written_again() {
        let lines = [
            format!("shallow {OLD}"),
            format!("{ZERO} {NEW} refs/heads/a\0 report-status atomic agent=git/9"),
            format!("{OLD} {ZERO} refs/heads/b"),
            format!("{OLD} {NEW} refs/heads/ü"),
        ];
        let list = read(&lines).expect("a list");
        assert_eq!(
            list.updates.iter().map(RefUpdate::change).collect::<Vec<_>>(),
            [RefChange::Create, RefChange::Delete, RefChange::Update]
        );
        assert!(list.wants_report() && list.uses("atomic") && list.has_pack());
        let mut bytes = Vec::new();
        list.write(&mut bytes).expect("memory");
        assert_eq!(CommandList::read(&mut bytes.as_slice(), &offered()).expect("a list"), list);
    }

    #[test]
    fn everything_else_ends_the_connection() {
        for lines in [
            vec![format!("{ZERO} {NEW} refs/heads/a\0push-options")],
            vec![format!("{ZERO} {NEW} refs/heads/a\0object-format=sha256")],
            vec![format!("{ZERO} {NEW} main")],
            vec![format!("{ZERO} {NEW} refs/heads/../a")],
            vec![format!("{ZERO} {NEW} refs/heads/a b")],
            vec![format!("{ZERO} {ZERO} refs/heads/a")],
            vec![format!("{ZERO} {} refs/heads/a", NEW.to_uppercase().replace('2', "A"))],
            vec![format!("{ZERO}  {NEW} refs/heads/a")],
            vec![format!("{ZERO} {NEW} refs/heads/a"), format!("{ZERO} {NEW} refs/heads/a")],
            vec![format!("{ZERO} {NEW} refs/heads/a"), format!("{ZERO} {NEW} refs/heads/b\0atomic")],
            vec![format!("{ZERO} {NEW} refs/heads/a"), format!("shallow {OLD}")],
            vec!["push-cert\0report-status".to_owned()],
            (0..=MAX_UPDATES).map(|number| format!("{ZERO} {NEW} refs/heads/{number}")).collect(),
            (0..2000).map(|number| format!("{ZERO} {NEW} refs/heads/{number}{}", "x".repeat(4000))).collect(),
        ] {
            assert!(read(&lines).is_err(), "{:?}", lines.first());
        }
        assert_eq!(read(&[]).expect("nothing"), CommandList::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = CommandList::read(&mut bytes.as_slice(), &offered());
        }

        #[test]
        fn what_is_read_is_written_as_it_was_meant(lines in prop::collection::vec("[01]{40} [012]{40} refs/heads/[a-z./]{1,8}", 0..4)) {
            if let Ok(list) = read(&lines) {
                let mut bytes = Vec::new();
                list.write(&mut bytes).expect("memory");
                prop_assert_eq!(CommandList::read(&mut bytes.as_slice(), &offered()).expect("a list"), list);
            }
        }
    }
}
