//! Certificates for servers that encrypt.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// One who vouches for others, and the files of all.
pub struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Its own certificate is in `ca.pem`.
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        let folder = TempDir::new().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("written");
        Authority { folder, issuer }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for these names, in `<file>.pem` and `<file>.key`.
    pub fn issue(&self, file: &str, names: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file(&format!("{file}.pem")), certificate.pem()).expect("written");
        std::fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).expect("written");
    }
}
