//! The commands of the workload: their shape, how they are written into a log entry, and how
//! they are read back from one.

use crate::proto::{Value, Writer, fields};
use store::Origin;

/// Keys and values.
pub type Blob = Vec<u8>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub key: Blob,
    pub end: Blob,
    pub limit: i64,
    pub revision: i64,
    /// 0 none, 1 ascending, 2 descending.
    pub order: i64,
    /// 0 key, 1 version, 2 create, 3 modified, 4 value.
    pub target: i64,
    pub serializable: bool,
    pub keys_only: bool,
    pub count_only: bool,
    pub min_mod: i64,
    pub max_mod: i64,
    pub min_create: i64,
    pub max_create: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    pub key: Blob,
    pub value: Blob,
    pub lease: i64,
    pub prev_kv: bool,
    pub ignore_value: bool,
    pub ignore_lease: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    pub key: Blob,
    pub end: Blob,
    pub prev_kv: bool,
}

/// One condition. `number` for every target but VALUE, which compares `value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compare {
    /// 0 equal, 1 greater, 2 less, 3 not equal.
    pub result: i64,
    /// 0 version, 1 create, 2 mod, 3 value, 4 lease.
    pub target: i64,
    pub key: Blob,
    pub end: Blob,
    pub number: i64,
    pub value: Blob,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    pub compare: Vec<Compare>,
    pub success: Vec<Op>,
    pub failure: Vec<Op>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Range(Range),
    Put(Put),
    Delete(Delete),
    Txn(Txn),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Put(Put),
    Delete(Delete),
    Txn(Txn),
    Compact {
        revision: i64,
        physical: bool,
    },
    Grant {
        id: i64,
        ttl: i64,
    },
    Revoke {
        id: i64,
    },
    Checkpoint {
        remaining: Vec<(i64, i64)>,
    },
    /// 1 = raise, 2 = disarm.
    Alarm {
        action: i64,
        member: u64,
        kind: i64,
    },
    Expire {
        term: u64,
        leases: Vec<(i64, u64)>,
    },
    /// Of users and roles.
    Users(crate::users::Change),
    /// Publish, cluster version, a new leader's first entry: nothing a client can see in keys.
    Nothing,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asker {
    /// A client that does not say, or that nobody asks.
    #[default]
    Nobody,
    /// A client that is this user.
    User {
        /// The user.
        name: String,
        /// Of users and roles, when the name was looked up. None: the present one.
        revision: Option<u64>,
    },
    /// The program itself.
    Member,
}

/// What an entry of the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub command: Command,
    /// The simulator's own number of the operation, hidden in a field that no server knows.
    pub tag: Option<u64>,
    /// Member, boot and sequence that proposed it.
    pub origin: Option<Origin>,
    /// Who asked for it, as the member that took it in wrote it down.
    pub asker: Asker,
    pub lease_clock: Option<u64>,
}

/// Field of a request that carries the operation's number.
const TAG: u32 = 1000;

const PUT: u32 = 4;
const DELETE: u32 = 5;
const TXN: u32 = 6;
const COMPACTION: u32 = 7;
const GRANT: u32 = 8;
const REVOKE: u32 = 9;
const ALARM: u32 = 10;
const CHECKPOINT: u32 = 11;
const CLUSTER_VERSION: u32 = 1300;
const REFOUND: u32 = 20006;
const MEMBER_ATTR: u32 = 1301;
const ORIGIN: u32 = 20001;
/// The member itself proposed it, once there were users.
const OWN: u32 = 20004;
/// A user asked for it: etcd's header.
const HEADER: u32 = 100;
const EXPIRE: u32 = 20002;
const LEASE_CLOCK: u32 = 20003;

