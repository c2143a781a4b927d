//! Object ids of SHA-1 and SHA-256 repositories.

use std::fmt;

/// The number of hexadecimal digits in a SHA-1 id.
const SHA1_DIGITS: usize = 40;
/// The number of hexadecimal digits in a SHA-256 id.
const SHA256_DIGITS: usize = 64;

/// An object id in lower-case hexadecimal digits, 40 or 64 of them. It is stored without an
/// allocation because an index has one for each file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Zero after the digits.
    digits: [u8; SHA256_DIGITS],
    count: u8,
}

impl ObjectId {
    /// Accepts upper-case digits, as Git does.
    pub fn parse(text: &str) -> Option<Self> {
        if !matches!(text.len(), SHA1_DIGITS | SHA256_DIGITS) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut digits = [0; SHA256_DIGITS];
        for (digit, byte) in digits.iter_mut().zip(text.bytes()) {
            *digit = byte.to_ascii_lowercase();
        }
        Some(ObjectId { digits, count: text.len() as u8 })
    }

    /// Makes an id from 20 or 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        if !matches!(bytes.len() * 2, SHA1_DIGITS | SHA256_DIGITS) {
            return None;
        }
        let mut digits = [0; SHA256_DIGITS];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
        Some(ObjectId { digits, count: (bytes.len() * 2) as u8 })
    }

    /// Tells whether this is the id of a blob with some content.
    pub fn is_of_blob(&self, content: &[u8]) -> bool {
        use sha2::Digest;
        let header = format!("blob {}\0", content.len());
        let id = match usize::from(self.count) {
            SHA1_DIGITS => sha1::Sha1::new_with_prefix(&header).chain_update(content).finalize().to_vec(),
            _ => sha2::Sha256::new_with_prefix(&header).chain_update(content).finalize().to_vec(),
        };
        Self::from_bytes(&id) == Some(*self)
    }

    pub fn as_str(&self) -> &str {
        let digits = self.digits.get(..usize::from(self.count)).unwrap_or_default();
        std::str::from_utf8(digits).unwrap_or_default()
    }

    /// Returns whether all digits are zero, which stands for "no object".
    pub fn is_null(&self) -> bool {
        self.as_str().bytes().all(|digit| digit == b'0')
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_has_the_id_that_git_gives_it() {
        for id in [
            "557db03de997c86a4a028e1ebd3a1ceb225be238",
            "7c5c8610459154bdde4984be72c48fb5d9c1c4ac793a6b5976fe38fd1b0b1284",
        ] {
            let id = ObjectId::parse(id).expect("an id");
            assert!(id.is_of_blob(b"Hello World\n"));
            assert!(!id.is_of_blob(b"hello world\n"));
        }
    }

    #[test]
    fn ids_have_40_or_64_digits() {
        for digits in [40, 64] {
            let text = "0aF".repeat(30)[..digits].to_owned();
            assert_eq!(ObjectId::parse(&text).map(|id| id.to_string()), Some(text.to_lowercase()));
            assert_eq!(ObjectId::parse(&text.replace('a', "g")), None);
            assert!(ObjectId::parse(&"0".repeat(digits)).is_some_and(|id| id.is_null()));
            assert!(!ObjectId::parse(&text).is_some_and(|id| id.is_null()));
            let bytes = vec![0xa5; digits / 2];
            assert_eq!(ObjectId::from_bytes(&bytes), ObjectId::parse(&"a5".repeat(digits / 2)));
        }
        for length in [0, 39, 41, 63, 65, 128] {
            assert_eq!(ObjectId::parse(&"a".repeat(length)), None);
            assert_eq!(ObjectId::from_bytes(&vec![1; length]), None);
        }
    }
}
