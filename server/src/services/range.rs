//! Range and RangeStream.
//!
//! Small answers come whole from the core. A large one is measured by the core first; its
//! length goes out at once, and while one slice of the walk goes out the core is asked for the
//! next one, unless the connection holds so much already that it must wait.

use super::plan::{self, Plan, Show, Values};
use crate::budgets::{Hold, Share, What};
use crate::core::Core;
use crate::transport::call::{Asker, Call};
use crate::transport::status::{self, Status};
use disk::fetch::Fetched;
use node::{Answer, Found, RangeStart, Refusal, Request, Slice};
use std::collections::VecDeque;
use store::command::{self, RangeRequest};
use store::{Item, Located, Query, RangeReply, SortOrder, SortTarget};

/// Keys in the first message of a stream (etcd's).
const FIRST_CHUNK: usize = 10;

/// Bytes that a sorted range may keep without being asked what it needs.
const SMALL_SORT: u64 = 256 << 10;

/// A walk in the core, ended there when it is dropped.
struct Walk {
    id: u64,
    asker: Asker,
    finished: bool,
}

impl Walk {
    fn new(call: &Call, id: u64) -> Walk {
        Walk { id, asker: call.asker(), finished: false }
    }

    /// The next slice, and what its places cost.
    async fn next(&mut self) -> Result<(Slice, Hold), Status> {
        let asked = self.asker.read(Request::WalkNext { walk: self.id }).await?;
        let Answer::Slice(slice) = asked.answer else { return Err(Status::unexpected("a walk")) };
        self.finished = slice.finished.is_some();
        let places = plan::found_cost(&slice.found);
        Ok((slice, self.asker.account().hold(What::Places, places)))
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        if !self.finished {
            self.asker.core().tell(Request::WalkEnd { walk: self.id });
        }
    }
}

/// A range that has begun: the answer so far, revision, term.
pub(super) type Begun = (RangeStart, i64, u64);

pub(super) async fn ask(
    call: &Call,
    query: Query,
    serializable: bool,
    stream: bool,
    keep: u64,
) -> Result<Begun, Status> {
    call.patiently(call.edge.account().ask()).await?;
    let asked = call.read(Request::Range { query, linearizable: !serializable, stream, keep }).await?;
    match asked.answer {
        Answer::Range(start) => Ok((start, asked.revision, asked.term)),
        _ => Err(Status::unexpected("a range")),
    }
}