impl Range {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.bytes(1, &self.key).bytes(2, &self.end).int(3, self.limit).int(4, self.revision);
        w.int(5, self.order).int(6, self.target).flag(7, self.serializable);
        w.flag(8, self.keys_only).flag(9, self.count_only);
        w.int(10, self.min_mod).int(11, self.max_mod).int(12, self.min_create).int(13, self.max_create);
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<Range> {
        let mut r = Range::default();
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Bytes(b)) => r.key = b.to_vec(),
                (2, Value::Bytes(b)) => r.end = b.to_vec(),
                (3, Value::Varint(v)) => r.limit = v as i64,
                (4, Value::Varint(v)) => r.revision = v as i64,
                (5, Value::Varint(v)) => r.order = v as i64,
                (6, Value::Varint(v)) => r.target = v as i64,
                (7, Value::Varint(v)) => r.serializable = v != 0,
                (8, Value::Varint(v)) => r.keys_only = v != 0,
                (9, Value::Varint(v)) => r.count_only = v != 0,
                (10, Value::Varint(v)) => r.min_mod = v as i64,
                (11, Value::Varint(v)) => r.max_mod = v as i64,
                (12, Value::Varint(v)) => r.min_create = v as i64,
                (13, Value::Varint(v)) => r.max_create = v as i64,
                _ => {}
            }
        }
        Some(r)
    }
}

impl Put {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.bytes(1, &self.key).bytes(2, &self.value).int(3, self.lease).flag(4, self.prev_kv);
        w.flag(5, self.ignore_value).flag(6, self.ignore_lease);
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<(Put, Option<u64>)> {
        let (mut p, mut tag) = (Put::default(), None);
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Bytes(b)) => p.key = b.to_vec(),
                (2, Value::Bytes(b)) => p.value = b.to_vec(),
                (3, Value::Varint(v)) => p.lease = v as i64,
                (4, Value::Varint(v)) => p.prev_kv = v != 0,
                (5, Value::Varint(v)) => p.ignore_value = v != 0,
                (6, Value::Varint(v)) => p.ignore_lease = v != 0,
                (TAG, Value::Varint(v)) => tag = Some(v),
                _ => {}
            }
        }
        Some((p, tag))
    }
}

impl Delete {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.bytes(1, &self.key).bytes(2, &self.end).flag(3, self.prev_kv);
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<(Delete, Option<u64>)> {
        let (mut d, mut tag) = (Delete::default(), None);
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Bytes(b)) => d.key = b.to_vec(),
                (2, Value::Bytes(b)) => d.end = b.to_vec(),
                (3, Value::Varint(v)) => d.prev_kv = v != 0,
                (TAG, Value::Varint(v)) => tag = Some(v),
                _ => {}
            }
        }
        Some((d, tag))
    }
}

impl Compare {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.int(1, self.result).int(2, self.target).bytes(3, &self.key);
        match self.target {
            0 => w.int(4, self.number),
            1 => w.int(5, self.number),
            2 => w.int(6, self.number),
            3 => w.message(7, &self.value),
            _ => w.int(8, self.number),
        };
        w.bytes(64, &self.end);
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<Compare> {
        let mut c = Compare::default();
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Varint(v)) => c.result = v as i64,
                (2, Value::Varint(v)) => c.target = v as i64,
                (3, Value::Bytes(b)) => c.key = b.to_vec(),
                (4 | 5 | 6 | 8, Value::Varint(v)) => c.number = v as i64,
                (7, Value::Bytes(b)) => c.value = b.to_vec(),
                (64, Value::Bytes(b)) => c.end = b.to_vec(),
                _ => {}
            }
        }
        Some(c)
    }
}

impl Txn {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        for c in &self.compare {
            w.message(1, &c.encode());
        }
        for op in &self.success {
            w.message(2, &op.encode());
        }
        for op in &self.failure {
            w.message(3, &op.encode());
        }
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<(Txn, Option<u64>)> {
        let (mut t, mut tag) = (Txn::default(), None);
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Bytes(b)) => t.compare.push(Compare::decode(b)?),
                (2, Value::Bytes(b)) => t.success.push(Op::decode(b)?),
                (3, Value::Bytes(b)) => t.failure.push(Op::decode(b)?),
                (TAG, Value::Varint(v)) => tag = Some(v),
                _ => {}
            }
        }
        Some((t, tag))
    }

    /// Ranges alone, not nested: served as a read, not proposed.
    pub fn is_read(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, Op::Range(_)))
    }
}

