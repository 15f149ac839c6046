//! An answer before its values: every byte of it but the records, and where those belong.
//!
//! The exact size is known from the index alone, so the length of a message goes out first and
//! records are fetched piece by piece while the client takes them. Nothing is held whole.

use crate::core::Core;
use crate::transport::frames;
use crate::transport::reply::Reply;
use crate::transport::status::Status;
use bytes::Bytes;
use disk::fetch::{ALONE, Fetched};
use node::Found;
use std::collections::HashMap;
use store::protobuf;
use store::{Handle, Item, Located, OpReply, Query, RangeReply, SortTarget, order, record};
use wire::Code;

/// Records fetched at once: as many as fit, one at least.
const FETCH_BYTES: u64 = 256 << 10;
const FETCH_ITEMS: usize = 512;
/// Copied bytes are handed over in pieces of this size: two frames of HTTP/2 as clients allow them.
/// Record bodies of [`ALONE`] bytes and more are handed over as they are.
const CHUNK: usize = 32 << 10;

/// What a place of a record costs a handler until it is done with it.
pub(crate) fn place_cost(item: &Item) -> u64 {
    const PLACE: u64 = 256;
    PLACE + item.key.len() as u64 + item.at.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
}

/// As [`place_cost`], for everything that was found.
pub(crate) fn found_cost(found: &Found) -> u64 {
    const RECORD: u64 = 160;
    let of = |at: &Located| RECORD + at.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
    match found {
        Found::Items(items) => items.iter().map(place_cost).sum(),
        Found::Records(records) => records.iter().map(of).sum(),
    }
}

/// As [`place_cost`], for everything that a reply names.
pub(crate) fn reply_cost(reply: &store::Reply) -> u64 {
    match reply {
        store::Reply::Put { prev } => prev.iter().map(place_cost).sum(),
        store::Reply::Delete { prevs, .. } => prevs.iter().map(place_cost).sum(),
        store::Reply::Range(range) => range.items.iter().map(place_cost).sum(),
        store::Reply::Txn { responses, .. } => responses.iter().map(|op| reply_cost(&op.reply)).sum(),
        _ => 0,
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    raw: Vec<u8>,
    /// Records whose bodies (`KeyValue`s) belong between the bytes of `raw`, …
    records: Vec<Located>,
    /// … each at this offset of it.
    cuts: Vec<usize>,
    /// Bytes of all record bodies.
    bodies: u64,
}

/// Bytes of a record's `KeyValue`.
fn body_len(handle: &Handle) -> Result<usize, Status> {
    (handle.len as usize)
        .checked_sub(record::HEADER)
        .ok_or_else(|| damaged("a handle is shorter than a record's header"))
}

fn damaged(what: &str) -> Status {
    Status::with(Code::Internal, format!("kvorum: {what}"))
}

/// What `keys_only` asks for: no value, and (as etcd serves it from its index) no lease, unless
/// the answer was sorted by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    Whole,
    Keys { lease: bool },
}

impl Show {
    pub(crate) fn of(query: &Query) -> Show {
        match query.keys_only {
            false => Show::Whole,
            true => Show::Keys { lease: query.target == SortTarget::Value },
        }
    }
}

/// A `KeyValue` without its value.
fn put_bare(out: &mut Vec<u8>, item: &Item, lease: bool) {
    protobuf::write_bytes(out, 1, &item.key);
    protobuf::write_int(out, 2, item.create);
    protobuf::write_int(out, 3, item.modified);
    protobuf::write_int(out, 4, item.version);
    if lease {
        protobuf::write_int(out, 6, item.lease);
    }
}

impl Plan {
    /// Bytes of the whole.
    pub(crate) fn len(&self) -> u64 {
        self.raw.len() as u64 + self.bodies
    }

    /// For fields whose bytes are at hand.
    pub(crate) fn raw(&mut self) -> &mut Vec<u8> {
        &mut self.raw
    }

    /// A nested message.
    pub(crate) fn message(&mut self, number: u32, child: Plan) -> Result<(), Status> {
        let len = usize::try_from(child.len()).map_err(|_| damaged("an answer is too large"))?;
        protobuf::write_head(&mut self.raw, number, len);
        let base = self.raw.len();
        self.raw.extend_from_slice(&child.raw);
        self.cuts.extend(child.cuts.into_iter().map(|at| base + at));
        self.records.extend(child.records);
        self.bodies += child.bodies;
        Ok(())
    }

