//! Cipher suites by the names that Go gives them.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as ours;

/// Those that both Go and rustls have.
static KNOWN: [(&str, SupportedCipherSuite); 11] = [
    ("TLS_AES_128_GCM_SHA256", ours::TLS13_AES_128_GCM_SHA256),
    ("TLS_AES_256_GCM_SHA384", ours::TLS13_AES_256_GCM_SHA384),
    ("TLS_CHACHA20_POLY1305_SHA256", ours::TLS13_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ours::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", ours::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", ours::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", ours::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ours::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", ours::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", ours::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", ours::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Names that etcd takes, of suites that are not safe any more: none is offered here.
static WEAK: [&str; 16] = [
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// What `--cipher-suites` names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suites {
    /// Empty: all that rustls has. As with Go, those of TLS 1.3 are always on.
    pub(crate) chosen: Vec<SupportedCipherSuite>,
    /// As written, for the log.
    pub(crate) named: Vec<String>,
    /// Names that etcd takes and that are not offered.
    pub(crate) weak: Vec<String>,
}

/// # Errors
/// A name that Go does not know, or only names that are not offered.
pub(crate) fn suites(names: &[String]) -> Result<Suites, String> {
    let mut suites = Suites { named: names.to_vec(), ..Suites::default() };
    for name in names {
        match KNOWN.iter().find(|(known, _)| known == name) {
            Some((_, suite)) => suites.chosen.push(*suite),
            None if WEAK.contains(&name.as_str()) => suites.weak.push(name.clone()),
            None => return Err(format!("unexpected TLS cipher suite {name:?}")),
        }
    }
    if suites.chosen.is_empty() && !suites.weak.is_empty() {
        return Err(format!("none of the TLS cipher suites is offered: {}", suites.weak.join(",")));
    }
    if !suites.chosen.is_empty() {
        let always = KNOWN.iter().map(|(_, suite)| *suite).filter(|suite| suite.tls13().is_some());
        let missing: Vec<_> = always.filter(|suite| !suites.chosen.contains(suite)).collect();
        suites.chosen.extend(missing);
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &str) -> Result<Suites, String> {
        suites(&names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_gos() {
        assert!(of("").expect("none").chosen.is_empty());
        let one = of("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_RC4_128_SHA").expect("good");
        assert_eq!(one.chosen.iter().filter(|suite| suite.tls13().is_none()).count(), 1);
        assert_eq!(one.chosen.iter().filter(|suite| suite.tls13().is_some()).count(), 3);
        assert_eq!(one.weak, ["TLS_RSA_WITH_RC4_128_SHA"]);
        assert_eq!(of("TLS_AES_128_GCM_SHA256").expect("good").chosen.len(), 3);
        assert!(of("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305").is_ok());
        assert_eq!(of("TLS_NOPE").expect_err("unknown"), "unexpected TLS cipher suite \"TLS_NOPE\"");
        let text = "none of the TLS cipher suites is offered: TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256";
        assert_eq!(of("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256").expect_err("weak"), text);
    }
}
