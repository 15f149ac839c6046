//! Clients' requests as the log carries them: borrowed decoding and canonical encoding. Decoding
//! also says whether a request is *plain* (known fields alone, each once), so that its bytes can be
//! spliced.

use crate::protobuf::{Fields, Malformed, Value, nested, write_bool, write_bytes, write_varint};
use crate::{KeyRange, Query, SortOrder, SortTarget};

/// Deepest nesting of transactions that is read. etcd's own bound (operations per transaction) is
/// lower by default; this one protects the stack.
const MAX_NESTING: u32 = 128;

/// Writes one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutRequest<'a> {
    /// The key; empty is refused.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Id of the lease that is to hold the key, 0 for none.
    pub lease: i64,
    /// Answer with the version before.
    pub prev_kv: bool,
    /// Keep the value that is there.
    pub ignore_value: bool,
    /// Keep the lease that is there.
    pub ignore_lease: bool,
}

/// Deletes the keys of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteRangeRequest<'a> {
    /// A key, or the first key of a range; empty is refused.
    pub key: &'a [u8],
    /// First key after the range. Empty: the one key; one zero byte: everything from the key on.
    pub range_end: &'a [u8],
    /// Answer with the versions before.
    pub prev_kv: bool,
}

/// Reads the keys of a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeRequest<'a> {
    /// A key, or the first key of a range; empty is refused.
    pub key: &'a [u8],
    /// First key after the range. Empty: the one key; one zero byte: everything from the key on.
    pub range_end: &'a [u8],
    /// Most keys of the answer; 0 or less is no limit.
    pub limit: i64,
    /// At which revision; 0 or less is the newest.
    pub revision: i64,
    /// 0 none, 1 ascending, 2 descending; others are refused.
    pub sort_order: i32,
    /// 0 key, 1 version, 2 create, 3 mod, 4 value; others are refused.
    pub sort_target: i32,
    /// Answer from this member without asking the others.
    pub serializable: bool,
    /// Leave the values out.
    pub keys_only: bool,
    /// Answer with the count alone.
    pub count_only: bool,
    /// Leave out what was last changed before this revision; 0 is no bound.
    pub min_mod: i64,
    /// Leave out what was last changed after this revision; 0 is no bound.
    pub max_mod: i64,
    /// Leave out what was created before this revision; 0 is no bound.
    pub min_create: i64,
    /// Leave out what was created after this revision; 0 is no bound.
    pub max_create: i64,
}

/// Compares, and does one of two lists of operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnRequest<'a> {
    /// The comparisons; none of them is a success.
    pub compare: Vec<Compare<'a>>,
    /// What is done when all of them hold.
    pub success: Vec<RequestOp<'a>>,
    /// What is done when one does not.
    pub failure: Vec<RequestOp<'a>>,
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOp<'a> {
    /// Reads a range.
    Range(RangeRequest<'a>),
    /// Writes a key.
    Put(PutRequest<'a>),
    /// Deletes the keys of a range.
    DeleteRange(DeleteRangeRequest<'a>),
    /// Runs a transaction in this one.
    Txn(TxnRequest<'a>),
    /// No request set: refused by [`crate::command::check_txn`].
    None,
}

/// One comparison of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compare<'a> {
    /// 0 equal, 1 greater, 2 less, 3 not equal; others hold always, as in etcd.
    pub result: i32,
    /// 0 version, 1 create, 2 mod, 3 value, 4 lease.
    pub target: i32,
    /// A key, or the first key of a range; empty is refused.
    pub key: &'a [u8],
    /// First key behind the range, for each key of which it must hold; as in a range.
    pub range_end: &'a [u8],
    /// What the key's own is compared with.
    pub operand: Operand<'a>,
}

/// The number or value a compare asks about. One that does not fit the target counts as zero or
/// empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operand<'a> {
    /// Nothing given.
    #[default]
    None,
    /// A number of changes.
    Version(i64),
    /// A create revision.
    Create(i64),
    /// Revision of a last change.
    Mod(i64),
    /// A value.
    Value(&'a [u8]),
    /// Id of a lease.
    Lease(i64),
}

/// Collects whether a request could be spliced as it is: known fields alone, each once.
struct Plain {
    yes: bool,
    seen: u64,
}

impl Plain {
    fn new() -> Plain {
        Plain { yes: true, seen: 0 }
    }

    fn once(&mut self, slot: u32) {
        self.yes &= self.seen & (1 << slot) == 0;
        self.seen |= 1 << slot;
    }
}

pub(crate) fn wrong<T>(message: &str, number: u32) -> Result<T, Malformed> {
    Err(Malformed::new(format!("{message}: field {number} has the wrong wire type")))
}

pub(crate) fn int(v: u64) -> i64 {
    v as i64
}

/// Protobuf enums and int32 keep the low 32 bits.
pub(crate) fn int32(v: u64) -> i32 {
    v as i32
}

pub(crate) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::new("text is not UTF-8"))
}

