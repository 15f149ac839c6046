//! The tokens that clients show: `--auth-token`.
//!
//! A simple token is a random name that the members know by the log. A signed one (JWT, `jwt`) says
//! by itself who shows it, and is verified here. Keys are read once, at start.

mod der;
mod jwt;
mod key;
mod refused;
#[cfg(test)]
mod signed;

pub(crate) use refused::Refused;

use node::{Secret, Who};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Longest token that is looked at. Bytes.
const LONGEST: usize = 8 << 10;

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Letters of a simple token in front of its index.
const SIMPLE: usize = 16;
/// Longest simple token that can be one: the letters, a point, an index. Bytes.
const LONGEST_SIMPLE: usize = SIMPLE + 1 + 20;

/// How this member makes tokens and reads them.
pub(crate) enum Tokens {
    Simple,
    Jwt(Box<jwt::Jwt>),
    /// `--auth-token=`: nobody can log in.
    None,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tokens::Simple => "Simple",
            Tokens::Jwt(_) => "Jwt",
            Tokens::None => "None",
        })
    }
}

impl Tokens {
    /// `text`: the value of `--auth-token`, a kind and its options.
    ///
    /// # Errors
    /// What is wrong with it, or with a key file that it names.
    pub(crate) fn new(text: &str) -> Result<Tokens, Refused> {
        let mut parts = text.split(',');
        let kind = parts.next().unwrap_or_default();
        let mut options = BTreeMap::new();
        for part in parts {
            let pair = part.split_once('=').filter(|(_, value)| !value.contains('='));
            let (name, value) = pair.ok_or_else(|| Refused::Options(format!("{part:?}")))?;
            if options.insert(name, value).is_some() {
                return Err(Refused::Options(format!("{name} is given twice")));
            }
        }
        match kind {
            "simple" => Ok(Tokens::Simple),
            "jwt" => jwt::Jwt::new(&options).map(|jwt| Tokens::Jwt(Box::new(jwt))),
            "" => Ok(Tokens::None),
            other => Err(Refused::Options(format!("unknown type {other:?}"))),
        }
    }

    /// The random part of a simple token; empty for other kinds.
    pub(crate) fn draw(&self) -> String {
        match self {
            Tokens::Simple => simple(),
            Tokens::Jwt(_) | Tokens::None => String::new(),
        }
    }

    /// The token of a login. `drawn`: the random part, `index` of the login's entry, `revision` of
    /// users and roles.
    ///
    /// # Errors
    /// This member has no key to sign with.
    pub(crate) fn issue(&self, user: &str, drawn: &str, index: u64, revision: u64) -> Result<String, Refused> {
        match self {
            Tokens::Simple => Ok(format!("{drawn}.{index}")),
            Tokens::Jwt(jwt) => jwt.sign(user, revision, now()),
            Tokens::None => Err(Refused::NoTokens),
        }
    }

    /// Who shows this token.
    pub(crate) fn read(&self, token: &str) -> Who {
        if token.len() > LONGEST {
            return Who::Invalid;
        }
        match self {
            // It waits in queues with its request, so it must be small.
            Tokens::Simple if token.len() > LONGEST_SIMPLE => Who::Invalid,
            Tokens::Simple => Who::Token(Secret::new(token)),
            Tokens::Jwt(jwt) => match jwt.verify(token, now()) {
                Some((user, revision)) => Who::Signed { user: user.into(), revision },
                None => Who::Invalid,
            },
            Tokens::None => Who::Invalid,
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Sixteen letters that nobody can guess.
fn simple() -> String {
    let random = SystemRandom::new();
    let mut token = String::with_capacity(SIMPLE);
    while token.len() < SIMPLE {
        let mut drawn = [0; 32];
        random.fill(&mut drawn).expect("the system has randomness");
        // Beyond the last whole multiple some letters would come more often.
        let even = drawn.iter().filter(|byte| **byte < 208).map(|byte| LETTERS[usize::from(*byte) % 52] as char);
        token.extend(even.take(SIMPLE - token.len()));
    }
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_tokens_are_letters_and_never_the_same() {
        let (one, two) = (simple(), simple());
        assert!(one.len() == 16 && one.bytes().all(|b| b.is_ascii_alphabetic()));
        assert_ne!(one, two);
        assert_eq!(Tokens::Simple.issue("u", "abc", 12, 3).unwrap(), "abc.12");
        assert_eq!(Tokens::Simple.read("abc.12"), Who::Token(Secret::new("abc.12")));
        assert_eq!(Tokens::Simple.read(&"a".repeat(LONGEST_SIMPLE + 1)), Who::Invalid);
        assert!(!format!("{:?}", Tokens::Simple.read("abc.12")).contains("abc"));
    }

    #[test]
    fn options_are_read_as_etcd_reads_them() {
        assert!(matches!(Tokens::new("simple"), Ok(Tokens::Simple)));
        assert!(matches!(Tokens::new("simple,a=b"), Ok(Tokens::Simple)));
        assert!(matches!(Tokens::new(""), Ok(Tokens::None)));
        for wrong in ["jwt", "x", "jwt,a", "jwt,a=b=c", "jwt,ttl=1m,ttl=2m", "jwt,sign-method=none,priv-key=x"] {
            let error = Tokens::new(wrong).unwrap_err().to_string();
            assert!(error.starts_with("auth: "), "{wrong}: {error}");
        }
    }
}
