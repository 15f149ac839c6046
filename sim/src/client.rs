//! What clients ask for: every kind of request over a small, hostile set of keys.

use crate::ops::{Blob, Command, Compare, Delete, Op, Put, Range, Txn};
use crate::plan::Workload;
use crate::rng::Rng;
use crate::users::{Change, Question, Users};
use bytes::Bytes;
use node::watch::CreateRequest;

/// A kind of operation and its usual share.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    pub weight: u64,
    /// Never switched off: without it a seed tests nothing.
    pub needed: bool,
}

const fn kind(name: &'static str, weight: u64) -> Kind {
    Kind { name, weight, needed: false }
}

/// Changes users and roles.
pub const USERS: &str = "change of users";
/// Asks for users and roles.
pub const USERS_ASKED: &str = "users";

/// Changes users and roles where they are asked for, and logs in.
pub const ASKED: &str = "users that are asked for";

/// Compares and reads whole ranges of values.
pub const LONG_TXN: &str = "long txn";

/// Raises an alarm for want of space, or takes it back.
pub const ALARM: &str = "alarm";

pub const KINDS: &[Kind] = &[
    Kind { name: "put", weight: 26, needed: true },
    Kind { name: "range", weight: 18, needed: true },
    kind("odd put", 4),
    kind("old range", 8),
    kind("serializable range", 6),
    kind("delete", 6),
    kind("txn", 10),
    kind("read txn", 4),
    kind("compact", 3),
    kind("grant", 4),
    kind("leased put", 5),
    kind("keep alive", 8),
    kind("revoke", 1),
    kind("time to live", 2),
    kind("leases", 1),
    kind("hash", 1),
    kind("watch", 6),
    kind("cancel watch", 3),
    kind("watch progress", 4),
    kind("barrier", 1),
    kind("members", 1),
    kind("move leader", 1),
    kind("backup", 1),
    kind("status", 1),
    kind("alarms", 1),
    kind("digest", 1),
    // Switched on by a sight.
    kind(ALARM, 0),
    kind(USERS, 0),
    kind(USERS_ASKED, 0),
    kind(ASKED, 0),
    kind(LONG_TXN, 0),
];

/// Keys that are easy to get wrong: neighbours, prefixes of each other, lowest and highest bytes.
pub const KEYS: &[&[u8]] = &[
    b"a",
    b"ab",
    b"a\0",
    b"b",
    b"\0",
    b"\xff",
    b"k/1",
    b"k/2",
    b"a\xff",
    b"\xff\xff",
    b"\0\0",
    b"k/10",
    b"k",
    b"k/",
    b"k0",
    b"z\xff\xff",
    b"a\0\0",
    b"c",
];

/// Leases have few names, so that names come again.
const LEASES: u64 = 12;

#[derive(Clone, Debug)]
pub enum Ask {
    Command(Command),
    Range {
        range: Range,
        stream: bool,
    },
    ReadTxn {
        txn: Txn,
        linearizable: bool,
    },
    KeepAlive {
        lease: i64,
    },
    TimeToLive {
        lease: i64,
        keys: bool,
    },
    Leases,
    HashKv {
        revision: i64,
    },
    Watch(CreateRequest),
    CancelWatch {
        nth: u64,
    },
    WatchProgress,
    Barrier,
    Members {
        linearizable: bool,
    },
    MoveLeader {
        nth: u64,
    },
    Backup,
    Status,
    Alarms {
        kind: i32,
    },
    Digest,
    /// About users and roles.
    Users(Question),
}

/// What a client may know when it draws its next request.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub revision: i64,
    pub compacted: i64,
    /// A member for which an alarm is raised.
    pub alarm: Option<u64>,
    /// Whose log a value is to look like.
    pub forges: Option<crate::forged::Target>,
}

pub struct Draw<'a> {
    pub rng: &'a mut Rng,
    pub work: &'a Workload,
    pub known: Known,
    /// As they are.
    pub users: &'a Users,
    /// Number of the operation; makes values unique.
    pub tag: u64,
}

