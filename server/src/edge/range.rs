//! Range and RangeStream.
//!
//! Small answers come whole from the core. A large one is measured by the core first; its
//! length goes out at once, and the core is asked for the next slice of the walk only when the
//! client has taken most of the one before.

use super::call::Call;
use super::plan::{self, Plan, Show, Values};
use super::status::{self, Status};
use crate::core::Core;
use crate::ledger::{Share, What};
use node::{Answer, RangeStart, Refusal, Request, Slice};
use store::command::{self, RangeRequest};
use store::{Item, Query, RangeReply, SortOrder, SortTarget};

/// Keys in the first message of a stream (etcd's).
const FIRST_CHUNK: usize = 10;

/// Bytes that a sorted range may keep without being asked what it needs.
const SMALL_SORT: u64 = 256 << 10;

/// A walk in the core, ended there when it is dropped.
struct Walk {
    id: u64,
    core: Core,
    finished: bool,
}

impl Walk {
    fn new(call: &Call, id: u64) -> Walk {
        Walk { id, core: call.core().clone(), finished: false }
    }

    async fn next(&mut self, call: &Call) -> Result<Slice, Status> {
        call.patiently(call.edge.account().ask()).await?;
        let asked = call.read(Request::WalkNext { walk: self.id }).await?;
        let Answer::Slice(slice) = asked.answer else { return Err(Status::unexpected("a walk")) };
        self.finished = slice.finished.is_some();
        Ok(slice)
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        if !self.finished {
            self.core.tell(Request::WalkEnd { walk: self.id });
        }
    }
}

/// A range that has begun: the answer so far, revision, term.
type Begun = (RangeStart, i64, u64);

async fn ask(call: &Call, query: Query, serializable: bool, stream: bool, keep: u64) -> Result<Begun, Status> {
    call.patiently(call.edge.account().ask()).await?;
    let asked = call.read(Request::Range { query, linearizable: !serializable, stream, keep }).await?;
    match asked.answer {
        Answer::Range(start) => Ok((start, asked.revision, asked.term)),
        _ => Err(Status::unexpected("a range")),
    }
}

/// A sorted range: a small one at once; a large one is weighed, waits until what it needs is
/// free, and is asked for again. It keeps its share until it is sent.
async fn ask_sorted(call: &Call, query: Query, serializable: bool) -> Result<(Begun, Share), Status> {
    let ledger = call.core().ledger();
    let mut needs = SMALL_SORT;
    loop {
        call.patiently(call.edge.account().ask()).await?;
        let share = call.patiently(ledger.sort(needs)).await?.ok_or(status::TOO_MANY_REQUESTS)?;
        let request = Request::Range { query: query.clone(), linearizable: !serializable, stream: false, keep: needs };
        let asked = call.asked(request).await?;
        match asked.answer {
            Answer::Range(start) => return Ok(((start, asked.revision, asked.term), share)),
            // What is written meanwhile may make it a little more.
            Answer::Refused(Refusal::SortNeeds(bytes)) => needs = bytes.max(needs).saturating_mul(9) / 8,
            Answer::Refused(refusal) => return Err(refusal.into()),
            _ => return Err(Status::unexpected("a range")),
        }
    }
}

pub async fn range(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (query, serializable) = {
        let range = RangeRequest::decode(&request)?;
        command::check_range(&range)?;
        (range.query(), range.serializable)
    };
    let ((start, revision, term), share) = match query.needs_sort() {
        true => ask_sorted(call, query, serializable).await.map(|(begun, share)| (begun, Some(share)))?,
        false => (ask(call, query, serializable, false, 0).await?, None),
    };
    call.edge.metrics().range_total.inc();
    let mut answer = Plan::default();
    call.edge.put_header(answer.raw(), revision, term);
    match start.walk {
        Some(walk) => walked(call, Walk::new(call, walk), start, answer).await,
        None => whole(call, start, answer, share).await,
    }
}

async fn whole(call: &mut Call, start: RangeStart, mut answer: Plan, share: Option<Share>) -> Result<(), Status> {
    let core = call.core().clone();
    let values = match plan::by_value(&start.query) {
        true => plan::fetch(&core, start.items.iter().map(|item| item.at.clone()).collect()).await?,
        false => Values::new(),
    };
    let RangeStart { query, items, count, more, .. } = start;
    let range = plan::finished(RangeReply { query, items, count, more }, &values);
    drop(values);
    let places: u64 = range.items.iter().map(plan::place_cost).sum();
    // A sorted answer stays on its share, what the limit cut off excepted.
    let _held = match share {
        Some(mut share) => {
            share.shrink(2 * places);
            (Some(share), None)
        }
        None => (None, Some(call.edge.account().hold(What::Places, places))),
    };
    plan::put_range(&mut answer, &range)?;
    answer.send(&core, &mut call.reply).await
}

