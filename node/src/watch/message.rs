//! What a watch stream hears from its client, what it tells it, and how large that is on the wire.

use crate::io::{Refusal, WatchOp};
use bytes::Bytes;
use std::sync::Arc;
use store::{Event, Located, Rev, RevisionEvents};

/// `WatchCreateRequest`, fields as sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateRequest {
    /// The first key.
    pub key: Bytes,
    /// As in a range; empty: the key alone.
    pub range_end: Bytes,
    /// 0: from now on.
    pub start_revision: i64,
    /// It wants to be told how far it is while nothing happens.
    pub progress_notify: bool,
    /// Without puts.
    pub no_put: bool,
    /// Without deletes.
    pub no_delete: bool,
    /// With the version before each event.
    pub prev_kv: bool,
    /// 0 = the stream chooses.
    pub watch_id: i64,
    /// A large response may come in parts.
    pub fragment: bool,
}

/// What a client asks of its stream.
#[derive(Clone, Debug)]
pub enum FromClient {
    /// A watch. Answered as created, or as created and canceled.
    Create(CreateRequest),
    /// The edge refuses a create (permissions): answered as created and canceled, in its turn.
    Refuse {
        /// For the client, in etcd's words.
        reason: String,
    },
    /// The end of a watch. Answered if there is such a watch.
    Cancel {
        /// Of the watch.
        id: i64,
    },
    /// How far all watches of the stream are. Answered behind everything that is on its way.
    Progress,
}

/// One `WatchResponse`; the driver adds cluster, member and term, fetches `prev`, and encodes.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// 0 in the notice of a compaction.
    pub header_revision: i64,
    /// -1: no watch (a refused create), or all of them (progress on request).
    pub watch_id: i64,
    /// The answer to a create.
    pub created: bool,
    /// The watch has ended.
    pub canceled: bool,
    /// Not 0: it wanted what is compacted; this is the compacted revision.
    pub compact_revision: i64,
    /// For the client.
    pub cancel_reason: String,
    /// More parts of the same revisions follow.
    pub fragment: bool,
    /// In the order of their revisions.
    pub events: Vec<OutEvent>,
    /// Bytes it was charged: the encoded size, with room for the largest header.
    /// Given back through `WatchStream::sent`.
    pub bytes: usize,
}

/// An event on its way to a client.
#[derive(Clone, Debug)]
pub struct OutEvent {
    /// The key was deleted.
    pub tombstone: bool,
    /// The whole record (header and `KeyValue`). A tombstone's body lacks `mod_revision`:
    /// the encoder adds `revision.main`.
    pub record: Bytes,
    /// Of the change.
    pub revision: Rev,
    /// The version just before, if it was asked for and is still there.
    pub prev: Option<Located>,
}

/// What a watch stream wants done.
#[derive(Debug)]
pub enum StreamOut {
    /// To the client, in this order.
    Respond(Response),
    /// To the core, in this order.
    Ask(WatchOp),
    /// `Request::History`; the answer goes to `WatchStream::history`. At most one at a time.
    AskHistory { from: i64, prev: bool },
    /// The stream is over: answer with this status.
    End(Refusal),
}

/// Bytes of a `WatchResponse` beside its events: header with three 64-bit ids and a
/// revision, watch id, compact revision, flags.
pub(super) const ENVELOPE_BYTES: usize = 2 + 3 * 11 + 11 + 2 * 11 + 3 * 2;

/// The matching events of one revision; the events themselves are shared.
#[derive(Clone, Debug)]
pub(super) struct Picked {
    pub(super) events: Arc<RevisionEvents>,
    pub(super) picks: Arc<[u32]>,
}

impl Picked {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.picks.iter().map(|&pick| &self.events.events[pick as usize])
    }

    pub(super) fn encoded_len(&self, prev_kv: bool) -> usize {
        self.iter().map(|event| OutEvent::new(event, prev_kv).encoded_len()).sum()
    }
}

impl OutEvent {
    pub(super) fn new(event: &Event, prev_kv: bool) -> OutEvent {
        let created = !event.tombstone && event.create == event.revision.main;
        OutEvent {
            tombstone: event.tombstone,
            record: event.record.clone(),
            revision: event.revision,
            prev: if prev_kv && !created { event.prev.clone() } else { None },
        }
    }

    /// Size of the event as one entry of `WatchResponse.events`, tag and length included.
    pub(super) fn encoded_len(&self) -> usize {
        let body = self.record.len().saturating_sub(store::record::HEADER);
        let mut event = 0;
        if self.tombstone {
            let mod_revision = 1 + varint_len(self.revision.main.unsigned_abs());
            event += 2 + field_len(body + mod_revision);
        } else {
            event += field_len(body);
        }
        if let Some(prev) = &self.prev {
            event += field_len((prev.handle.len as usize).saturating_sub(store::record::HEADER));
        }
        field_len(event)
    }
}

/// A length-delimited field with a tag of one byte.
fn field_len(body: usize) -> usize {
    1 + varint_len(body as u64) + body
}

fn varint_len(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

#[cfg(test)]
mod tests {
    use super::varint_len;

    #[test]
    fn varint_lengths_at_their_edges() {
        for (value, len) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX >> 1, 9), (u64::MAX, 10)] {
            assert_eq!(varint_len(value), len, "{value}");
        }
    }
}
