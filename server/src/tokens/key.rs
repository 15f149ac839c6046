//! The key that signs and verifies tokens, by the method that etcd's option names.

use super::{Refused, der};
use p521::ecdsa::signature::{Signer as _, Verifier as _};
use ring::rand::SystemRandom;
use ring::{hmac, signature};
use std::path::Path;

/// What `sign-method` may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Hmac(Size),
    Rsa(Size),
    RsaPss(Size),
    Ecdsa(Size),
    EdDsa,
}

/// Of the hash, in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    S256,
    S384,
    S512,
}

impl Method {
    pub(crate) fn of(name: &str) -> Option<Method> {
        if name == "EdDSA" {
            return Some(Method::EdDsa);
        }
        let (kind, size) = name.split_at_checked(2)?;
        let size = match size {
            "256" => Size::S256,
            "384" => Size::S384,
            "512" => Size::S512,
            _ => return None,
        };
        Some(match kind {
            "HS" => Method::Hmac(size),
            "RS" => Method::Rsa(size),
            "PS" => Method::RsaPss(size),
            "ES" => Method::Ecdsa(size),
            _ => return None,
        })
    }
}

pub(crate) enum Key {
    Hmac(hmac::Key),
    Rsa {
        private: Option<Box<signature::RsaKeyPair>>,
        padding: &'static dyn signature::RsaEncoding,
        public: signature::UnparsedPublicKey<Vec<u8>>,
    },
    Ecdsa {
        private: Option<Box<signature::EcdsaKeyPair>>,
        public: signature::UnparsedPublicKey<Vec<u8>>,
    },
    P521 {
        private: Option<Box<p521::ecdsa::SigningKey>>,
        public: Box<p521::ecdsa::VerifyingKey>,
    },
    EdDsa {
        private: Option<Box<signature::Ed25519KeyPair>>,
        public: signature::UnparsedPublicKey<Vec<u8>>,
    },
}

fn read(path: &str) -> Result<Option<Vec<u8>>, Refused> {
    if path.is_empty() {
        return Ok(None);
    }
    let bytes = std::fs::read(Path::new(path)).map_err(|error| Refused::Options(format!("{path}: {error}")))?;
    Ok(Some(bytes))
}

/// Of both keys, if they are there.
struct Pems {
    private: Option<(String, Vec<u8>)>,
    public: Option<(String, Vec<u8>)>,
}

fn unusable(what: &'static str, path: &str) -> Refused {
    Refused::NoSuchKey { what, path: path.to_owned(), why: String::new() }
}

impl Pems {
    fn read(private: &str, public: &str) -> Result<Pems, Refused> {
        let pem = |path: &str| match read(path)? {
            Some(bytes) => der::pem(&bytes).map(Some).ok_or_else(|| Refused::NoPem { path: path.to_owned() }),
            None => Ok(None),
        };
        let pems = Pems { private: pem(private)?, public: pem(public)? };
        match (&pems.private, &pems.public) {
            (None, None) => Err(Refused::NoKey),
            _ => Ok(pems),
        }
    }

    /// The public key's own bytes.
    fn public(&self) -> Option<Option<Vec<u8>>> {
        let Some((label, bytes)) = &self.public else { return Some(None) };
        let key = match label.as_str() {
            "PUBLIC KEY" => der::of_public(bytes),
            "CERTIFICATE" => der::of_certificate(bytes),
            "RSA PUBLIC KEY" => Some(&bytes[..]),
            _ => None,
        };
        key.map(|key| Some(key.to_vec()))
    }

    /// Scalar and point of an elliptic curve.
    fn ec(&self) -> Option<Option<(Vec<u8>, Option<Vec<u8>>)>> {
        let Some((label, bytes)) = &self.private else { return Some(None) };
        let key = match label.as_str() {
            "PRIVATE KEY" => der::of_pkcs8(bytes)?,
            _ => bytes,
        };
        let (scalar, point) = der::of_ec(key)?;
        Some(Some((scalar.to_vec(), point.map(<[u8]>::to_vec))))
    }
}

