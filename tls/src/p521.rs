//! Certificates and keys on the curve P-521: those that etcd makes for itself
//! (`--auto-tls`) are on it, and `ring` does not have it.

use std::sync::{Arc, LazyLock};

use p521::{
    SecretKey,
    ecdsa::{
        Signature, SigningKey, VerifyingKey,
        signature::{Signer as _, Verifier as _},
    },
    pkcs8::DecodePrivateKey,
};
use rustls::{
    Error, SignatureAlgorithm, SignatureScheme,
    crypto::{CryptoProvider, KeyProvider, WebPkiSupportedAlgorithms, ring},
    pki_types::{AlgorithmIdentifier, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm, alg_id},
    sign::{self, Signer},
};

/// The only scheme of this curve that TLS 1.3 has.
const SCHEME: SignatureScheme = SignatureScheme::ECDSA_NISTP521_SHA512;

static VERIFY: &[&dyn SignatureVerificationAlgorithm] = &[&Verify];

type Mapping = (SignatureScheme, &'static [&'static dyn SignatureVerificationAlgorithm]);

static ALL: LazyLock<Vec<&'static dyn SignatureVerificationAlgorithm>> = LazyLock::new(|| {
    let known = ring::default_provider().signature_verification_algorithms;
    known.all.iter().chain(VERIFY).copied().collect()
});

static MAPPING: LazyLock<Vec<Mapping>> = LazyLock::new(|| {
    let known = ring::default_provider().signature_verification_algorithms;
    known.mapping.iter().copied().chain([(SCHEME, VERIFY)]).collect()
});

/// What `ring` has, and this curve.
pub fn provider() -> CryptoProvider {
    CryptoProvider {
        signature_verification_algorithms: WebPkiSupportedAlgorithms { all: &ALL, mapping: &MAPPING },
        key_provider: &Keys,
        ..ring::default_provider()
    }
}

/// Verifies signatures over SHA-512.
#[derive(Debug)]
struct Verify;

impl SignatureVerificationAlgorithm for Verify {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = VerifyingKey::from_sec1_bytes(public_key).map_err(|_| InvalidSignature)?;
        let signature = Signature::from_der(signature).map_err(|_| InvalidSignature)?;
        key.verify(message, &signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P521
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA512
    }
}

/// Reads private keys; those that `ring` does not know may be on this curve.
#[derive(Debug)]
struct Keys;

impl KeyProvider for Keys {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn sign::SigningKey>, Error> {
        let read = match &key {
            PrivateKeyDer::Pkcs8(der) => SecretKey::from_pkcs8_der(der.secret_pkcs8_der()).ok(),
            PrivateKeyDer::Sec1(der) => SecretKey::from_sec1_der(der.secret_sec1_der()).ok(),
            _ => None,
        };
        match read {
            Some(secret) => Ok(Arc::new(Key(SigningKey::from(secret)))),
            None => ring::default_provider().key_provider.load_private_key(key),
        }
    }
}

#[derive(Clone)]
struct Key(SigningKey);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").finish_non_exhaustive()
    }
}

impl sign::SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SCHEME).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature: Signature = self.0.sign(message);
        Ok(signature.to_der().as_bytes().to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SCHEME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_verified_and_nothing_else() {
        // Any number below the order of the curve, which begins with 01 ff.
        let mut secret = [7; 66];
        secret[0] = 0;
        let key = SigningKey::from(SecretKey::from_slice(&secret).expect("below the order"));
        let public = VerifyingKey::from(&key).to_sec1_point(false);
        let signature = Key(key).sign(b"words").expect("signed");
        let verified = |public: &[u8], message: &[u8], signature: &[u8]| {
            Verify.verify_signature(public, message, signature).is_ok()
        };
        assert!(verified(public.as_bytes(), b"words", &signature));
        assert!(!verified(public.as_bytes(), b"other", &signature));
        assert!(!verified(&public.as_bytes()[1..], b"words", &signature));
        assert!(!verified(public.as_bytes(), b"words", &signature[1..]));
        assert!(!verified(b"", b"", b""));
    }
}