    /// A `KeyValue` as field `number`.
    pub(crate) fn item(&mut self, number: u32, item: &Item, show: Show) -> Result<(), Status> {
        match show {
            Show::Keys { lease } => {
                let mut bare = Vec::with_capacity(item.key.len() + 32);
                put_bare(&mut bare, item, lease);
                protobuf::write_message(&mut self.raw, number, &bare);
            }
            Show::Whole => self.record(number, item.at.clone())?,
        }
        Ok(())
    }

    /// The `KeyValue` of a whole record as field `number`.
    pub(crate) fn record(&mut self, number: u32, at: Located) -> Result<(), Status> {
        let len = body_len(&at.handle)?;
        protobuf::write_head(&mut self.raw, number, len);
        self.cuts.push(self.raw.len());
        self.records.push(at);
        self.bodies += len as u64;
        Ok(())
    }

    /// The keys of a `RangeResponse`.
    pub(crate) fn found(&mut self, found: Found, show: Show) -> Result<(), Status> {
        match found {
            Found::Items(items) => items.iter().try_for_each(|item| self.item(2, item, show)),
            Found::Records(records) => {
                self.records.reserve_exact(records.len());
                self.cuts.reserve_exact(records.len());
                records.into_iter().try_for_each(|at| self.record(2, at))
            }
        }
    }

    /// Sends the whole as one message.
    pub(crate) async fn send(self, core: &Core, reply: &mut Reply) -> Result<(), Status> {
        if self.cuts.is_empty() {
            return reply.message_now(&self.raw);
        }
        reply.begin_large(self.len()).await?;
        self.stream(core, &mut Fetched::default(), reply).await
    }

    /// Sends the bytes inside a message that was begun. `found`: for the records, and to be given
    /// again for the next part.
    pub(crate) async fn stream(self, core: &Core, found: &mut Fetched, reply: &mut Reply) -> Result<(), Status> {
        let mut out = Chunks::new(self.len(), reply.take_head());
        let mut from = 0;
        let (mut records, mut cuts) = (self.records.as_slice(), self.cuts.as_slice());
        while !records.is_empty() {
            let count = batch(records, reply.account().piece(FETCH_BYTES));
            let (now, later) = records.split_at(count);
            let (places, later_places) = cuts.split_at(count);
            (records, cuts) = (later, later_places);
            let bytes = now.iter().map(record_len).sum();
            if !reply.account().may_read(bytes) {
                // What waits for room must not itself stand in the way: it goes out now.
                reply.open();
                *found = Fetched::default();
            }
            let mut hold = reply.account().clone().read(bytes).await;
            if let Err(unread) = core.records(now, found).await {
                return Err(reply.break_off(unread.text()));
            }
            for (n, (at, record)) in places.iter().zip(now).enumerate() {
                if found.get(n).len() != record.handle.len as usize {
                    return Err(reply.break_off("kvorum: a record has another length than the index says".into()));
                }
                let (between, body) = (&self.raw[from..*at], &found.get(n)[record::HEADER..]);
                from = *at;
                if out.takes(between, body) {
                    continue;
                }
                out.copy(between, reply).await?;
                out.body(n, found, reply).await?;
                // It is charged where it is queued now.
                hold.less(out.handed_over());
            }
        }
        out.copy(&self.raw[from..], reply).await?;
        out.flush(reply).await
    }
}

fn record_len(record: &Located) -> u64 {
    u64::from(record.handle.len)
}

/// How many of the next records are fetched together: `most` bytes, or one record.
fn batch(records: &[Located], most: u64) -> usize {
    let mut bytes = 0;
    let fit = records.iter().take(FETCH_ITEMS).take_while(|record| {
        bytes += record_len(record);
        bytes <= most
    });
    fit.count().max(1)
}

/// Joins small pieces before they go out.
struct Chunks {
    joined: Vec<u8>,
    /// Bytes still to come.
    left: u64,
    /// Of records, since it was last asked for.
    handed_over: u64,
    /// Of records, copied and not handed over.
    copied: u64,
}