/// A sorted range: a small one at once; a large one is weighed, waits until what it needs is
/// free, and is asked for again. It keeps its share until it is sent.
pub(super) async fn ask_sorted(call: &Call, query: Query, serializable: bool) -> Result<(Begun, Share), Status> {
    let budgets = call.core().budgets();
    let mut needs = SMALL_SORT;
    loop {
        call.patiently(call.edge.account().ask()).await?;
        let share = call.patiently(budgets.sort(needs)).await?.ok_or(status::TOO_MANY_REQUESTS)?;
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

pub(crate) async fn range(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (query, serializable) = {
        let range = RangeRequest::decode(&request)?;
        if call.core().is_learner() && !range.serializable {
            return Err(status::NOT_FOR_LEARNER);
        }
        command::check_range(&range)?;
        (range.query(), range.serializable)
    };
    let ((start, revision, term), share) = match query.needs_sort() {
        true => ask_sorted(call, query, serializable).await.map(|(begun, share)| (begun, Some(share)))?,
        false => (ask(call, query, serializable, false, 0).await?, None),
    };
    call.edge.metrics().range_total.inc();
    call.set_found(if start.walk.is_some() { start.kvs } else { start.found.len() as u64 });
    let mut answer = Plan::default();
    call.edge.put_header(answer.raw(), revision, term);
    match start.walk {
        // Apart: a small answer reserves no room for what this keeps.
        Some(walk) => Box::pin(walked(call, Walk::new(call, walk), start, answer)).await,
        None => whole(call, start, answer, share).await,
    }
}

async fn whole(call: &mut Call, start: RangeStart, mut answer: Plan, share: Option<Share>) -> Result<(), Status> {
    let core = call.core().clone();
    let RangeStart { query, found, count, more, .. } = start;
    let items = match found {
        Found::Items(items) => items,
        Found::Records(_) => {
            let _places = call.edge.account().hold(What::Places, plan::found_cost(&found));
            answer.found(found, Show::Whole)?;
            plan::put_range_end(answer.raw(), more, count);
            return answer.send(&core, &mut call.reply).await;
        }
    };
    let range = in_order(&core, RangeReply { query, items, count, more, rest: None }).await?;
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

/// Sorts and cuts a whole range, if it is to be.
pub(super) async fn in_order(core: &Core, range: RangeReply) -> Result<RangeReply, Status> {
    let values = match plan::by_value(&range.query) {
        true => plan::fetch(core, range.items.iter().map(|item| item.at.clone()).collect()).await?,
        false => Values::new(),
    };
    Ok(plan::finished(range, &values))
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
    let mut fetched = Fetched::default();
    answer.stream(&core, &mut fetched, &mut call.reply).await?;
    let (mut sent, mut bytes) = (0, 0);
    let mut next = walk.next().await;
    loop {
        let (slice, _places) = match next {
            Ok(next) => next,
            Err(status) => return Err(call.reply.break_off(status.message.into_owned())),
        };
        let mut part = Plan::default();
        sent += slice.found.len() as u64;
        part.found(slice.found, show)?;
        bytes += part.len();
        if sent > start.kvs || bytes > measured {
            return Err(call.reply.break_off("kvorum: a walk gave more than it measured".into()));
        }
        let part = part.stream(&core, &mut fetched, &mut call.reply);
        if slice.finished.is_some() {
            part.await?;
            break;
        }
        // The question first: the core walks while this goes out.
        (next, ()) = tokio::try_join!(biased; async { Ok(walk.next().await) }, part)?;
    }
    if sent != start.kvs || bytes != measured {
        return Err(call.reply.break_off("kvorum: a walk gave less than it measured".into()));
    }
    call.reply.part(end.into()).await
}

/// Refuses what a stream cannot do. A target without an order sorts by it, ascending.
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

/// What was found and not sent: all of one kind.
#[derive(Default)]
struct Waiting {
    items: VecDeque<Item>,
    records: VecDeque<Located>,
}

impl Waiting {
    fn extend(&mut self, found: Found) {
        match found {
            Found::Items(items) => self.items.extend(items),
            Found::Records(records) => self.records.extend(records),
        }
    }

    fn len(&self) -> usize {
        self.items.len() + self.records.len()
    }

    /// The first `most`.
    fn take(&mut self, most: usize) -> Found {
        match self.records.len() {
            0 => Found::Items(self.items.drain(..most.min(self.items.len())).collect()),
            len => Found::Records(self.records.drain(..most.min(len)).collect()),
        }
    }
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

pub(crate) async fn range_stream(call: &mut Call) -> Result<(), Status> {
    let request = call.request().await?;
    let (mut query, serializable) = {
        let range = RangeRequest::decode(&request).map_err(|e| Status::from(e).on_stream())?;
        command::check_range(&range)?;
        (range.query(), range.serializable)
    };
    check_stream(&query)?;
    query.order = SortOrder::None;
    // A sorted answer is held whole until it is sent.
    let (start, revision, term, share) = match query.needs_sort() {
        false => {
            let (start, revision, term) = ask(call, query, serializable, true, 0).await?;
            (start, revision, term, None)
        }
        true => {
            let ((start, revision, term), share) = ask_sorted(call, query, serializable).await?;
            let RangeStart { query, found, count, more, .. } = start;
            let Found::Items(items) = found else { return Err(Status::unexpected("a sorted range")) };
            let core = call.core().clone();
            let sorted = Box::pin(in_order(&core, RangeReply { query, items, count, more, rest: None })).await?;
            let RangeReply { query, items, count, more, .. } = sorted;
            let found = Found::Items(items);
            (RangeStart { query, found, count, more, ..start }, revision, term, Some(share))
        }
    };
    let _share = share;
    call.edge.metrics().range_total.inc();
    let show = Show::of(&start.query);
    let mut walk = start.walk.map(|id| Walk::new(call, id));
    let mut waiting = Waiting::default();
    waiting.extend(start.found);
    let mut places = call.edge.account().hold(What::Places, 0);
    let mut finished = walk.is_none().then_some((start.count, start.more));
    let mut keys = FIRST_CHUNK;
    loop {
        while finished.is_none() && waiting.len() <= keys {
            // What is held is sent before more is waited for.
            if waiting.len() > 0 && !call.edge.account().may_ask() {
                break;
            }
            let walk = walk.as_mut().expect("a range that is not finished has a walk");
            let (slice, more) = walk.next().await?;
            places.add(more);
            waiting.extend(slice.found);
            finished = slice.finished;
        }
        let last = finished.filter(|_| waiting.len() <= keys || start.query.count_only);
        let mut part = Plan::default();
        if last.is_some() {
            call.edge.put_header(part.raw(), revision, term);
        }
        let now = waiting.take(keys);
        let leaving = plan::found_cost(&now);
        part.found(now, show)?;
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