impl<'a> PutRequest<'a> {
    /// Reads the message. Unknown fields are ignored.
    ///
    /// # Errors
    /// A field has another wire type than the message's, or the bytes are cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<PutRequest<'a>, Malformed> {
        Self::read(bytes).map(|(request, _)| request)
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Result<(PutRequest<'a>, bool), Malformed> {
        let (mut put, mut plain) = (PutRequest::default(), Plain::new());
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, Value::Bytes(b)) => put.key = b,
                (2, Value::Bytes(b)) => put.value = b,
                (3, Value::Varint(v)) => put.lease = int(v),
                (4, Value::Varint(v)) => put.prev_kv = v != 0,
                (5, Value::Varint(v)) => put.ignore_value = v != 0,
                (6, Value::Varint(v)) => put.ignore_lease = v != 0,
                (1..=6, _) => return wrong("PutRequest", number),
                _ => plain.yes = false,
            }
            plain.once(number.min(63));
        }
        Ok((put, plain.yes))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_bytes(out, 1, self.key);
        write_bytes(out, 2, self.value);
        write_varint(out, 3, self.lease as u64);
        write_bool(out, 4, self.prev_kv);
        write_bool(out, 5, self.ignore_value);
        write_bool(out, 6, self.ignore_lease);
    }
}

impl<'a> DeleteRangeRequest<'a> {
    /// Reads the message. Unknown fields are ignored.
    ///
    /// # Errors
    /// A field has another wire type than the message's, or the bytes are cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<DeleteRangeRequest<'a>, Malformed> {
        Self::read(bytes).map(|(request, _)| request)
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Result<(DeleteRangeRequest<'a>, bool), Malformed> {
        let (mut delete, mut plain) = (DeleteRangeRequest::default(), Plain::new());
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, Value::Bytes(b)) => delete.key = b,
                (2, Value::Bytes(b)) => delete.range_end = b,
                (3, Value::Varint(v)) => delete.prev_kv = v != 0,
                (1..=3, _) => return wrong("DeleteRangeRequest", number),
                _ => plain.yes = false,
            }
            plain.once(number.min(63));
        }
        Ok((delete, plain.yes))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_bytes(out, 1, self.key);
        write_bytes(out, 2, self.range_end);
        write_bool(out, 3, self.prev_kv);
    }

    /// The keys that it is about.
    pub fn range(&self) -> KeyRange {
        KeyRange::new(self.key, self.range_end)
    }
}

