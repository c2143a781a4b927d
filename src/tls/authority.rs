//! A certificate authority that exists in memory only, for the names given to it and no others.

use std::fmt;
use std::sync::Arc;

use base64ct::{Base64, Encoding};
use graviola::hashing::Sha256;
use graviola::signing::ecdsa::{P256, SigningKey};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyIdMethod, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SerialNumber, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256 as Digest256};

use super::{TlsError, provider};

/// The length of an uncompressed point of P-256, which ends the encoded public key.
const POINT: usize = 65;
const MAX_ENCODED_KEY: usize = 256;

pub struct Authority {
    issuer: Issuer<'static, Key>,
    certificate: CertificateDer<'static>,
    /// All certificates of servers use one key, which costs less than a new one for each.
    server_key: Key,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Makes an authority whose certificate permits these names only, each with its subdomains, as
    /// name constraints are defined.
    pub fn new(names: &[String]) -> Result<Self, TlsError> {
        let key = Key::generate()?;
        let mut params = params("sandpen session", &key)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let permitted = names.iter().map(|name| GeneralSubtree::DnsName(name.clone())).collect();
        params.name_constraints =
            Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: Vec::new() });
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, server_key: Key::generate()? })
    }

    /// Returns the certificate in PEM, for programs that are to trust it.
    pub fn pem(&self) -> String {
        let encoded = Base64::encode_string(&self.certificate);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in encoded.as_bytes().chunks(64) {
            pem.extend(line.iter().map(|byte| char::from(*byte)));
            pem.push('\n');
        }
        pem + "-----END CERTIFICATE-----\n"
    }

    /// Makes a certificate for a server of this name.
    pub fn server(&self, name: &str) -> Result<Arc<CertifiedKey>, TlsError> {
        let mut params = params(name, &self.server_key)?;
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().map_err(failed)?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.server_key, &self.issuer).map_err(failed)?;
        let mut encoded = [0; MAX_ENCODED_KEY];
        let key = self.server_key.key.to_pkcs8_der(&mut encoded).map_err(no_key)?;
        let key = PrivatePkcs8KeyDer::from(key.to_vec());
        let key = provider().key_provider.load_private_key(key.into()).map_err(failed)?;
        Ok(Arc::new(CertifiedKey::new(vec![certificate.der().clone(), self.certificate.clone()], key)))
    }
}

fn params(name: &str, key: &Key) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    let mut distinguished_name = DistinguishedName::new();
    // A common name may have 64 characters, which a host name can exceed.
    distinguished_name.push(DnType::CommonName, name.get(..64).unwrap_or(name));
    params.distinguished_name = distinguished_name;
    let mut serial = [0; 16];
    graviola::random::fill(&mut serial).map_err(no_key)?;
    // A serial number is positive.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.key_identifier_method = KeyIdMethod::PreSpecified(Digest256::digest(&key.point)[..20].to_vec());
    // Programs such as those of Apple refuse certificates that are valid for years, and a clock inside
    // a virtual machine may be behind.
    let now = std::time::SystemTime::now();
    params.not_before = (now - std::time::Duration::from_secs(2 * 86_400)).into();
    params.not_after = (now + std::time::Duration::from_secs(300 * 86_400)).into();
    Ok(params)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> TlsError {
    TlsError::Certificate(Box::new(error))
}

fn no_key(error: graviola::Error) -> TlsError {
    TlsError::Certificate(format!("{error:?}").into())
}

/// A key pair, whose private part is never written anywhere.
struct Key {
    key: SigningKey<P256>,
    point: Vec<u8>,
}

impl Key {
    fn generate() -> Result<Self, TlsError> {
        let key = SigningKey::<P256>::generate().map_err(no_key)?;
        let mut encoded = [0; MAX_ENCODED_KEY];
        let public = key.to_spki_der(&mut encoded).map_err(no_key)?;
        let point = public[public.len().saturating_sub(POINT)..].to_vec();
        Ok(Key { key, point })
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let mut signature = [0; 128];
        let signed = self.key.sign_asn1::<Sha256>(&[message], &mut signature);
        signed.map(<[u8]>::to_vec).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}
