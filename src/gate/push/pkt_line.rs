//! Reads and writes the packets of Git's protocol: four hexadecimal digits with the length, then the
//! content. Every length is checked before memory is taken for it.

use std::io::{self, ErrorKind, Read, Write};

/// The largest packet, with its length.
const MAX_PACKET: usize = 65520;
const HEADER: usize = 4;
/// The largest content of a packet of the side band, with the number of the band.
const MAX_BAND: usize = MAX_PACKET - HEADER;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Data(Vec<u8>),
    /// `0000`
    Flush,
    /// `0001`
    Delimiter,
    /// `0002`, which only follows answers over HTTP.
    ResponseEnd,
}

impl Packet {
    /// Reads a packet. An end of the stream is an error.
    pub fn read(reader: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; HEADER];
        reader.read_exact(&mut header)?;
        Ok(match length(header)? {
            0 => Packet::Flush,
            1 => Packet::Delimiter,
            2 => Packet::ResponseEnd,
            length => {
                let mut content = vec![0; length - HEADER];
                reader.read_exact(&mut content)?;
                Packet::Data(content)
            }
        })
    }

    pub fn write(&self, writer: &mut impl Write) -> io::Result<()> {
        match self {
            Packet::Data(content) => {
                if content.len() > MAX_PACKET - HEADER {
                    return Err(malformed());
                }
                let mut packet = format!("{:04x}", content.len() + HEADER).into_bytes();
                packet.extend_from_slice(content);
                writer.write_all(&packet)
            }
            Packet::Flush => writer.write_all(b"0000"),
            Packet::Delimiter => writer.write_all(b"0001"),
            Packet::ResponseEnd => writer.write_all(b"0002"),
        }
    }

    /// Makes a packet of a line.
    pub fn line(text: &str) -> Self {
        Packet::Data(format!("{text}\n").into_bytes())
    }
}

/// Writes bytes in packets of a band.
pub fn write_band(writer: &mut impl Write, band: u8, content: &[u8]) -> io::Result<()> {
    for part in content.chunks(MAX_BAND - 1) {
        Packet::Data([&[band], part].concat()).write(writer)?;
    }
    Ok(())
}

pub fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a malformed packet")
}

fn length(header: [u8; HEADER]) -> io::Result<usize> {
    let digits = header.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(&header).map_err(|_| malformed())?;
    match usize::from_str_radix(text, 16) {
        Ok(length) if digits && length <= MAX_PACKET && length != 3 => Ok(length),
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn special_packets_and_wrong_lengths() {
        for (bytes, packet) in [
            (&b"0000"[..], Packet::Flush),
            (b"0001", Packet::Delimiter),
            (b"0002", Packet::ResponseEnd),
            (b"0004", Packet::Data(Vec::new())),
            (b"0006a\n", Packet::line("a")),
        ] {
            assert_eq!(Packet::read(&mut &bytes[..]).expect("a packet"), packet);
        }
        for bytes in [&b"0003"[..], b"+005a", b"fff1", b"ffff", b"00", b"", b"0006a", b" 005", b"zzzz"] {
            assert!(Packet::read(&mut &bytes[..]).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(content in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let packet = Packet::Data(content.clone());
            let mut bytes = Vec::new();
            prop_assert_eq!(packet.write(&mut bytes).is_ok(), content.len() <= 65516);
            if content.len() <= 65516 {
                prop_assert_eq!(Packet::read(&mut bytes.as_slice()).expect("a packet"), packet);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Packet::read(&mut bytes.as_slice());
        }

        #[test]
        fn a_band_carries_everything_in_order(content in prop::collection::vec(any::<u8>(), 0..200_000)) {
            let mut bytes = Vec::new();
            write_band(&mut bytes, 1, &content).expect("memory");
            let (mut reader, mut read) = (bytes.as_slice(), Vec::new());
            while !reader.is_empty() {
                let Packet::Data(part) = Packet::read(&mut reader).expect("a packet") else { panic!("not data") };
                prop_assert_eq!(part[0], 1);
                read.extend_from_slice(&part[1..]);
            }
            prop_assert_eq!(read, content);
        }
    }
}
