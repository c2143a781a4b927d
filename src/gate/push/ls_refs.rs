//! Asks a server which branch HEAD names although it does not exist yet. Only version 2 of Git's
//! protocol tells it (`unborn`).

use std::io::{self, Read};

use super::pkt_line::{Packet, malformed};

/// More lines than a server needs for its capabilities, or for HEAD.
const MAX_LINES: usize = 1000;
const FORMATS: &[&str] = &["sha1", "sha256"];

/// Reads the capabilities of a server and returns the request; `None` if the server cannot answer it.
pub fn request(server: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    // A server of an older version begins with its refs.
    if Packet::read(server)? != Packet::line("version 2") {
        return Ok(None);
    }
    let lines = lines(server)?;
    let value = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name));
    let knows_unborn = value("ls-refs=").is_some_and(|features| features.split(' ').any(|word| word == "unborn"));
    if !knows_unborn {
        return Ok(None);
    }
    let mut request = Vec::new();
    Packet::line("command=ls-refs").write(&mut request)?;
    if let Some(format) = value("object-format=").filter(|format| FORMATS.contains(format)) {
        Packet::line(&format!("object-format={format}")).write(&mut request)?;
    }
    Packet::Delimiter.write(&mut request)?;
    for argument in ["symrefs", "unborn", "ref-prefix HEAD"] {
        Packet::line(argument).write(&mut request)?;
    }
    Packet::Flush.write(&mut request)?;
    Ok(Some(request))
}

/// Reads the answer, and returns the branch that HEAD names.
pub fn head(server: &mut impl Read) -> io::Result<Option<String>> {
    let lines = lines(server)?;
    let target = |line: &String| {
        let mut words = line.split(' ');
        let (_id, name) = (words.next()?, words.next()?);
        words.find_map(|word| word.strip_prefix("symref-target:")).filter(|_| name == "HEAD").map(str::to_owned)
    };
    Ok(lines.iter().find_map(target))
}

/// Reads the lines up to a flush. One that is not UTF-8 is left out.
fn lines(server: &mut impl Read) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for _ in 0..MAX_LINES {
        match Packet::read(server)? {
            Packet::Data(line) => {
                lines.extend(String::from_utf8(line).ok().map(|line| line.trim_end_matches('\n').to_owned()));
            }
            Packet::Flush => return Ok(lines),
            Packet::Delimiter | Packet::ResponseEnd => return Err(malformed()),
        }
    }
    Err(io::Error::other("the server's answer is too long"))
}

#[cfg(test)]
mod tests {
    use super::super::advertisement::tests::{OLD, advertised};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_server_that_knows_unborn_branches_is_asked() {
        let offer = advertised(&["version 2", "agent=git/2", "ls-refs=peel unborn", "object-format=sha256"]);
        let request = request(&mut offer.as_slice()).expect("an offer").expect("a request");
        let text = String::from_utf8(request).expect("text");
        assert_eq!(
            text,
            "0014command=ls-refs\n0019object-format=sha256\n0001000csymrefs\n000bunborn\n0014ref-prefix HEAD\n0000"
        );
        for lines in [
            &["version 2", "ls-refs"][..],
            &["version 2", "ls-refs=unborn2"],
            &["version 2"],
            &["version 1", "ls-refs=unborn"],
            &[&format!("{OLD} HEAD\0ls-refs=unborn")],
        ] {
            assert_eq!(super::request(&mut advertised(lines).as_slice()).expect("an offer"), None, "{lines:?}");
        }
    }

    #[test]
    fn the_target_of_head_is_read() {
        let read = |line: &str| head(&mut advertised(&[line]).as_slice()).expect("an answer");
        assert_eq!(read("unborn HEAD symref-target:refs/heads/main").as_deref(), Some("refs/heads/main"));
        assert_eq!(read(&format!("{OLD} HEAD symref-target:refs/heads/x")).as_deref(), Some("refs/heads/x"));
        assert_eq!(read(&format!("{OLD} HEAD")), None);
        assert_eq!(read("unborn HEADS symref-target:refs/heads/x"), None);
        assert_eq!(head(&mut &b"0000"[..]).expect("an answer"), None);
        assert!(head(&mut b"0006a\n".repeat(MAX_LINES + 1).as_slice()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (request(&mut bytes.as_slice()), head(&mut bytes.as_slice()));
        }
    }
}
