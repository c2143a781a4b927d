//! Reads the certificate authorities that this machine trusts: its system bundle, or what
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::TlsError;
use crate::host::Environment;

/// Where distributions keep the bundle of all authorities. The first that exists is used.
pub const SYSTEM_BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The size limit of one file of certificates, in bytes.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// Certificates in PEM, which are parsed when the first connection needs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roots {
    pem: Vec<u8>,
    /// Named in messages.
    files: Vec<PathBuf>,
}

impl Roots {
    pub fn read(env: &Environment) -> Result<Self, TlsError> {
        let named = [env.path("SSL_CERT_FILE"), env.path("SSL_CERT_DIR")];
        let mut roots = Roots::default();
        match named {
            [None, None] => {
                let bundle = SYSTEM_BUNDLES.iter().map(Path::new).find(|path| path.is_file());
                roots.add_file(bundle.ok_or(TlsError::NoBundle)?)?;
            }
            [file, directories] => {
                if let Some(file) = file {
                    roots.add_file(file)?;
                }
                // OpenSSL allows several directories.
                for directory in directories.into_iter().flat_map(std::env::split_paths) {
                    roots.add_directory(&directory)?;
                }
            }
        }
        Ok(roots)
    }

    /// Returns the certificates in PEM, for a bundle that programs inside a sandbox read.
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// Parses the certificates. Those that are malformed are skipped, as OpenSSL does, unless none
    /// is left.
    pub fn store(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(&self.pem).filter_map(Result::ok));
        if store.is_empty() {
            return Err(TlsError::NoCertificates { files: self.files.clone() });
        }
        Ok(store)
    }

    fn add_file(&mut self, path: &Path) -> Result<(), TlsError> {
        let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if metadata.len() > MAX_FILE || !metadata.is_file() {
            return Err(unreadable(std::io::ErrorKind::InvalidInput.into()));
        }
        self.pem.extend(fs::read(path).map_err(unreadable)?);
        self.pem.push(b'\n');
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Adds every file of a directory. OpenSSL's own has each certificate twice, by its name and by
    /// its hash; the store keeps both, which is harmless.
    fn add_directory(&mut self, path: &Path) -> Result<(), TlsError> {
        let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
        let mut files: Vec<PathBuf> =
            fs::read_dir(path).map_err(unreadable)?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files.iter().filter(|file| file.is_file()) {
            let _ = self.add_file(file);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::authority::Authority;

    fn env(pairs: &[(&str, &Path)]) -> Environment {
        pairs.iter().map(|(name, value)| (*name, value.as_os_str())).collect()
    }

    #[test]
    fn variables_replace_the_system_bundle() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let (file, other) = (directory.path().join("a.pem"), directory.path().join("b"));
        fs::create_dir(&other)?;
        let authority = Authority::new(&["a.example".to_owned()])?;
        fs::write(&file, authority.pem())?;
        fs::write(other.join("c.pem"), authority.pem())?;
        fs::write(other.join("README"), "no certificate")?;
        assert_eq!(Roots::read(&env(&[("SSL_CERT_FILE", &file)]))?.store()?.len(), 1);
        assert_eq!(Roots::read(&env(&[("SSL_CERT_DIR", &other)]))?.store()?.len(), 1);
        let both = Roots::read(&env(&[("SSL_CERT_FILE", &file), ("SSL_CERT_DIR", &other)]))?;
        assert_eq!(both.store()?.len(), 2);
        Ok(())
    }

    #[test]
    fn a_file_that_is_missing_or_empty_is_an_error() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let missing = directory.path().join("missing");
        assert!(matches!(Roots::read(&env(&[("SSL_CERT_FILE", &missing)])), Err(TlsError::Unreadable { .. })));
        let empty = directory.path().join("empty");
        fs::write(&empty, "")?;
        let roots = Roots::read(&env(&[("SSL_CERT_FILE", &empty)])).ok();
        assert!(matches!(roots.map(|roots| roots.store()), Some(Err(TlsError::NoCertificates { .. }))));
        Ok(())
    }
}
