//! Verifies signatures of SSH servers and certificate authorities: Ed25519, ECDSA on P-256, P-384 and
//! P-521, RSA with SHA-2, and Ed25519 and P-256 keys in security tokens. A key of another kind verifies
//! nothing.

use graviola::hashing::{Sha256, Sha384};
use graviola::signing::{ecdsa, eddsa, rsa};
// graviola has no P-521.
use p521::ecdsa as p521_ecdsa;
use p521::ecdsa::signature::Verifier;
use sha2::Digest;

use super::wire::Reader;

/// RSA keys of other sizes are not verified.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The part of a key or certificate that verifies signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicKey<'a> {
    Ed25519(&'a [u8]),
    P256(&'a [u8]),
    P384(&'a [u8]),
    P521(&'a [u8]),
    Rsa {
        exponent: &'a [u8],
        modulus: &'a [u8],
    },
    /// A key in a security token, with the name of the application that it is for.
    TokenEd25519 {
        key: &'a [u8],
        application: &'a [u8],
    },
    TokenP256 {
        point: &'a [u8],
        application: &'a [u8],
    },
}

impl<'a> PublicKey<'a> {
    /// Parses a key to its last byte. Certificates are no keys.
    pub fn parse(blob: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(blob);
        let kind = reader.text()?;
        let key = Self::fields(kind, &mut reader)?;
        reader.end()?;
        Some(key)
    }

    /// Parses the fields that follow the name of a key's kind.
    pub fn fields(kind: &str, reader: &mut Reader<'a>) -> Option<Self> {
        let mut curve = |name: &str| (reader.text()? == name).then(|| reader.string())?;
        Some(match kind {
            "ssh-ed25519" => PublicKey::Ed25519(reader.string()?),
            "ecdsa-sha2-nistp256" => PublicKey::P256(curve("nistp256")?),
            "ecdsa-sha2-nistp384" => PublicKey::P384(curve("nistp384")?),
            "ecdsa-sha2-nistp521" => PublicKey::P521(curve("nistp521")?),
            "sk-ssh-ed25519@openssh.com" => {
                PublicKey::TokenEd25519 { key: reader.string()?, application: reader.string()? }
            }
            "sk-ecdsa-sha2-nistp256@openssh.com" => {
                PublicKey::TokenP256 { point: curve("nistp256")?, application: reader.string()? }
            }
            "ssh-rsa" => PublicKey::Rsa { exponent: reader.string()?, modulus: reader.string()? },
            _ => return None,
        })
    }

    /// Returns whether a signature in SSH's encoding is this key's, over the data.
    pub fn verifies(self, signature: &[u8], data: &[u8]) -> bool {
        self.verify(signature, data).is_some()
    }

    fn verify(self, signature: &[u8], data: &[u8]) -> Option<()> {
        let mut reader = Reader(signature);
        let (algorithm, signature) = (reader.text()?, reader.string()?);
        if let PublicKey::TokenEd25519 { application, .. } | PublicKey::TokenP256 { application, .. } = self {
            let (flags, counter) = (reader.byte()?, reader.number()?);
            reader.end()?;
            // The token signs hashes, its flags (whether a user was present) and its counter.
            let hash = |bytes: &[u8]| sha2::Sha256::digest(bytes);
            let signed = [&hash(application)[..], &[flags], &counter.to_be_bytes(), &hash(data)].concat();
            return self.token_signed(algorithm, signature, &signed);
        }
        reader.end()?;
        match (self, algorithm) {
            (PublicKey::Ed25519(key), "ssh-ed25519") => {
                eddsa::Ed25519VerifyingKey::from_bytes(key).ok()?.verify(signature, data).ok()
            }
            (PublicKey::P256(point), "ecdsa-sha2-nistp256") => {
                let key = ecdsa::VerifyingKey::<ecdsa::P256>::from_x962_uncompressed(point).ok()?;
                key.verify::<Sha256>(&[data], &scalars(signature, 32)?).ok()
            }
            (PublicKey::P384(point), "ecdsa-sha2-nistp384") => {
                let key = ecdsa::VerifyingKey::<ecdsa::P384>::from_x962_uncompressed(point).ok()?;
                key.verify::<Sha384>(&[data], &scalars(signature, 48)?).ok()
            }
            (PublicKey::P521(point), "ecdsa-sha2-nistp521") => {
                let key = p521_ecdsa::VerifyingKey::from_sec1_bytes(point).ok()?;
                let signature = p521_ecdsa::Signature::from_slice(&scalars(signature, 66)?).ok()?;
                key.verify(data, &signature).ok()
            }
            (PublicKey::Rsa { exponent, modulus }, "rsa-sha2-256" | "rsa-sha2-512") => {
                let key = rsa::VerifyingKey::from_pkcs1_der(&pkcs1(modulus, exponent)?).ok()?;
                let length = modulus.len() - usize::from(modulus.first() == Some(&0));
                // SSH permits a signature without leading zeros.
                let missing = length.checked_sub(signature.len())?;
                let signature = [&vec![0; missing][..], signature].concat();
                match algorithm {
                    "rsa-sha2-256" => key.verify_pkcs1_sha256(&signature, data).ok(),
                    _ => key.verify_pkcs1_sha512(&signature, data).ok(),
                }
            }
            _ => None,
        }
    }

    fn token_signed(self, algorithm: &str, signature: &[u8], signed: &[u8]) -> Option<()> {
        match (self, algorithm) {
            (PublicKey::TokenEd25519 { key, .. }, "sk-ssh-ed25519@openssh.com") => {
                eddsa::Ed25519VerifyingKey::from_bytes(key).ok()?.verify(signature, signed).ok()
            }
            (PublicKey::TokenP256 { point, .. }, "sk-ecdsa-sha2-nistp256@openssh.com") => {
                let key = ecdsa::VerifyingKey::<ecdsa::P256>::from_x962_uncompressed(point).ok()?;
                key.verify::<Sha256>(&[signed], &scalars(signature, 32)?).ok()
            }
            _ => None,
        }
    }
}

/// Returns the fingerprint of a key, as `ssh-keygen -l` prints it.
pub fn fingerprint(blob: &[u8]) -> String {
    use base64ct::{Base64Unpadded, Encoding};
    format!("SHA256:{}", Base64Unpadded::encode_string(&sha2::Sha256::digest(blob)))
}

/// Returns the two numbers of an ECDSA signature with a fixed length.
fn scalars(signature: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut reader = Reader(signature);
    let (r, s) = (reader.string()?, reader.string()?);
    reader.end()?;
    let mut bytes = fixed(r, length)?;
    bytes.extend(fixed(s, length)?);
    Some(bytes)
}

/// Brings a number without sign to a length.
fn fixed(number: &[u8], length: usize) -> Option<Vec<u8>> {
    let number = number.strip_prefix(&[0]).unwrap_or(number);
    let missing = length.checked_sub(number.len())?;
    Some([&vec![0; missing][..], number].concat())
}

/// Encodes an RSA key for the verifying library: a DER sequence of two numbers.
fn pkcs1(modulus: &[u8], exponent: &[u8]) -> Option<Vec<u8>> {
    if !RSA_BYTES.contains(&modulus.len().saturating_sub(1)) || exponent.is_empty() || exponent.len() > 8 {
        return None;
    }
    let element = |tag: u8, content: &[u8]| -> Option<Vec<u8>> {
        let length = content.len();
        let mut bytes = vec![tag];
        match length {
            0..=0x7f => bytes.push(u8::try_from(length).ok()?),
            0x80..=0xff => bytes.extend([0x81, u8::try_from(length).ok()?]),
            _ => {
                bytes.push(0x82);
                bytes.extend(u16::try_from(length).ok()?.to_be_bytes());
            }
        }
        bytes.extend(content);
        Some(bytes)
    };
    element(0x30, &[element(2, modulus)?, element(2, exponent)?].concat())
}

/// Returns the name of a feature of the processor that the verifying library needs and that is
/// missing. Without this check it would panic.
pub fn missing_cpu_feature() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("aes", is_x86_feature_detected!("aes")),
        ("pclmulqdq", is_x86_feature_detected!("pclmulqdq")),
        ("bmi1", is_x86_feature_detected!("bmi1")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("adx", is_x86_feature_detected!("adx")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
    ];
    #[cfg(target_arch = "aarch64")]
    let features = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("aes", std::arch::is_aarch64_feature_detected!("aes")),
        ("pmull", std::arch::is_aarch64_feature_detected!("pmull")),
        ("sha2", std::arch::is_aarch64_feature_detected!("sha2")),
    ];
    features.into_iter().find(|(_, is_there)| !is_there).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    fn encoded(strings: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        strings.iter().for_each(|string| put_string(&mut bytes, string));
        bytes
    }

    #[test]
    fn a_key_in_a_token_verifies_its_flags_and_counter() {
        const KIND: &[u8] = b"sk-ssh-ed25519@openssh.com";
        let token = eddsa::Ed25519SigningKey::from_bytes(&[7; 32]).expect("a key");
        let key = encoded(&[KIND, &token.public_key().as_bytes(), b"ssh:"]);
        let hash = |bytes: &[u8]| sha2::Sha256::digest(bytes);
        let signed = [&hash(b"ssh:")[..], &[1], &[0, 0, 0, 9], &hash(b"session")].concat();
        let signature = [encoded(&[KIND, &token.sign(&signed)]), vec![1, 0, 0, 0, 9]].concat();
        let key = PublicKey::parse(&key).expect("a key");
        assert!(key.verifies(&signature, b"session"));
        assert!(!key.verifies(&signature, b"another"));
        assert!(!key.verifies(&signature[..signature.len() - 5], b"session"));
        assert!(!key.verifies(&[&signature[..], &[0]].concat(), b"session"));
        for (place, name) in [(1, "counter"), (5, "flags")] {
            let mut changed = signature.clone();
            let index = changed.len() - place;
            changed[index] ^= 1;
            assert!(!key.verifies(&changed, b"session"), "{name}");
        }
        let other = encoded(&[KIND, &token.public_key().as_bytes(), b"web:"]);
        assert!(!PublicKey::parse(&other).expect("a key").verifies(&signature, b"session"));
    }

    #[test]
    fn a_p256_key_in_a_token_verifies() {
        const KIND: &[u8] = b"sk-ecdsa-sha2-nistp256@openssh.com";
        let token = ecdsa::SigningKey::<ecdsa::P256>::generate().expect("a key");
        let mut spki = [0; 256];
        let spki = token.to_spki_der(&mut spki).expect("a key");
        // The point is at the end, with its first byte 4.
        let point = &spki[spki.len() - 65..];
        let key = encoded(&[KIND, b"nistp256", point, b"ssh:"]);
        let hash = |bytes: &[u8]| sha2::Sha256::digest(bytes);
        let signed = [&hash(b"ssh:")[..], &[5], &[0, 0, 1, 0], &hash(b"session")].concat();
        let mut numbers = [0; 64];
        let numbers = token.sign::<Sha256>(&[&signed], &mut numbers).expect("a signature");
        // SSH's numbers are signed.
        let number = |bytes: &[u8]| [&[0], bytes].concat();
        let numbers = encoded(&[&number(&numbers[..32]), &number(&numbers[32..])]);
        let signature = [encoded(&[KIND, &numbers]), vec![5, 0, 0, 1, 0]].concat();
        let key = PublicKey::parse(&key).expect("a key");
        assert!(key.verifies(&signature, b"session"));
        assert!(!key.verifies(&signature, b"another"));
    }
}
