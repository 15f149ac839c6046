//! What certificates and revocation lists say.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::collections::BTreeSet;
use std::net::IpAddr;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// It is no certificate, or no revocation list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("x509: malformed {0}")]
pub struct Unreadable(&'static str);

/// What one certificate says of its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The last CN of the subject, as Go reads it. Empty: it has none.
    pub common_name: String,
    /// Addresses of the subject alternative name.
    pub ips: Vec<IpAddr>,
    /// DNS names of the subject alternative name, in their order.
    pub dns_names: Vec<String>,
    /// Big-endian, without leading zeros.
    pub serial: Vec<u8>,
}

impl Facts {
    /// # Errors
    /// It is no certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Facts, Unreadable> {
        let malformed = || Unreadable("certificate");
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| malformed())?;
        let common_name = certificate.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
        let mut facts = Facts {
            common_name: common_name.unwrap_or_default().to_owned(),
            serial: stripped(certificate.raw_serial()),
            ..Facts::default()
        };
        let names = certificate.subject_alternative_name().map_err(|_| malformed())?;
        for name in names.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => facts.dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => facts.ips.push(address(bytes).ok_or_else(malformed)?),
                _ => {}
            }
        }
        Ok(facts)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn stripped(serial: &[u8]) -> Vec<u8> {
    serial.iter().copied().skip_while(|byte| *byte == 0).collect()
}

/// Whether the certificate names this host, an address or a DNS name. The CN does not count.
pub fn is_valid_for(certificate: &CertificateDer<'_>, host: &str) -> bool {
    let parsed = ParsedCertificate::try_from(certificate);
    match (parsed, ServerName::try_from(host)) {
        (Ok(parsed), Ok(name)) => verify_server_name(&parsed, &name).is_ok(),
        _ => false,
    }
}

/// The serials of a revocation list, DER or any number of PEM blocks, as in [`Facts::serial`]. Who
/// signed it and how old it is does not matter, as with etcd.
///
/// # Errors
/// It is no revocation list.
pub fn revoked_serials(list: &[u8]) -> Result<BTreeSet<Vec<u8>>, Unreadable> {
    let mut serials = BTreeSet::new();
    if !list.trim_ascii_start().starts_with(b"-----BEGIN") {
        add_serials(list, &mut serials)?;
        return Ok(serials);
    }
    let mut lists = 0;
    for block in Pem::iter_from_buffer(list) {
        let block = block.map_err(|_| Unreadable("crl"))?;
        if block.label == "X509 CRL" {
            add_serials(&block.contents, &mut serials)?;
            lists += 1;
        }
    }
    if lists == 0 { Err(Unreadable("crl")) } else { Ok(serials) }
}

fn add_serials(der: &[u8], serials: &mut BTreeSet<Vec<u8>>) -> Result<(), Unreadable> {
    let (_, list) = CertificateRevocationList::from_der(der).map_err(|_| Unreadable("crl"))?;
    serials.extend(list.iter_revoked_certificates().map(|revoked| stripped(revoked.raw_serial())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
        KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    };

    fn certificate(names: &[&str], common_name: &str) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !common_name.is_empty() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        params.serial_number = Some(SerialNumber::from(vec![0, 0x9a, 7]));
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
    }

    #[test]
    fn a_certificate_says_name_hosts_and_serial() {
        let facts = Facts::of(&certificate(&["10.0.0.1", "::1", "a.example", "*.b.example"], "alice")).expect("good");
        assert_eq!(facts.common_name, "alice");
        assert_eq!(facts.ips, ["10.0.0.1".parse::<IpAddr>().expect("good"), "::1".parse().expect("good")]);
        assert_eq!(facts.dns_names, ["a.example", "*.b.example"]);
        assert_eq!(facts.serial, [0x9a, 7]);
        assert_eq!(Facts::of(&certificate(&[], "")).expect("good").common_name, "");
        assert!(Facts::of(&CertificateDer::from(b"no".to_vec())).is_err());
    }

    #[test]
    fn every_cut_of_a_certificate_is_refused_and_no_more() {
        let whole = certificate(&["10.0.0.1"], "alice");
        for cut in 0..whole.len() {
            assert!(Facts::of(&CertificateDer::from(&whole[..cut])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn hosts_are_matched_by_their_kind() {
        let shown = certificate(&["10.0.0.1", "a.example", "*.b.example"], "c.example");
        for (host, expected) in [
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("a.example", true),
            ("x.b.example", true),
            ("b.example", false),
            ("c.example", false),
            ("", false),
            ("no host", false),
        ] {
            assert_eq!(is_valid_for(&shown, host), expected, "{host}");
        }
    }

    #[test]
    fn a_revocation_list_gives_its_serials_however_old_it_is() {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an issuer");
        let long_ago = rcgen::date_time_ymd(2020, 1, 1);
        let revoked = |serial: Vec<u8>| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: long_ago,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: long_ago,
            next_update: rcgen::date_time_ymd(2021, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked(vec![0x9a, 7]), revoked(vec![5])],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).expect("signed");
        let serials = BTreeSet::from([vec![0x9a, 7], vec![5]]);
        assert_eq!(revoked_serials(list.der()).expect("DER"), serials);
        assert_eq!(revoked_serials(list.pem().expect("PEM").as_bytes()).expect("PEM"), serials);
        for bad in [&b""[..], b"garbage", b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"] {
            let error = revoked_serials(bad).expect_err("no list");
            assert_eq!(error.to_string(), "x509: malformed crl");
        }
        let key = KeyPair::generate().expect("a key").serialize_pem();
        assert!(revoked_serials(key.as_bytes()).is_err(), "a key is no list");
    }
}
