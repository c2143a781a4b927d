//! Reads the list of refs with which a server begins, and passes it on to the guest without the
//! capabilities that the gate does not know.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use super::pkt_line::{Packet, malformed};

/// The list of refs of a server has at most this size.
const MAX_SIZE: usize = 128 << 20;
/// What the guest may use of a server. Others, such as push options and signed pushes, would carry
/// what the rules say nothing about.
const ALLOWED: &[&str] =
    &["report-status", "report-status-v2", "delete-refs", "side-band-64k", "quiet", "atomic", "ofs-delta"];
const ALLOWED_WITH_VALUE: &[&str] = &["object-format=", "agent="];
const OBJECT_FORMAT: &str = "object-format=";

/// What a server says before a push.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Advertisement {
    /// Object ids by the names of refs.
    pub refs: BTreeMap<String, String>,
    /// The capabilities that the guest was offered.
    pub capabilities: Vec<String>,
    /// What `symref=HEAD:` names.
    pub head_target: Option<String>,
    /// The length of an object id in hexadecimal digits.
    pub id_len: usize,
}

impl Advertisement {
    /// Reads the list, and writes the part that the guest may see to `guest`.
    pub fn relay(server: &mut impl Read, guest: &mut impl Write) -> io::Result<Self> {
        let mut found = Advertisement::default();
        let mut size = 0;
        let mut is_first = true;
        loop {
            let packet = Packet::read(server)?;
            let Packet::Data(content) = packet else {
                return match packet {
                    Packet::Flush if !is_first => Packet::Flush.write(guest).map(|()| found),
                    _ => Err(malformed()),
                };
            };
            size += content.len();
            if size > MAX_SIZE {
                return Err(io::Error::other("the server has too many refs"));
            }
            if content.starts_with(b"ERR ") {
                Packet::Data(content).write(guest)?;
                return Err(io::Error::other("the server refused the connection"));
            }
            // A server that was asked for another version says so first.
            if is_first && content.starts_with(b"version ") {
                continue;
            }
            let content = if is_first { found.first(&content)? } else { content };
            is_first = false;
            found.line(&content)?;
            Packet::Data(content).write(guest)?;
        }
    }

    /// Reads the list without passing it on.
    pub fn read(server: &mut impl Read) -> io::Result<Self> {
        Self::relay(server, &mut io::sink())
    }

    /// Reads the capabilities of the first line; returns the line with those that are allowed.
    fn first(&mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        let end = content.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
        let text = std::str::from_utf8(&content[end + 1..]).map_err(|_| malformed())?;
        let words = || text.trim_end_matches('\n').split(' ').filter(|word| !word.is_empty());
        self.head_target = words().find_map(|word| word.strip_prefix("symref=HEAD:")).map(str::to_owned);
        let format = words().find_map(|word| word.strip_prefix(OBJECT_FORMAT)).unwrap_or("sha1");
        self.id_len = match format {
            "sha1" => 40,
            "sha256" => 64,
            _ => return Err(io::Error::other("the server uses an unknown object format")),
        };
        let is_allowed =
            |word: &&str| ALLOWED.contains(word) || ALLOWED_WITH_VALUE.iter().any(|start| word.starts_with(start));
        self.capabilities = words().filter(is_allowed).map(str::to_owned).collect();
        let mut line = content[..=end].to_vec();
        line.extend_from_slice(self.capabilities.join(" ").as_bytes());
        line.push(b'\n');
        Ok(line)
    }

    fn line(&mut self, content: &[u8]) -> io::Result<()> {
        let content = content.split(|byte| *byte == 0).next().unwrap_or_default();
        let content = content.strip_suffix(b"\n").unwrap_or(content);
        if let Some(id) = content.strip_prefix(b"shallow ") {
            return self.id(id).map(|_| ());
        }
        let (id, name) = content.split_at_checked(self.id_len).ok_or_else(malformed)?;
        let (id, name) = (self.id(id)?, name.strip_prefix(b" ").ok_or_else(malformed)?);
        // A name that is not UTF-8 matches no rule; nor do `.have` and `capabilities^{}`.
        if let Ok(name) = std::str::from_utf8(name)
            && (name.starts_with("refs/") || name == "HEAD")
        {
            self.refs.insert(name.to_owned(), id);
        }
        Ok(())
    }

    fn id(&self, bytes: &[u8]) -> io::Result<String> {
        object_id(bytes, self.id_len).ok_or_else(malformed)
    }

    pub fn offers(&self, capability: &str) -> bool {
        let is_same = |offered: &String| offered == capability;
        // The client names its own version.
        capability.starts_with("agent=") && self.capabilities.iter().any(|offered| offered.starts_with("agent="))
            || self.capabilities.iter().any(is_same)
    }
}

/// Returns an object id of this many hexadecimal digits in lower case.
pub fn object_id(bytes: &[u8], length: usize) -> Option<String> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let is_id = bytes.len() == length && length > 0 && bytes.iter().all(is_digit);
    is_id.then(|| bytes.iter().copied().map(char::from).collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    pub const OLD: &str = "1111111111111111111111111111111111111111";

    pub fn advertised(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            Packet::line(line).write(&mut bytes).expect("memory");
        }
        bytes.extend_from_slice(b"0000");
        bytes
    }

    #[test]
    fn only_known_capabilities_pass() {
        let first = format!(
            "{OLD} refs/heads/main\0report-status delete-refs push-options push-cert=x side-band-64k atomic agent=git/2 object-format=sha1"
        );
        let bytes = advertised(&[&first, &format!("{OLD} refs/heads/x"), &format!("{OLD} .have")]);
        let mut guest = Vec::new();
        let found = Advertisement::relay(&mut bytes.as_slice(), &mut guest).expect("a list");
        let guest = String::from_utf8(guest).expect("text");
        assert!(guest.contains("\0report-status delete-refs side-band-64k atomic agent=git/2 object-format=sha1\n"));
        assert!(!guest.contains("push-"), "{guest}");
        assert_eq!(found.refs.keys().collect::<Vec<_>>(), ["refs/heads/main", "refs/heads/x"]);
        assert!(found.offers("atomic") && found.offers("agent=other") && !found.offers("push-options"));
    }

    #[test]
    fn the_default_branch_is_read() {
        let bytes = advertised(&[&format!("{OLD} HEAD\0symref=HEAD:refs/heads/main agent=x")]);
        let found = Advertisement::read(&mut bytes.as_slice()).expect("a list");
        assert_eq!(found.head_target.as_deref(), Some("refs/heads/main"));
        assert_eq!(found.refs.get("HEAD").map(String::as_str), Some(OLD));
    }

    #[test]
    fn other_texts_are_refused() {
        for lines in [
            &["no capabilities"][..],
            &[&format!("{} HEAD\0x", &OLD[1..])],
            &[&format!("{OLD}HEAD\0x")],
            &[&format!("{OLD} HEAD\0object-format=md5")],
            &["ERR go away"],
            &[],
        ] {
            assert!(Advertisement::read(&mut advertised(lines).as_slice()).is_err(), "{lines:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Advertisement::read(&mut bytes.as_slice());
        }
    }
}
