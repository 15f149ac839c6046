//! Scripts from seeds: a small and hostile key space, every option, every edge.

use bytes::Bytes;
use prost::Message;
use wire::etcdserverpb::{self as pb, compare::TargetUnion, request_op::Request, watch_request::RequestUnion};

use super::{
    known,
    marks::{COMPACTED, CURRENT, LEASE, SELF},
    pages,
    step::Step,
};
use crate::rng::Rng;

const KEYS: [&[u8]; 16] = [
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"aa",
    b"ab",
    b"ab\xff",
    b"ac",
    b"b",
    b"b/1",
    b"b/2",
    b"b0",
    b"c",
    b"\xfe",
    b"\xff",
    b"\xff\xff",
];
const ENDS: [&[u8]; 14] =
    [b"\0", b"\0", b"", b"a", b"a\0", b"ab", b"ad", b"b", b"b0", b"c", b"d", b"\xff", b"\xff\xff", b"\xff\xff\xff"];
/// Ids of leases that scripts grant.
pub const LEASES: [i64; 7] = [1, 2, 3, 4, 77, i64::MAX, -5];

/// Draws steps.
#[derive(Debug)]
pub struct Generator {
    /// From the seed.
    pub rng: Rng,
    /// Peer URLs that were given to members.
    pub urls: u32,
}

impl Generator {
    /// One of keys, leases and watches.
    pub fn step(&mut self) -> Step {
        match self.rng.below(1000) {
            0..220 => Step::Put(self.put()),
            220..290 => Step::Delete(self.delete()),
            290..470 => Step::Range(self.range()),
            470..500 => Step::RangeStream(self.range()),
            500..630 => Step::Txn(self.txn(0)),
            630..645 => Step::Compact(self.compaction()),
            645..680 => Step::Grant(self.grant()),
            680..690 => Step::Brief(pb::LeaseGrantRequest {
                ttl: self.rng.pick(&[0, -1, 1, 2, 3]),
                id: self.rng.pick(&[900, 901]),
            }),
            690..715 => Step::Revoke(pb::LeaseRevokeRequest { id: self.lease_id() }),
            715..740 => {
                Step::TimeToLive(pb::LeaseTimeToLiveRequest { id: self.lease_id(), keys: self.rng.percent(60) })
            }
            740..750 => Step::Leases,
            750..770 => Step::KeepAlive(pb::LeaseKeepAliveRequest { id: self.lease_id() }),
            770..800 => Step::HashKv(pb::HashKvRequest { revision: self.revision() }),
            800..870 => self.watch(),
            870..880 => Step::Close { stream: self.stream() },
            880..905 => Step::Settle,
            905..970 => pages::page(&mut self.rng),
            970..985 => self.bytes(),
            _ => self.member(),
        }
    }

    /// A key, or none.
    pub fn key(&mut self) -> Bytes {
        if self.rng.percent(3) {
            return Bytes::new();
        }
        // A few keys get most of the history.
        let n = if self.rng.percent(60) { 6 } else { KEYS.len() };
        let at = self.rng.below(n as u64) as usize;
        Bytes::from_static(KEYS[(at + 2) % KEYS.len()])
    }

    /// The end of a range, mostly none.
    pub fn end(&mut self) -> Bytes {
        if self.rng.percent(45) {
            return Bytes::new();
        }
        Bytes::from_static(self.rng.pick(&ENDS))
    }

    fn value(&mut self) -> Bytes {
        match self.rng.below(1000) {
            0..80 => Bytes::new(),
            80..880 => format!("v{}", self.rng.below(20)).into(),
            880..990 => Bytes::from(vec![b'\xff'; self.rng.below(300) as usize]),
            990..997 => Bytes::from(vec![b'x'; 200_000]),
            997 => Bytes::from(vec![b'y'; 1_572_864 - 64 + self.rng.below(128) as usize]),
            998 => Bytes::from(vec![b'z'; 1_700_000]),
            _ => Bytes::from(vec![b'z'; 2_200_000]),
        }
    }

    /// A revision to ask for: mostly one that exists.
    pub fn revision(&mut self) -> i64 {
        match self.rng.below(100) {
            0..40 => 0,
            40..75 => CURRENT - self.rng.between(0, 12),
            75..80 => CURRENT + self.rng.between(1, 3),
            80..94 => COMPACTED + self.rng.between(-2, 2),
            94..97 => self.rng.between(1, 4),
            _ => self.rng.pick(&[-1, -7, i64::MAX, i64::MIN, 1 << 33]),
        }
    }

    fn bound(&mut self) -> i64 {
        match self.rng.below(100) {
            0..85 => 0,
            85..98 => CURRENT - self.rng.between(0, 20),
            _ => self.rng.pick(&[-3, 1, i64::MAX]),
        }
    }

    fn lease_id(&mut self) -> i64 {
        match self.rng.below(10) {
            0 => 0,
            1 | 2 => LEASE + self.rng.between(0, 5),
            _ => self.rng.pick(&LEASES),
        }
    }

