//! Whether a peer's certificate fits where it comes from, and who it says it is.

use hickory_resolver::Resolver;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use tls::{Facts, is_valid_for};

/// A certificate that does not fit where its bearer comes from, in etcd's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Misplaced {
    /// It names addresses, and none is the caller's.
    #[error("x509: certificate is valid for {}, not {from}", joined(valid))]
    Address { valid: Vec<IpAddr>, from: IpAddr },
    /// It names hosts, and none is the caller.
    #[error("tls: {:?} does not match any of DNSNames {}", from.to_string(), super::wish::quoted(names))]
    Name { names: Vec<String>, from: IpAddr },
}

fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// As etcd checks it: a certificate without addresses and DNS names comes from anywhere. Else one
/// of its addresses is the caller's, or one of its DNS names is a name of the caller or leads to
/// it.
///
/// # Errors
/// What does not fit.
pub(crate) async fn check(facts: &Facts, from: IpAddr) -> Result<(), Misplaced> {
    let from = from.to_canonical();
    if !facts.ips.is_empty() {
        if facts.ips.contains(&from) {
            return Ok(());
        }
        if facts.dns_names.is_empty() {
            return Err(Misplaced::Address { valid: facts.ips.clone(), from });
        }
    }
    if facts.dns_names.is_empty() || leads_to(&facts.dns_names, from).await || is_named(&facts.dns_names, from).await {
        return Ok(());
    }
    Err(Misplaced::Name { names: facts.dns_names.clone(), from })
}

/// Whether one of these names has this address.
async fn leads_to(names: &[String], address: IpAddr) -> bool {
    for name in names.iter().filter(|name| !name.starts_with("*.")) {
        // What the name service does not know leads nowhere.
        if let Ok(mut found) = tokio::net::lookup_host((name.as_str(), 0)).await
            && found.any(|found| found.ip().to_canonical() == address)
        {
            return true;
        }
    }
    false
}

/// Whether the name service calls this address by one of these names.
async fn is_named(names: &[String], address: IpAddr) -> bool {
    let Ok(builder) = Resolver::builder_tokio() else { return false };
    let Ok(resolver) = builder.build() else { return false };
    let Ok(answer) = resolver.lookup(Name::from(address), RecordType::PTR).await else { return false };
    answer.answers().iter().any(|record| match &record.data {
        RData::PTR(name) => fits(names, name.0.to_utf8().trim_end_matches('.')),
        _ => false,
    })
}

fn fits(names: &[String], name: &str) -> bool {
    names.iter().any(|dns| match dns.strip_prefix('*') {
        Some(tail) if tail.starts_with('.') => name.ends_with(tail),
        _ => dns == name,
    })
}

/// Whether a certificate may speak for the member with these peer URLs: it names the host of one of
/// them, or no host at all.
pub(crate) fn speaks_for(shown: &CertificateDer<'_>, peer_urls: &[String]) -> bool {
    let Ok(facts) = Facts::of(shown) else { return false };
    if facts.ips.is_empty() && facts.dns_names.is_empty() {
        return true;
    }
    let urls = peer_urls.iter().filter_map(|url| disk::urls::Url::parse(url).ok());
    urls.into_iter().any(|url| is_valid_for(shown, crate::sockets::host(&url)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn shown(names: &[&str]) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = CertificateParams::new(names).expect("names");
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate").der().clone()
    }

    async fn checked(names: &[&str], from: &str) -> Result<(), Misplaced> {
        check(&Facts::of(&shown(names)).expect("good"), from.parse().expect("an address")).await
    }

    #[tokio::test]
    async fn a_peer_comes_from_where_its_certificate_says() {
        for names in [&[][..], &["10.0.0.1"], &["10.0.0.9", "10.0.0.1"]] {
            assert_eq!(checked(names, "10.0.0.1").await, Ok(()), "{names:?}");
            assert_eq!(checked(names, "::ffff:10.0.0.1").await, Ok(()), "{names:?}");
        }
        assert_eq!(checked(&["localhost"], "127.0.0.1").await, Ok(()));
        assert_eq!(checked(&["10.0.0.9", "localhost"], "127.0.0.1").await, Ok(()));
        let text = "x509: certificate is valid for 10.0.0.1, ::1, not 10.0.0.2";
        let elsewhere = checked(&["10.0.0.1", "::1"], "10.0.0.2").await;
        assert_eq!(elsewhere.expect_err("another address").to_string(), text);
    }

    #[test]
    fn names_of_an_address_fit_wildcards() {
        let names = ["*.etcd.svc".to_owned(), "a.example".to_owned()];
        assert!(fits(&names, "m0.etcd.svc") && fits(&names, "a.example"));
        assert!(!fits(&names, "etcd.svc") && !fits(&names, "b.example"));
    }

    #[test]
    fn a_certificate_speaks_for_the_hosts_it_names() {
        let urls = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let table: [(&[&str], &[&str], bool); 5] = [
            (&["10.0.0.1"], &["https://10.0.0.1:2380"], true),
            (&["10.0.0.1"], &["https://10.0.0.2:2380"], false),
            (&["10.0.0.1"], &["https://10.0.0.2:2380", "https://10.0.0.1:2380"], true),
            (&["*.etcd.svc"], &["https://m0.etcd.svc:2380"], true),
            (&[], &["https://10.0.0.2:2380"], true),
        ];
        for (names, peer_urls, expected) in table {
            assert_eq!(speaks_for(&shown(names), &urls(peer_urls)), expected, "{names:?} {peer_urls:?}");
        }
    }
}