/// Sends a measured range while it is walked. `answer` holds the header.
async fn walked(call: &mut Call, mut walk: Walk, start: RangeStart, answer: Plan) -> Result<(), Status> {
    let core = call.core().clone();
    let mut end = Vec::new();
    plan::put_range_end(&mut end, start.more, start.count);
    let show = Show::of(&start.query);
    // Each `KeyValue` stands behind a tag of one byte and its length.
    let measured = start.delimited + start.kvs;
    call.reply.begin_large(answer.len() + measured + end.len() as u64).await?;
    answer.stream(&core, &mut call.reply).await?;
    let (mut sent, mut bytes) = (0, 0);
    loop {
        let slice = match walk.next(call).await {
            Ok(slice) => slice,
            Err(status) => return Err(call.reply.break_off(status.message.into_owned())),
        };
        let places = slice.items.iter().map(plan::place_cost).sum();
        let _places = call.edge.account().hold(What::Places, places);
        let mut part = Plan::default();
        for item in &slice.items {
            part.item(2, item, show)?;
        }
        sent += slice.items.len() as u64;
        bytes += part.len();
        if sent > start.kvs || bytes > measured {
            return Err(call.reply.break_off("kvorum: a walk gave more than it measured".into()));
        }
        part.stream(&core, &mut call.reply).await?;
        if slice.finished.is_some() {
            break;
        }
    }
    if sent != start.kvs || bytes != measured {
        return Err(call.reply.break_off("kvorum: a walk gave less than it measured".into()));
    }
    call.reply.part(end.into()).await
}

/// Refuses what a stream in key order cannot do.
fn check_stream(query: &Query) -> Result<(), Status> {
    let ordered = matches!((query.order, query.target), (SortOrder::None, _) | (SortOrder::Ascend, SortTarget::Key));
    if !ordered {
        return Err(status::STREAM_SORT);
    }
    if [query.min_mod, query.max_mod, query.min_create, query.max_create].iter().any(|bound| *bound != 0) {
        return Err(status::STREAM_FILTER);
    }
    Ok(())
}

/// Size of the next message of a stream, in keys: etcd's rule.
fn next_chunk(keys: usize, encoded: u64, max_request_bytes: u64) -> usize {
    if encoded < max_request_bytes / 2 {
        keys.saturating_mul(2)
    } else if encoded > max_request_bytes.saturating_mul(2) {
        (keys / 2).max(1)
    } else {
        keys
    }
}

pub async fn range_stream(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (mut query, serializable) = {
        let range = RangeRequest::decode(&request).map_err(|e| Status::from(e).on_stream())?;
        command::check_range(&range)?;
        (range.query(), range.serializable)
    };
    check_stream(&query)?;
    query.order = SortOrder::None;
    query.target = SortTarget::Key;
    let (start, revision, term) = ask(call, query, serializable, true, 0).await?;
    call.edge.metrics().range_total.inc();
    let show = Show::of(&start.query);
    let mut walk = start.walk.map(|id| Walk::new(call, id));
    let mut items: std::collections::VecDeque<Item> = start.items.into();
    let mut places = call.edge.account().hold(What::Places, 0);
    let mut finished = walk.is_none().then_some((start.count, start.more));
    let mut keys = FIRST_CHUNK;
    loop {
        while finished.is_none() && items.len() <= keys {
            // What is held is sent before more is waited for.
            if !items.is_empty() && !call.edge.account().may_ask() {
                break;
            }
            let walk = walk.as_mut().expect("a range that is not finished has a walk");
            let slice = walk.next(call).await?;
            places.more(slice.items.iter().map(plan::place_cost).sum());
            items.extend(slice.items);
            finished = slice.finished;
        }
        let last = finished.filter(|_| items.len() <= keys || start.query.count_only);
        let now = keys.min(items.len());
        let mut part = Plan::default();
        if last.is_some() {
            call.edge.put_header(part.raw(), revision, term);
        }
        let mut leaving = 0;
        for item in items.drain(..now) {
            leaving += plan::place_cost(&item);
            part.item(2, &item, show)?;
        }
        if let Some((count, more)) = last {
            plan::put_range_end(part.raw(), more, count);
        }
        let encoded = part.len();
        let mut message = Plan::default();
        message.message(1, part)?;
        let core = call.core().clone();
        message.send(&core, &mut call.reply).await?;
        places.less(leaving);
        call.reply.room().await;
        if last.is_some() {
            return Ok(());
        }
        keys = next_chunk(keys, encoded, call.core().settings().max_request_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_their_size() {
        let limit = 1_572_864;
        assert_eq!(next_chunk(10, 1000, limit), 20);
        assert_eq!(next_chunk(20, limit / 2, limit), 20);
        assert_eq!(next_chunk(20, 2 * limit, limit), 20);
        assert_eq!(next_chunk(20, 2 * limit + 1, limit), 10);
        assert_eq!(next_chunk(1, u64::MAX, limit), 1);
    }

    #[test]
    fn a_stream_refuses_orders_and_filters() {
        let plain = RangeRequest::decode(b"\x0a\x01a").unwrap().query();
        assert_eq!(check_stream(&plain), Ok(()));
        let descending = Query { order: SortOrder::Descend, ..plain.clone() };
        assert_eq!(check_stream(&descending), Err(status::STREAM_SORT));
        let by_value = Query { order: SortOrder::Ascend, target: SortTarget::Value, ..plain.clone() };
        assert_eq!(check_stream(&by_value), Err(status::STREAM_SORT));
        let filtered = Query { max_mod: 3, ..plain };
        assert_eq!(check_stream(&filtered), Err(status::STREAM_FILTER));
    }
}
