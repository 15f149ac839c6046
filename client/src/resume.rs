//! What a watch has delivered, and hence where it goes on after a failure.
//! No network is needed to decide this, and none is touched here.

use wire::{
    etcdserverpb::{WatchCreateRequest, WatchResponse},
    mvccpb::Event,
};

use crate::Error;

/// Something a watch delivers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Everything that happened up to and including this revision has been
    /// delivered.
    pub revision: i64,
    /// In order, whole revisions at a time. Empty: nothing happened up to
    /// `revision`.
    pub events: Vec<Event>,
}

/// The memory of a watch.
#[derive(Debug)]
pub(crate) struct Resume {
    request: WatchCreateRequest,
    /// The first revision not delivered; 0 until the server has said where
    /// "now" is.
    next: i64,
    /// Pieces of a response that is not complete.
    pieces: Vec<Event>,
}

impl Resume {
    pub(crate) fn new(request: WatchCreateRequest) -> Resume {
        Resume { next: request.start_revision, request, pieces: Vec::new() }
    }

    /// What to ask for on a new stream. Pieces of an unfinished response come
    /// again.
    pub(crate) fn request(&mut self) -> WatchCreateRequest {
        self.pieces.clear();
        WatchCreateRequest { start_revision: self.next, watch_id: 0, ..self.request.clone() }
    }

    /// Takes a response in. `None`: there is nothing to deliver yet.
    pub(crate) fn take(&mut self, response: WatchResponse) -> Result<Option<Batch>, Error> {
        if response.canceled {
            return Err(ended(response));
        }
        let revision = response.header.unwrap_or_default().revision;
        if response.created {
            if self.next == 0 {
                self.next = revision + 1;
            }
            return Ok(None);
        }
        self.pieces.extend(response.events);
        if response.fragment {
            return Ok(None);
        }
        let mut events = std::mem::take(&mut self.pieces);
        // The header's revision tells nothing of events that are still to come
        // while the watch catches up; without events it is a promise.
        let delivered = events.iter().map(mod_revision).max().unwrap_or(revision);
        let was_progress = events.is_empty();
        events.retain(|event| mod_revision(event) >= self.next);
        let nothing_new = !was_progress && events.is_empty();
        self.next = self.next.max(delivered + 1);
        Ok((!nothing_new).then_some(Batch { revision: delivered, events }))
    }
}

fn mod_revision(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |kv| kv.mod_revision)
}

fn ended(response: WatchResponse) -> Error {
    let compacted = response.compact_revision > 0
        || response.cancel_reason == "etcdserver: mvcc: required revision has been compacted";
    if compacted {
        Error::Compacted { oldest: response.compact_revision }
    } else {
        Error::Canceled { reason: response.cancel_reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{etcdserverpb::ResponseHeader, mvccpb::KeyValue};

    fn response(revision: i64, events: &[i64]) -> WatchResponse {
        let event = |mod_revision: &i64| Event {
            kv: Some(KeyValue { mod_revision: *mod_revision, ..Default::default() }),
            ..Default::default()
        };
        WatchResponse {
            header: Some(ResponseHeader { revision, ..Default::default() }),
            events: events.iter().map(event).collect(),
            ..Default::default()
        }
    }

    fn created(revision: i64) -> WatchResponse {
        WatchResponse { created: true, ..response(revision, &[]) }
    }

    fn watch(start_revision: i64) -> Resume {
        Resume::new(WatchCreateRequest { start_revision, watch_id: 7, prev_kv: true, ..Default::default() })
    }

    /// The revisions of a batch's events, after the revision it vouches for.
    fn seen(taken: Result<Option<Batch>, Error>) -> Option<(i64, Vec<i64>)> {
        taken.unwrap().map(|b| (b.revision, b.events.iter().map(mod_revision).collect()))
    }

    #[test]
    fn a_watch_from_now_on_resumes_where_now_was() {
        let mut watch = watch(0);
        assert_eq!(watch.request().start_revision, 0);
        assert_eq!(seen(watch.take(created(41))), None);
        let again = watch.request();
        assert_eq!((again.start_revision, again.watch_id, again.prev_kv), (42, 0, true));
        // What was created again says nothing new.
        assert_eq!(seen(watch.take(created(50))), None);
        assert_eq!(watch.request().start_revision, 42);
    }

    #[test]
    fn events_count_by_their_own_revision_not_by_the_header() {
        let mut watch = watch(5);
        // Catching up: the store is at 90, the batch ends at 8.
        assert_eq!(seen(watch.take(response(90, &[5, 8, 8]))), Some((8, vec![5, 8, 8])));
        assert_eq!(watch.request().start_revision, 9);
    }

    #[test]
    fn progress_moves_the_start_and_is_delivered() {
        let mut watch = watch(5);
        assert_eq!(seen(watch.take(response(20, &[]))), Some((20, vec![])));
        assert_eq!(watch.request().start_revision, 21);
        // It never moves back.
        assert_eq!(seen(watch.take(response(10, &[]))), Some((10, vec![])));
        assert_eq!(watch.request().start_revision, 21);
    }

    #[test]
    fn what_was_delivered_is_not_delivered_again() {
        let mut watch = watch(5);
        assert_eq!(seen(watch.take(response(7, &[6, 7]))), Some((7, vec![6, 7])));
        assert_eq!(seen(watch.take(response(7, &[6, 7]))), None);
        assert_eq!(seen(watch.take(response(9, &[7, 8, 9]))), Some((9, vec![8, 9])));
    }

    #[test]
    fn pieces_are_delivered_together_or_again() {
        let mut watch = watch(5);
        let piece = |events: &[i64]| WatchResponse { fragment: true, ..response(8, events) };
        assert_eq!(seen(watch.take(piece(&[6]))), None);
        assert_eq!(seen(watch.take(piece(&[6, 7]))), None);
        // The connection breaks: none of it was delivered.
        assert_eq!(watch.request().start_revision, 5);
        assert_eq!(seen(watch.take(piece(&[6]))), None);
        assert_eq!(seen(watch.take(response(8, &[6, 7]))), Some((7, vec![6, 6, 7])));
        assert_eq!(watch.request().start_revision, 8);
    }

    #[test]
    fn the_end_has_a_reason() {
        let canceled = |compact_revision, reason: &str| WatchResponse {
            canceled: true,
            compact_revision,
            cancel_reason: reason.to_owned(),
            ..response(0, &[])
        };
        assert_eq!(watch(5).take(canceled(9, "")), Err(Error::Compacted { oldest: 9 }));
        let negative = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(watch(-1).take(canceled(0, negative)), Err(Error::Compacted { oldest: 0 }));
        let empty = "mvcc: watcher range is empty";
        assert_eq!(watch(5).take(canceled(0, empty)), Err(Error::Canceled { reason: empty.to_owned() }));
    }
}
