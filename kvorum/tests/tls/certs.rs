//! An authority for the tests, and the files of those it vouches for.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::path::{Path, PathBuf};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
}

/// Where certificate and key of one lie.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    /// Its own certificate is in `<name>.pem` of the folder.
    pub fn new(folder: &Path, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
        std::fs::write(folder.join(format!("{name}.pem")), issuer.pem()).expect("written");
        Authority { issuer, folder: folder.to_path_buf() }
    }

    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Writes `<name>.pem` and `<name>.key`, the key first, over what was there.
    pub fn issue(&self, name: &str, hosts: &[&str], common_name: &str, serial: u64) -> Pair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let pair = Pair { cert: self.folder.join(format!("{name}.pem")), key: self.folder.join(format!("{name}.key")) };
        std::fs::write(&pair.key, key.serialize_pem()).expect("written");
        std::fs::write(&pair.cert, certificate.pem()).expect("written");
        pair
    }

    /// A list in `crl.der` that was due for renewal years ago.
    pub fn revoke(&self, serials: &[u64]) -> PathBuf {
        let long_ago = date_time_ymd(2020, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: long_ago,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: long_ago,
            next_update: date_time_ymd(2021, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let file = self.folder.join("crl.der");
        std::fs::write(&file, params.signed_by(&self.issuer).expect("signed").der()).expect("written");
        file
    }
}