impl<'a> RangeRequest<'a> {
    /// Reads the message. Unknown fields are ignored.
    ///
    /// # Errors
    /// A field has another wire type than the message's, or the bytes are cut short.
    pub fn decode(bytes: &'a [u8]) -> Result<RangeRequest<'a>, Malformed> {
        Self::read(bytes).map(|(request, _)| request)
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Result<(RangeRequest<'a>, bool), Malformed> {
        let (mut range, mut plain) = (RangeRequest::default(), Plain::new());
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, Value::Bytes(b)) => range.key = b,
                (2, Value::Bytes(b)) => range.range_end = b,
                (3, Value::Varint(v)) => range.limit = int(v),
                (4, Value::Varint(v)) => range.revision = int(v),
                (5, Value::Varint(v)) => range.sort_order = int32(v),
                (6, Value::Varint(v)) => range.sort_target = int32(v),
                (7, Value::Varint(v)) => range.serializable = v != 0,
                (8, Value::Varint(v)) => range.keys_only = v != 0,
                (9, Value::Varint(v)) => range.count_only = v != 0,
                (10, Value::Varint(v)) => range.min_mod = int(v),
                (11, Value::Varint(v)) => range.max_mod = int(v),
                (12, Value::Varint(v)) => range.min_create = int(v),
                (13, Value::Varint(v)) => range.max_create = int(v),
                (1..=13, _) => return wrong("RangeRequest", number),
                _ => plain.yes = false,
            }
            plain.once(number.min(63));
        }
        Ok((range, plain.yes))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_bytes(out, 1, self.key);
        write_bytes(out, 2, self.range_end);
        write_varint(out, 3, self.limit as u64);
        write_varint(out, 4, self.revision as u64);
        write_varint(out, 5, i64::from(self.sort_order) as u64);
        write_varint(out, 6, i64::from(self.sort_target) as u64);
        write_bool(out, 7, self.serializable);
        write_bool(out, 8, self.keys_only);
        write_bool(out, 9, self.count_only);
        write_varint(out, 10, self.min_mod as u64);
        write_varint(out, 11, self.max_mod as u64);
        write_varint(out, 12, self.min_create as u64);
        write_varint(out, 13, self.max_create as u64);
    }

    /// The query this request means. Sort options out of range count as none:
    /// [`crate::command::check_range`] refuses them.
    pub fn query(&self) -> Query {
        Query {
            range: KeyRange::new(self.key, self.range_end),
            revision: self.revision,
            limit: self.limit,
            order: match self.sort_order {
                1 => SortOrder::Ascend,
                2 => SortOrder::Descend,
                _ => SortOrder::None,
            },
            target: match self.sort_target {
                1 => SortTarget::Version,
                2 => SortTarget::Create,
                3 => SortTarget::Mod,
                4 => SortTarget::Value,
                _ => SortTarget::Key,
            },
            keys_only: self.keys_only,
            count_only: self.count_only,
            min_mod: self.min_mod,
            max_mod: self.max_mod,
            min_create: self.min_create,
            max_create: self.max_create,
        }
    }
}

impl<'a> TxnRequest<'a> {
    /// Reads the message. Unknown fields are ignored.
    ///
    /// # Errors
    /// A field has another wire type than the message's, or the bytes are cut short. Transactions
    /// nest too deep.
    pub fn decode(bytes: &'a [u8]) -> Result<TxnRequest<'a>, Malformed> {
        Self::read(bytes, 0).map(|(request, _)| request)
    }

    pub(crate) fn read(bytes: &'a [u8], depth: u32) -> Result<(TxnRequest<'a>, bool), Malformed> {
        if depth > MAX_NESTING {
            return Err(Malformed::new("transactions nest too deep"));
        }
        let (mut txn, mut plain) = (TxnRequest::default(), true);
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            match (number, value) {
                (1, Value::Bytes(b)) => {
                    let (compare, clean) = Compare::read(b)?;
                    txn.compare.push(compare);
                    plain &= clean;
                }
                (2 | 3, Value::Bytes(b)) => {
                    let (op, clean) = RequestOp::read(b, depth)?;
                    if number == 2 {
                        txn.success.push(op)
                    } else {
                        txn.failure.push(op)
                    }
                    plain &= clean;
                }
                (1..=3, _) => return wrong("TxnRequest", number),
                _ => plain = false,
            }
        }
        Ok((txn, plain))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for compare in &self.compare {
            nested(out, 1, |out| compare.encode(out));
        }
        for op in &self.success {
            nested(out, 2, |out| op.encode(out));
        }
        for op in &self.failure {
            nested(out, 3, |out| op.encode(out));
        }
    }

    /// Ranges alone in both branches and no nested transaction: need not be logged.
    pub fn is_read_only(&self) -> bool {
        self.success.iter().chain(&self.failure).all(|op| matches!(op, RequestOp::Range(_)))
    }