    fn range(&mut self) -> pb::RangeRequest {
        let plain = self.rng.percent(40);
        let mut r = pb::RangeRequest {
            key: self.key(),
            range_end: self.end(),
            limit: self.rng.pick(&[0, 0, 0, 1, 2, 3, 5, -1, i64::MAX]),
            revision: self.revision(),
            serializable: self.rng.percent(30),
            keys_only: self.rng.percent(20),
            count_only: self.rng.percent(12),
            ..Default::default()
        };
        if !plain {
            r.sort_order = self.rng.pick(&[0, 0, 1, 2, 2]);
            r.sort_target = self.rng.pick(&[0, 0, 1, 2, 3, 4]);
            r.min_mod_revision = self.bound();
            r.max_mod_revision = self.bound();
            r.min_create_revision = self.bound();
            r.max_create_revision = self.bound();
        }
        if self.rng.percent(1) {
            r.sort_order = self.rng.pick(&[3, -1, 99]);
        }
        if self.rng.percent(1) {
            r.sort_target = self.rng.pick(&[5, -1, 99]);
        }
        r
    }

    fn put(&mut self) -> pb::PutRequest {
        let mut r = pb::PutRequest {
            key: self.key(),
            value: self.value(),
            lease: if self.rng.percent(25) { self.rng.pick(&LEASES) } else { 0 },
            prev_kv: self.rng.percent(30),
            ignore_value: self.rng.percent(8),
            ignore_lease: self.rng.percent(8),
        };
        if r.ignore_value && self.rng.percent(80) {
            r.value = Bytes::new();
        }
        if r.ignore_lease && self.rng.percent(80) {
            r.lease = 0;
        }
        r
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        let whole = self.rng.percent(4);
        pb::DeleteRangeRequest {
            key: if whole { b"\0".as_slice().into() } else { self.key() },
            range_end: if whole { b"\0".as_slice().into() } else { self.end() },
            prev_kv: self.rng.percent(40),
        }
    }

    /// Mostly one that succeeds.
    pub fn compaction(&mut self) -> pb::CompactionRequest {
        pb::CompactionRequest {
            revision: match self.rng.below(10) {
                0..5 => CURRENT - self.rng.between(0, 15),
                5 => CURRENT + self.rng.between(0, 2),
                6 | 7 => COMPACTED + self.rng.between(-1, 2),
                8 => self.rng.pick(&[-4, i64::MAX, i64::MIN]),
                _ => CURRENT,
            },
            physical: self.rng.percent(50),
        }
    }

    fn grant(&mut self) -> pb::LeaseGrantRequest {
        pb::LeaseGrantRequest {
            ttl: self.rng.pick(&[3600, 5000, 100_000, 9_000_000_000, 9_000_000_001, i64::MAX]),
            id: if self.rng.percent(15) { 0 } else { self.rng.pick(&LEASES) },
        }
    }

    fn compare(&mut self) -> pb::Compare {
        let target = self.rng.below(5) as i32;
        let number = match self.rng.below(4) {
            0 => 0,
            1 => self.rng.between(1, 4),
            2 => CURRENT - self.rng.between(0, 10),
            _ => self.rng.pick(&[-1, i64::MAX]),
        };
        // Mostly the field that belongs to the target.
        let field = if self.rng.percent(93) { target } else { self.rng.below(6) as i32 };
        pb::Compare {
            result: if self.rng.percent(98) { self.rng.below(4) as i32 } else { self.rng.pick(&[4, -1]) },
            target: if self.rng.percent(98) { target } else { self.rng.pick(&[5, -2]) },
            key: self.key(),
            range_end: if self.rng.percent(25) { self.end() } else { Bytes::new() },
            target_union: match field {
                0 => Some(TargetUnion::Version(if number > 1 << 30 { 2 } else { number })),
                1 => Some(TargetUnion::CreateRevision(number)),
                2 => Some(TargetUnion::ModRevision(number)),
                3 => Some(TargetUnion::Value(format!("v{}", self.rng.below(20)).into())),
                4 => Some(TargetUnion::Lease(self.rng.pick(&[0, 0, 1, 2, 3]))),
                _ => None,
            },
        }
    }