impl Draw<'_> {
    pub fn ask(&mut self) -> (&'static str, Ask) {
        let total: u64 = self.work.weights.iter().sum();
        let mut at = self.rng.below(total);
        for (kind, &weight) in KINDS.iter().zip(&self.work.weights) {
            if at < weight {
                return (kind.name, self.of_kind(kind.name));
            }
            at -= weight;
        }
        unreachable!("weights add up")
    }

    fn of_kind(&mut self, kind: &str) -> Ask {
        match kind {
            "put" => {
                let (key, mut value, prev_kv) = (self.key(), self.value(), self.rng.percent(20));
                if let Some(target) = self.known.forges
                    && self.rng.percent(self.work.forged)
                {
                    value = crate::forged::value(self.rng, &key, target);
                }
                Ask::Command(Command::Put(Put { key, value, prev_kv, ..Put::default() }))
            }
            "odd put" => Ask::Command(Command::Put(self.odd_put())),
            "leased put" => {
                let put = Put { key: self.key(), value: self.value(), lease: self.lease(), ..Put::default() };
                Ask::Command(Command::Put(put))
            }
            "range" => {
                let range = self.range(false);
                Ask::Range { stream: self.rng.percent(10) && plain(&range), range }
            }
            "old range" => Ask::Range { range: self.range(true), stream: false },
            "serializable range" => {
                let old = self.rng.percent(20);
                Ask::Range { range: Range { serializable: true, ..self.range(old) }, stream: false }
            }
            "delete" => Ask::Command(Command::Delete(self.delete())),
            "txn" => Ask::Command(Command::Txn(self.write_txn())),
            "read txn" => {
                let compare = self.some(3, Self::compare);
                let success = self.some(3, |d| Op::Range(d.txn_range()));
                let failure = self.some(2, |d| Op::Range(d.txn_range()));
                Ask::ReadTxn { txn: Txn { compare, success, failure }, linearizable: self.rng.percent(85) }
            }
            "compact" => {
                let known = self.known;
                let revision = match self.rng.below(20) {
                    0 => known.revision + 1 + self.rng.below(50) as i64,
                    1 => known.compacted,
                    2 => 0,
                    3 => -1,
                    4 => known.revision,
                    _ => known.revision - self.rng.below(40) as i64,
                };
                Ask::Command(Command::Compact { revision, physical: self.rng.percent(20) })
            }
            "grant" => {
                let ttl = *self.rng.pick(&[0, 1, 2, 2, 3, 4, 6, 9_000_000_001]);
                // The edge raises what is too small.
                Ask::Command(Command::Grant { id: self.lease(), ttl: ttl.max(crate::cluster::MIN_TTL) })
            }
            "revoke" => Ask::Command(Command::Revoke { id: self.lease() }),
            "keep alive" => Ask::KeepAlive { lease: self.lease() },
            "time to live" => Ask::TimeToLive { lease: self.lease(), keys: self.rng.percent(50) },
            "leases" => Ask::Leases,
            "hash" => Ask::HashKv { revision: self.revision() },
            "watch" => Ask::Watch(self.watch()),
            "cancel watch" => Ask::CancelWatch { nth: self.rng.draw() },
            "watch progress" => Ask::WatchProgress,
            "barrier" => Ask::Barrier,
            "members" => Ask::Members { linearizable: self.rng.percent(70) },
            "move leader" => Ask::MoveLeader { nth: self.rng.draw() },
            "backup" => Ask::Backup,
            "status" => Ask::Status,
            "alarms" => Ask::Alarms { kind: self.rng.below(3) as i32 },
            "digest" => Ask::Digest,
            ALARM => Ask::Command(self.alarm()),
            USERS => Ask::Command(Command::Users(Change::draw(self.rng))),
            ASKED => {
                let change = Change::draw_when_asked(self.rng, self.users, self.tag);
                Ask::Command(Command::Users(change))
            }
            USERS_ASKED => Ask::Users(Question::draw(self.rng)),
            LONG_TXN => self.long_txn(),
            other => unreachable!("{other}"),
        }
    }

    /// Its compares mostly hold, and are decided by every value of a range; or by the first ones.
    fn long_txn(&mut self) -> Ask {
        let everything = |d: &mut Self| {
            if d.rng.percent(70) { (vec![0], vec![0]) } else { (b"k".to_vec(), b"l".to_vec()) }
        };
        let compare = |d: &mut Self| {
            let (key, end) = everything(d);
            // Below `w` are all values that clients write.
            let (result, value) = d.rng.pick(&[(2, "w"), (2, "w"), (2, "w"), (2, "v2"), (0, "same")]);
            Compare { result: *result, target: 3, key, end, value: value.as_bytes().to_vec(), ..Compare::default() }
        };
        let compare = vec![compare(self); 1 + self.rng.below(2) as usize];
        let range = |d: &mut Self| {
            let (key, end) = everything(d);
            let limit = if d.rng.percent(30) { d.rng.below(30) as i64 } else { 0 };
            let revision = if d.rng.percent(30) { d.revision() } else { 0 };
            Range { key, end, limit, revision, count_only: d.rng.percent(10), ..Range::default() }
        };
        if self.rng.percent(30) {
            let success = self.some(3, |d| Op::Range(range(d)));
            let failure = self.some(2, |d| Op::Range(range(d)));
            return Ask::ReadTxn { txn: Txn { compare, success, failure }, linearizable: self.rng.percent(85) };
        }
        let op = |d: &mut Self| match d.rng.below(6) {
            0..=2 => Op::Range(range(d)),
            3 => Op::Put(Put { key: d.key(), ignore_value: true, ..Put::default() }),
            4 => Op::Delete(d.delete()),
            _ => Op::Put(Put { key: d.key(), value: d.value(), ..Put::default() }),
        };
        let (success, failure) = (self.some(6, op), self.some(3, op));
        let txn = Txn { compare, success, failure };
        let fits = !txn.is_read() && crate::model::acceptable(&txn, 128);
        Ask::Command(Command::Txn(if fits { txn } else { self.write_txn() }))
    }

    /// Mostly one that is raised is taken back.
    fn alarm(&mut self) -> Command {
        let some = 1 + self.rng.below(7);
        match self.known.alarm {
            Some(member) if self.rng.percent(80) => Command::Alarm { action: 2, member, kind: 1 },
            _ => Command::Alarm { action: if self.rng.percent(50) { 1 } else { 2 }, member: some, kind: 1 },
        }
    }

    fn key(&mut self) -> Blob {
        if self.work.many && self.rng.percent(50) {
            return format!("k/{}", self.rng.below(400)).into_bytes();
        }
        self.rng.pick(&KEYS[..self.work.keys]).to_vec()
    }

    fn end(&mut self) -> Blob {
        match self.rng.below(10) {
            0..=3 => Vec::new(),
            4..=6 => vec![0],
            7 => b"l".to_vec(),
            8 => b"b".to_vec(),
            _ => self.key(),
        }
    }

    fn value(&mut self) -> Blob {
        if self.work.long > 0 && self.rng.percent(self.work.long) {
            return self.long_value();
        }
        match self.rng.below(20) {
            0 => Vec::new(),
            1 | 2 => b"same".to_vec(),
            3 => self.long_value(),
            _ => format!("v{}", self.tag).into_bytes(),
        }
    }

    fn long_value(&mut self) -> Blob {
        let mut long = format!("v{}-", self.tag).into_bytes();
        long.resize(long.len() + self.rng.below(self.work.value) as usize, b'x');
        long
    }

    fn lease(&mut self) -> i64 {
        match self.rng.below(40) {
            0 => i64::MAX,
            _ => 1 + self.rng.below(LEASES) as i64,
        }
    }

    fn odd_put(&mut self) -> Put {
        let mut put = Put { key: self.key(), value: self.value(), prev_kv: self.rng.percent(50), ..Put::default() };
        put.ignore_value = self.rng.percent(50);
        put.ignore_lease = self.rng.percent(50);
        if put.ignore_value {
            put.value.clear();
        }
        if !put.ignore_lease && self.rng.percent(30) {
            put.lease = self.lease();
        }
        put
    }

    fn delete(&mut self) -> Delete {
        let wide = self.rng.percent(30);
        Delete { key: self.key(), end: if wide { self.end() } else { Vec::new() }, prev_kv: self.rng.percent(40) }
    }

    /// A revision around what is readable: old, compacted, current, future.
    fn revision(&mut self) -> i64 {
        let Known { revision, compacted, .. } = self.known;
        match self.rng.below(12) {
            0 => revision + 1 + self.rng.below(5) as i64,
            1 => compacted,
            2 => compacted - 1,
            3 => compacted + 1,
            4 => revision,
            5 => 0,
            _ => revision - self.rng.below(30) as i64,
        }
    }

    fn range(&mut self, old: bool) -> Range {
        let mut range = Range { key: self.key(), end: self.end(), ..Range::default() };
        if old {
            range.revision = self.revision();
        }
        if self.rng.percent(25) {
            range.limit = self.rng.below(5) as i64;
        }
        if self.rng.percent(30) {
            range.order = self.rng.below(3) as i64;
            range.target = self.rng.below(5) as i64;
        }
        range.keys_only = self.rng.percent(10);
        range.count_only = self.rng.percent(10);
        if self.rng.percent(10) {
            let near = self.known.revision - self.rng.below(20) as i64;
            match self.rng.below(4) {
                0 => range.min_mod = near,
                1 => range.max_mod = near,
                2 => range.min_create = near,
                _ => range.max_create = near,
            }
        }
        range
    }

    fn txn_range(&mut self) -> Range {
        let old = self.rng.percent(10);
        self.range(old)
    }

    fn some<T>(&mut self, most: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.rng.below(most + 1)).map(|_| make(self)).collect()
    }

    fn compare(&mut self) -> Compare {
        let end = if self.rng.percent(15) { self.end() } else { Vec::new() };
        let target = self.rng.below(5) as i64;
        let number = match (self.rng.below(3), target) {
            (0, _) => 0,
            (_, 0) => self.rng.below(4) as i64,
            (_, 4) => self.lease(),
            _ => self.known.revision - self.rng.below(20) as i64,
        };
        Compare {
            result: self.rng.below(4) as i64,
            target,
            key: self.key(),
            end,
            number,
            value: if self.rng.percent(50) { b"same".to_vec() } else { Vec::new() },
        }
        .tidy()
    }

    fn write_txn(&mut self) -> Txn {
        for _ in 0..20 {
            let txn = self.txn(0);
            if !txn.is_read() && crate::model::acceptable(&txn, 128) {
                return txn;
            }
        }
        let put = Put { key: self.key(), value: self.value(), ..Put::default() };
        Txn { success: vec![Op::Put(put)], ..Txn::default() }
    }

    fn txn(&mut self, depth: u32) -> Txn {
        let compare = self.some(2, Self::compare);
        let success = self.some(4, |d| d.op(depth));
        let failure = self.some(3, |d| d.op(depth));
        Txn { compare, success, failure }
    }

    fn op(&mut self, depth: u32) -> Op {
        match self.rng.below(10) {
            0 | 1 => Op::Range(self.txn_range()),
            2..=5 => {
                Op::Put(Put { key: self.key(), value: self.value(), prev_kv: self.rng.percent(30), ..Put::default() })
            }
            6 => Op::Put(self.odd_put()),
            7 | 8 => Op::Delete(self.delete()),
            _ if depth < 2 => Op::Txn(self.txn(depth + 1)),
            _ => Op::Delete(self.delete()),
        }
    }

    fn watch(&mut self) -> CreateRequest {
        let start_revision = match self.rng.below(10) {
            0..=3 => 0,
            4 => self.known.revision + 1 + self.rng.below(20) as i64,
            5 => self.known.compacted.max(0),
            6 => -1 - self.rng.below(2) as i64,
            7 => 1,
            _ => (self.known.revision - self.rng.below(40) as i64).max(0),
        };
        let empty_key = self.rng.percent(10);
        let wide = self.rng.percent(40);
        CreateRequest {
            key: Bytes::from(if empty_key { Vec::new() } else { self.key() }),
            range_end: Bytes::from(if wide { vec![0] } else { self.end() }),
            start_revision,
            progress_notify: self.rng.percent(30),
            no_put: self.rng.percent(10),
            no_delete: self.rng.percent(10),
            prev_kv: self.rng.percent(40),
            watch_id: if self.rng.percent(20) { self.rng.below(6) as i64 - 2 } else { 0 },
            fragment: self.rng.percent(30),
        }
    }
}

impl Compare {
    /// Only the field of the target travels.
    fn tidy(mut self) -> Compare {
        if self.target == 3 {
            self.number = 0;
        } else {
            self.value.clear();
        }
        self
    }
}

/// What a streamed range may ask.
fn plain(range: &Range) -> bool {
    range.target == 0
        && range.order <= 1
        && [range.min_mod, range.max_mod, range.min_create, range.max_create] == [0; 4]
}
