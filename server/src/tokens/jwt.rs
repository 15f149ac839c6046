//! Signed tokens: JWT with the claims that etcd puts in, `username`, `revision` and `exp`.

use super::Refused;
use super::key::{Key, Method};
use crate::flags::parse_duration;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as URL;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How long a token is good, if `ttl` does not say so. Seconds.
const TTL: u64 = 5 * 60;

pub(crate) struct Jwt {
    /// As the header names the method.
    method: String,
    key: Key,
    /// Seconds.
    ttl: i64,
}

impl Jwt {
    /// # Errors
    /// See [`super::Tokens::new`].
    pub(crate) fn new(options: &BTreeMap<&str, &str>) -> Result<Jwt, Refused> {
        let option = |name: &str| options.get(name).copied().unwrap_or_default();
        let method = option("sign-method");
        let kind = Method::of(method);
        let kind = kind.ok_or_else(|| Refused::Options("invalid auth signature method".into()))?;
        let ttl = match option("ttl") {
            "" => TTL.cast_signed(),
            text => match parse_duration(text) {
                Some(nanos) => nanos / 1_000_000_000,
                None => return Err(Refused::Options(format!("ttl {text:?}"))),
            },
        };
        let key = Key::new(kind, option("priv-key"), option("pub-key"))?;
        Ok(Jwt { method: method.to_owned(), key, ttl })
    }

    /// `now`: seconds since 1970.
    ///
    /// # Errors
    /// There is no private key.
    pub(crate) fn sign(&self, user: &str, revision: u64, now: u64) -> Result<String, Refused> {
        let header = json!({ "alg": self.method, "typ": "JWT" });
        let ends = now.cast_signed().saturating_add(self.ttl);
        let claims = json!({ "exp": ends, "revision": revision, "username": user });
        let mut token = format!("{}.{}", URL.encode(header.to_string()), URL.encode(claims.to_string()));
        let signature = self.key.sign(token.as_bytes()).ok_or(Refused::VerifyOnly)?;
        token.push('.');
        token.push_str(&URL.encode(signature));
        Ok(token)
    }

    /// User, and revision of users and roles, of a token that is right and not over. `now` as in
    /// [`Jwt::sign`].
    pub(crate) fn verify(&self, token: &str, now: u64) -> Option<(String, u64)> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |text: &str| serde_json::from_slice::<Value>(&URL.decode(text).ok()?).ok();
        if object(header)?.get("alg")?.as_str()? != self.method {
            return None;
        }
        if !self.key.verifies(signed.as_bytes(), &URL.decode(signature).ok()?) {
            return None;
        }
        let claims = object(claims)?;
        let time = |name: &str| match claims.get(name) {
            None => Some(None),
            Some(value) => value.as_f64().map(Some),
        };
        let over = time("exp")?.is_some_and(|ends| now as f64 >= ends);
        let early = time("nbf")?.is_some_and(|begins| (now as f64) < begins);
        if over || early {
            return None;
        }
        let revision = claims.get("revision")?.as_f64()?;
        Some((claims.get("username")?.as_str()?.to_owned(), revision as u64))
    }
}