/// The public key: that of the private one, or the given one. Both must be the same.
fn one(own: Option<Vec<u8>>, given: Option<Vec<u8>>) -> Result<Vec<u8>, Refused> {
    match (own, given) {
        (Some(own), Some(given)) if own != given => Err(Refused::Mismatch),
        (Some(key), _) | (None, Some(key)) => Ok(key),
        (None, None) => Err(Refused::NoKey),
    }
}

impl Key {
    /// `private` and `public`: paths, or empty.
    ///
    /// # Errors
    /// Files that cannot be read, are no such keys, or do not belong together.
    pub(crate) fn new(method: Method, private: &str, public: &str) -> Result<Key, Refused> {
        let Method::Hmac(size) = method else {
            let pems = Pems::read(private, public)?;
            let given = pems.public().ok_or_else(|| unusable("public key", public))?;
            return match method {
                Method::Rsa(size) => rsa(&pems, given, private, rsa_pkcs1(size)),
                Method::RsaPss(size) => rsa(&pems, given, private, rsa_pss(size)),
                Method::Ecdsa(Size::S512) => p521(&pems, given, private, public),
                Method::Ecdsa(size) => ecdsa(&pems, given, private, size),
                Method::EdDsa => eddsa(&pems, given, private),
                Method::Hmac(_) => unreachable!("taken before"),
            };
        };
        let secret = read(private)?.filter(|secret| !secret.is_empty()).ok_or(Refused::NoKey)?;
        let algorithm = match size {
            Size::S256 => hmac::HMAC_SHA256,
            Size::S384 => hmac::HMAC_SHA384,
            Size::S512 => hmac::HMAC_SHA512,
        };
        Ok(Key::Hmac(hmac::Key::new(algorithm, &secret)))
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Key::Hmac(key) => hmac::verify(key, message, signature).is_ok(),
            Key::Rsa { public, .. } | Key::Ecdsa { public, .. } | Key::EdDsa { public, .. } => {
                public.verify(message, signature).is_ok()
            }
            Key::P521 { public, .. } => {
                let signature = p521::ecdsa::Signature::from_slice(signature);
                signature.is_ok_and(|signature| public.verify(message, &signature).is_ok())
            }
        }
    }

    /// None: there is no private key.
    pub(crate) fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Key::Hmac(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
            Key::Rsa { private, padding, .. } => {
                let private = private.as_ref()?;
                let mut signature = vec![0; private.public().modulus_len()];
                private.sign(*padding, &random, message, &mut signature).ok()?;
                Some(signature)
            }
            Key::Ecdsa { private, .. } => Some(private.as_ref()?.sign(&random, message).ok()?.as_ref().to_vec()),
            Key::P521 { private, .. } => {
                let signature: p521::ecdsa::Signature = private.as_ref()?.sign(message);
                Some(signature.to_bytes().to_vec())
            }
            Key::EdDsa { private, .. } => Some(private.as_ref()?.sign(message).as_ref().to_vec()),
        }
    }
}

type Rsa = (&'static dyn signature::RsaEncoding, &'static dyn signature::VerificationAlgorithm);

fn rsa_pkcs1(size: Size) -> Rsa {
    match size {
        Size::S256 => (&signature::RSA_PKCS1_SHA256, &signature::RSA_PKCS1_2048_8192_SHA256),
        Size::S384 => (&signature::RSA_PKCS1_SHA384, &signature::RSA_PKCS1_2048_8192_SHA384),
        Size::S512 => (&signature::RSA_PKCS1_SHA512, &signature::RSA_PKCS1_2048_8192_SHA512),
    }
}

fn rsa_pss(size: Size) -> Rsa {
    match size {
        Size::S256 => (&signature::RSA_PSS_SHA256, &signature::RSA_PSS_2048_8192_SHA256),
        Size::S384 => (&signature::RSA_PSS_SHA384, &signature::RSA_PSS_2048_8192_SHA384),
        Size::S512 => (&signature::RSA_PSS_SHA512, &signature::RSA_PSS_2048_8192_SHA512),
    }
}

