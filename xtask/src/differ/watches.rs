//! One watch stream: what arrived on it, by watch, in a form that does not
//! depend on how the server cut it into responses. What no server may do is
//! noted as a problem, which then differs from the other side's story.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;
use wire::{
    Method, Rpc,
    etcdserverpb::{self as pb, watch_request::RequestUnion},
    mvccpb,
};

use super::{
    normal::{Own, shorten},
    plant::{Plant, Planted},
};
use crate::raw::{Bidi, Failure, Raw};

/// A key whose writes tell how far a stream has come.
pub const BARRIER: &str = "~barrier";
/// The watch on it, on every stream.
const SENTINEL: i64 = 1 << 50;
/// Where the end of the stream stands among the watches.
const END: i64 = i64::MIN;
/// Where creations that were refused stand: they all have the id -1, which a
/// client may have chosen for a watch of its own.
const REFUSED: i64 = i64::MIN + 1;

/// A stream with everything that came on it.
#[derive(Debug)]
pub struct WatchStream {
    bidi: Bidi,
    story: Arc<Mutex<Story>>,
}

/// What came, by watch id.
#[derive(Debug, Default)]
pub struct Story {
    own: Own,
    watches: BTreeMap<i64, Vec<String>>,
    /// Per watch: the last revision, and whether its response was to be
    /// continued.
    last: BTreeMap<i64, (i64, bool)>,
    sentinel: i64,
    ready: bool,
    /// Created and cancelled responses.
    pub controls: usize,
    /// Progress answers for the stream, and the last one's revision.
    pub progress: usize,
    promised: i64,
    /// Watches that were created and not cancelled.
    live: std::collections::BTreeSet<i64>,
    /// Per watch: what was promised before it was created; that does not bind
    /// it.
    unbound: BTreeMap<i64, i64>,
    /// The store's compacted revision.
    pub compacted: i64,
    ended: bool,
}

