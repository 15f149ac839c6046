//! Tests of signed tokens. The keys in `tests/keys` were made for them alone.

use super::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as URL;

fn key(name: &str) -> String {
    format!("{}/tests/keys/{name}.pem", env!("CARGO_MANIFEST_DIR"))
}

fn jwt(method: &str, private: &str, public: &str) -> Result<jwt::Jwt, Refused> {
    let path = |name: &str| if name.is_empty() { String::new() } else { key(name) };
    let (private, public) = (path(private), path(public));
    let options = [("sign-method", method), ("priv-key", &*private), ("pub-key", &*public), ("ttl", "1m")];
    jwt::Jwt::new(&options.into_iter().collect())
}

/// Method, private key, the same in another form, public key.
const KEYS: [(&str, &str, &str, &str); 13] = [
    ("HS256", "ed", "ed", ""),
    ("HS384", "ed", "ed", ""),
    ("HS512", "ed", "ed", ""),
    ("RS256", "rsa", "rsa-pkcs1", "rsa.pub"),
    ("RS384", "rsa", "rsa-pkcs1", "rsa.cert"),
    ("RS512", "rsa", "rsa-pkcs1", "rsa.pub"),
    ("PS256", "rsa", "rsa-pkcs1", "rsa.pub"),
    ("PS384", "rsa", "rsa-pkcs1", "rsa.cert"),
    ("PS512", "rsa", "rsa-pkcs1", "rsa.pub"),
    ("ES256", "p256", "p256-pkcs8", "p256.pub"),
    ("ES384", "p384", "p384-pkcs8", "p384.pub"),
    ("ES512", "p521", "p521-pkcs8", "p521.pub"),
    ("EdDSA", "ed", "ed", "ed.pub"),
];

#[test]
fn every_method_signs_and_verifies() {
    for (method, private, other, public) in KEYS {
        let signer = jwt(method, private, public).unwrap_or_else(|why| panic!("{method}: {why}"));
        let token = signer.sign("alice", 7, 1_000).unwrap();
        let mut verifiers = vec![jwt(method, private, "").unwrap(), jwt(method, other, "").unwrap()];
        if !public.is_empty() {
            let alone = jwt(method, "", public).unwrap();
            let why = alone.sign("alice", 7, 1_000).unwrap_err();
            assert_eq!(why.to_string(), "auth: token signing attempted with verify-only key");
            verifiers.push(alone);
        }
        for verifier in &verifiers {
            assert_eq!(verifier.verify(&token, 1_059), Some(("alice".into(), 7)), "{method}");
            assert_eq!(verifier.verify(&token, 1_060), None, "{method}: it is over");
        }
        for at in 0..token.len() {
            let mut other = token.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            let last = at + 1 == token.len(); // its lowest bits may be no part of the signature
            assert!(last || signer.verify(&other, 1_000).is_none(), "{method}: changed at {at}");
            assert!(signer.verify(&token[..at], 1_000).is_none(), "{method}: cut at {at}");
        }
    }
}

#[test]
fn a_token_of_another_method_or_key_is_none() {
    let signers: Vec<_> = KEYS.iter().map(|(method, private, ..)| jwt(method, private, "").unwrap()).collect();
    for (at, signer) in signers.iter().enumerate() {
        let token = signer.sign("alice", 7, 1_000).unwrap();
        for (other, verifier) in signers.iter().enumerate() {
            assert_eq!(verifier.verify(&token, 1_000).is_some(), at == other, "{} by {}", KEYS[at].0, KEYS[other].0);
        }
    }
    // "none", and a MAC made with the public key.
    let rsa = jwt("RS256", "", "rsa.pub").unwrap();
    let claims = URL.encode(r#"{"exp":9999999999,"revision":7,"username":"root"}"#);
    for header in [r#"{"alg":"none"}"#, r#"{"alg":"HS256"}"#, r#"{}"#, "x"] {
        let signed = format!("{}.{claims}", URL.encode(header));
        let public = std::fs::read(key("rsa.pub")).unwrap();
        let mac = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public), signed.as_bytes());
        for signature in [String::new(), URL.encode(mac.as_ref())] {
            assert_eq!(rsa.verify(&format!("{signed}.{signature}"), 1_000), None, "{header}");
        }
    }
}

#[test]
fn claims_must_be_there() {
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &std::fs::read(key("ed")).unwrap());
    let verifier = jwt("HS256", "ed", "").unwrap();
    let table = [
        (r#"{"revision":7,"username":"a"}"#, true),
        (r#"{"revision":7,"username":"a","exp":1001}"#, true),
        (r#"{"revision":7,"username":"a","exp":1000}"#, false),
        (r#"{"revision":7,"username":"a","exp":"later"}"#, false),
        (r#"{"revision":7,"username":"a","nbf":1000}"#, true),
        (r#"{"revision":7,"username":"a","nbf":1001}"#, false),
        (r#"{"username":"a"}"#, false),
        (r#"{"revision":"7","username":"a"}"#, false),
        (r#"{"revision":7}"#, false),
        (r#"{"revision":7,"username":3}"#, false),
        ("[]", false),
    ];
    for (claims, good) in table {
        let signed = format!("{}.{}", URL.encode(r#"{"alg":"HS256"}"#), URL.encode(claims));
        let mac = ring::hmac::sign(&secret, signed.as_bytes());
        let token = format!("{signed}.{}", URL.encode(mac.as_ref()));
        assert_eq!(verifier.verify(&token, 1_000).is_some(), good, "{claims}");
    }
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    let why = |method, private, public| match jwt(method, private, public) {
        Err(refused) => refused.to_string(),
        Ok(_) => panic!("{method} is taken"),
    };
    assert_eq!(why("RS256", "", ""), "auth: missing key data");
    assert_eq!(why("HS256", "", "rsa.pub"), "auth: missing key data");
    assert_eq!(why("ES256", "p256", "p384.pub"), "auth: public and private keys don't match");
    assert_eq!(why("EdDSA", "ed", "rsa.pub"), "auth: public and private keys don't match");
    for (method, private) in
        [("ES256", "p384"), ("ES384", "p256"), ("ES512", "p256"), ("RS256", "ed"), ("EdDSA", "rsa")]
    {
        let why = why(method, private, "");
        assert!(why.starts_with("auth: ") && why.contains(&format!("{private}.pem")), "{method}: {why}");
    }
    assert!(why("ES256", "", "p384.pub").starts_with("auth: "));
    assert!(why("RS256", "none", "").contains("none.pem"));
}
