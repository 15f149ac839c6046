//! What is wrong with a request by itself, in etcd's order of checks. Called at the edge before
//! the log, and again in apply, so that an entry from anywhere is safe to execute.

use crate::auth::Intervals;
use crate::command::{DeleteRangeRequest, PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::{Error, KeyRange};
use std::collections::BTreeSet;

/// Checks a range.
///
/// # Errors
/// [`Error::EmptyKey`] or [`Error::InvalidSortOption`].
pub fn check_range(range: &RangeRequest<'_>) -> Result<(), Error> {
    if range.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if !(0..=2).contains(&range.sort_order) || !(0..=4).contains(&range.sort_target) {
        return Err(Error::InvalidSortOption);
    }
    Ok(())
}

/// Checks a put.
///
/// # Errors
/// [`Error::EmptyKey`], [`Error::ValueProvided`] or [`Error::LeaseProvided`].
pub fn check_put(put: &PutRequest<'_>) -> Result<(), Error> {
    if put.key.is_empty() {
        return Err(Error::EmptyKey);
    }
    if put.ignore_value && !put.value.is_empty() {
        return Err(Error::ValueProvided);
    }
    if put.ignore_lease && put.lease != 0 {
        return Err(Error::LeaseProvided);
    }
    Ok(())
}

/// Checks the deletion of a range.
///
/// # Errors
/// [`Error::EmptyKey`].
pub fn check_delete(delete: &DeleteRangeRequest<'_>) -> Result<(), Error> {
    if delete.key.is_empty() { Err(Error::EmptyKey) } else { Ok(()) }
}

/// Compares and operations of a whole transaction, nested ones included, in lists of the largest
/// length. The bound of a list, as etcd has it, allows as many as fit into a request.
const LISTS: i64 = 16;

/// `max_ops` is the member's flag; apply passes `i64::MAX`.
///
/// # Errors
/// The error of its first operation that is wrong; [`Error::TooManyOps`], or
/// [`Error::DuplicateKey`].
pub fn check_txn(txn: &TxnRequest<'_>, max_ops: i64) -> Result<(), Error> {
    check_ops(txn, max_ops)?;
    if count(txn) > max_ops.saturating_mul(LISTS) {
        return Err(Error::TooManyOps);
    }
    intervals(&txn.success)?;
    intervals(&txn.failure)?;
    Ok(())
}

/// Sizes, keys and operations, one by one; a nested transaction gets what its parent left over.
fn check_ops(txn: &TxnRequest<'_>, max_ops: i64) -> Result<(), Error> {
    let widest = txn.compare.len().max(txn.success.len()).max(txn.failure.len()) as i64;
    if widest > max_ops {
        return Err(Error::TooManyOps);
    }
    if txn.compare.iter().any(|compare| compare.key.is_empty()) {
        return Err(Error::EmptyKey);
    }
    for op in txn.success.iter().chain(&txn.failure) {
        match op {
            RequestOp::Range(range) => check_range(range)?,
            RequestOp::Put(put) => check_put(put)?,
            RequestOp::DeleteRange(delete) => check_delete(delete)?,
            RequestOp::Txn(txn) => check_ops(txn, max_ops - widest)?,
            RequestOp::None => return Err(Error::KeyNotFound),
        }
    }
    Ok(())
}

/// Compares and operations at every depth.
fn count(txn: &TxnRequest<'_>) -> i64 {
    let of = |op: &RequestOp<'_>| match op {
        RequestOp::Txn(txn) => 1 + count(txn),
        _ => 1,
    };
    txn.compare.len() as i64 + txn.success.iter().chain(&txn.failure).map(of).sum::<i64>()
}

/// What a branch writes, for the duplicate-key rule.
#[derive(Default)]
struct Writes<'a> {
    puts: BTreeSet<&'a [u8]>,
    deletes: Intervals,
}

impl<'a> Writes<'a> {
    /// Adds what one branch of a nested transaction writes.
    fn join(&mut self, mut others: Writes<'a>) {
        if others.puts.len() > self.puts.len() {
            std::mem::swap(&mut self.puts, &mut others.puts);
        }
        self.puts.extend(others.puts);
        self.deletes.join(others.deletes);
    }
}

/// etcd's quirk: an end of `\0` (from a key on) counts here as the literal interval
/// `[key, "\0")`, which is empty.
fn literal(delete: &DeleteRangeRequest<'_>) -> Option<KeyRange> {
    (delete.range_end != b"\0").then(|| delete.range())
}

/// Refuses a branch that puts a key twice or puts a key it deletes. The two branches of a nested
/// transaction exclude each other. As in etcd, puts of a nested transaction are held against
/// deletes of its parent and of the nested transactions before it.
fn intervals<'a>(ops: &[RequestOp<'a>]) -> Result<Writes<'a>, Error> {
    let mut writes = Writes::default();
    for op in ops {
        if let RequestOp::DeleteRange(delete) = op {
            literal(delete).iter().for_each(|range| writes.deletes.add(range));
        }
    }
    for op in ops {
        if let RequestOp::Txn(txn) = op {
            let success = intervals(&txn.success)?;
            let failure = intervals(&txn.failure)?;
            for key in success.puts.union(&failure.puts) {
                if writes.puts.contains(key) || writes.deletes.contain(key) {
                    return Err(Error::DuplicateKey);
                }
            }
            writes.join(success);
            writes.join(failure);
        }
    }
    for op in ops {
        if let RequestOp::Put(put) = op
            && (writes.deletes.contain(put.key) || !writes.puts.insert(put.key))
        {
            return Err(Error::DuplicateKey);
        }
    }
    Ok(writes)
}
