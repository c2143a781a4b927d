//! Reads the body of an answer exactly to its end; an early end is an error.

use std::io::{self, BufRead, ErrorKind, Read};

const LONGEST_LINE: u64 = 1024;
const MOST_TRAILERS: usize = 32;

pub enum Body<R> {
    /// The bytes that are left.
    Length(R, u64),
    Chunked(R, Chunk),
    /// It ends with the connection.
    ToEnd(R),
}

pub enum Chunk {
    /// The bytes of the chunk that are left.
    Left(u64),
    /// Its length follows; true before the first one.
    Header {
        is_first: bool,
    },
    End,
}

fn malformed() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "its body is malformed")
}

impl<R: BufRead> Body<R> {
    pub fn of(status: u16, headers: &[(String, String)], stream: R) -> io::Result<Self> {
        let values = |name: &'static str| {
            headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
        };
        if matches!(status, 204 | 304) {
            return Ok(Body::Length(stream, 0));
        }
        let encodings: Vec<&str> = values("transfer-encoding").collect();
        let lengths: Vec<&str> = values("content-length").collect();
        match (encodings.as_slice(), lengths.as_slice()) {
            ([], []) => Ok(Body::ToEnd(stream)),
            ([one], _) if one.eq_ignore_ascii_case("chunked") => {
                Ok(Body::Chunked(stream, Chunk::Header { is_first: true }))
            }
            ([], [first, rest @ ..]) if rest.iter().all(|other| other == first) => {
                Ok(Body::Length(stream, first.parse().map_err(|_| malformed())?))
            }
            _ => Err(malformed()),
        }
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        match self {
            Body::ToEnd(stream) => stream.read(buffer),
            Body::Length(stream, left) => part(stream, left, buffer),
            Body::Chunked(stream, chunk) => loop {
                match chunk {
                    Chunk::End => return Ok(0),
                    Chunk::Left(0) => *chunk = Chunk::Header { is_first: false },
                    Chunk::Left(left) => return part(stream, left, buffer),
                    Chunk::Header { is_first } => {
                        if !*is_first && !line(stream)?.is_empty() {
                            return Err(malformed());
                        }
                        *chunk = match size(&line(stream)?)? {
                            0 => {
                                trailers(stream)?;
                                Chunk::End
                            }
                            size => Chunk::Left(size),
                        };
                    }
                }
            },
        }
    }
}

fn part(stream: &mut impl Read, left: &mut u64, buffer: &mut [u8]) -> io::Result<usize> {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    if most == 0 {
        return Ok(0);
    }
    let count = stream.read(&mut buffer[..most])?;
    if count == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    *left -= count as u64;
    Ok(count)
}

fn trailers(stream: &mut impl BufRead) -> io::Result<()> {
    for _ in 0..MOST_TRAILERS {
        if line(stream)?.is_empty() {
            return Ok(());
        }
    }
    Err(malformed())
}

fn size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number).ok_or_else(malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| malformed())
}

fn line(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    stream.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    line.strip_suffix(b"\r\n").map(<[u8]>::to_vec).ok_or_else(malformed)
}
