//! Hashing passwords and comparing them, with bcrypt: on threads of its own, few at once.
//!
//! One comparison takes a processor for tens of milliseconds. Clients that try passwords must not
//! stop others, so only as many run as there are processors, and a bounded number waits. Each
//! address has a line of its own, and the lines take turns: whoever tries many passwords waits
//! behind himself.

mod lines;

use crate::sockets::Origin;
use lines::{Crowded, Lines, Turn};
use std::sync::Arc;

/// Calls that wait for their turn. More are refused.
const WAITING: usize = 256;
/// bcrypt looks at no more bytes; Go refuses to hash a longer one.
const LONGEST: usize = 72;

pub(crate) struct Passwords {
    lines: Arc<Lines>,
    cost: u32,
}

/// Why there is no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Too many wait.
    Crowded,
    /// The password is longer than bcrypt can take.
    TooLong,
    Broken,
}

impl From<Crowded> for Failed {
    fn from(_: Crowded) -> Failed {
        Failed::Crowded
    }
}

impl Passwords {
    /// `cost`: as bcrypt counts it.
    pub(crate) fn new(cost: u32) -> Passwords {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Passwords { lines: Lines::new(processors.min(4), WAITING), cost }
    }

    /// The hash of a password, as text of bcrypt's form that Go reads. `from`: who asks.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) async fn hash(&self, from: Option<Origin>, password: String) -> Result<String, Failed> {
        if password.len() > LONGEST {
            return Err(Failed::TooLong);
        }
        let cost = self.cost;
        let hashed = self.run(from, move || bcrypt::hash_with_result(password, cost)).await?;
        Ok(hashed.map_err(|_| Failed::Broken)?.format_for_version(bcrypt::Version::TwoA))
    }

    /// Whether the password is the one of the hash.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) async fn verify(&self, from: Option<Origin>, password: String, hash: Vec<u8>) -> Result<bool, Failed> {
        self.run(from, move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            bcrypt::verify(password, hash).unwrap_or(false)
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        from: Option<Origin>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let permit = match self.lines.enter(from.map(Origin::source))? {
            Turn::Now(permit) => permit,
            Turn::Later(turn) => turn.await.map_err(|_| Failed::Crowded)?,
        };
        // The permit goes with the work: a client that leaves does not make room for more.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        });
        done.await.map_err(|_| Failed::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hashes_are_those_of_go() {
        let passwords = Passwords::new(4);
        let hash = passwords.hash(None, "secret".into()).await.unwrap();
        assert!(hash.starts_with("$2a$04$") && hash.len() == 60, "{hash}");
        assert_eq!(passwords.verify(None, "secret".into(), hash.clone().into()).await, Ok(true));
        assert_eq!(passwords.verify(None, "Secret".into(), hash.into()).await, Ok(false));
        // An empty password is one, as in etcd.
        let empty = passwords.hash(None, String::new()).await.unwrap();
        assert_eq!(passwords.verify(None, String::new(), empty.clone().into()).await, Ok(true));
        assert_eq!(passwords.verify(None, "x".into(), empty.into()).await, Ok(false));
        assert_eq!(passwords.verify(None, "x".into(), Vec::new()).await, Ok(false));
        assert_eq!(passwords.hash(None, "p".repeat(73)).await, Err(Failed::TooLong));
        // Made by golang.org/x/crypto/bcrypt.
        let of_go = b"$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga".to_vec();
        assert_eq!(passwords.verify(None, "allmine".into(), of_go).await, Ok(true));
    }

    fn from(last: u8) -> Option<Origin> {
        Some(Origin::Host([10, 0, 0, last].into()))
    }

    #[tokio::test]
    async fn who_tries_many_passwords_keeps_nobody_out() {
        let passwords = Arc::new(Passwords::new(4));
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        let (order, done) = std::sync::mpsc::channel();
        let enter = |last: u8| {
            let (passwords, gate, order) = (passwords.clone(), gate.clone(), order.clone());
            tokio::spawn(async move {
                let work = move || {
                    let _ = gate.lock().unwrap().recv();
                    let _ = order.send(last);
                };
                passwords.run(from(last), work).await
            })
        };
        // Each turn of the runtime begins some of them.
        let crowd: Vec<_> = (0..2 * WAITING).map(|_| enter(1)).collect();
        for _ in 0..2 * WAITING {
            tokio::task::yield_now().await;
        }
        let honest = enter(2);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!honest.is_finished(), "it is not refused");
        drop(go);
        assert_eq!(honest.await.unwrap(), Ok(()));
        let mut refused = 0;
        for one in crowd {
            refused += usize::from(one.await.unwrap() == Err(Failed::Crowded));
        }
        let order: Vec<u8> = done.try_iter().collect();
        let at = order.iter().position(|last| *last == 2).expect("it had its turn");
        assert!(at <= 2 * 4, "its turn came behind {at} others");
        assert_eq!(order.len() + refused, 2 * WAITING + 1);
        assert!(refused >= WAITING - 4, "{refused} were refused");
    }
}
