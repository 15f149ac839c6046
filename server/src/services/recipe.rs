//! What locks and elections are made of: keys below a name, one for each lease, in the order in
//! which they were created. The oldest holds.
//!
//! Everything is asked as the caller, through the same requests as its own would be. Who waits
//! holds one watch of one key, and takes its key back when it goes away.

use super::{kv, lease, range};
use crate::core::{Core, Stream};
use crate::transport::call::Call;
use crate::transport::status::{self, Code, Status};
use bytes::Bytes;
use disk::fetch::Fetched;
use node::{Answer, Found, RangeStart, Request, ToStream, WatchOp, WatchSpec, Who};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use store::command::{self, TxnWrite, Write};
use store::{Event, Item, KeyRange, OpReply, Query, RangeReply, Reply, RevisionEvents, SortOrder, SortTarget, record};
use wire::etcdserverpb::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use wire::etcdserverpb::{compare::TargetUnion, request_op::Request as Op};

/// Seconds, of a lease that the server grants for a caller that named none.
const TTL: i64 = 60;

/// As a caller sees it: etcd's services lose the code of whatever they asked.
pub(super) fn told(status: Status) -> Status {
    match status.code {
        Code::DeadlineExceeded | Code::Canceled => status,
        _ => Status { code: Code::Unknown, ..status },
    }
}

/// Where an answer was given.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) revision: i64,
    pub(super) term: u64,
}

/// The lease that was named, or a new one.
pub(super) async fn lease(call: &Call, named: i64) -> Result<i64, Status> {
    match named {
        0 => lease::granted(call, call.edge.lease_id(), TTL).await.map(|granted| granted.id),
        named => Ok(named),
    }
}

/// What all keys of this name begin with.
pub(super) fn prefix(name: &[u8]) -> Vec<u8> {
    [name, b"/"].concat()
}

/// The key of a lease, with its number as Go prints it in hexadecimal.
pub(super) fn key(prefix: &[u8], lease: i64) -> Bytes {
    let sign = if lease < 0 { "-" } else { "" };
    [prefix, format!("{sign}{:x}", lease.unsigned_abs()).as_bytes()].concat().into()
}

pub(super) fn created(key: &Bytes, revision: i64) -> Compare {
    let target = wire::etcdserverpb::compare::CompareTarget::Create.into();
    let target_union = Some(TargetUnion::CreateRevision(revision));
    Compare { target, key: key.clone(), target_union, ..Compare::default() }
}

pub(super) fn put(key: &Bytes, value: &[u8], lease: i64) -> RequestOp {
    let value = Bytes::copy_from_slice(value);
    let put = PutRequest { key: key.clone(), value, lease, ..PutRequest::default() };
    RequestOp { request: Some(Op::RequestPut(put)) }
}

pub(super) fn get(key: &Bytes) -> RequestOp {
    RequestOp { request: Some(Op::RequestRange(RangeRequest { key: key.clone(), ..RangeRequest::default() })) }
}

pub(super) fn delete(key: &Bytes) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.clone(), ..DeleteRangeRequest::default() };
    RequestOp { request: Some(Op::RequestDeleteRange(delete)) }
}

fn encoded(compare: Compare, success: Vec<RequestOp>, failure: Vec<RequestOp>) -> Result<Write, Status> {
    let txn = TxnRequest { compare: vec![compare], success, failure };
    let TxnWrite { write, .. } = command::txn(&txn.encode_to_vec(), i64::MAX)?;
    Ok(write)
}

/// Whether the comparison held, and what was answered.
pub(super) async fn commit(
    call: &Call,
    compare: Compare,
    success: Vec<RequestOp>,
    failure: Vec<RequestOp>,
) -> Result<(At, bool, Vec<OpReply>), Status> {
    let Write { body, cost } = encoded(compare, success, failure)?;
    let (revision, term, reply) = kv::propose(call, body, cost).await?;
    match reply {
        Reply::Txn { succeeded, responses } => Ok((At { revision, term }, succeeded, responses)),
        _ => Err(Status::unexpected("a transaction")),
    }
}