/// What must come does so within this time, even on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl WatchStream {
    /// Opens a stream and waits until it tells of the barrier key.
    pub async fn open(raw: &Raw, own: &Own, compacted: i64, planted: &Planted) -> WatchStream {
        let story = Arc::new(Mutex::new(Story { own: own.clone(), compacted, ..Story::default() }));
        let (told, planted) = (Arc::clone(&story), planted.clone());
        let bidi = raw.bidi(Method::of(Rpc::Watch).path, move |message| {
            lock(&told).take(message, &planted);
        });
        let sentinel = pb::WatchCreateRequest { key: BARRIER.into(), watch_id: SENTINEL, ..Default::default() };
        let request = pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(sentinel)) };
        bidi.send(request.encode_to_vec().into());
        let stream = WatchStream { bidi, story };
        // Who may not read the key is told so: such a stream has no barrier.
        stream.until(PATIENCE, |s| s.ready || s.controls > 0).await;
        stream
    }

    pub fn send(&self, request: Bytes) {
        self.bidi.send(request);
    }

    pub fn story(&self) -> MutexGuard<'_, Story> {
        lock(&self.story)
    }

    /// Waits until the barrier's revision has come.
    pub async fn reach(&self, revision: i64) -> bool {
        self.until(PATIENCE, |s| s.sentinel >= revision).await
    }

    /// Whether barriers come on it.
    pub fn has_barrier(&self) -> bool {
        self.story().ready
    }

    /// Waits until the server says that nothing is missing up to a revision; not for long, since it
    /// need not say so.
    pub async fn calm(&self, revision: i64) {
        let ask = pb::WatchRequest { request_union: Some(RequestUnion::ProgressRequest(Default::default())) };
        for _ in 0..8 {
            if self.story().live.is_empty() {
                return;
            }
            self.send(ask.encode_to_vec().into());
            if self.until(Duration::from_millis(50), |s| s.promised >= revision).await {
                return;
            }
        }
    }

    /// Waits until the story is so, or the stream has ended.
    pub async fn until(&self, within: Duration, so: impl Fn(&Story) -> bool) -> bool {
        let deadline = Instant::now() + within;
        loop {
            {
                let story = self.story();
                if so(&story) || story.ended {
                    return true;
                }
            }
            if Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn lock(story: &Mutex<Story>) -> MutexGuard<'_, Story> {
    story.lock().expect("nothing panics while it tells a story")
}

impl Story {
    fn take(&mut self, message: Option<Result<Bytes, Failure>>, planted: &Planted) {
        match message {
            Some(Ok(bytes)) => match pb::WatchResponse::decode(bytes) {
                Ok(response) => self.response(response, planted),
                Err(e) => self.note(END, format!("unreadable response: {e}")),
            },
            Some(Err(mut failure)) => {
                // Go's runtime varies this space from build to build.
                failure.text = failure.text.replace('\u{a0}', " ");
                self.note(END, format!("stream ended: {failure}"));
            }
            None => self.ended = true,
        }
    }

    fn note(&mut self, watch: i64, what: String) {
        self.watches.entry(watch).or_default().push(what);
    }

    fn response(&mut self, mut r: pb::WatchResponse, planted: &Planted) {
        let revision = r.header.as_ref().map_or(0, |h| h.revision);
        if r.watch_id == SENTINEL {
            self.ready |= r.created;
            let last = r.events.iter().filter_map(|e| e.kv.as_ref()).map(|kv| kv.mod_revision).max();
            self.sentinel = self.sentinel.max(last.unwrap_or(0));
            return;
        }
        if r.events.is_empty() && !r.created && !r.canceled {
            // Whether a progress request is answered is a matter of luck; what
            // it promises is not.
            self.progress += 1;
            self.promised = self.promised.max(revision);
            return;
        }
        let events = std::mem::take(&mut r.events);
        if r.created || r.canceled {
            self.own.header(&mut r.header);
            let refused = r.created && r.canceled;
            self.note(if refused { REFUSED } else { r.watch_id }, format!("{r:?}"));
            self.controls += 1;
            if !refused {
                self.last.remove(&r.watch_id);
            }
            if r.created && !refused {
                self.unbound.insert(r.watch_id, self.promised);
                self.live.insert(r.watch_id);
            }
            if r.canceled {
                self.live.remove(&r.watch_id);
            }
        }
        self.events(r.watch_id, revision, r.fragment, events, planted);
    }

    fn events(&mut self, watch: i64, header: i64, fragment: bool, events: Vec<mvccpb::Event>, planted: &Planted) {
        for (at, mut event) in events.into_iter().enumerate() {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            let (last, open) = self.last.get(&watch).copied().unwrap_or((0, false));
            if revision < last {
                self.note(watch, format!("PROBLEM: revision {revision} after {last}"));
            }
            if revision == last && at == 0 && !open {
                self.note(watch, format!("PROBLEM: revision {revision} in two responses"));
            }
            if revision > header {
                self.note(watch, format!("PROBLEM: revision {revision} under header {header}"));
            }
            let unbound = self.unbound.get(&watch).copied().unwrap_or(0);
            if revision <= self.promised && unbound < self.promised {
                self.note(watch, format!("PROBLEM: revision {revision} after progress {}", self.promised));
            }
            self.last.insert(watch, (revision, fragment));
            if planted.take(Plant::EventLost) {
                continue;
            }
            if planted.take(Plant::EventVersion) {
                event.kv.iter_mut().for_each(|kv| kv.version += 1);
            }
            if revision <= self.compacted {
                event.prev_kv = None;
            }
            event.kv.iter_mut().chain(&mut event.prev_kv).for_each(shorten);
            self.note(watch, format!("{event:?}"));
        }
    }

    /// The first place where two stories part, as both sides tell it.
    pub fn parting(left: &Story, right: &Story) -> Option<(String, String)> {
        let ids: std::collections::BTreeSet<&i64> = left.watches.keys().chain(right.watches.keys()).collect();
        let nothing = Vec::new();
        for id in ids {
            let l = left.watches.get(id).unwrap_or(&nothing);
            let r = right.watches.get(id).unwrap_or(&nothing);
            let at = l.iter().zip(r).position(|(l, r)| l != r).unwrap_or(l.len().min(r.len()));
            if at == l.len() && at == r.len() {
                continue;
            }
            let name = match *id {
                END => "stream".to_owned(),
                REFUSED => "refused watches".to_owned(),
                id => format!("watch {id}"),
            };
            let tell = |side: &Vec<String>| {
                let next = side.get(at).map_or("(nothing more)", String::as_str);
                let before = at.checked_sub(1).map_or("(nothing)", |b| side[b].as_str());
                format!("{name}, item {at}: {next}\n      after {before}")
            };
            return Some((tell(l), tell(r)));
        }
        None
    }
}