    /// Read only, and every range of both branches asks for a local read.
    pub fn is_serializable(&self) -> bool {
        let local = |op: &RequestOp<'_>| matches!(op, RequestOp::Range(range) if range.serializable);
        self.success.iter().chain(&self.failure).all(local)
    }
}

impl<'a> RequestOp<'a> {
    pub(crate) fn read(bytes: &'a [u8], depth: u32) -> Result<(RequestOp<'a>, bool), Malformed> {
        let (mut op, mut plain) = (RequestOp::None, Plain::new());
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            let (read, clean) = match (number, value) {
                (1, Value::Bytes(b)) => {
                    let (range, clean) = RangeRequest::read(b)?;
                    (RequestOp::Range(range), clean)
                }
                (2, Value::Bytes(b)) => {
                    let (put, clean) = PutRequest::read(b)?;
                    (RequestOp::Put(put), clean)
                }
                (3, Value::Bytes(b)) => {
                    let (delete, clean) = DeleteRangeRequest::read(b)?;
                    (RequestOp::DeleteRange(delete), clean)
                }
                (4, Value::Bytes(b)) => {
                    let (txn, clean) = TxnRequest::read(b, depth + 1)?;
                    (RequestOp::Txn(txn), clean)
                }
                (1..=4, _) => return wrong("RequestOp", number),
                _ => {
                    plain.yes = false;
                    continue;
                }
            };
            plain.once(0);
            plain.yes &= clean;
            op = read;
        }
        Ok((op, plain.yes))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            RequestOp::Range(range) => nested(out, 1, |out| range.encode(out)),
            RequestOp::Put(put) => nested(out, 2, |out| put.encode(out)),
            RequestOp::DeleteRange(delete) => nested(out, 3, |out| delete.encode(out)),
            RequestOp::Txn(txn) => nested(out, 4, |out| txn.encode(out)),
            RequestOp::None => {}
        }
    }
}

impl<'a> Compare<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<(Compare<'a>, bool), Malformed> {
        let (mut compare, mut plain) = (Compare::default(), Plain::new());
        let mut fields = Fields::new(bytes);
        while let Some((number, value)) = fields.next_field()? {
            // the operands are one choice: at most one of them in a plain message
            plain.once(if (4..=8).contains(&number) { 4 } else { number.min(63) });
            match (number, value) {
                (1, Value::Varint(v)) => compare.result = int32(v),
                (2, Value::Varint(v)) => compare.target = int32(v),
                (3, Value::Bytes(b)) => compare.key = b,
                (4, Value::Varint(v)) => compare.operand = Operand::Version(int(v)),
                (5, Value::Varint(v)) => compare.operand = Operand::Create(int(v)),
                (6, Value::Varint(v)) => compare.operand = Operand::Mod(int(v)),
                (7, Value::Bytes(b)) => compare.operand = Operand::Value(b),
                (8, Value::Varint(v)) => compare.operand = Operand::Lease(int(v)),
                (64, Value::Bytes(b)) => compare.range_end = b,
                (1..=8 | 64, _) => return wrong("Compare", number),
                _ => plain.yes = false,
            }
        }
        Ok((compare, plain.yes))
    }

    /// Appends the canonical proto3 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        write_varint(out, 1, i64::from(self.result) as u64);
        write_varint(out, 2, i64::from(self.target) as u64);
        write_bytes(out, 3, self.key);
        match self.operand {
            Operand::None => {}
            Operand::Version(v) => write_varint(out, 4, v as u64),
            Operand::Create(v) => write_varint(out, 5, v as u64),
            Operand::Mod(v) => write_varint(out, 6, v as u64),
            Operand::Value(v) => write_bytes(out, 7, v),
            Operand::Lease(v) => write_varint(out, 8, v as u64),
        }
        write_bytes(out, 64, self.range_end);
    }

    /// The keys that it is about.
    pub fn range(&self) -> KeyRange {
        KeyRange::new(self.key, self.range_end)
    }
}
