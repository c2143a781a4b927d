//! Reads content that a digest names: computes digests, and decompresses layers.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, which is written `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (hex.len() == 64 && hex.bytes().all(is_digit)).then(|| Digest(hex.to_owned()))
    }

    pub fn of(content: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(content))
    }

    /// Returns the digits, which are a file name.
    pub fn hex(&self) -> &str {
        &self.0
    }

    fn finish(hash: Sha256) -> Self {
        use fmt::Write;
        let mut hex = String::with_capacity(64);
        for byte in hash.finalize() {
            let _ = write!(hex, "{byte:02x}");
        }
        Digest(hex)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Digest::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not a SHA-256 digest")))
    }
}

/// Computes the digest of what is read through it.
pub struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Hashing<R> {
    pub fn new(inner: R) -> Self {
        Hashing { inner, hash: Sha256::new() }
    }

    pub fn digest(self) -> Digest {
        Digest::finish(self.hash)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// Decompresses a stream, whose first bytes tell how it is compressed: gzip, zstd or not at all.
pub fn decompressed<'a>(stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut stream = BufReader::with_capacity(128 * 1024, stream);
    let start = stream.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        // Parallel compressors write several members.
        Box::new(MultiGzDecoder::new(stream))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable(start) {
        Box::new(ZstdFrames { source: stream, decoder: FrameDecoder::new(), is_in_frame: false })
    } else {
        Box::new(stream)
    })
}

/// A frame without content, which may come first.
fn is_skippable(start: &[u8]) -> bool {
    matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Reads all frames of a zstd stream, of which some may be skippable.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    /// Begins the next frame; returns `false` at the end of the stream.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.source).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error.to_string())),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.is_in_frame && self.decoder.is_finished() {
                self.is_in_frame = false;
            }
            if !self.is_in_frame && !self.begin()? {
                return Ok(0);
            }
            if !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBytes(buffer.len());
                let decoded = self.decoder.decode_blocks(&mut self.source, some);
                decoded.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn read(stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        decompressed(stream)?.read_to_end(&mut content)?;
        Ok(content)
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).expect("memory");
        encoder.finish().expect("memory")
    }

    fn zstd(content: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
    }

    #[test]
    fn plain_gzip_and_zstd_streams_of_several_parts_are_read() -> io::Result<()> {
        let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
        let (first, second) = content.split_at(700_001);
        assert_eq!(read(&content)?, content);
        assert_eq!(read(&[gzip(first), gzip(second)].concat())?, content);
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
        assert_eq!(read(&[skippable.clone(), zstd(first), skippable, zstd(second)].concat())?, content);
        assert_eq!(read(b"")?, b"");
        Ok(())
    }

    #[test]
    fn damaged_streams_are_errors() {
        let content = vec![7; 100_000];
        for stream in [gzip(&content), zstd(&content)] {
            let cut = read(&stream[..stream.len() - 3]);
            assert!(cut.is_err(), "{:?}", stream);
            assert!(read(&[&stream[..], b"garbage"].concat()).is_err(), "{:?}", stream);
        }
    }

    #[test]
    fn digests_have_one_form() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(Digest::parse(text), Some(Digest::of(b"")));
        for wrong in ["", "sha256:", &text[7..], &text.to_uppercase(), &text.replace("e3", "/.")] {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
