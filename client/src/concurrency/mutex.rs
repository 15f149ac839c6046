//! A lock.

use bytes::Bytes;
use wire::etcdserverpb::Compare;

use super::{Session, queue::Place};
use crate::{Error, Result};

/// A lock that sessions, here and elsewhere, take in turn.
#[derive(Clone, Debug)]
pub struct Mutex {
    session: Session,
    name: Bytes,
}

impl Mutex {
    /// The lock of this name. Within one session it does not keep two from
    /// having it at a time: the session is who has it.
    pub fn new(session: &Session, name: impl Into<Bytes>) -> Mutex {
        Mutex { session: session.clone(), name: name.into() }
    }

    /// Waits for the lock. Whoever drops this while it waits leaves the queue.
    ///
    /// # Errors
    /// [`Error::SessionExpired`] if the lease is lost meanwhile; see [`Error`].
    pub async fn lock(&self) -> Result<Held> {
        let entered = Place::enter(&self.session, &self.name, Bytes::new()).await?;
        if !entered.leads {
            entered.waiting.place().wait().await?;
        }
        Ok(Held { place: entered.waiting.keep() })
    }

    /// Takes the lock if nobody has it.
    ///
    /// # Errors
    /// [`Error::Locked`] if somebody has; see [`Error`].
    pub async fn try_lock(&self) -> Result<Held> {
        let entered = Place::enter(&self.session, &self.name, Bytes::new()).await?;
        if entered.leads {
            return Ok(Held { place: entered.waiting.keep() });
        }
        entered.waiting.keep().leave().await?;
        Err(Error::Locked)
    }
}

/// A lock that is had. Dropping it without [`Held::unlock`] keeps it locked
/// until the session ends.
#[derive(Debug)]
#[must_use = "it stays locked until it is unlocked or the session ends"]
pub struct Held {
    place: Place,
}

impl Held {
    /// The key that stands for it.
    pub fn key(&self) -> &Bytes {
        &self.place.key
    }

    /// The fencing token: it grows from each owner to the next. It is the
    /// create revision of the key.
    pub fn revision(&self) -> i64 {
        self.place.revision
    }

    /// True exactly as long as the lock is had: a comparison for transactions
    /// that must not happen without it.
    pub fn is_owner(&self) -> Compare {
        self.place.is_held()
    }

    /// The session it hangs on.
    pub fn session(&self) -> &Session {
        &self.place.session
    }

    /// Gives it to the next.
    ///
    /// # Errors
    /// See [`Error`]. That it was lost already is none.
    pub async fn unlock(self) -> Result<()> {
        self.place.leave().await
    }
}