/// Puts the caller's key, unless its lease has it already: then `Err` is what is there.
pub(super) async fn stand(
    call: &Call,
    key: &Bytes,
    value: &[u8],
    lease: i64,
) -> Result<(At, Result<i64, Item>), Status> {
    let (at, put, replies) = commit(call, created(key, 0), vec![put(key, value, lease)], vec![get(key)]).await?;
    if put {
        return Ok((at, Ok(at.revision)));
    }
    match replies.into_iter().next().map(|op| op.reply) {
        Some(Reply::Range(RangeReply { items, .. })) if !items.is_empty() => {
            Ok((at, Err(items.into_iter().next().expect("not empty"))))
        }
        _ => Err(Status::unexpected("a key that is there")),
    }
}

/// The first answer to a query.
pub(super) async fn first(call: &Call, query: Query) -> Result<(At, Option<Item>), Status> {
    let (start, revision, term, _share) = match query.needs_sort() {
        true => {
            let ((start, revision, term), share) = range::ask_sorted(call, query, false).await?;
            (start, revision, term, Some(share))
        }
        false => {
            let (start, revision, term) = range::ask(call, query, false, false, 0).await?;
            (start, revision, term, None)
        }
    };
    let RangeStart { query, found, count, more, .. } = start;
    let Found::Items(items) = found else { return Err(Status::unexpected("keys")) };
    let range = range::in_order(call.core(), RangeReply { query, items, count, more, rest: None }).await?;
    Ok((At { revision, term }, range.items.into_iter().next()))
}

/// The one key of this name.
pub(super) fn one(key: &[u8]) -> Query {
    Query { keys_only: true, ..Query::all(KeyRange::new(key, b"")) }
}

fn below(prefix: &[u8]) -> KeyRange {
    let mut end = prefix.to_vec();
    *end.last_mut().expect("it ends with a slash") += 1;
    KeyRange::new(prefix, &end)
}

/// The oldest key below the prefix: its owner holds the lock or leads.
pub(super) fn oldest(prefix: &[u8]) -> Query {
    Query { limit: 1, order: SortOrder::Ascend, target: SortTarget::Create, ..Query::all(below(prefix)) }
}

/// `KeyValue` as it goes to clients.
pub(super) async fn key_value(core: &Core, item: &Item) -> Result<Bytes, Status> {
    let mut found = Fetched::default();
    core.records(std::slice::from_ref(&item.at), &mut found).await?;
    body(found.get(0)).map(Bytes::copy_from_slice)
}

fn body(record: &[u8]) -> Result<&[u8], Status> {
    record
        .get(record::HEADER..)
        .ok_or_else(|| Status::new(Code::Internal, "kvorum: a record is shorter than its header"))
}

/// The value of a key.
pub(super) async fn value(core: &Core, item: &Item) -> Result<Bytes, Status> {
    let body = key_value(core, item).await?;
    let kv =
        record::key_value(&body).map_err(|_| Status::new(Code::Internal, "kvorum: a record holds no key and value"))?;
    Ok(Bytes::copy_from_slice(kv.value))
}

/// Waits until every key below the prefix is gone that is older than this revision. True: it had to
/// wait.
pub(super) async fn alone(call: &Call, prefix: &[u8], revision: i64) -> Result<bool, Status> {
    let mut waited = false;
    loop {
        let query = Query {
            limit: 1,
            order: SortOrder::Descend,
            target: SortTarget::Create,
            max_create: revision - 1,
            keys_only: true,
            ..Query::all(below(prefix))
        };
        let (at, last) = first(call, query).await?;
        let Some(last) = last else { return Ok(waited) };
        waited = true;
        let what = Wish { range: KeyRange::new(&last.key, b""), puts: false, deletes: true, next: at.revision + 1 };
        // Whatever it saw or missed: the next look tells.
        Look::begin(call, what).await?.next(call).await?;
    }
}

/// What is waited for, from a revision on.
pub(super) struct Wish {
    pub(super) range: KeyRange,
    pub(super) puts: bool,
    pub(super) deletes: bool,
    pub(super) next: i64,
}

impl Wish {
    /// A put below the prefix.
    pub(super) fn put_below(prefix: &[u8], next: i64) -> Wish {
        Wish { range: below(prefix), puts: true, deletes: false, next }
    }

    fn takes(&self, event: &Event) -> bool {
        let kind = if event.tombstone { self.deletes } else { self.puts };
        kind && event.revision.main >= self.next && self.range.contains(&event.key)
    }
}

/// One watch.
pub(super) struct Look {
    wish: Wish,
    stream: Stream,
    /// Came and were not told: one revision has few events of one name.
    seen: std::collections::VecDeque<(Arc<RevisionEvents>, u32)>,
}

