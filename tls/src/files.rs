//! Certificates and keys out of PEM files.

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// Where systems keep whom they trust.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why a file is of no use. It does not name the file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read, or is no PEM.
    #[error("{0}")]
    Pem(#[from] pem::Error),
    /// It has none.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// One of its certificates is none.
    #[error("{0}")]
    NotTrusted(#[from] rustls::Error),
}

/// The certificates of a file, at least one, in their order.
///
/// # Errors
/// It cannot be read, is no PEM, or has no certificate.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let read: Vec<_> = CertificateDer::pem_file_iter(file)?.collect::<Result<_, _>>()?;
    if read.is_empty() { Err(Fault::NoCertificate) } else { Ok(read) }
}

/// The first private key of a file: PKCS#1, PKCS#8 or SEC1.
///
/// # Errors
/// It cannot be read, is no PEM, or has no key.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, Fault> {
    Ok(PrivateKeyDer::from_pem_file(file)?)
}

/// Trusts exactly these.
///
/// # Errors
/// One of them is no certificate.
pub fn roots(certificates: &[CertificateDer<'static>]) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone())?;
    }
    Ok(roots)
}

/// Whom the system trusts: the file that `SSL_CERT_FILE` names, or the first of the usual places.
/// None: there is no such file.
pub fn system_roots() -> Option<RootCertStore> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let mut places = named.iter().map(String::as_str).chain(SYSTEM);
    let found = places.find_map(|file| certificates(Path::new(file)).ok())?;
    let mut roots = RootCertStore::empty();
    // One that is not understood is no reason to trust nobody.
    roots.add_parsable_certificates(found);
    Some(roots)
}
