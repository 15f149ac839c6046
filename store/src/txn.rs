//! Transactions. Three steps, of which only the last changes anything: choose the path (every
//! compare, nested ones too, is asked about the state before), check what the operations on the
//! path rely on, execute them in order.

use crate::apply::{Batch, Kept, Stop};
use crate::auth::Intervals;
use crate::command::{self, Compare, DeleteRangeRequest, Operand, PutRequest, RangeRequest, RequestOp, TxnRequest};
use crate::index::Version;
use crate::parked::{Chosen, Look, Parked, Place, Step};
use crate::ranges::Ranges;
use crate::state::Store;
use crate::{Error, OpReply, Reply};
use bytes::Bytes;
use std::cmp::Ordering;

/// The operations that will run.
struct Path<'r, 'a> {
    succeeded: bool,
    steps: Vec<Do<'r, 'a>>,
}

enum Do<'r, 'a> {
    Range(&'r RangeRequest<'a>),
    /// With what it takes over by ignore flags.
    Put(&'r PutRequest<'a>, Kept),
    Delete(&'r DeleteRangeRequest<'a>),
    Txn(Path<'r, 'a>),
}

/// Answer to a transaction that only reads.
#[derive(Clone, Debug)]
pub enum TxnRead {
    /// Values in files decide, or more keys than one step may look at. The log decides it.
    Needs,
    /// It is read.
    Done {
        /// Revision of the store when it was read.
        revision: i64,
        /// The answer, or what the user did wrong. Not whole if `holds` is there.
        result: Result<Reply, Error>,
        /// As in [`crate::Applied`].
        holds: Option<i64>,
    },
    /// A record is not what it must be.
    Damaged(String),
}

impl Store {
    pub(crate) fn apply_txn(
        &mut self,
        txn: &TxnRequest<'_>,
        batch: &mut Batch,
        step: &mut Step,
    ) -> Result<Reply, Stop> {
        command::check_txn(txn, i64::MAX)?;
        let path = self.look(step, |look| plan(txn, look))?;
        let reply = self.run(path, batch, step);
        Ok(reply)
    }