/// What was seen of a key.
pub(super) struct Seen {
    pub(super) revision: i64,
    pub(super) deleted: bool,
    /// `KeyValue` as it goes to clients.
    pub(super) kv: Bytes,
}

impl Look {
    pub(super) async fn begin(call: &Call, wish: Wish) -> Result<Look, Status> {
        if call.core().asks_users() {
            call.read(Request::Watch { range: wish.range.clone() }).await?;
        }
        let stream = call.core().open_stream();
        let (no_put, no_delete) = (!wish.puts, !wish.deletes);
        let spec = WatchSpec { range: wish.range.clone(), no_put, no_delete, prev_kv: false };
        stream.ask(WatchOp::Join { id: 0, spec, next: wish.next });
        Ok(Look { wish, stream, seen: Default::default() })
    }

    /// The next event; None: events may have been missed, so that it must be looked anew.
    pub(super) async fn next(&mut self, call: &Call) -> Result<Option<Seen>, Status> {
        let mut stopping = call.core().stopping();
        loop {
            if let Some((events, at)) = self.seen.pop_front() {
                let event = &events.events[at as usize];
                let kv = Bytes::copy_from_slice(body(&event.record)?);
                return Ok(Some(Seen { revision: event.revision.main, deleted: event.tombstone, kv }));
            }
            let message = call.patiently(async {
                tokio::select! {
                    message = self.stream.recv() => Some(message),
                    _ = stopping.wait_for(|stopping| *stopping) => None,
                }
            });
            match message.await? {
                None => return Err(status::STOPPED),
                Some(Some(ToStream::Joined { missed, .. })) => missed.iter().for_each(|events| self.note(events)),
                Some(Some(ToStream::Events { events, picks, .. })) => {
                    self.seen.extend(picks.iter().map(|at| (events.clone(), *at)));
                }
                Some(Some(ToStream::Leader { .. } | ToStream::Progress { .. })) => {}
                // It was too slow, or came too late, or the state is another one.
                Some(
                    None | Some(ToStream::Behind { .. } | ToStream::Compacted { .. } | ToStream::AllBehind { .. }),
                ) => {
                    return Ok(None);
                }
            }
        }
    }

    fn note(&mut self, events: &Arc<RevisionEvents>) {
        let wanted = events.events.iter().enumerate().filter(|(_, event)| self.wish.takes(event));
        self.seen.extend(wanted.map(|(at, _)| (events.clone(), at as u32)));
    }
}

/// Takes a caller's key back when it goes away while it waits.
pub(super) struct Undo {
    core: Core,
    who: Who,
    timeout: Duration,
    write: Option<Write>,
}

impl Undo {
    /// Deletes the key, if it is still the one that was created at this revision.
    pub(super) fn of(call: &Call, key: &Bytes, revision: i64) -> Result<Undo, Status> {
        let write = Some(encoded(created(key, revision), vec![delete(key)], Vec::new())?);
        let timeout = call.core().settings().request_timeout();
        Ok(Undo { core: call.core().clone(), who: call.who.clone(), timeout, write })
    }

    /// The key stays.
    pub(super) fn keep(mut self) {
        self.write = None;
    }

    /// Takes it back and waits for that.
    pub(super) async fn now(mut self) {
        if let Some(Write { body, cost }) = self.write.take() {
            // If that fails, the end of the lease does it.
            let _ = self.core.ask(self.who.clone(), Request::Propose { body, cost }, self.timeout).await;
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        let Some(Write { body, cost }) = self.write.take() else { return };
        let (core, who, timeout) = (self.core.clone(), self.who.clone(), self.timeout);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let answer = core.ask(who, Request::Propose { body, cost }, timeout).await.answer;
                drop::<Answer>(answer);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_etcd() {
        let of = |name: &[u8], lease| String::from_utf8(key(&prefix(name), lease).to_vec()).unwrap();
        assert_eq!(of(b"a", 77), "a/4d");
        assert_eq!(of(b"", 0x694d_77aa_9e38_260f), "/694d77aa9e38260f");
        assert_eq!(of(b"a/b", -1), "a/b/-1");
        assert_eq!(of(b"a", i64::MIN), "a/-8000000000000000");
        assert_eq!(below(b"a/"), KeyRange::new(b"a/", b"a0"));
    }
}