impl Chunks {
    /// For `len` bytes behind the head of a message, if this is where that goes.
    fn new(len: u64, head: Option<[u8; frames::HEAD]>) -> Chunks {
        let head = head.as_ref().map_or(&[][..], |head| head);
        let mut chunks = Chunks { joined: Vec::new(), left: len + head.len() as u64, handed_over: 0, copied: 0 };
        chunks.gather(head);
        chunks
    }

    /// Takes as much as the present piece has room for.
    fn gather(&mut self, bytes: &[u8]) -> usize {
        if self.joined.capacity() == 0 {
            // No more than is still to come.
            let most = usize::try_from(self.left).unwrap_or(usize::MAX);
            self.joined.reserve_exact(most.min(CHUNK));
        }
        let now = bytes.len().min(CHUNK - self.joined.len());
        self.joined.extend_from_slice(&bytes[..now]);
        self.left = self.left.saturating_sub(now as u64);
        now
    }

    /// Takes both if they fit, without a future for each of so many small records.
    fn takes(&mut self, between: &[u8], body: &[u8]) -> bool {
        let fit = self.joined.capacity() > 0 && self.joined.len() + between.len() + body.len() < CHUNK;
        if fit && body.len() < ALONE {
            self.joined.extend_from_slice(between);
            self.joined.extend_from_slice(body);
            self.left = self.left.saturating_sub((between.len() + body.len()) as u64);
            self.copied += (record::HEADER + body.len()) as u64;
            return true;
        }
        false
    }