    /// Looks at what is known of the entry that is to be applied, and at the state.
    pub(crate) fn look<T>(&mut self, step: &mut Step, at: impl FnOnce(Look<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        let mut parked = std::mem::take(&mut self.parked);
        let seen = at(Look::new(self, &mut parked, step));
        self.parked = parked;
        seen
    }

    /// A transaction of ranges alone ([`TxnRequest::is_read_only`]), outside the log. `body`: as
    /// for the log ([`command::encode_txn`]).
    ///
    /// # Errors
    /// `body` is no entry with a transaction.
    pub fn read_txn(&self, body: &[u8], step: &mut Step) -> Result<TxnRead, command::Malformed> {
        match command::decode(body)?.command {
            command::Command::Txn(txn) if txn.is_read_only() => Ok(self.read_only(&txn, step)),
            _ => Err(command::Malformed::new("not a transaction of ranges alone")),
        }
    }

    fn read_only(&self, txn: &TxnRequest<'_>, step: &mut Step) -> TxnRead {
        let done = |result, holds| TxnRead::Done { revision: self.revision, result, holds };
        let checked = command::check_txn(txn, i64::MAX).map_err(Stop::User);
        let planned = checked.and_then(|()| plan(txn, Look::new(self, &mut Parked::default(), step)));
        match planned {
            Ok(path) => {
                let mut ranges = Ranges::in_steps();
                let reply = self.read(&path, step, &mut ranges);
                done(Ok(reply), ranges.holds())
            }
            Err(Stop::User(error)) => done(Err(error), None),
            Err(Stop::Needs(_) | Stop::Pause) => TxnRead::Needs,
            Err(Stop::Damaged(reason)) => TxnRead::Damaged(reason),
        }
    }

    fn read(&self, path: &Path<'_, '_>, step: &mut Step, ranges: &mut Ranges) -> Reply {
        let mut responses = Vec::new();
        for one in &path.steps {
            let Do::Range(range) = one else { panic!("ranges alone") };
            responses.push(self.run_range(range, self.revision, None, step, ranges));
        }
        Reply::Txn { succeeded: path.succeeded, responses }
    }

    fn run(&mut self, path: Path<'_, '_>, batch: &mut Batch, step: &mut Step) -> Reply {
        let mut responses = Vec::with_capacity(path.steps.len());
        for one in path.steps {
            responses.push(match one {
                Do::Range(range) => {
                    let (newest, before) = (batch.newest(), batch.next_rev());
                    self.run_range(range, newest, before, step, &mut batch.ranges)
                }
                Do::Put(put, kept) => {
                    let prev = self.write_put(batch, put, kept);
                    OpReply { revision: batch.newest(), reply: Reply::Put { prev } }
                }
                Do::Delete(delete) => {
                    let reply = self.write_delete(batch, &delete.range(), delete.prev_kv);
                    OpReply { revision: batch.newest(), reply }
                }
                Do::Txn(path) => OpReply { revision: 0, reply: self.run(path, batch, step) },
            });
        }
        Reply::Txn { succeeded: path.succeeded, responses }
    }
}

fn plan<'r, 'a>(txn: &'r TxnRequest<'a>, mut look: Look<'_>) -> Result<Path<'r, 'a>, Stop> {
    let Some(mut path) = choose(txn, &mut 0, &mut look)? else { return Err(look.stop()) };
    // What was asked for ahead is not needed.
    look.want_nothing();
    check_path(&mut path, &mut Intervals::default(), &mut look)?;
    if look.wants_nothing() { Ok(path) } else { Err(look.stop()) }
}

/// `number`: of this transaction, among all of the entry. None: it is not decided yet; what else
/// will be needed is asked for along with it.
fn choose<'r, 'a>(
    txn: &'r TxnRequest<'a>,
    number: &mut usize,
    look: &mut Look<'_>,
) -> Result<Option<Path<'r, 'a>>, Stop> {
    let this = *number;
    *number += 1;
    let succeeded = decide(txn, this, look)?;
    let mut steps = succeeded.map(|succeeded| {
        let branch = if succeeded { &txn.success } else { &txn.failure };
        Vec::with_capacity(branch.len())
    });
    for (is_success, branch) in [(true, &txn.success), (false, &txn.failure)] {
        if succeeded != Some(is_success) {
            pass_over(branch, number);
            continue;
        }
        for op in branch {
            let step = match op {
                RequestOp::Range(range) => Some(Do::Range(range)),
                RequestOp::Put(put) => Some(Do::Put(put, Kept::default())),
                RequestOp::DeleteRange(delete) => Some(Do::Delete(delete)),
                RequestOp::Txn(txn) => choose(txn, number, look)?.map(Do::Txn),
                RequestOp::None => return Err(Error::KeyNotFound.into()),
            };
            steps = steps.zip(step).map(|(mut steps, step)| {
                steps.push(step);
                steps
            });
        }
    }
    Ok(succeeded.zip(steps).map(|(succeeded, steps)| Path { succeeded, steps }))
}

/// Transactions that are not chosen, or not yet, keep their numbers.
fn pass_over(branch: &[RequestOp<'_>], number: &mut usize) {
    for op in branch {
        if let RequestOp::Txn(txn) = op {
            *number += 1;
            pass_over(&txn.success, number);
            pass_over(&txn.failure, number);
        }
    }
}

/// Whether every compare holds. None: records are awaited, or this call has done enough.
fn decide(txn: &TxnRequest<'_>, number: usize, look: &mut Look<'_>) -> Result<Option<bool>, Stop> {
    if txn.compare.is_empty() {
        return Ok(Some(true));
    }
    let mut chosen = look.chosen(number);
    if chosen.succeeded.is_none() && !look.is_over() {
        go_on(&txn.compare, &mut chosen, look)?;
    }
    let succeeded = chosen.succeeded;
    look.choose(number, chosen);
    Ok(succeeded)
}

/// Goes on with the first compare that is open; of those behind it, records are asked for.
fn go_on(compares: &[Compare<'_>], chosen: &mut Chosen, look: &mut Look<'_>) -> Result<(), Stop> {
    let mut open = false;
    for compare in &compares[chosen.hold..] {
        let from = chosen.at.take_if(|_| !open);
        match holds(compare, from, look)? {
            Held::Yes if open => {}
            Held::Yes => chosen.hold += 1,
            Held::No => {
                chosen.succeeded = Some(false);
                return Ok(());
            }
            Held::Open(at) => {
                if !open {
                    chosen.at = Some(at);
                }
                open = true;
                if look.is_over() {
                    break;
                }
            }
        }
    }
    if !open {
        chosen.succeeded = Some(true);
    }
    Ok(())
}

/// `gone`: what the operations before delete. A put with ignore flags behind such a delete
/// passes etcd's duplicate-key rule in one case (an end of `\0`), and there is nothing left to
/// take over.
fn check_path(path: &mut Path<'_, '_>, gone: &mut Intervals, look: &mut Look<'_>) -> Result<(), Stop> {
    let store = look.store();
    for step in &mut path.steps {
        if look.is_full() {
            return Ok(());
        }
        match step {
            Do::Range(range) => {
                // In a transaction alone a negative revision is one before the compacted.
                if range.revision < 0 && range.revision < store.compacted {
                    return Err(Error::Compacted.into());
                }
                store.revision_for(range.revision, store.revision)?;
            }
            Do::Put(put, kept) => {
                if put.lease != 0 && store.leases.get(put.lease).is_none() {
                    return Err(Error::LeaseNotFound.into());
                }
                if put.ignore_value || put.ignore_lease {
                    if gone.contain(put.key) {
                        return Err(Error::KeyNotFound.into());
                    }
                    *kept = look.kept_of(put)?;
                }
            }
            Do::Delete(delete) => gone.add(&delete.range()),
            Do::Txn(path) => check_path(path, gone, look)?,
        }
    }
    Ok(())
}

/// What is known of one compare.
enum Held {
    Yes,
    No,
    /// The keys below this place hold.
    Open(Place),
}

/// Every key of the range must hold. No key at all counts as one missing key.
fn holds(compare: &Compare<'_>, from: Option<Place>, look: &mut Look<'_>) -> Result<Held, Stop> {
    let mut range = compare.range();
    let mut found = false;
    if let Some(place) = from {
        (range.key, found) = (place.key, place.found);
    }
    let (mut open, mut failed) = (None, Ok(false));
    look.store().keys.scan(&range, |key, entry| {
        let place = |found| Place { key: Bytes::copy_from_slice(key), found };
        if !look.key() {
            open.get_or_insert_with(|| place(found));
            return false;
        }
        if !entry.is_live() {
            return true;
        }
        match holds_for(compare, key.len(), &entry.latest(), look) {
            Ok(Some(holds)) => failed = Ok(!holds),
            Ok(None) => {
                open.get_or_insert_with(|| place(found));
            }
            Err(stop) => failed = Err(stop),
        }
        found = true;
        matches!(failed, Ok(false)) && !look.is_full()
    });
    if failed? {
        return Ok(Held::No);
    }
    Ok(match open {
        Some(place) => Held::Open(place),
        None if found || missing_holds(compare) => Held::Yes,
        None => Held::No,
    })
}

fn missing_holds(compare: &Compare<'_>) -> bool {
    compare.target != VALUE && satisfied(compare.result, compare_numbers(compare, None))
}

const VALUE: i32 = 3;

/// None: the value decides, and it is not in memory.
fn holds_for(
    compare: &Compare<'_>,
    key_len: usize,
    latest: &Version,
    look: &mut Look<'_>,
) -> Result<Option<bool>, Stop> {
    if compare.target != VALUE {
        return Ok(Some(satisfied(compare.result, compare_numbers(compare, Some(latest)))));
    }
    let operand = match compare.operand {
        Operand::Value(value) => value,
        _ => b"",
    };
    // different lengths: unequal, whatever the bytes are
    let same_length = latest.value_len(key_len) == operand.len();
    match compare.result {
        EQUAL if !same_length => return Ok(Some(false)),
        NOT_EQUAL if !same_length => return Ok(Some(true)),
        EQUAL | GREATER | LESS | NOT_EQUAL => {}
        _ => return Ok(Some(true)),
    }
    let value = look.value(latest.handle)?;
    Ok(value.map(|value| satisfied(compare.result, value[..].cmp(operand))))
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