fn rsa(pems: &Pems, given: Option<Vec<u8>>, path: &str, (padding, algorithm): Rsa) -> Result<Key, Refused> {
    let private = match &pems.private {
        None => None,
        Some((label, bytes)) => {
            let pair = match label.as_str() {
                "RSA PRIVATE KEY" => signature::RsaKeyPair::from_der(bytes),
                _ => signature::RsaKeyPair::from_pkcs8(bytes),
            };
            Some(Box::new(pair.map_err(|why| {
                let (what, why) = ("RSA key", format!(": {why}"));
                Refused::NoSuchKey { what, path: path.to_owned(), why }
            })?))
        }
    };
    let own = private.as_ref().map(|pair| pair.public().as_ref().to_vec());
    let public = signature::UnparsedPublicKey::new(algorithm, one(own, given)?);
    Ok(Key::Rsa { private, padding, public })
}

fn ecdsa(pems: &Pems, given: Option<Vec<u8>>, path: &str, size: Size) -> Result<Key, Refused> {
    let (signing, verifying): (_, &dyn signature::VerificationAlgorithm) = match size {
        Size::S256 => (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &signature::ECDSA_P256_SHA256_FIXED),
        Size::S384 | Size::S512 => (&signature::ECDSA_P384_SHA384_FIXED_SIGNING, &signature::ECDSA_P384_SHA384_FIXED),
    };
    let wrong = || unusable("key of that curve", path);
    let (mut own, mut private) = (None, None);
    if let Some((scalar, point)) = pems.ec().ok_or_else(wrong)? {
        let point = point.or_else(|| given.clone()).ok_or_else(wrong)?;
        let random = SystemRandom::new();
        let pair = signature::EcdsaKeyPair::from_private_key_and_public_key(signing, &scalar, &point, &random);
        private = Some(Box::new(pair.map_err(|_| wrong())?));
        own = Some(point);
    }
    let public = one(own, given)?;
    let len = if size == Size::S256 { 65 } else { 97 };
    if public.len() != len {
        return Err(unusable("key of that curve", "pub-key"));
    }
    Ok(Key::Ecdsa { private, public: signature::UnparsedPublicKey::new(verifying, public) })
}

/// Bytes of a private key on the curve P-521.
const P521_SCALAR: usize = 66;

fn p521(pems: &Pems, given: Option<Vec<u8>>, path: &str, public_path: &str) -> Result<Key, Refused> {
    let wrong = || unusable("key of that curve", path);
    let mut private = None;
    if let Some((scalar, _)) = pems.ec().ok_or_else(wrong)? {
        // A shorter one belongs to another curve, and would be taken for a small number of this
        // one.
        if scalar.len() != P521_SCALAR {
            return Err(wrong());
        }
        private = Some(Box::new(p521::ecdsa::SigningKey::from_slice(&scalar).map_err(|_| wrong())?));
    }
    let point = |key: &p521::ecdsa::VerifyingKey| key.to_sec1_point(false).as_bytes().to_vec();
    let own = private.as_ref().map(|key| point(key.verifying_key()));
    let public = p521::ecdsa::VerifyingKey::from_sec1_bytes(&one(own, given)?);
    let public = Box::new(public.map_err(|_| unusable("key of that curve", public_path))?);
    Ok(Key::P521 { private, public })
}

fn eddsa(pems: &Pems, given: Option<Vec<u8>>, path: &str) -> Result<Key, Refused> {
    use signature::KeyPair;
    let private = match &pems.private {
        None => None,
        Some((_, bytes)) => {
            let pair = signature::Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes);
            Some(Box::new(pair.map_err(|_| unusable("Ed25519 key", path))?))
        }
    };
    let own = private.as_ref().map(|pair| pair.public_key().as_ref().to_vec());
    let public = signature::UnparsedPublicKey::new(&signature::ED25519, one(own, given)?);
    Ok(Key::EdDsa { private, public })
}
