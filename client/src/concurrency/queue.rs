//! The queue behind locks and elections: one key per session under a common
//! prefix, in the order of their create revisions.

use bytes::Bytes;
use tokio::sync::oneshot;
use wire::{
    Rpc,
    etcdserverpb::{
        Compare, PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest,
        compare::{CompareResult, CompareTarget, TargetUnion},
        range_request::{SortOrder, SortTarget},
        request_op::Request,
        response_op::Response,
    },
    mvccpb::event::EventType,
};

use super::Session;
use crate::{Client, Error, Result, key, prefix};

/// A place in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub session: Session,
    /// The common prefix, with its slash.
    pub prefix: Bytes,
    pub key: Bytes,
    /// The create revision of the key.
    pub revision: i64,
}

/// What is known of a place when it was taken.
pub(crate) struct Entered {
    pub waiting: Waiting,
    /// What stands there, and since which revision.
    pub value: Bytes,
    pub modified: i64,
    /// Whether nobody is before it.
    pub leads: bool,
}

impl Place {
    /// Enters the queue, or finds the place that the session already has.
    ///
    /// Whoever drops this leaves the queue, even if the request is on its way
    /// by then: it is always brought to its end.
    pub(crate) async fn enter(session: &Session, name: &[u8], value: Bytes) -> Result<Entered> {
        session.settled().await;
        let (tell, told) = oneshot::channel();
        let (own, name) = (session.clone(), name.to_vec());
        session.beside(async move {
            let entered = Place::enter_surely(&own, &name, value).await;
            // If nobody waits for it any more, this drops it.
            let _ = tell.send(entered);
        });
        told.await.unwrap_or(Err(Error::SessionExpired))
    }

    async fn enter_surely(session: &Session, name: &[u8], value: Bytes) -> Result<Entered> {
        let prefix = Bytes::from([name, b"/"].concat());
        let own = Bytes::from([&prefix[..], format!("{:x}", session.lease()).as_bytes()].concat());
        let put = PutRequest { key: own.clone(), value: value.clone(), lease: session.lease(), ..Default::default() };
        let txn = TxnRequest {
            compare: vec![created(own.clone(), 0)],
            success: vec![op(Request::RequestPut(put)), op(Request::RequestRange(first(&prefix)))],
            failure: vec![
                op(Request::RequestRange(key(own.clone()).into())),
                op(Request::RequestRange(first(&prefix))),
            ],
        };
        // Whoever comes twice finds the key that is there: to repeat it is safe.
        let done = repeatable(session.client(), txn).await?;
        let mut ranges = done.responses.into_iter().filter_map(|r| match r.response {
            Some(Response::ResponseRange(range)) => Some(range.kvs),
            _ => None,
        });
        let (value, created, modified) = if done.succeeded {
            let revision = done.header.unwrap_or_default().revision;
            (value, revision, revision)
        } else {
            // The comparison has just found it.
            let own = ranges.next().and_then(|mut kvs| kvs.pop()).ok_or(Error::SessionExpired)?;
            (own.value, own.create_revision, own.mod_revision)
        };
        let first = ranges.next().and_then(|mut kvs| kvs.pop());
        let leads = first.is_none_or(|first| first.create_revision == created);
        let place = Place { session: session.clone(), prefix, key: own, revision: created };
        Ok(Entered { waiting: Waiting::at(place), value, modified, leads })
    }

    /// Waits until nobody is before this place, and makes sure that it is
    /// still there.
    pub(crate) async fn wait(&self) -> Result<()> {
        let client = self.session.client();
        self.session
            .unless_lost(async {
                while let Some((before, revision)) = self.before().await? {
                    gone(client, before, revision).await?;
                }
                let own = client.range(key(self.key.clone())).await?.kvs.pop();
                match own {
                    Some(own) if own.create_revision == self.revision => Ok(()),
                    _ => Err(Error::SessionExpired),
                }
            })
            .await
    }

    /// The key just before this one, and the revision at which it was seen.
    async fn before(&self) -> Result<Option<(Bytes, i64)>> {
        let request = RangeRequest {
            limit: 1,
            sort_order: SortOrder::Descend.into(),
            sort_target: SortTarget::Create.into(),
            max_create_revision: self.revision - 1,
            ..prefix(self.prefix.clone()).into()
        };
        let mut found = self.session.client().range(request).await?;
        let revision = found.header.unwrap_or_default().revision;
        Ok(found.kvs.pop().map(|kv| (kv.key, revision)))
    }