impl Op {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Op::Range(r) => w.message(1, &r.encode()),
            Op::Put(p) => w.message(2, &p.encode()),
            Op::Delete(d) => w.message(3, &d.encode()),
            Op::Txn(t) => w.message(4, &t.encode()),
        };
        w.0
    }

    fn decode(bytes: &[u8]) -> Option<Op> {
        let mut op = None;
        for (field, value) in fields(bytes)? {
            op = Some(match (field, value) {
                (1, Value::Bytes(b)) => Op::Range(Range::decode(b)?),
                (2, Value::Bytes(b)) => Op::Put(Put::decode(b)?.0),
                (3, Value::Bytes(b)) => Op::Delete(Delete::decode(b)?.0),
                (4, Value::Bytes(b)) => Op::Txn(Txn::decode(b)?.0),
                _ => continue,
            });
        }
        op
    }
}

impl Command {
    /// The body of a log entry: the command without header, with the operation's number in it.
    pub fn encode(&self, tag: u64) -> Vec<u8> {
        let (field, mut inner) = match self {
            Command::Put(p) => (PUT, Writer(p.encode())),
            Command::Delete(d) => (DELETE, Writer(d.encode())),
            Command::Txn(t) => (TXN, Writer(t.encode())),
            Command::Compact { revision, physical } => {
                let mut w = Writer::default();
                w.int(1, *revision).flag(2, *physical);
                (COMPACTION, w)
            }
            Command::Grant { id, ttl } => {
                let mut w = Writer::default();
                w.int(1, *ttl).int(2, *id);
                (GRANT, w)
            }
            Command::Revoke { id } => {
                let mut w = Writer::default();
                w.int(1, *id);
                (REVOKE, w)
            }
            Command::Alarm { action, member, kind } => {
                let mut w = Writer::default();
                w.int(1, *action).int(2, *member as i64).int(3, *kind);
                (ALARM, w)
            }
            Command::Users(change) => change.encode(),
            Command::Checkpoint { .. } | Command::Expire { .. } | Command::Nothing => {
                panic!("{self:?} is never sent by a client")
            }
        };
        inner.int(TAG, tag as i64);
        let mut body = Writer::default();
        body.message(field, &inner.0);
        body.0
    }
}

fn pairs(bytes: &[u8], list: u32) -> Option<(u64, Vec<(i64, u64)>)> {
    let (mut first, mut all) = (0, Vec::new());
    for (field, value) in fields(bytes)? {
        match value {
            Value::Bytes(b) if field == list => {
                let mut pair = (0, 0);
                for (field, value) in fields(b)? {
                    match (field, value) {
                        (1, Value::Varint(v)) => pair.0 = v as i64,
                        (2, Value::Varint(v)) => pair.1 = v,
                        _ => {}
                    }
                }
                all.push(pair);
            }
            Value::Varint(v) if field == 1 => first = v,
            _ => {}
        }
    }
    Some((first, all))
}

fn numbers(bytes: &[u8]) -> Option<([u64; 4], Option<u64>)> {
    let (mut all, mut tag) = ([0; 4], None);
    for (field, value) in fields(bytes)? {
        match (field, value) {
            (1..=3, Value::Varint(v)) => all[field as usize] = v,
            (TAG, Value::Varint(v)) => tag = Some(v),
            _ => {}
        }
    }
    Some((all, tag))
}

fn asker(bytes: &[u8]) -> Option<Asker> {
    let (mut name, mut revision) = (String::new(), 0);
    for (field, value) in fields(bytes)? {
        match (field, value) {
            (2, Value::Bytes(b)) => name = String::from_utf8(b.to_vec()).ok()?,
            (3, Value::Varint(v)) => revision = v,
            _ => {}
        }
    }
    Some(Asker::User { name, revision: Some(revision) })
}