    /// Pieces are full, so that they make full frames.
    async fn copy(&mut self, mut bytes: &[u8], reply: &mut Reply) -> Result<(), Status> {
        loop {
            bytes = &bytes[self.gather(bytes)..];
            if self.joined.len() == CHUNK {
                self.flush(reply).await?;
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// The `KeyValue` of a whole record.
    async fn body(&mut self, n: usize, found: &mut Fetched, reply: &mut Reply) -> Result<(), Status> {
        let len = found.get(n).len();
        self.copied += len as u64;
        if len < ALONE {
            return self.copy(&found.get(n)[record::HEADER..], reply).await;
        }
        self.flush(reply).await?;
        let body = found.take(n).split_off(record::HEADER);
        self.left = self.left.saturating_sub(body.len() as u64);
        reply.part(body).await
    }

    async fn flush(&mut self, reply: &mut Reply) -> Result<(), Status> {
        self.handed_over += std::mem::take(&mut self.copied);
        if self.joined.is_empty() {
            return Ok(());
        }
        reply.part(Bytes::from(std::mem::take(&mut self.joined))).await
    }

    /// Bytes of records that were handed over since this was last asked.
    fn handed_over(&mut self) -> u64 {
        std::mem::take(&mut self.handed_over)
    }
}

/// Values by where they lie, for sorting by value.
pub(crate) type Values = HashMap<Handle, Bytes>;

/// Where the values lie that decide the order of a range of the reply, each once.
pub(crate) fn values_for(reply: &store::Reply) -> Vec<Located> {
    let mut located = Vec::new();
    needed(reply, &mut located);
    located.sort_unstable_by_key(|at| at.handle);
    located.dedup_by_key(|at| at.handle);
    located
}

/// What the values of `located` take until the order is known, in bytes.
pub(crate) fn values_cost(located: &[Located]) -> u64 {
    const VALUE: u64 = 128;
    located.iter().map(|at| VALUE + u64::from(at.handle.len)).sum()
}

/// Fetches the values of `located`.
pub(crate) async fn fetch(core: &Core, located: Vec<Located>) -> Result<Values, Status> {
    let mut values = Values::new();
    let mut found = Fetched::default();
    for some in located.chunks(FETCH_ITEMS) {
        core.records(some, &mut found).await?;
        for (n, at) in some.iter().enumerate() {
            let body =
                found.get(n).get(record::HEADER..).ok_or_else(|| damaged("a record is shorter than its header"))?;
            let kv = record::key_value(body).map_err(|_| damaged("a record holds no key and value"))?;
            values.insert(at.handle, Bytes::copy_from_slice(kv.value));
        }
    }
    Ok(values)
}

fn needed(reply: &store::Reply, located: &mut Vec<Located>) {
    match reply {
        store::Reply::Range(range) if by_value(&range.query) => {
            located.extend(range.items.iter().map(|item| item.at.clone()));
        }
        store::Reply::Txn { responses, .. } => responses.iter().for_each(|op| needed(&op.reply, located)),
        _ => {}
    }
}

/// True for a range whose order is decided by the values.
pub(crate) fn by_value(query: &Query) -> bool {
    query.target == SortTarget::Value && order::needs_sort(query)
}

/// Sorts and cuts a range as etcd does. `values`: of all items, if it is sorted by them.
pub(crate) fn finished(range: RangeReply, values: &Values) -> RangeReply {
    if !order::needs_sort(&range.query) {
        return range;
    }
    let value = |item: &Item| values.get(&item.at.handle).cloned().unwrap_or_default();
    let (items, more) = order::finish(&range.query, range.items, value);
    RangeReply { items, more, ..range }
}

/// `RangeResponse` less its header.
pub(crate) fn put_range(plan: &mut Plan, range: &RangeReply) -> Result<(), Status> {
    let show = Show::of(&range.query);
    if !range.query.count_only {
        for item in &range.items {
            plan.item(2, item, show)?;
        }
    }
    put_range_end(plan.raw(), range.more, range.count);
    Ok(())
}

/// What follows the keys of a `RangeResponse`.
pub(crate) fn put_range_end(out: &mut Vec<u8>, more: bool, count: i64) {
    protobuf::write_bool(out, 3, more);
    protobuf::write_int(out, 4, count);
}

/// What an applied command answers, less the header of the whole.
pub(crate) fn put_reply(plan: &mut Plan, reply: store::Reply, values: &Values) -> Result<(), Status> {
    match reply {
        store::Reply::Put { prev } => prev.iter().try_for_each(|item| plan.item(2, item, Show::Whole)),
        store::Reply::Delete { deleted, prevs } => {
            protobuf::write_int(plan.raw(), 2, deleted);
            prevs.iter().try_for_each(|item| plan.item(3, item, Show::Whole))
        }
        store::Reply::Range(range) => put_range(plan, &finished(range, values)),
        store::Reply::Txn { succeeded, responses } => {
            protobuf::write_bool(plan.raw(), 2, succeeded);
            responses.into_iter().try_for_each(|op| put_op(plan, op, values))
        }
        store::Reply::LeaseGrant { id, ttl } => {
            protobuf::write_int(plan.raw(), 2, id);
            protobuf::write_int(plan.raw(), 3, ttl);
            Ok(())
        }
        store::Reply::Alarm { alarms } => {
            put_alarms(plan.raw(), &alarms);
            Ok(())
        }
        store::Reply::Compact | store::Reply::LeaseRevoke | store::Reply::LoggedIn { .. } | store::Reply::Empty => {
            Ok(())
        }
    }
}

/// One `ResponseOp` as field 3: inside, the answer with its own small header.
fn put_op(plan: &mut Plan, op: OpReply, values: &Values) -> Result<(), Status> {
    let kind = match &op.reply {
        store::Reply::Range(_) => 1,
        store::Reply::Put { .. } => 2,
        store::Reply::Delete { .. } => 3,
        store::Reply::Txn { .. } => 4,
        _ => return Err(Status::unexpected("an operation of a transaction")),
    };
    let mut header = Vec::new();
    protobuf::write_int(&mut header, 3, op.revision);
    let mut answer = Plan::default();
    protobuf::write_message(answer.raw(), 1, &header);
    put_reply(&mut answer, op.reply, values)?;
    let mut union = Plan::default();
    union.message(kind, answer)?;
    plan.message(3, union)
}

/// `repeated AlarmMember` as field 2.
pub(crate) fn put_alarms(out: &mut Vec<u8>, alarms: &[store::AlarmMember]) {
    for alarm in alarms {
        let mut member = Vec::new();
        protobuf::write_varint(&mut member, 1, alarm.member);
        protobuf::write_int(&mut member, 2, i64::from(alarm.alarm));
        protobuf::write_message(out, 2, &member);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use store::{Rev, record::KeyValueRef};

    fn item(key: &str, value: &[u8], lease: i64) -> (Item, Bytes) {
        let kv = KeyValueRef { key: key.as_bytes(), create: 2, modified: 3, version: 2, value, lease };
        let record = record::encode(Rev { main: 3, sub: 0 }, false, &kv);
        let handle = Handle { segment: 1, offset: 4096, len: record.len() as u32 };
        let at = Located { handle, rev: store::Rev::default(), bytes: Some(record.clone()) };
        (Item { key: key.as_bytes().into(), create: 2, modified: 3, version: 2, lease, at }, record)
    }

    /// The plan with its records put in, as a client receives it.
    fn assemble(plan: &Plan) -> Vec<u8> {
        let mut out = Vec::new();
        let mut from = 0;
        for (at, record) in plan.cuts.iter().zip(&plan.records) {
            out.extend_from_slice(&plan.raw[from..*at]);
            out.extend_from_slice(&record.bytes.as_ref().unwrap()[record::HEADER..]);
            from = *at;
        }
        out.extend_from_slice(&plan.raw[from..]);
        out
    }

    fn query() -> Query {
        Query::all(store::KeyRange::new(b"a", b"b"))
    }

    #[test]
    fn a_transaction_reads_back_as_the_generated_types_have_it() {
        let (kv, _) = item("a", b"value", 7);
        let range = RangeReply { query: query(), items: vec![kv.clone()], count: 5, more: true, rest: None };
        let bare = RangeReply { query: Query { keys_only: true, ..query() }, ..range.clone() };
        let op = |revision, reply| OpReply { revision, reply };
        let nested = store::Reply::Txn {
            succeeded: false,
            responses: vec![op(4, store::Reply::Delete { deleted: 1, prevs: vec![kv.clone()] })],
        };
        let reply = store::Reply::Txn {
            succeeded: true,
            responses: vec![
                op(3, store::Reply::Range(range)),
                op(3, store::Reply::Range(bare)),
                op(4, store::Reply::Put { prev: Some(kv.clone()) }),
                op(0, nested),
            ],
        };
        let mut plan = Plan::default();
        put_reply(&mut plan, reply, &Values::new()).unwrap();
        let bytes = assemble(&plan);
        assert_eq!(bytes.len() as u64, plan.len());

        use wire::etcdserverpb::{TxnResponse, response_op::Response as Op};
        let read = TxnResponse::decode(bytes.as_slice()).unwrap();
        assert!(read.succeeded && read.header.is_none());
        let ops: Vec<Op> = read.responses.into_iter().map(|r| r.response.unwrap()).collect();
        let Op::ResponseRange(first) = &ops[0] else { panic!("a range") };
        assert_eq!((first.count, first.more, first.header.as_ref().unwrap().revision), (5, true, 3));
        assert_eq!((first.kvs[0].value.as_ref(), first.kvs[0].lease), (&b"value"[..], 7));
        let Op::ResponseRange(second) = &ops[1] else { panic!("a range") };
        assert_eq!((second.kvs[0].value.as_ref(), second.kvs[0].lease, second.kvs[0].version), (&b""[..], 0, 2));
        let Op::ResponsePut(third) = &ops[2] else { panic!("a put") };
        assert_eq!(third.prev_kv.as_ref().unwrap().mod_revision, 3);
        let Op::ResponseTxn(fourth) = &ops[3] else { panic!("a txn") };
        assert_eq!(fourth.header.as_ref().unwrap().revision, 0);
        let Some(Op::ResponseDeleteRange(deleted)) = &fourth.responses[0].response else { panic!("a delete") };
        assert_eq!((deleted.deleted, deleted.prev_kvs.len()), (1, 1));
    }

    #[test]
    fn fetches_are_bounded_and_never_empty() {
        let of = |len| {
            let handle = Handle { segment: 0, offset: 0, len };
            Located { handle, rev: store::Rev::default(), bytes: None }
        };
        assert_eq!(batch(&[of(1 << 21), of(1)], FETCH_BYTES), 1);
        assert_eq!(batch(&vec![of(100); 2000], FETCH_BYTES), FETCH_ITEMS);
        assert_eq!(batch(&vec![of(100 << 10); 5], FETCH_BYTES), 2);
        assert_eq!(batch(&vec![of(4000); 50], 16 << 10), 4, "when room is short");
    }
}