    /// True exactly as long as this place is held.
    pub(crate) fn is_held(&self) -> Compare {
        created(self.key.clone(), self.revision)
    }

    /// Puts another value in this place, once, however often it has to be
    /// said. `modified` is the revision of the value that is known; gives that
    /// of the new one, or `None` if the place is lost.
    pub(crate) async fn say(&self, value: &Bytes, mut modified: i64) -> Result<Option<i64>> {
        loop {
            let (key, lease) = (self.key.clone(), self.session.lease());
            let put = PutRequest { key: key.clone(), value: value.clone(), lease, ..Default::default() };
            let txn = TxnRequest {
                compare: vec![self.is_held(), unchanged(key.clone(), modified)],
                success: vec![op(Request::RequestPut(put))],
                failure: vec![op(Request::RequestRange(crate::key(key).into()))],
            };
            let done = repeatable(self.session.client(), txn).await?;
            if done.succeeded {
                return Ok(Some(done.header.unwrap_or_default().revision));
            }
            let found = done.responses.into_iter().find_map(|r| match r.response {
                Some(Response::ResponseRange(mut range)) => range.kvs.pop(),
                _ => None,
            });
            match found {
                Some(found) if found.create_revision == self.revision => {
                    modified = found.mod_revision;
                    if found.value == *value {
                        // It was done, and the answer was lost.
                        return Ok(Some(modified));
                    }
                }
                _ => return Ok(None),
            }
        }
    }

    /// Leaves the queue. A place that was lost already is none to leave.
    pub(crate) async fn leave(&self) -> Result<()> {
        self.session.give_place(&self.key);
        let delete = op(Request::RequestDeleteRange(key(self.key.clone()).into()));
        let txn = TxnRequest { compare: vec![self.is_held()], success: vec![delete], failure: Vec::new() };
        repeatable(self.session.client(), txn).await.map(drop)
    }

    /// Leaves the queue, however long it takes: a request that is still on its
    /// way must not hit the next place of this session.
    async fn leave_surely(&self) {
        let mut failures = 0;
        while let Err(error) = self.leave().await {
            let again = error.maybe_done() || error.passes();
            if !again || self.session.is_lost() {
                return;
            }
            self.session.client().pause_longer(failures).await;
            failures += 1;
        }
    }
}

/// Leaves the queue when it is dropped while waiting, so that nobody waits for
/// one who has gone away; unless somebody else of the session is in this place.
#[derive(Debug)]
pub(crate) struct Waiting(Option<Place>);

impl Waiting {
    fn at(place: Place) -> Waiting {
        place.session.take_place(&place.key);
        Waiting(Some(place))
    }

    /// The wait is over, and the place is kept.
    pub(crate) fn keep(mut self) -> Place {
        self.0.take().expect("it is taken once")
    }

    pub(crate) fn place(&self) -> &Place {
        self.0.as_ref().expect("it is taken once")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(place) = self.0.take()
            && place.session.give_place(&place.key)
        {
            let session = place.session.clone();
            session.beside(async move { place.leave_surely().await });
        }
    }
}

/// Who is first under a prefix.
pub(crate) fn first(under: &Bytes) -> RangeRequest {
    RangeRequest {
        limit: 1,
        sort_order: SortOrder::Ascend.into(),
        sort_target: SortTarget::Create.into(),
        ..prefix(under.clone()).into()
    }
}

/// Waits until a key that was there at a revision is deleted.
async fn gone(client: &Client, which: Bytes, revision: i64) -> Result<()> {
    let mut watcher = client.watch(WatchCreateRequest { start_revision: revision + 1, ..key(which).into() });
    loop {
        match watcher.next().await {
            Ok(batch) if batch.events.iter().any(|e| e.r#type() == EventType::Delete) => return Ok(()),
            Ok(_) => {}
            // What happened is forgotten: whoever asked looks again.
            Err(Error::Compacted { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn created(which: Bytes, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: which,
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Default::default()
    }
}

fn unchanged(which: Bytes, revision: i64) -> Compare {
    Compare {
        target: CompareTarget::Mod.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
        ..created(which, 0)
    }
}

fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

async fn repeatable(client: &Client, txn: TxnRequest) -> Result<TxnResponse> {
    client.call_repeatable(Rpc::Txn, &txn).await
}
