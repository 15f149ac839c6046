//! A store in memory, just enough of one for locks and elections, behind the
//! fake server: puts, deletes, transactions, ranges, watches, leases.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use client::wire::{
    etcdserverpb::{
        compare::{CompareResult, TargetUnion},
        range_request::SortOrder,
        request_op::Request,
        response_op::Response,
        *,
    },
    mvccpb::{Event, KeyValue, event::EventType},
};

use crate::fake::{Call, End, Fake, Reply, UNAVAILABLE};

#[derive(Default)]
pub struct Store {
    pub keys: BTreeMap<Bytes, KeyValue>,
    pub history: Vec<Event>,
    revision: i64,
    leases: i64,
    /// Leases that are gone.
    pub revoked: Vec<i64>,
    /// Calls whose answer is lost on the way: each n-th of those that write.
    pub loses_each: Option<usize>,
    writes: usize,
    /// Whether each second delete is refused, undone, as if by a timeout.
    pub refuses_deletes: bool,
    deletes: usize,
}

/// A store and the server in front of it.
pub struct Served {
    store: Arc<Mutex<Store>>,
    pub fake: Fake,
}

impl Served {
    pub async fn new() -> Served {
        let store = Arc::new(Mutex::new(Store { revision: 1, leases: 0x10, ..Store::default() }));
        let behind = Arc::clone(&store);
        let fake = Fake::new(move |call| behind.lock().unwrap().answer(&call)).await;
        Served { store, fake }
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl Store {
    fn header(&self) -> Option<ResponseHeader> {
        Some(ResponseHeader { revision: self.revision, ..Default::default() })
    }

    fn answer(&mut self, call: &Call) -> Reply {
        let deletes = |op: &RequestOp| matches!(op.request, Some(Request::RequestDeleteRange(_)));
        if call.method() == "Txn" && call.read::<TxnRequest>().success.iter().any(deletes) {
            self.deletes += 1;
            if self.refuses_deletes && self.deletes % 2 == 1 {
                return Reply::fails(UNAVAILABLE, "etcdserver: request timed out");
            }
        }
        let reply = match call.method() {
            "Txn" => Reply::with(&self.txn(&call.read())),
            "Range" => Reply::with(&self.range(&call.read())),
            "Watch" => return self.watch(&call.read()),
            "LeaseGrant" => {
                self.leases += 1;
                let granted = call.read::<LeaseGrantRequest>();
                Reply::with(&LeaseGrantResponse { id: self.leases, ttl: granted.ttl, ..Default::default() })
            }
            "LeaseKeepAlive" => {
                let id = call.read::<LeaseKeepAliveRequest>().id;
                let ttl = if self.revoked.contains(&id) { 0 } else { 60 };
                return Reply::with(&LeaseKeepAliveResponse { id, ttl, ..Default::default() });
            }
            "LeaseRevoke" => {
                self.revoke(call.read::<LeaseRevokeRequest>().id);
                Reply::with(&LeaseRevokeResponse::default())
            }
            _ => return Reply::fails(12, "unknown method"),
        };
        self.writes += usize::from(call.method() == "Txn");
        match self.loses_each {
            Some(each) if call.method() == "Txn" && self.writes.is_multiple_of(each) => Reply::default().ends(End::Cut),
            _ => reply,
        }
    }

    pub fn revoke(&mut self, lease: i64) {
        self.revoked.push(lease);
        let keys: Vec<Bytes> = self.keys.values().filter(|kv| kv.lease == lease).map(|kv| kv.key.clone()).collect();
        self.revision += i64::from(!keys.is_empty());
        keys.into_iter().for_each(|key| self.delete(key));
    }

    fn txn(&mut self, txn: &TxnRequest) -> TxnResponse {
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let branch = if succeeded { &txn.success } else { &txn.failure };
        let writes = branch.iter().any(|op| match &op.request {
            Some(Request::RequestPut(_)) => true,
            Some(Request::RequestDeleteRange(delete)) => self.keys.contains_key(&delete.key),
            _ => false,
        });
        self.revision += i64::from(writes);
        let responses = branch.iter().map(|op| match op.request.as_ref().unwrap() {
            Request::RequestPut(put) => {
                self.put(put);
                Response::ResponsePut(PutResponse::default())
            }
            Request::RequestRange(range) => Response::ResponseRange(self.range(range)),
            Request::RequestDeleteRange(delete) => {
                self.delete(delete.key.clone());
                Response::ResponseDeleteRange(DeleteRangeResponse::default())
            }
            Request::RequestTxn(_) => panic!("nobody asks for this"),
        });
        let responses = responses.map(|response| ResponseOp { response: Some(response) }).collect();
        TxnResponse { header: self.header(), succeeded, responses }
    }

    fn holds(&self, compare: &Compare) -> bool {
        assert_eq!(compare.result(), CompareResult::Equal);
        let found = self.keys.get(&compare.key).cloned().unwrap_or_default();
        match compare.target_union {
            Some(TargetUnion::CreateRevision(revision)) => found.create_revision == revision,
            Some(TargetUnion::ModRevision(revision)) => found.mod_revision == revision,
            _ => panic!("nobody compares this"),
        }
    }

    fn put(&mut self, put: &PutRequest) {
        let revision = self.revision;
        let kv = self.keys.entry(put.key.clone()).or_insert_with(|| KeyValue {
            key: put.key.clone(),
            create_revision: revision,
            ..Default::default()
        });
        (kv.mod_revision, kv.value, kv.lease) = (revision, put.value.clone(), put.lease);
        let kv = Some(kv.clone());
        self.history.push(Event { kv, ..Default::default() });
    }

    fn delete(&mut self, key: Bytes) {
        if self.keys.remove(&key).is_some() {
            let kv = Some(KeyValue { key, mod_revision: self.revision, ..Default::default() });
            self.history.push(Event { r#type: EventType::Delete.into(), kv, ..Default::default() });
        }
    }

    fn range(&self, range: &RangeRequest) -> RangeResponse {
        let mut kvs: Vec<KeyValue> = self
            .keys
            .values()
            .filter(|kv| within(&kv.key, &range.key, &range.range_end))
            .filter(|kv| range.max_create_revision == 0 || kv.create_revision <= range.max_create_revision)
            .cloned()
            .collect();
        kvs.sort_by_key(|kv| kv.create_revision);
        if range.sort_order() == SortOrder::Descend {
            kvs.reverse();
        }
        if range.limit > 0 {
            kvs.truncate(range.limit.try_into().unwrap());
        }
        RangeResponse { header: self.header(), kvs, ..Default::default() }
    }

    /// Everything that has happened, and then the stream breaks: whoever
    /// watches comes again, and again.
    fn watch(&self, request: &WatchRequest) -> Reply {
        let Some(watch_request::RequestUnion::CreateRequest(create)) = &request.request_union else {
            panic!("only watches are asked for");
        };
        let wanted = |event: &&Event| {
            let kv = event.kv.as_ref().unwrap();
            within(&kv.key, &create.key, &create.range_end) && kv.mod_revision >= create.start_revision
        };
        let events: Vec<Event> = self.history.iter().filter(wanted).cloned().collect();
        let created = WatchResponse { created: true, header: self.header(), ..Default::default() };
        let reply = Reply::with(&created);
        let end = End::Status(UNAVAILABLE, "etcdserver: server stopped");
        match events.is_empty() {
            true => reply.ends(end),
            false => reply.and(&WatchResponse { events, header: self.header(), ..Default::default() }).ends(end),
        }
    }
}

fn within(key: &Bytes, from: &Bytes, end: &Bytes) -> bool {
    if end.is_empty() { key == from } else { key >= from && key < end }
}
