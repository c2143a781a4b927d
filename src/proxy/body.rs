//! Forwards the body of a request exactly to its end, and nothing that follows it on the
//! connection.

use std::io::{self, BufRead, Read, Write};

use super::request::Body;

/// The length limit of a chunk header and of a trailer, in bytes.
const MAX_LINE: u64 = 1024;
const MAX_TRAILERS: usize = 32;

/// Copies the body and returns its length without chunk headers.
pub fn forward(body: Body, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<u64> {
    let sent = match body {
        Body::Length(length) => exactly(length, from, to)?,
        Body::Chunked => chunks(from, to)?,
    };
    to.flush()?;
    Ok(sent)
}

fn exactly(length: u64, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<u64> {
    match io::copy(&mut from.take(length), to)? {
        sent if sent == length => Ok(sent),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes new chunk headers, without extensions, and drops trailers.
fn chunks(from: &mut impl BufRead, to: &mut impl Write) -> io::Result<u64> {
    let mut sent = 0;
    loop {
        let size = size(&line(from)?)?;
        write!(to, "{size:x}\r\n")?;
        if size == 0 {
            for _ in 0..MAX_TRAILERS {
                if line(from)?.is_empty() {
                    to.write_all(b"\r\n")?;
                    return Ok(sent);
                }
            }
            return Err(malformed());
        }
        sent += exactly(size, from, to)?;
        if !line(from)?.is_empty() {
            return Err(malformed());
        }
        to.write_all(b"\r\n")?;
    }
}

fn size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number).ok_or_else(malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| malformed())
}

/// Reads a line, which must end with CR LF, and returns it without its end.
fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(MAX_LINE).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\r\n") {
        Some(text) if !text.contains(&b'\r') => Ok(text.to_vec()),
        _ => Err(malformed()),
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed request body")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forwarded(body: Body, mut bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
        let mut sent = Vec::new();
        forward(body, &mut bytes, &mut sent).ok()?;
        Some((sent, bytes.len()))
    }

    #[test]
    fn nothing_beyond_the_body_is_sent() {
        assert_eq!(forwarded(Body::Length(3), b"abcGET / HTTP/1.1\r\n\r\n"), Some((b"abc".to_vec(), 18)));
        assert_eq!(forwarded(Body::Length(0), b"GET"), Some((Vec::new(), 3)));
        assert_eq!(
            forwarded(Body::Chunked, b"3;x=y\r\nabc\r\n0\r\nTrailer: z\r\n\r\nGET"),
            Some((b"3\r\nabc\r\n0\r\n\r\n".to_vec(), 3))
        );
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for text in [
            "",
            "3\r\nab",
            "3\nabc\n0\n\n",
            "-3\r\nabc\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "ffffffffffffffff\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            ";\r\n\r\n",
            "3\r\nabc\r\n0\r\nx\ry\r\n\r\n",
        ] {
            assert_eq!(forwarded(Body::Chunked, text.as_bytes()), None, "{text:?}");
        }
        let endless = "0\r\n".to_owned() + &"X: y\r\n".repeat(MAX_TRAILERS + 1) + "\r\n";
        assert_eq!(forwarded(Body::Chunked, endless.as_bytes()), None);
        assert_eq!(forwarded(Body::Chunked, &[b'1'; 5000]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_forwarded_as_whole_chunks_or_not_at_all(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some((sent, left)) = forwarded(Body::Chunked, &bytes) {
                prop_assert!(sent.ends_with(b"0\r\n\r\n") && left < bytes.len());
                prop_assert_eq!(forwarded(Body::Chunked, &sent), Some((sent.clone(), 0)));
            }
        }
    }
}
