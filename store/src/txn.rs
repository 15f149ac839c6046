//! Transactions. Three steps, of which only the last changes anything: choose the path (every
//! compare, nested ones too, is asked about the state before), check what the operations on the
//! path rely on, execute them in order.

use crate::apply::{Batch, Kept, Stop, value_in};
use crate::command::{self, Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::index::Version;
use crate::state::Store;
use crate::{Error, Handle, KeyRange, OpReply, Query, RangeReply, Reply};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The operations that will run.
struct Path<'r, 'a> {
    succeeded: bool,
    steps: Vec<Step<'r, 'a>>,
}

enum Step<'r, 'a> {
    Range(&'r RangeRequest<'a>),
    /// With what it takes over by ignore flags.
    Put(&'r PutRequest<'a>, Kept),
    Delete(&'r DeleteRangeRequest<'a>),
    Txn(Path<'r, 'a>),
}

/// Answer to a transaction that only reads.
#[derive(Clone, Debug)]
pub enum TxnRead {
    /// The value of this record decides: call again with it among `fetched`.
    Needs(Handle),
    /// It is read.
    Done {
        /// Revision of the store when it was read.
        revision: i64,
        /// The answer, or what the user did wrong.
        result: Result<Reply, Error>,
    },
    /// A record is not what it must be.
    Damaged(String),
}

/// Where values outside of memory come from.
type Values<'f> = &'f dyn Fn(Handle) -> Result<Bytes, Stop>;

impl Store {
    pub(crate) fn apply_txn(&mut self, txn: &TxnRequest<'_>, batch: &mut Batch) -> Result<Reply, Stop> {
        command::check_txn(txn, i64::MAX)?;
        let path = self.plan(txn, &|handle| self.value_of(handle))?;
        Ok(self.run(path, batch))
    }

    /// A transaction of ranges alone ([`TxnRequest::is_read_only`]), outside the log. `body`: as
    /// for the log ([`command::encode_txn`]). `fetched`: whole records asked for before, by handle.
    ///
    /// # Errors
    /// `body` is no entry with a transaction.
    pub fn read_txn(&self, body: &[u8], fetched: &BTreeMap<Handle, Bytes>) -> Result<TxnRead, command::Malformed> {
        match command::decode(body)?.command {
            command::Command::Txn(txn) if txn.is_read_only() => Ok(self.read_only(&txn, fetched)),
            _ => Err(command::Malformed::new("not a transaction of ranges alone")),
        }
    }

    fn read_only(&self, txn: &TxnRequest<'_>, fetched: &BTreeMap<Handle, Bytes>) -> TxnRead {
        let done = |result| TxnRead::Done { revision: self.revision, result };
        let value = |handle: Handle| {
            let record = self.tail.get(handle).or_else(|| fetched.get(&handle).cloned());
            value_in(&record.ok_or(Stop::Needs(handle))?)
        };
        let checked = command::check_txn(txn, i64::MAX).map_err(Stop::User);
        match checked.and_then(|()| self.plan(txn, &value)) {
            Ok(path) => done(Ok(self.read(&path))),
            Err(Stop::User(error)) => done(Err(error)),
            Err(Stop::Needs(handle)) => TxnRead::Needs(handle),
            Err(Stop::Damaged(reason)) => TxnRead::Damaged(reason),
        }
    }

    fn read(&self, path: &Path<'_, '_>) -> Reply {
        let mut responses = Vec::new();
        for step in &path.steps {
            let Step::Range(range) = step else { panic!("ranges alone") };
            responses.push(self.run_range(range, self.revision));
        }
        Reply::Txn { succeeded: path.succeeded, responses }
    }

    fn plan<'r, 'a>(&self, txn: &'r TxnRequest<'a>, values: Values<'_>) -> Result<Path<'r, 'a>, Stop> {
        let mut path = self.choose(txn, values)?;
        self.check_path(&mut path, &mut Vec::new(), values)?;
        Ok(path)
    }

    fn choose<'r, 'a>(&self, txn: &'r TxnRequest<'a>, values: Values<'_>) -> Result<Path<'r, 'a>, Stop> {
        let mut succeeded = true;
        for compare in &txn.compare {
            if !self.holds(compare, values)? {
                succeeded = false;
                break;
            }
        }
        let branch = if succeeded { &txn.success } else { &txn.failure };
        let mut steps = Vec::with_capacity(branch.len());
        for op in branch {
            steps.push(match op {
                RequestOp::Range(range) => Step::Range(range),
                RequestOp::Put(put) => Step::Put(put, Kept::default()),
                RequestOp::DeleteRange(delete) => Step::Delete(delete),
                RequestOp::Txn(txn) => Step::Txn(self.choose(txn, values)?),
                RequestOp::None => return Err(Error::KeyNotFound.into()),
            });
        }
        Ok(Path { succeeded, steps })
    }

    /// `gone`: what the operations before delete. A put with ignore flags behind such a delete
    /// passes etcd's duplicate-key rule in one case (an end of `\0`), and there is nothing left to
    /// take over.
    fn check_path(&self, path: &mut Path<'_, '_>, gone: &mut Vec<KeyRange>, values: Values<'_>) -> Result<(), Stop> {
        for step in &mut path.steps {
            match step {
                Step::Range(range) => {
                    // In a transaction alone a negative revision is one before the compacted.
                    if range.revision < 0 && range.revision < self.compacted {
                        return Err(Error::Compacted.into());
                    }
                    self.walk(range.query())?;
                }
                Step::Put(put, kept) => {
                    if put.lease != 0 && self.leases.get(put.lease).is_none() {
                        return Err(Error::LeaseNotFound.into());
                    }
                    if put.ignore_value || put.ignore_lease {
                        if gone.iter().any(|range| range.contains(put.key)) {
                            return Err(Error::KeyNotFound.into());
                        }
                        *kept = self.kept_of(put, values)?;
                    }
                }
                Step::Delete(delete) => gone.push(delete.range()),
                Step::Txn(path) => self.check_path(path, gone, values)?,
            }
        }
        Ok(())
    }

    fn run(&mut self, path: Path<'_, '_>, batch: &mut Batch) -> Reply {
        let mut responses = Vec::with_capacity(path.steps.len());
        for step in path.steps {
            responses.push(match step {
                Step::Range(range) => self.run_range(range, batch.newest()),
                Step::Put(put, kept) => {
                    let prev = self.write_put(batch, put, kept);
                    OpReply { revision: batch.newest(), reply: Reply::Put { prev } }
                }
                Step::Delete(delete) => {
                    let reply = self.write_delete(batch, &delete.range(), delete.prev_kv);
                    OpReply { revision: batch.newest(), reply }
                }
                Step::Txn(path) => OpReply { revision: 0, reply: self.run(path, batch) },
            });
        }
        Reply::Txn { succeeded: path.succeeded, responses }
    }

    fn run_range(&self, range: &RangeRequest<'_>, newest: i64) -> OpReply {
        let query: Query = range.query();
        let mut walk = self.walk_at(query, newest).expect("checked before");
        let slice = self.advance(&mut walk, usize::MAX);
        let finished = slice.finished.expect("one slice takes all");
        let reply =
            RangeReply { query: walk.query().clone(), items: slice.items, count: finished.count, more: finished.more };
        OpReply { revision: newest, reply: Reply::Range(reply) }
    }

    /// Every key of the range must hold. No key at all counts as one missing key.
    fn holds(&self, compare: &Compare<'_>, values: Values<'_>) -> Result<bool, Stop> {
        let range = compare.range();
        let (mut found, mut all) = (false, Ok(true));
        self.keys.scan(&range, |key, entry| {
            if !entry.is_live() {
                return true;
            }
            found = true;
            all = holds_for(compare, key.len(), &entry.latest(), values);
            matches!(all, Ok(true))
        });
        if found {
            return all;
        }
        Ok(compare.target != VALUE && satisfied(compare.result, compare_numbers(compare, None)))
    }
}

const VALUE: i32 = 3;

fn holds_for(compare: &Compare<'_>, key_len: usize, latest: &Version, values: Values<'_>) -> Result<bool, Stop> {
    if compare.target != VALUE {
        return Ok(satisfied(compare.result, compare_numbers(compare, Some(latest))));
    }
    let operand = match compare.operand {
        Operand::Value(value) => value,
        _ => b"",
    };
    // different lengths: unequal, whatever the bytes are
    let same_length = latest.value_len(key_len) == operand.len();
    match compare.result {
        EQUAL if !same_length => return Ok(false),
        NOT_EQUAL if !same_length => return Ok(true),
        EQUAL | GREATER | LESS | NOT_EQUAL => {}
        _ => return Ok(true),
    }
    let value = values(latest.handle)?;
    Ok(satisfied(compare.result, value[..].cmp(operand)))
}

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const LESS: i32 = 2;
const NOT_EQUAL: i32 = 3;

/// An operator that does not exist holds always, as in etcd.
fn satisfied(result: i32, ordering: Ordering) -> bool {
    match result {
        EQUAL => ordering == Ordering::Equal,
        GREATER => ordering == Ordering::Greater,
        LESS => ordering == Ordering::Less,
        NOT_EQUAL => ordering != Ordering::Equal,
        _ => true,
    }
}

/// A missing key counts as zero everywhere; so does an operand that does not fit the target.
/// A target that does not exist counts as equal, as in etcd.
fn compare_numbers(compare: &Compare<'_>, version: Option<&Version>) -> Ordering {
    let of = |field: fn(&Version) -> i64| version.map_or(0, field);
    let (have, want) = match (compare.target, compare.operand) {
        (0, Operand::Version(want)) => (of(|v| v.version), want),
        (0, _) => (of(|v| v.version), 0),
        (1, Operand::Create(want)) => (of(|v| v.create), want),
        (1, _) => (of(|v| v.create), 0),
        (2, Operand::Mod(want)) => (of(|v| v.main), want),
        (2, _) => (of(|v| v.main), 0),
        (4, Operand::Lease(want)) => (of(|v| v.lease), want),
        (4, _) => (of(|v| v.lease), 0),
        _ => (0, 0),
    };
    have.cmp(&want)
}