/// Reads the data of a normal entry; None when this page does not know what it says.
pub fn decode(data: &[u8]) -> Option<Envelope> {
    let mut e =
        Envelope { command: Command::Nothing, tag: None, origin: None, asker: Asker::Nobody, lease_clock: None };
    for (field, value) in fields(data)? {
        match (field, value) {
            (PUT, Value::Bytes(b)) => {
                let (put, tag) = Put::decode(b)?;
                (e.command, e.tag) = (Command::Put(put), tag);
            }
            (DELETE, Value::Bytes(b)) => {
                let (delete, tag) = Delete::decode(b)?;
                (e.command, e.tag) = (Command::Delete(delete), tag);
            }
            (TXN, Value::Bytes(b)) => {
                let (txn, tag) = Txn::decode(b)?;
                (e.command, e.tag) = (Command::Txn(txn), tag);
            }
            (COMPACTION, Value::Bytes(b)) => {
                let (n, tag) = numbers(b)?;
                (e.command, e.tag) = (Command::Compact { revision: n[1] as i64, physical: n[2] != 0 }, tag);
            }
            (GRANT, Value::Bytes(b)) => {
                let (n, tag) = numbers(b)?;
                (e.command, e.tag) = (Command::Grant { ttl: n[1] as i64, id: n[2] as i64 }, tag);
            }
            (REVOKE, Value::Bytes(b)) => {
                let (n, tag) = numbers(b)?;
                (e.command, e.tag) = (Command::Revoke { id: n[1] as i64 }, tag);
            }
            (ALARM, Value::Bytes(b)) => {
                let (n, tag) = numbers(b)?;
                e.command = Command::Alarm { action: n[1] as i64, member: n[2], kind: n[3] as i64 };
                e.tag = tag;
            }
            (CHECKPOINT, Value::Bytes(b)) => {
                let remaining = pairs(b, 1)?.1.into_iter().map(|(id, left)| (id, left as i64)).collect();
                e.command = Command::Checkpoint { remaining };
            }
            (EXPIRE, Value::Bytes(b)) => {
                let (term, leases) = pairs(b, 2)?;
                e.command = Command::Expire { term, leases };
            }
            (ORIGIN, Value::Bytes(b)) => {
                let (n, _) = numbers(b)?;
                e.origin = Some(Origin { member: n[1], boot: n[2], seq: n[3] });
            }
            (LEASE_CLOCK, Value::Varint(v)) => e.lease_clock = Some(v),
            (OWN, Value::Varint(1)) => e.asker = Asker::Member,
            (HEADER, Value::Bytes(b)) => e.asker = asker(b)?,
            (CLUSTER_VERSION | MEMBER_ATTR | REFOUND, Value::Bytes(_)) => {}
            (field, Value::Bytes(b)) => {
                let (change, tag) = crate::users::Change::decode(field, b, TAG)?;
                (e.command, e.tag) = (Command::Users(change), tag);
            }
            _ => return None,
        }
    }
    Some(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_survives_its_bytes() {
        let put = Put { key: b"k".to_vec(), value: b"".to_vec(), lease: 7, prev_kv: true, ..Put::default() };
        let nested = Txn {
            compare: vec![Compare { target: 3, result: 3, key: b"a".to_vec(), ..Compare::default() }],
            success: vec![Op::Put(put.clone()), Op::Range(Range { key: b"x".to_vec(), limit: -1, ..Range::default() })],
            failure: vec![Op::Delete(Delete { key: vec![0], end: vec![0], prev_kv: true })],
        };
        let txn = Txn { compare: vec![], success: vec![Op::Txn(nested)], failure: vec![] };
        for command in [
            Command::Put(put),
            Command::Txn(txn),
            Command::Compact { revision: -3, physical: true },
            Command::Grant { id: 5, ttl: 9 },
            Command::Revoke { id: 5 },
        ] {
            let read = decode(&command.encode(77)).expect("well formed");
            assert_eq!((read.command, read.tag), (command, Some(77)));
        }
    }
}
