//! An election: one of many leads, and says something with it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicI64, Ordering},
};

use bytes::Bytes;
use wire::{
    etcdserverpb::{Compare, WatchCreateRequest, watch_create_request::FilterType},
    mvccpb::{Event, KeyValue, event::EventType},
    v3electionpb::LeaderKey,
};

use super::{
    Session,
    queue::{Place, first},
};
use crate::{Batch, Client, Error, Result, Watcher, key, prefix};

/// An election that sessions, here and elsewhere, stand for.
#[derive(Clone, Debug)]
pub struct Election {
    session: Session,
    name: Bytes,
}

impl Election {
    /// The election of this name.
    pub fn new(session: &Session, name: impl Into<Bytes>) -> Election {
        Election { session: session.clone(), name: name.into() }
    }

    /// Waits to lead, and then says `value`. Whoever drops this while it waits
    /// does not stand any more. A session that already stands says its new
    /// value.
    ///
    /// # Errors
    /// [`Error::SessionExpired`] if the lease is lost meanwhile; see [`Error`].
    pub async fn campaign(&self, value: impl Into<Bytes>) -> Result<Leadership> {
        let value = value.into();
        let entered = Place::enter(&self.session, &self.name, value.clone()).await?;
        let waiting = entered.waiting;
        let modified = AtomicI64::new(entered.modified);
        let leadership = Leadership { place: waiting.place().clone(), name: self.name.clone(), modified };
        if entered.value != value {
            leadership.proclaim(value).await?;
        }
        if !entered.leads {
            waiting.place().wait().await?;
        }
        waiting.keep();
        Ok(leadership)
    }
}

/// A leadership that was won. Dropping it without [`Leadership::resign`] keeps
/// it until the session ends.
#[derive(Debug)]
#[must_use = "it lasts until it is resigned or the session ends"]
pub struct Leadership {
    place: Place,
    name: Bytes,
    /// Revision of what was said last, as far as is known.
    modified: AtomicI64,
}

impl Leadership {
    /// The key that stands for it.
    pub fn key(&self) -> &Bytes {
        &self.place.key
    }

    /// The fencing token: it grows from each leader to the next.
    pub fn revision(&self) -> i64 {
        self.place.revision
    }

    /// True exactly as long as this is the leader: a comparison for
    /// transactions that must not happen otherwise.
    pub fn is_leader(&self) -> Compare {
        self.place.is_held()
    }

    /// The session it hangs on.
    pub fn session(&self) -> &Session {
        &self.place.session
    }

    /// The same as the server's own election service names it.
    pub fn leader_key(&self) -> LeaderKey {
        let Place { key, revision, session, .. } = &self.place;
        LeaderKey { name: self.name.clone(), key: key.clone(), rev: *revision, lease: session.lease() }
    }

    /// Says something else, once: observers are told of it once, whatever fails
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::NotLeader`] if the leadership was lost; see [`Error`].
    pub async fn proclaim(&self, value: impl Into<Bytes>) -> Result<()> {
        let said = self.place.say(&value.into(), self.modified.load(Ordering::SeqCst)).await?;
        self.modified.store(said.ok_or(Error::NotLeader)?, Ordering::SeqCst);
        Ok(())
    }

    /// Lets the next one lead.
    ///
    /// # Errors
    /// See [`Error`]. That it was lost already is none.
    pub async fn resign(self) -> Result<()> {
        self.place.leave().await
    }
}

impl Client {
    /// Who leads an election now: the key, and in it what the leader says.
    ///
    /// # Errors
    /// [`Error::NoLeader`]; see [`Error`].
    pub async fn election_leader(&self, name: impl AsRef<[u8]>) -> Result<KeyValue> {
        self.range(first(&under(name.as_ref()))).await?.kvs.pop().ok_or(Error::NoLeader)
    }

    /// Tells who leads an election and what they say, now and whenever it
    /// changes, through the failure of members. Nothing is sent before the
    /// first [`Observer::next`].
    pub fn election_observe(&self, name: impl AsRef<[u8]>) -> Observer {
        Observer {
            client: self.clone(),
            prefix: under(name.as_ref()),
            follows: None,
            news: VecDeque::new(),
            told: None,
        }
    }
}

fn under(name: &[u8]) -> Bytes {
    [name, b"/"].concat().into()
}

/// Watches an election.
#[derive(Debug)]
pub struct Observer {
    client: Client,
    prefix: Bytes,
    follows: Option<Follows>,
    news: VecDeque<KeyValue>,
    /// Key and revision of what was told last.
    told: Option<(Bytes, i64)>,
}

#[derive(Debug)]
enum Follows {
    /// Nobody leads: whoever comes first will.
    Nobody(Watcher),
    Leader(Watcher),
}

impl Observer {
    /// The next leader, or the next thing that the leader says. It may be
    /// dropped while it waits: nothing is lost.
    ///
    /// # Errors
    /// See [`Error`]. Another call goes on.
    pub async fn next(&mut self) -> Result<KeyValue> {
        loop {
            while let Some(news) = self.news.pop_front() {
                let this = (news.key.clone(), news.mod_revision);
                if self.told.as_ref() != Some(&this) {
                    self.told = Some(this);
                    return Ok(news);
                }
            }
            let Some(follows) = &mut self.follows else {
                self.look().await?;
                continue;
            };
            let (Follows::Nobody(watcher) | Follows::Leader(watcher)) = follows;
            let batch = match watcher.next().await {
                Ok(batch) => batch,
                Err(error) => {
                    self.follows = None;
                    match error {
                        // Too far behind: look again.
                        Error::Compacted { .. } => continue,
                        error => return Err(error),
                    }
                }
            };
            self.take(batch);
        }
    }

    /// Finds the leader, or waits for one to come.
    async fn look(&mut self) -> Result<()> {
        let mut found = self.client.range(first(&self.prefix)).await?;
        let start_revision = found.header.unwrap_or_default().revision + 1;
        self.follows = Some(match found.kvs.pop() {
            Some(leader) => {
                let watch = WatchCreateRequest { start_revision, ..key(leader.key.clone()).into() };
                self.news.push_back(leader);
                Follows::Leader(self.client.watch(watch))
            }
            None => {
                let filters = vec![FilterType::Nodelete.into()];
                let watch = WatchCreateRequest { start_revision, filters, ..prefix(self.prefix.clone()).into() };
                Follows::Nobody(self.client.watch(watch))
            }
        });
        Ok(())
    }

    fn take(&mut self, batch: Batch) {
        let follows_leader = matches!(self.follows, Some(Follows::Leader(_)));
        for event in batch.events {
            let ends = event.r#type() == EventType::Delete;
            if ends || !follows_leader {
                // Who leads now is to be looked up.
                self.follows = None;
                return;
            }
            let Event { kv: Some(kv), .. } = event else { continue };
            self.news.push_back(kv);
        }
    }
}