    fn txn(&mut self, depth: u32) -> pb::TxnRequest {
        let compares = self.rng.pick(&[0, 0, 1, 1, 2, 3]);
        let mut txn = pb::TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.ops(depth),
            failure: self.ops(depth),
        };
        if depth == 0 {
            if self.rng.percent(1) {
                let many = self.rng.pick(&[127, 128, 129]);
                txn.success = (0..many).map(|_| self.op(9)).collect();
            }
            if deletes_from_a_key(&txn) {
                keep_etcd_alive(&mut txn);
            }
        }
        txn
    }

    fn ops(&mut self, depth: u32) -> Vec<pb::RequestOp> {
        let many = self.rng.pick(&[0, 1, 1, 2, 2, 3, 4]);
        (0..many).map(|_| self.op(depth)).collect()
    }

    fn op(&mut self, depth: u32) -> pb::RequestOp {
        let request = match self.rng.below(100) {
            0..40 => Some(Request::RequestPut(self.put())),
            40..60 => Some(Request::RequestDeleteRange(self.delete())),
            60..85 => {
                let mut range = self.range();
                range.key = if range.key.is_empty() { b"a".as_slice().into() } else { range.key };
                Some(Request::RequestRange(range))
            }
            85..99 if depth < 2 => Some(Request::RequestTxn(self.txn(depth + 1))),
            85..99 => Some(Request::RequestPut(self.put())),
            _ => None,
        };
        pb::RequestOp { request }
    }

    fn stream(&mut self) -> usize {
        self.rng.below(3) as usize
    }

    /// A message on a watch stream.
    pub fn watch(&mut self) -> Step {
        let stream = self.stream();
        let id = self.rng.pick(&[0, 0, 0, 1, 2, 3, 9, -1, -7, i64::MAX]);
        let request = match self.rng.below(100) {
            0..70 => RequestUnion::CreateRequest(pb::WatchCreateRequest {
                key: self.key(),
                range_end: self.end(),
                start_revision: if self.rng.percent(40) { 0 } else { self.revision() },
                progress_notify: self.rng.percent(10),
                filters: self.rng.pick(&[vec![], vec![], vec![], vec![0], vec![1], vec![0, 1], vec![7]]),
                prev_kv: self.rng.percent(40),
                watch_id: id,
                fragment: self.rng.percent(20),
            }),
            70..92 => RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: id }),
            92..98 => RequestUnion::ProgressRequest(pb::WatchProgressRequest {}),
            _ => {
                return Step::Watch { stream, request: pb::WatchRequest::default() };
            }
        };
        Step::Watch { stream, request: pb::WatchRequest { request_union: Some(request) } }
    }

    /// Messages that are none, and methods that are none.
    fn bytes(&mut self) -> Step {
        let broken: Bytes = self.rng.pick(&[
            Bytes::from_static(b"\x0a\x05ab"),
            Bytes::from_static(b"\xff\xff\xff"),
            Bytes::from_static(b"\x0a"),
            Bytes::from_static(known::OTHER_TYPE),
            Bytes::from_static(known::GROUP),
            Bytes::from_static(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
            Bytes::from_static(b"\x00\x00"),
        ]);
        if self.rng.percent(10) && broken != known::GROUP && broken != known::OTHER_TYPE {
            return Step::WatchBytes { stream: self.stream(), request: broken };
        }
        let path = self.rng.pick(&[
            "/etcdserverpb.KV/Range",
            "/etcdserverpb.KV/Put",
            "/etcdserverpb.KV/DeleteRange",
            "/etcdserverpb.KV/Txn",
            "/etcdserverpb.KV/Compact",
            "/etcdserverpb.Lease/LeaseTimeToLive",
            "/etcdserverpb.Maintenance/HashKV",
            "/etcdserverpb.KV/Nothing",
            "/etcdserverpb.Nothing/Range",
            "/nothing",
            "/etcdserverpb.KV/put",
        ]);
        let put = pb::PutRequest { key: self.key(), value: self.value(), ..Default::default() };
        let mut unknown = put.encode_to_vec();
        // A field that nobody knows is passed over.
        unknown.extend_from_slice(b"\xfa\x3e\x03abc");
        match self.rng.below(4) {
            0 => Step::Bytes { path: "/etcdserverpb.KV/Put", request: unknown.into() },
            _ => Step::Bytes { path, request: broken },
        }
    }

    fn member(&mut self) -> Step {
        match self.rng.below(16) {
            0..4 => Step::Status,
            4..7 => Step::Members(pb::MemberListRequest { linearizable: self.rng.percent(50) }),
            7..10 => Step::Alarms(pb::AlarmRequest {
                action: 0,
                member_id: self.rng.pick(&[0, 5]),
                alarm: self.rng.pick(&[0, 1, 2]),
            }),
            10 | 11 => Step::Hash,
            12 | 13 => Step::Defragment,
            _ => Step::MoveLeader(pb::MoveLeaderRequest { target_id: self.rng.pick(&[0, 5, SELF]) }),
        }
    }
}

/// Whether a txn deletes from a key on, at any depth.
fn deletes_from_a_key(txn: &pb::TxnRequest) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match &op.request {
        Some(Request::RequestDeleteRange(r)) => r.range_end[..] == *b"\0",
        Some(Request::RequestTxn(txn)) => deletes_from_a_key(txn),
        _ => false,
    })
}

/// A put that relies on what such a delete takes away kills etcd 3.7.3 for
/// good; there is nothing to compare.
fn keep_etcd_alive(txn: &mut pb::TxnRequest) {
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        match &mut op.request {
            Some(Request::RequestPut(put)) => (put.ignore_value, put.ignore_lease) = (false, false),
            Some(Request::RequestTxn(txn)) => keep_etcd_alive(txn),
            _ => {}
        }
    }
}
