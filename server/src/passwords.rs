//! Hashing passwords and comparing them, with bcrypt: on threads of its own, few at once.
//!
//! One comparison takes a processor for tens of milliseconds. Clients that try passwords must not
//! stop others, so only as many run as there are processors, and a bounded number waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Calls that wait for their turn. More are refused.
const WAITING: usize = 256;
/// bcrypt looks at no more bytes; Go refuses to hash a longer one.
const LONGEST: usize = 72;

pub(crate) struct Passwords {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
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

/// Holds one of the places of those that wait.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Passwords {
    /// `cost`: as bcrypt counts it.
    pub(crate) fn new(cost: u32) -> Passwords {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Passwords { permits: Arc::new(Semaphore::new(processors.min(4))), waiting: AtomicUsize::new(0), cost }
    }

    /// The hash of a password, as text of bcrypt's form that Go reads.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) async fn hash(&self, password: String) -> Result<String, Failed> {
        if password.len() > LONGEST {
            return Err(Failed::TooLong);
        }
        let cost = self.cost;
        let hashed = self.run(move || bcrypt::hash_with_result(password, cost)).await?;
        Ok(hashed.map_err(|_| Failed::Broken)?.format_for_version(bcrypt::Version::TwoA))
    }

    /// Whether the password is the one of the hash.
    ///
    /// # Errors
    /// See [`Failed`].
    pub(crate) async fn verify(&self, password: String, hash: Vec<u8>) -> Result<bool, Failed> {
        self.run(move || {
            let hash = std::str::from_utf8(&hash).unwrap_or_default();
            bcrypt::verify(password, hash).unwrap_or(false)
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(Failed::Crowded);
        }
        let _place = Place(&self.waiting);
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Failed::Broken)?;
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
        let hash = passwords.hash("secret".into()).await.unwrap();
        assert!(hash.starts_with("$2a$04$") && hash.len() == 60, "{hash}");
        assert_eq!(passwords.verify("secret".into(), hash.clone().into()).await, Ok(true));
        assert_eq!(passwords.verify("Secret".into(), hash.into()).await, Ok(false));
        // An empty password is one, as in etcd.
        let empty = passwords.hash(String::new()).await.unwrap();
        assert_eq!(passwords.verify(String::new(), empty.clone().into()).await, Ok(true));
        assert_eq!(passwords.verify("x".into(), empty.into()).await, Ok(false));
        assert_eq!(passwords.verify("x".into(), Vec::new()).await, Ok(false));
        assert_eq!(passwords.hash("p".repeat(73)).await, Err(Failed::TooLong));
        // Made by golang.org/x/crypto/bcrypt.
        let of_go = b"$2a$10$XajjQvNhvvRt5GSeFk1xFeyqRrsxkhBkUiQeg0dt.wU1qD4aFDcga".to_vec();
        assert_eq!(passwords.verify("allmine".into(), of_go).await, Ok(true));
    }

    #[tokio::test]
    async fn few_run_and_a_bounded_number_waits() {
        let passwords = Arc::new(Passwords::new(4));
        let all = passwords.permits.available_permits() as u32;
        let held = passwords.permits.clone().acquire_many_owned(all).await.unwrap();
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let passwords = passwords.clone();
                tokio::spawn(async move { passwords.run(|| ()).await })
            })
            .collect();
        // Each turn of the runtime begins some of them.
        for _ in 0..WAITING {
            tokio::task::yield_now().await;
        }
        assert_eq!(passwords.waiting.load(Ordering::Acquire), WAITING);
        assert_eq!(passwords.run(|| ()).await, Err(Failed::Crowded));
        drop(held);
        for one in waiting {
            assert_eq!(one.await.unwrap(), Ok(()));
        }
        assert_eq!(passwords.waiting.load(Ordering::Acquire), 0);
        assert_eq!(passwords.run(|| 7).await, Ok(7));
    }
}
